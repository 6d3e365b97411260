"""The state directory."""

from __future__ import annotations

import json
import multiprocessing
from typing import TYPE_CHECKING

import pytest
from local_jobs import asked

from rota.backends.local import Request, StateDir
from rota.backends.local.held import Ended, Held
from rota.backends.local.seating import Seat
from rota.errors import ConfigError, DamagedError, JobError

if TYPE_CHECKING:
    from pathlib import Path


def _submit(root: str) -> list[int]:
    store = StateDir(root)
    return [store.submit(asked(["true"])) for _ in range(25)]


def test_many_may_submit_at_once(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        found = pool.map(_submit, [str(tmp_path)] * 4)
    assert (
        sorted(uid for part in found for uid in part)
        == list(range(1, 101))
        == StateDir(tmp_path).uids()
    )
    assert len({StateDir(tmp_path).origin for _ in range(3)}) == 1


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    store = StateDir(tmp_path)
    request = asked(["python", "x.py"], kind="elastic", workers=2, max_workers=4, estimate_s=9.0)
    uid = store.submit(request)
    assert store.request(uid) == request
    held = Held(seats={"w1": Seat("worker", 1, (0, 2))}, leaving={"s0": Seat("server", 0)}, run=3)
    store.keep(uid, held)
    assert StateDir(tmp_path).held(uid) == held
    assert store.ended(uid) is None
    store.end(uid, Ended("failed", 4.5, "why"))
    assert store.ended(uid) == Ended("failed", 4.5, "why")


def test_one_daemon_at_a_time(tmp_path: Path) -> None:
    store = StateDir(tmp_path)
    assert store.daemon() is None
    with store.locked(policy="fifo"):
        assert store.daemon()["policy"] == "fifo"
        with pytest.raises(ConfigError, match=r"A daemon runs on .* already"), store.locked():
            pass
    assert store.daemon() is None
    with store.locked():
        pass


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"command": ()}, "There is no command"),
        ({"workers": 0}, "workers=0 must be a number of at least 1"),
        ({"workers": 2**31}, "workers=2147483648 must be .* at least 1 and below 1000000000"),
        ({"workers": 1.5}, "workers=1.5 must be a whole number"),
        ({"workers": 10**6, "gpus_per_worker": 10**6}, "more GPUs than can be counted"),
        ({"submitted_at": float("nan")}, "submitted_at=nan must be a time"),
        ({"workers": 4, "max_workers": 2}, "workers=4 must lie between"),
        ({"servers": 1}, "kind=plain does not go with servers=1"),
        ({"kind": "magic"}, "kind='magic' is unknown"),
        ({"estimate_s": -1.0}, "estimate_s=-1.0 must be above 0"),
        ({"estimate_s": 1e9}, "estimate_s=1000000000.0 must be above 0 and below 1000000000"),
        ({"env": {"": "x"}}, "env: '' cannot be set"),
        ({"env": {"A=B": "x"}}, "env: 'A=B' cannot be set"),
        ({"env": {"A": "\ud800"}}, "env: 'A' cannot be set"),
        ({"env": []}, "env is no environment"),
        ({"preload": ("torch",)}, "preload needs a command `python script.py …`, not `true`"),
        ({"park_every_s": -1.0}, "park_every_s=-1.0 must be a number of at least 0"),
    ],
)
def test_requests_that_make_no_sense(change: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Request(**{"command": ("true",), "cwd": "/", "submitted_at": 0.0, **change})


def test_commands_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'no-such-program' does not exist"):
        asked(["no-such-program"]).check_here()
    with pytest.raises(ConfigError, match="There is no folder"):
        Request(command=("true",), cwd=str(tmp_path / "x"), submitted_at=0.0).check_here()


def test_a_name_that_would_fill_every_table_is_refused_at_submit_only(tmp_path: Path) -> None:
    asked(["true"], name="x" * 200).check_here()
    long = asked(["true"], name="x" * 201)
    with pytest.raises(ConfigError, match=r"name='x{40}…' has 201 characters; .* at most 200"):
        long.check_here()
    store = StateDir(tmp_path)
    assert store.request(store.submit(long)) == long


def test_the_title_of_a_job_without_a_name_is_short() -> None:
    assert asked(["/bin/sh", "train.sh", "x" * 99]).title == "sh train.sh"
    assert asked(["sh", "x" * 1000]).title == f"sh {'x' * 36}…"
    assert asked(["sh", "x" * 1000], name="n" * 50).title == "n" * 50


def test_damage_is_named(tmp_path: Path) -> None:
    store = StateDir(tmp_path)
    with pytest.raises(ConfigError, match="There is no job 7"):
        store.request(7)
    uid = store.submit(asked(["true"]))
    path = store.folder(uid) / "request.json"
    path.write_text("{half")
    with pytest.raises(JobError, match=r"request.json is damaged"):
        store.request(uid)
    path.write_text(json.dumps({"command": ["x"], "colour": "red"}))
    with pytest.raises(ConfigError, match="no setting 'colour'"):
        store.request(uid)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be used"):
        StateDir(tmp_path / "file")
    (tmp_path / "origin.json").write_text('{"format": 99, "began_at": 0}')
    with pytest.raises(ConfigError, match="not of this version"):
        StateDir(tmp_path)
    for damage in ("{}", '{"format": "x", "began_at": 0}', '{"format": true, "began_at": 0}'):
        (tmp_path / "origin.json").write_text(damage)
        with pytest.raises(DamagedError, match=r"origin.json is damaged: format"):
            StateDir(tmp_path)
