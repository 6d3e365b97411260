"""Jobs that are over are put away: one row each, what they printed, and nobody's environment."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from local_jobs import asked, python, site

from rota.backends.local import StateDir
from rota.backends.local.archive import forget, put_away
from rota.backends.local.held import Ended
from rota.backends.local.housekeeping import Housekeeping
from rota.backends.local.live_job import LiveJob
from rota.cli.app import run
from rota.core.layout import FINISH

SECRET = "a-secret-of-the-submitter"


def _secretive(store: StateDir, count: int) -> list[int]:
    uids = []
    for k in range(count):
        request = asked(["true"])
        uids.append(store.submit(request.__class__.decode(
            {**request.encode(), "env": {"TOKEN": SECRET}, "name": f"n{k}"}
        )))  # fmt: skip
    return uids


def _anywhere(root: Path, text: str) -> list[str]:
    return [
        str(path)
        for path in root.rglob("*")
        if path.is_file() and text.encode() in path.read_bytes()
    ]


def test_a_job_that_is_over_is_one_row_and_its_logs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with site(tmp_path / "state") as here:
        request = python("print('hello')", name="greets", estimate_s=7.0)
        env = {**request.env, "TOKEN": SECRET}
        uid = here.submit(request.__class__.decode({**request.encode(), "env": env}))
        here.backend.wait(0)
        here.give({uid: [(0, 1)]})
        here.until(lambda: uid not in here.store.uids())
        store = here.store
        assert store.ended(uid).state == "done"
        assert store.request(uid).name == "greets"
        assert not store.request(uid).env
        assert store.held(uid).run == 1
        assert here.backend.ending(uid) == (FINISH, store.ended(uid).time_s)
        assert here.backend.listing(uid).estimate_s == 7.0
        assert here.backend.measured(uid) is not None
        assert _anywhere(store.root, SECRET) == []
        assert os.listdir(store.jobs) == []
        words = ("--state", str(store.root))
        assert run(("logs", str(uid), *words)) == 0
        assert run(("logs", str(uid), "--follow", *words)) == 0
        assert run(("queue", *words)) == 0
        assert run(("queue", "--all", "--json", *words)) == 0
        out = capsys.readouterr().out
        assert out.startswith("hello\nhello\nNo jobs wait or run")
        rows = json.loads(out[out.index("{") :])["jobs"]
        assert [(row["job"], row["state"], row["name"]) for row in rows] == [(1, "done", "greets")]
        assert run(("cancel", str(uid), *words)) == 2
        assert "over already (done)" in capsys.readouterr().err


@pytest.mark.parametrize("after", range(12))
def test_who_is_killed_while_putting_away_loses_no_job(
    tmp_path: Path, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every change of the disk in turn is the last one that comes about."""
    store = StateDir(tmp_path)
    uids = _secretive(store, 2)
    for uid in uids:
        logs = store.run_folder(uid, 1) / "logs"
        logs.mkdir(parents=True)
        (logs / "w0.log").write_text(f"said by {uid}")
        (logs.parent / "job.json").write_text(json.dumps({"env": {"TOKEN": SECRET}}))
        (store.folder(uid) / "held.json").write_text(
            json.dumps({"seats": {}, "leaving": {}, "serial": 1, "run": 1, "open": False})
        )
        store.end(uid, Ended("done", float(uid)))
    left = [after]

    class Killed(BaseException):
        pass

    def counting(real):
        def do(*args: object, **more: object) -> object:
            if not left[0]:
                raise Killed
            left[0] -= 1
            return real(*args, **more)

        return do

    with monkeypatch.context() as patch:
        patch.setattr(store.history, "add", counting(store.history.add))
        patch.setattr(Path, "unlink", counting(Path.unlink))
        patch.setattr(Path, "rename", counting(Path.rename))
        patch.setattr(shutil, "rmtree", counting(shutil.rmtree))
        with suppress(Killed):
            put_away(store, uids)
    for again in (StateDir(tmp_path), StateDir(tmp_path)):
        assert [again.ended(uid).time_s for uid in uids] == [1.0, 2.0]
        assert [again.request(uid).name for uid in uids] == ["n0", "n1"]
        for uid in uids:
            assert (again.log_folder(uid) / "run-1/logs/w0.log").read_text() == f"said by {uid}"
        put_away(again, again.uids())
        assert again.uids() == []
        assert sorted(again.history.all()) == uids
    assert _anywhere(tmp_path, SECRET) == []
    assert again.submit(asked(["true"])) == 3


def test_numbers_are_never_given_again(tmp_path: Path) -> None:
    store = StateDir(tmp_path)
    for uid in _secretive(store, 3):
        store.end(uid, Ended("done", float(uid)))
    put_away(store, [1, 2, 3])
    assert forget(store, 1e9, 0) == 3
    assert store.history.all() == {}
    assert StateDir(tmp_path).submit(asked(["true"])) == 4
    for damage in ("", "{", '{"uid": -1}', '{"uid": "x"}', "[]"):
        (tmp_path / "last.json").write_text(damage)
        before = max(store.uids())
        assert store.submit(asked(["true"])) == before + 1
    (tmp_path / "last.json").unlink()
    store.end(9, Ended("done", 1.0))
    put_away(store, [9])
    assert store.submit(asked(["true"])) == 10


def _submit_and_end(root: str) -> list[int]:
    store, uids = StateDir(root), []
    for _ in range(10):
        uids.append(uid := store.submit(asked(["true"])))
        store.end(uid, Ended("done", 1.0))
        put_away(store, [uid])
        forget(store, 1e9, 0)
    return uids


def test_submitters_and_jobs_that_end_at_once_do_not_share_numbers(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        found = pool.map(_submit_and_end, [str(tmp_path)] * 3)
    assert sorted(uid for part in found for uid in part) == list(range(1, 31))


def test_what_is_kept_is_a_setting(tmp_path: Path) -> None:
    store = StateDir(tmp_path)
    for uid in _secretive(store, 6):
        (store.run_folder(uid, 1) / "logs").mkdir(parents=True)
        (store.run_folder(uid, 1) / "logs" / "w0.log").touch()
        (store.folder(uid) / "held.json").write_text(
            json.dumps({"seats": {}, "leaving": {}, "serial": 1, "run": 1, "open": False})
        )
        store.end(uid, Ended("done", float(uid)))
    put_away(store, range(1, 7))
    assert forget(store, 3.0, 100) == 2
    assert sorted(store.history.all()) == [3, 4, 5, 6]
    assert forget(store, 0.0, 2) == 2
    assert sorted(store.history.all()) == [5, 6]
    assert sorted(os.listdir(store.over)) == ["5", "6"]
    with site(tmp_path, keep_s=0.0) as here:
        here.until(lambda: not here.store.history.all())
    assert os.listdir(store.over) == []


def test_a_directory_of_before_is_moved_over(tmp_path: Path) -> None:
    """Jobs that were over stayed where they were, and numbers came from their folders."""
    store = StateDir(tmp_path)
    for uid in _secretive(store, 130):
        if uid != 60:
            store.end(uid, Ended("done", float(uid)))
    for name in ("last.json", "submit.lock"):
        (tmp_path / name).unlink()
    for name in ("over", "asked"):
        (tmp_path / name).rmdir()
    with site(tmp_path) as here:
        here.until(lambda: here.store.uids() == [60])
        assert len(here.store.history.all()) == 129
        assert here.submit(asked(["true"])) == 131


def test_a_damaged_history_stops_nobody(tmp_path: Path) -> None:
    store = StateDir(tmp_path)
    (tmp_path / "history.db").write_bytes(b"no database at all, but long enough" * 100)
    uid = store.submit(asked(["true"]))
    assert run(("queue", "--state", str(tmp_path))) == 0
    assert run(("queue", "--all", "--state", str(tmp_path))) == 1
    with site(tmp_path) as here:
        here.backend.wait(0)
        here.give({uid: [(0, 1)]})
        here.until(lambda: uid not in here.store.uids())
        assert here.store.ended(uid).state == "done"
        assert any("history.db is damaged" in text for text in here.said)
    assert (tmp_path / "history.db.damaged-1").exists()


def test_an_end_that_was_damaged_before_it_was_put_away_is_set_aside(tmp_path: Path) -> None:
    with site(tmp_path) as here:
        store = here.store
        uids = _secretive(store, 2)
        for uid in uids:
            store.end(uid, Ended("done", 1.0))
        here.backend._scan()
        (store.folder(1) / "ended.json").write_text("")
        here.until(lambda: 1 in here.backend._aside and store.uids() == [1])
        assert list(store.history.all()) == [2]
        assert not list(tmp_path.glob("history.db.damaged*"))


def test_a_cancel_that_nobody_told_of_is_noticed(tmp_path: Path) -> None:
    with site(tmp_path) as here:
        uid = here.submit(asked(["true"]))
        here.backend.wait(0)
        (here.store.folder(uid) / "cancel").touch()
        assert here.ends(uid).state == "cancelled"


def test_who_waits_costs_no_look_at_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with site(tmp_path, every_s=1e6) as here:
        for _ in range(40):
            here.submit(asked(["true"]))
        here.backend.wait(0)
        looks = []
        monkeypatch.setattr(here.store, "cancelled", lambda uid: looks.append(uid) and False)
        monkeypatch.setattr(here.store, "uids", lambda: looks.append(0) or [])
        stepped = []
        monkeypatch.setattr(LiveJob, "step", lambda *_: stepped.append(1))
        for _ in range(20):
            here.backend._push()
        assert len(looks) <= 20 + 2  # one job in turn; and the folder once a second
        assert not stepped


def test_to_submit_and_to_look_needs_little(tmp_path: Path) -> None:
    code = (
        "import sys; from rota.cli.app import run; code = run(sys.argv[1:]);"
        "heavy = {'numpy', 'numba', 'torch', 'rich'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else code)"
    )
    state = ("--state", str(tmp_path))
    for words in (("submit", *state, "--", "true"), ("queue", *state), ("cancel", "1", *state)):
        done = subprocess.run(
            [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done


def _three(root: Path) -> StateDir:
    """A state directory in which jobs 1 and 2 are over and job 3 waits."""
    store = StateDir(root)
    for uid in _secretive(store, 3)[:2]:
        store.end(uid, Ended("done", float(uid)))
    put_away(store, [1, 2])
    return store


def _rows(root: Path, capsys: pytest.CaptureFixture[str]) -> dict[int, dict[str, Any]]:
    run(("queue", "--all", "--json", "--state", str(root)))
    return {row["job"]: row for row in json.loads(capsys.readouterr().out)["jobs"]}


@pytest.mark.parametrize(
    "facts", ["'x'", "'[]'", "'{}'", """'{"ended": 1}'""", """'{"ended": {}}'""", "x'ff'", "5",
              "CAST(x'ff' AS TEXT)"]
)  # fmt: skip
def test_a_damaged_row_of_the_history_hides_no_other_job(
    tmp_path: Path, facts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = _three(tmp_path)
    with closing(sqlite3.connect(store.history.path)) as db, db:
        db.execute(f"UPDATE jobs SET facts = {facts} WHERE uid = 1")
    rows = _rows(tmp_path, capsys)
    assert {uid: row["state"] for uid, row in rows.items()} == {
        1: "broken",
        2: "done",
        3: "waiting",
    }
    assert "The row of job 1 in" in rows[1]["why"]
    assert run(("queue", "--all", "--state", str(tmp_path))) == 0
    assert run(("cancel", "1", "3", "--state", str(tmp_path))) == 2
    assert "The row of job 1 in" in capsys.readouterr().err
    assert store.cancelled(3)
    assert run(("queue", "1", "2", "--state", str(tmp_path))) == 0
    out = capsys.readouterr().out
    assert "The row of job 1 in" in out
    assert "job 2  n1" in out


@pytest.mark.parametrize("facts", ["'x'", "'{}'", "x'ff'"])
def test_a_damaged_row_of_a_job_whose_folder_is_there_is_written_again(
    tmp_path: Path, facts: str
) -> None:
    store = _three(tmp_path)
    store.end(3, Ended("failed", 3.0))
    with closing(sqlite3.connect(store.history.path)) as db, db:
        db.execute(f"INSERT INTO jobs VALUES (3, 3.0, {facts})")
    with site(tmp_path) as here:
        here.until(lambda: not here.store.uids())
    assert not list(tmp_path.glob("history.db.damaged*"))
    assert sorted(store.history.all()) == [1, 2, 3]
    assert (store.ended(3).state, store.request(3).name) == ("failed", "n2")


def test_jobs_that_are_too_many_are_forgotten_as_soon_as_others_end(tmp_path: Path) -> None:
    store = StateDir(tmp_path)
    house = Housekeeping(store, 1e9, 2)

    def work() -> None:
        house.work(10.0, tuple, pytest.fail)

    for _ in range(2):  # what is due at first
        work()
    for uid in _secretive(store, 4):
        store.end(uid, ended := Ended("done", float(uid)))
        house.add(uid, ended)
    work()
    assert sorted(store.history.all()) == [1, 2, 3, 4]  # the journal may ask for them
    work()
    assert sorted(store.history.all()) == [3, 4]
    (uid,) = _secretive(store, 1)
    store.end(uid, ended := Ended("done", float(uid)))
    house.add(uid, ended)
    house.finish(10.0, pytest.fail)
    assert sorted(store.history.all()) == [4, 5]


def test_a_damaged_history_hides_no_job_that_waits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = _three(tmp_path)
    store.history.path.write_bytes(b"no database at all, but long enough" * 100)
    assert list(_rows(tmp_path, capsys)) == [3]
    assert run(("queue", "--all", "--state", str(tmp_path))) == 1
    out, err = capsys.readouterr()
    assert "n2" in out
    assert "history.db is damaged" in err


@pytest.mark.parametrize("part", ["request", "held"])
def test_a_file_that_was_damaged_when_its_job_ended_is_no_damage_of_the_history(
    tmp_path: Path, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = StateDir(tmp_path)
    _secretive(store, 1)
    (store.folder(1) / f"{part}.json").write_text("{")
    store.end(1, Ended("failed", 1.0, "its file was damaged", "submit it again"))
    put_away(store, [1])
    row = _rows(tmp_path, capsys)[1]
    assert (row["state"], row["why"]) == ("failed", "its file was damaged")
    assert row["hint"] == "submit it again"
    assert row["name"] == ("n0" if part == "held" else "?")


@pytest.mark.parametrize("uid", [2**63, 99999999999999999999, 0, -1, -(2**63) - 1])
def test_numbers_that_no_job_can_have_are_unknown(
    tmp_path: Path, uid: int, capsys: pytest.CaptureFixture[str]
) -> None:
    store = _three(tmp_path)
    for verb in ("hold", "resume", "cancel", "queue", "logs", "resubmit"):
        assert run((verb, "--state", str(tmp_path), "--", str(uid))) == 2
        assert f"There is no job {uid} in" in capsys.readouterr().err
    assert run(("cancel", "--state", str(tmp_path), "--", str(uid), "3")) == 2
    assert store.cancelled(3)
