"""`rota learn`: from a journal to weights that may take over, or an honest refusal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from learned_weights import NAME, learned, put
from learned_weights import RUNNING as OLD
from small_training import small_trainer

from helpers.live import Task, ToyCluster
from rota.cli.app import run
from rota.cli.daemon_loop import Speaker, drive, learning
from rota.learn import checkpoint
from rota.learn.live_weights import OFFERED, RUNNING, LiveWeights
from rota.learn.verdict import short
from rota.policies import make_policy
from rota.run.guard import Guard
from rota.run.journal import Journal
from rota.run.last_round import Deciders
from rota.run.loop import rounds
from rota.run.reader import read_journal
from rota.run.recorder import Recorder
from rota.systems.registry import trained

if TYPE_CHECKING:
    from pathlib import Path

LITTLE = ["--set", "run.updates=2", "--set", "world.clusters=4"]


def lived(folder: Path, jobs: int) -> tuple[Path, LiveWeights]:
    """The journal of jobs that have run under a network on eight GPUs, and that policy."""
    rng = np.random.default_rng(0)
    tasks = [Task(2.0 * k, float(rng.integers(2, 20)), int(rng.integers(1, 5)))
             for k in range(jobs)]  # fmt: skip
    backend = ToyCluster(tasks)
    policy = LiveWeights("dl2-queue", trained()["dl2-queue"], "", folder, lambda *_, **__: None)
    cluster = {"names": list(backend.cluster.names), "gpus": backend.cluster.gpus.tolist()}
    meta = {"policy": "dl2-queue", "total_gpus": 8, "cluster": cluster, "began_at": 0.0}
    with Journal.create(folder / "journal.db", meta=meta) as journal:
        recorder = Recorder(journal, backend)
        for turn in rounds(policy, backend, guard=Guard()):
            recorder.write(turn)
        recorder.close(backend.now_s)
    return folder / "journal.db", policy


def test_learns_from_a_live_journal_and_keeps_only_what_may_take_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal, policy = lived(tmp_path, 54)
    words = ["learn", "dl2-queue", "--from", str(journal), "--stretch", "3", *LITTLE]
    assert run([*words, "--json"]) == 0
    shown = capsys.readouterr()
    assert "54 jobs in 18 stretches: 9 to learn from, 3 to choose by, 6 to judge by" in shown.err
    facts = json.loads(shown.out)
    assert facts["running"].startswith(policy.weights)
    assert facts["held_out"] == 6
    offered = tmp_path / OFFERED
    assert facts["checkpoint"] == (str(offered) if facts["not_worse"] else None)
    assert offered.exists() is bool(facts["not_worse"])


class Offering(ToyCluster):
    """A backend for a daemon; new weights are offered in its first round."""

    stopped = False
    folder: Path

    def remark(self, *_: object) -> None:
        if self.now_s == 0:
            put(self.folder / OFFERED, learned(OLD))

    def note_waits(self, *_: object) -> None:
        pass

    def stop(self) -> None:
        pass

    def call(self, uid: int) -> str:
        return str(uid)


def test_the_next_round_of_a_daemon_is_decided_by_new_weights(tmp_path: Path) -> None:
    backend, say = Offering([Task(k, 3, 1) for k in range(4)]), Speaker(quiet=True)
    backend.folder = tmp_path
    policy = learning(make_policy(NAME), NAME, tmp_path, say)
    with Journal.create(tmp_path / "run.db", meta={"policy": NAME, "total_gpus": 8}) as journal:
        drive(policy, backend, Guard(), Recorder(journal, backend), say, Deciders(NAME))
    with read_journal(tmp_path / "run.db") as view:
        first, second = view.weights()
    assert (first.weights, first.rounds) == (short(OLD.digest), 1)
    assert second.weights == short(learned(OLD).digest)


def test_a_policy_without_weights_is_left_as_it_is(tmp_path: Path) -> None:
    policy = make_policy("srtf")
    assert learning(policy, "srtf", tmp_path, Speaker(quiet=True)) is policy


def test_untrained_weights_gain_and_take_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = small_trainer(tmp_path, "run.updates=1", "run.validate_every=1")
    trainer.run()
    start = trainer.folder / "best.ckpt"
    log = tmp_path / "run.db"
    world = tmp_path / "world.toml"
    world.write_text(
        'version = 1\nabout = "more jobs"\nbase = "dl2-testbed"\n[workload]\njobs = 90\n'
    )
    known = ["simulate", "--scenario", str(world), "--seed", "3000", "-p", "fifo"]
    assert run([*known, "--journal", str(log)]) == 0
    capsys.readouterr()
    words = ["learn", str(start), "--from", str(log), "--stretch", "5", "--scenario", str(world)]
    assert run([*words, "--set", "run.updates=15", "--set", "ppo.learning_rate=0.003"]) == 0
    said = capsys.readouterr().out
    assert "mean JCT of held-out stretches" in said
    assert "not worse: mean JCT -" in said
    found = checkpoint.load(tmp_path / OFFERED)
    verdict = found.about.verdict
    assert verdict["parent"] == verdict["origin"] == checkpoint.load(start).digest
    assert verdict["change"] < 0
    heard: list[str] = []
    policy = LiveWeights(str(start), start, "", tmp_path, lambda text, **_: heard.append(text))
    policy.refresh()
    assert policy.weights == short(found.digest)

    # The next learning begins with what runs now.
    assert run([*words, "--set", "run.updates=1", "--json"]) == 0
    shown = capsys.readouterr()
    assert f"learns on from {tmp_path / RUNNING}" in shown.err
    assert json.loads(shown.out)["running"] == found.digest


def test_a_journal_with_too_few_jobs_is_refused_with_the_number_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal, _ = lived(tmp_path, 5)
    assert run(["learn", "dl2-queue", "--from", str(journal), "--stretch", "2"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "5 jobs have run and are over, which makes 2 stretches of 2; 18 are needed" in said


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["srtf"], "No trained policy (or PATH.ckpt) is called 'srtf'"),
        (["dl2-queue", "--out", "x.bin"], "must end in .ckpt"),
        (["dl2-queue", "--time-limit", "0"], "--time-limit must be above 0"),
        (["dl2-queue", "--set", "run.nothing=1"], "nothing"),
    ],
)
def test_what_cannot_be_done_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    journal = tmp_path / "journal.db"
    with Journal.create(journal, meta={"policy": "dl2-queue", "total_gpus": 8}):
        pass
    assert run(["learn", *words, "--from", str(journal)]) == 2
    assert why in " ".join(capsys.readouterr().err.split())


def test_a_report_names_the_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal, policy = lived(tmp_path, 3)
    with read_journal(journal) as view:
        assert [one.weights for one in view.weights()] == [policy.weights]
    assert run(["report", str(journal), "--out", str(tmp_path / "r.html"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [one["weights"] for one in facts["weights"]] == [policy.weights]
    assert any(f"Weights that decided: {policy.weights} from" in note for note in facts["notes"])
