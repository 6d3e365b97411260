"""One damaged file stops one job, and nobody else."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest
from elastic_jobs import runs
from hypothesis import given
from hypothesis import strategies as st
from local_jobs import asked, python, site

from rota.backends.local import Request, StateDir
from rota.backends.local.held import Ended, Held
from rota.backends.local.seating import Seat
from rota.cli.app import run
from rota.errors import DamagedError, RotaError
from rota.files import read_file, replace_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HELD = asdict(Held(seats={"w0": Seat("worker", 0, (0,))}, serial=1, run=1, since_s=0.0))


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "nowhere")


def _folder(path: Path) -> None:
    path.unlink()
    (path / "x").mkdir(parents=True)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_text(""),
    "cut off": lambda path: path.write_text(path.read_text()[:-9]),
    "zeros": lambda path: path.write_bytes(b"\0" * 100),
    "no JSON": lambda path: path.write_text("{half"),
    "deep": lambda path: path.write_text("[" * 100_000),
    "list": lambda path: path.write_text("[1, 2]"),
    "null": lambda path: path.write_text("null"),
    "nothing in it": lambda path: path.write_text("{}"),
    "foreign key": lambda path: path.write_text(
        json.dumps({**json.loads(path.read_text()), "colour": "red"})
    ),
    "not UTF-8": lambda path: path.write_bytes(b'{"state": "\xff\xfe"}'),
    "folder": _folder,
    "link": _link,
    "pipe": _fifo,
}
WRONG = {
    "held.json": [
        {"run": -1}, {"run": 10**400}, {"open": "yes"}, {"rate": float("nan")}, {"seats": [1]},
        {"since_s": float("inf")}, {"samples": 1.5}, {"serial": True}, {"seen": {"1+0": "fast"}},
        {"seats": {"w0": {"kind": "worker", "node": -1, "gpus": [0]}}},
        {"seats": {"w0": {"kind": "worker", "node": 0, "gpus": [0, 0]}}},
        {"seats": {"w0": {"kind": "worker", "node": 0, "gpus": [0, 1]}}},
        {"seats": {"w0": {"kind": "king", "node": 0, "gpus": [0]}}},
        {"seats": {"../x": {"kind": "worker", "node": 0, "gpus": [0]}}},
        {"seats": {f"w{k}": {"kind": "worker", "node": 0, "gpus": [k]} for k in (0, 1)}},
    ],
    "ended.json": [{"state": "eaten"}, {"time_s": "noon"}, {"time_s": float("nan")}, {"error": 3}],
    "request.json": [
        {"workers": float("nan")}, {"workers": 10**400}, {"command": "ls"}, {"command": ["a\0b"]},
        {"env": {"A=B": "c"}}, {"env": []}, {"env": {"A": 1}}, {"cwd": None}, {"workers": True},
        {"submitted_at": "now"}, {"submitted_at": 10**400}, {"estimate_s": "long"}, {"name": 7},
    ],
}  # fmt: skip


def _change(facts: dict[str, object]) -> Callable[[Path], object]:
    return lambda path: path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))


@pytest.mark.parametrize("name", WRONG)
def test_whatever_a_file_holds_the_others_go_on(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    damages = [*DAMAGES.values(), *map(_change, WRONG[name])]
    with site(tmp_path / "state") as here:
        store = here.store
        broken = [here.submit(asked(["sleep", "1000"])) for _ in damages]
        good = here.submit(asked(["sleep", "1000"]))
        for uid, damage in zip(broken, damages, strict=True):
            (store.folder(uid) / "held.json").write_text(json.dumps(HELD))
            (store.run_folder(uid, 1)).mkdir()
            if name == "ended.json":
                store.end(uid, Ended("done", 1.0))
            damage(store.folder(uid) / name)
        here.reopen()
        here.backend.wait(here.backend.now_s + 1)
        assert [job.uid for job in here.backend.jobs] == [good]
        said = [text for text in here.said if "set aside" in text]
        assert [text.split()[1] for text in said] == [str(uid) for uid in broken]
        here.until(lambda: all(aside.clear for aside in here.backend._aside.values()))
        here.give({good: [(0, 1)]})
        here.until(lambda: here.job(good).status)
        assert len([text for text in here.said if "set aside" in text]) == len(broken)

        words = ("--state", str(store.root))
        assert run(("queue", "--json", *words)) == 0
        rows = {row["job"]: row for row in json.loads(capsys.readouterr().out)["jobs"]}
        assert [rows[uid]["state"] for uid in broken] == ["broken"] * len(broken)
        assert all(rows[uid]["why"] for uid in broken)
        assert rows[good]["state"] == "running"
        assert run(("queue", "--all", *words)) == 0
        assert run(("logs", str(broken[0]), *words)) == 0
        assert run(("cancel", "--all", *words)) == 0
        for uid in (*broken, good):
            here.until(lambda uid=uid: not here.backend._jobs.get(uid) and _ended(store, uid))
        assert not here.backend._aside


def _ended(store: StateDir, uid: int) -> bool:
    try:
        return store.ended(uid).state == "cancelled"
    except (RotaError, AttributeError):
        return False


def test_a_job_that_nobody_knows_the_seats_of_is_ended_before_a_seat_is_given(
    tmp_path: Path,
) -> None:
    with site(tmp_path / "state", nodes=1, gpus=1) as here:
        lost, other = here.submit(asked(["sleep", "1000"])), here.submit(asked(["sleep", "1000"]))
        here.backend.wait(0)
        here.give({lost: [(0, 1)]})
        here.until(lambda: here.job(lost).status and here.job(lost).status.pids)
        member = here.job(lost).status.pids["w0"]
        (here.store.folder(lost) / "held.json").write_text("")
        here.reopen()
        assert [job.uid for job in here.backend.jobs] == [other]
        here.give({other: [(0, 1)]})
        here.until(lambda: here.job(other).held.open)
        assert not runs(member)
        assert not runs(here.agents()[0])


def test_without_a_way_to_its_agent_a_job_goes_on_and_can_be_cancelled(tmp_path: Path) -> None:
    with site(tmp_path / "state") as here:
        uid, short = here.submit(asked(["sleep", "1000"])), here.submit(asked(["sleep", "3"]))
        here.backend.wait(0)
        here.give({uid: [(0, 1)], short: [(0, 1)]})
        here.until(lambda: here.job(uid).status and here.job(short).status)
        agents = here.agents()
        for job in (uid, short):
            (here.store.run_folder(job, 1) / "agent.json").write_text("")
        here.until(lambda: "agent.json is damaged" in here.store.held(uid).note)
        here.reopen()
        assert here.job(uid).share == ((0, 1, 0),)
        assert here.ends(short).state == "done"
        here.store.cancel(uid)
        assert here.ends(uid).state == "cancelled"
        here.until(lambda: not any(map(runs, agents)))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_result_is_a_failed_run(tmp_path: Path, damage: str) -> None:
    with site(tmp_path / "state") as here:
        uid = here.submit(python("import time; time.sleep(1000)", retries=9))
        here.backend.wait(0)
        here.give({uid: [(0, 1)]})
        here.until(lambda: here.job(uid).status)
        result = here.store.run_folder(uid, 1) / "result.json"
        os.kill(here.agents()[0], signal.SIGSTOP)  # so that nobody looks meanwhile
        replace_file(result, {"state": "done", "step": 0, "samples": 0})
        DAMAGES[damage](result)
        os.kill(here.agents()[0], signal.SIGKILL)
        here.until(lambda: here.job(uid).held.failures == 1)
        assert any("result.json is damaged" in text for text in here.said)


def test_seats_that_two_have_are_taken_from_one(tmp_path: Path) -> None:
    with site(tmp_path / "state") as here:
        uids = [here.submit(asked(["sleep", "1000"])) for _ in range(3)]
        for uid in uids[:2]:
            held = {**HELD, "run": 0, "started_s": 0.0}
            (here.store.folder(uid) / "held.json").write_text(json.dumps(held))
        seat = {"w0": {"kind": "worker", "node": 7, "gpus": [0]}}
        (here.store.folder(uids[2]) / "held.json").write_text(json.dumps({**held, "seats": seat}))
        here.reopen()
        assert [job.share for job in here.backend.jobs] == [((0, 1, 0),), (), ()]
        assert here.backend.observe().nodes["free"].tolist() == [1, 2]


@given(
    st.sampled_from(sorted(HELD)),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        ),
    ),
)
def test_what_is_no_state_of_a_job_is_called_damage(key: str, value: object) -> None:
    facts = json.loads(json.dumps({**HELD, key: value}))
    try:
        held = Held.decode(facts, "held.json")
    except DamagedError:
        return
    # What was let in can be written, read again and calculated with.
    assert Held.decode(json.loads(json.dumps(asdict(held))), "held.json") == held
    assert held.speed(1, 0) + held.attained_gpu_s + (held.since_s or 0.0) < float("inf")


@given(st.sampled_from(sorted(asked(["true"]).encode())), st.none() | st.text() | st.integers())
def test_what_is_no_request_is_refused(key: str, value: object) -> None:
    facts = {**asked(["true"]).encode(), key: value}
    with suppress(RotaError):  # and nothing else
        Request.decode(facts)


def test_files_of_the_daemon_are_told_or_put_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_STATE", str(tmp_path / "state"))
    store = StateDir(tmp_path / "state")
    uid = store.submit(asked(["true"]))
    with store.locked():
        for damage in ("", "{", "[]"):
            (store.root / "daemon.json").write_text(damage)
            assert store.daemon() == {}
            assert run(("queue", "--json")) == 0
    capsys.readouterr()
    for name in ("speeds.npz", "journal.db"):
        (store.root / name).write_bytes(b"no such thing")
    (store.root / "daemon.json").write_text("{")
    for _ in range(2):  # the second one finds what the first one has written
        assert run(("run", "--drain", "--gpus", "1", "--nodes", "1")) == 0
        assert store.ended(uid).state == "done"
    said = capsys.readouterr().err
    assert said.count("journal.db cannot be gone on with") == 1
    assert (store.root / "journal.db.damaged-1").read_bytes() == b"no such thing"
    with sqlite3.connect(store.root / "journal.db") as journal:
        assert journal.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    for damage in ("", "{", "null", '{"format": 1}', '{"format": 1, "began_at": "x"}'):
        (store.root / "origin.json").write_text(damage)
        for words in (("queue",), ("run", "--drain"), ("cancel", "1")):
            assert run(words) in (1, 2)
            said = capsys.readouterr().err
            assert "origin.json" in said
            assert "internal error" not in said


def test_a_directory_in_place_of_a_file_is_what_is_named(tmp_path: Path) -> None:
    store = StateDir(tmp_path / "state")
    (store.root / "daemon.json").mkdir()
    with pytest.raises(IsADirectoryError) as caught, store.locked():
        pass
    assert caught.value.filename == str(store.root / "daemon.json")
    assert not (store.root / "daemon.part").exists()


def test_strange_names_among_the_jobs_are_no_jobs(tmp_path: Path) -> None:
    with site(tmp_path / "state") as here:
        for name in ("x", "²", "007", "0", "-3", "9" * 40, "12.part"):
            (here.store.jobs / name).mkdir()
        (here.store.jobs / "5").touch()
        (here.store.jobs / "6").symlink_to(tmp_path)
        assert here.store.uids() == []
        here.backend.wait(0)
        assert not here.backend.jobs


def test_what_is_written_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda number: steps.append(os.readlink(f"/dev/fd/{number}")))
    replace_file(tmp_path / "x.json", {"a": 1})
    assert steps == [str(tmp_path / "x.part"), str(tmp_path)]
    assert read_file(tmp_path / "x.json") == {"a": 1}
    assert (tmp_path / "x.json").stat().st_mode & 0o777 == 0o600


def test_a_passing_lack_of_means_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with site(tmp_path / "state") as here:
        uid = here.submit(asked(["sleep", "1000"]))
        poor = [True]

        def ended(_uid: int) -> None:
            if poor[0]:
                raise OSError(24, "Too many open files")

        monkeypatch.setattr(here.store, "ended", ended)
        for _ in range(3):
            here.backend.wait(0)
        assert not here.backend.jobs
        assert [text for text in here.said if "Too many open files" in text] == here.said
        poor.clear()
        poor.append(False)
        here.until(lambda: here.backend.jobs)
        assert here.job(uid)


def test_no_file_is_written_through_a_link_that_lies_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("precious")
    (tmp_path / "x.part").symlink_to("other")
    with pytest.raises(OSError, match="symbolic link"):
        replace_file(tmp_path / "x.json", {"a": 1})
    assert (tmp_path / "other").read_text() == "precious"
    replace_file(tmp_path / "x.json", {"a": 1})  # the link is gone
    assert read_file(tmp_path / "x.json") == {"a": 1}
