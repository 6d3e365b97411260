"""Weights are swapped between rounds, for the right parent only, and never by halves."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from children import child, eventually
from learned_weights import NAME, RUNNING, changed, learned, put

from helpers.live import Task, ToyCluster
from rota.learn import checkpoint
from rota.learn.live_weights import OFFERED, REFUSED, TAKEN, LiveWeights, running_file
from rota.learn.live_weights import RUNNING as KEPT
from rota.learn.verdict import short
from rota.run.guard import Guard
from rota.run.journal import Journal
from rota.run.loop import rounds
from rota.run.reader import read_journal
from rota.run.recorder import Recorder
from rota.systems.registry import trained

if TYPE_CHECKING:
    from rota.learn.checkpoint import Checkpoint

NEW = learned(RUNNING)
OLD_SHORT, NEW_SHORT = short(RUNNING.digest), short(NEW.digest)


class Heard:
    """What a daemon said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def __call__(self, text: str, *, trouble: bool = False) -> None:
        del trouble
        self.said.append(text)


def live(folder: Path, heard: Heard | None = None) -> LiveWeights:
    return LiveWeights(NAME, trained()[NAME], "", folder, heard or Heard())


def test_what_is_not_worse_decides_from_the_next_round_on_and_after_a_restart(
    tmp_path: Path,
) -> None:
    heard = Heard()
    policy = live(tmp_path, heard)
    policy.refresh()
    assert policy.weights == OLD_SHORT
    put(tmp_path / OFFERED, NEW)
    policy.refresh()
    policy.refresh()
    assert (policy.weights, policy.name) == (NEW_SHORT, NAME)
    assert heard.said == [
        f"dl2-queue learned: weights {NEW_SHORT} in place of {OLD_SHORT}; mean JCT -10.0% on 6 "
        "held-out stretches of its journal"
    ]
    assert [path.name for path in tmp_path.iterdir()] == [KEPT]
    assert live(tmp_path).weights == NEW_SHORT

    after = learned(NEW)
    put(tmp_path / OFFERED, after)
    policy.refresh()
    assert policy.weights == short(after.digest)
    assert live(tmp_path).weights == short(after.digest)


def test_what_was_learned_from_other_weights_is_left_aside_at_the_start(tmp_path: Path) -> None:
    heard = Heard()
    put(tmp_path / KEPT, learned(checkpoint.load(trained()["dl2-shared"])))
    assert live(tmp_path, heard).weights == OLD_SHORT
    assert "was not learned from" in heard.said[0]
    (tmp_path / KEPT).write_bytes(b"\0" * 100)
    assert live(tmp_path).weights == OLD_SHORT


def test_one_may_begin_with_what_runs(tmp_path: Path) -> None:
    heard = Heard()
    put(tmp_path / KEPT, NEW)
    assert running_file(tmp_path / KEPT, tmp_path, heard) == tmp_path / KEPT
    assert not heard.said


@pytest.mark.parametrize(
    ("offered", "why"),
    [
        (learned(NEW), "compared with the weights"),
        (RUNNING, "nothing says"),
        (learned(RUNNING, 0.02), "found worse"),
        (changed(NEW, digest="0"), "damaged"),
        (checkpoint.load(trained()["deepshare"]), "of deepshare"),
    ],
)
def test_anything_else_is_refused_once_and_put_aside(
    tmp_path: Path, offered: Checkpoint, why: str
) -> None:
    heard = Heard()
    policy = live(tmp_path, heard)
    put(tmp_path / OFFERED, offered)
    policy.refresh()
    policy.refresh()
    assert policy.weights == OLD_SHORT
    assert len(heard.said) == 1
    assert why in heard.said[0]
    assert [path.name for path in tmp_path.iterdir()] == [REFUSED]


@pytest.mark.parametrize("damage", ["cut", "empty", "bit", "folder", "text"])
def test_damaged_and_foreign_files_are_refused(tmp_path: Path, damage: str) -> None:
    heard = Heard()
    policy = live(tmp_path, heard)
    path = tmp_path / OFFERED
    put(path, NEW)
    whole = path.read_bytes()
    if damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        flipped = bytearray(whole)
        flipped[-5] ^= 1
        path.write_bytes({"cut": whole[:-100], "empty": b"", "bit": bytes(flipped),
                          "text": b"no weights"}[damage])  # fmt: skip
    policy.refresh()
    assert policy.weights == OLD_SHORT
    assert len(heard.said) == 1
    assert not path.exists()


def test_what_cannot_even_be_put_aside_is_named_once(tmp_path: Path) -> None:
    heard = Heard()
    running = live(tmp_path, heard)
    (tmp_path / REFUSED).touch()
    (tmp_path / OFFERED).mkdir()
    for _ in range(3):
        running.refresh()
    (said,) = heard.said
    assert "is not taken" in said
    assert "taken.ckpt cannot be put aside: Not a directory; remove it" in said


def test_a_kill_between_two_renames_leaves_old_weights_and_the_new_are_taken_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = live(tmp_path)
    put(tmp_path / OFFERED, NEW)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            policy.refresh()
    assert [path.name for path in tmp_path.iterdir()] == [TAKEN]
    assert policy.weights == OLD_SHORT
    again = live(tmp_path)
    assert again.weights == OLD_SHORT
    again.refresh()
    assert again.weights == NEW_SHORT


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
from learned_weights import RUNNING, learned, put
new = learned(RUNNING)
while True:
    put(Path({path!r}), new)
"""


def test_a_writer_that_is_killed_leaves_a_whole_file_or_none(tmp_path: Path) -> None:
    path = tmp_path / OFFERED
    script = WRITER.format(here=str(Path(__file__).parents[1] / "helpers"), path=str(path))
    for wait in range(3):
        with child([sys.executable, "-c", script], stderr=subprocess.DEVNULL) as process:
            eventually(path.exists, lambda: "it writes")
            for _ in range(10 * wait):
                path.stat()
            process.send_signal(signal.SIGKILL)
            process.wait()
        policy = live(tmp_path)
        policy.refresh()
        assert policy.weights == NEW_SHORT
        (tmp_path / KEPT).unlink()


def test_the_journal_says_which_weights_decided_each_round(tmp_path: Path) -> None:
    backend = ToyCluster([Task(k, 3, 1 + k % 3) for k in range(8)])
    policy = live(tmp_path)
    journal_path = tmp_path / "run.db"
    with Journal.create(journal_path, meta={"policy": NAME, "total_gpus": 8}) as journal:
        recorder = Recorder(journal, backend)
        for turn in rounds(policy, backend, guard=Guard()):
            assert turn.by == NAME
            recorder.write(turn)
            if turn.number == 4:
                put(tmp_path / OFFERED, NEW)
    with read_journal(journal_path) as view:
        first, second = view.weights()
        notes = view.notes().values()
    assert (first.weights, second.weights) == (OLD_SHORT, NEW_SHORT)
    assert first.rounds + second.rounds == len(notes)
    assert first.until_s < second.from_s
    assert all("weights" in note for note in notes)


def test_a_journal_without_weights_names_none(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "run.db", meta={"policy": "srtf", "total_gpus": 8}):
        pass
    with read_journal(tmp_path / "run.db") as view:
        assert view.weights() == []
