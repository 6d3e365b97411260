"""Jobs whose scripts do not use rota.elastic: started, watched and ended all the same."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from children import eventually
from elastic_jobs import PATIENCE_S, PATIENT, runs, script, trial

from rota.elastic import JobSpec, Member
from rota.elastic.plain_controller import PlainController
from rota.errors import ConfigError, JobError

if TYPE_CHECKING:
    from pathlib import Path

    from elastic_jobs import Trial

# The first lines of every member's program.
BEGIN = """
import os, signal, sys, time
from pathlib import Path
rank, out = int(os.environ["RANK"]), Path(sys.argv[1])
def save(*_):
    (out / f"saved{rank}").touch()
    sys.exit(0)
def ready():
    (out / f"ready{rank}").touch()
"""
SAVES = "signal.signal(signal.SIGTERM, save)\nready()\ntime.sleep(3600)\n"
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nready()\ntime.sleep(3600)\n"
SLEEPS = "ready()\ntime.sleep(3600)\n"


def program(out: Path, *parts: str) -> tuple[str, ...]:
    """A command whose member of rank k does what part k says; the last one is for all others."""
    *some, rest = parts
    cases = [(f"rank == {k}", part) for k, part in enumerate(some)] + [("True", rest)]
    lines = [f"if {when}:\n    exec({part!r})\n    sys.exit(0)\n" for when, part in cases]
    return (sys.executable, "-c", BEGIN + "".join(lines), str(out))


def wait_for(run: Trial, *ranks: int) -> None:
    run.see(lambda _: all((run.out / f"ready{rank}").exists() for rank in ranks))


def test_members_find_each_other_as_under_torchrun(tmp_path: Path) -> None:
    part = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([10.0 ** rank])
dist.all_reduce(total)
names = "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "EXTRA"
(out / str(rank)).write_text(" ".join([str(total.item()), *(os.environ[name] for name in names)]))
dist.destroy_process_group()
"""
    members = [Member("a", env={"EXTRA": "x"}), Member("b", env={"EXTRA": "y"})]
    with trial(tmp_path, members, mode="plain", command=program(tmp_path / "out", part)) as run:
        result = run.job.wait(PATIENCE_S)
        assert (result.state, result.error) == ("done", "")
    found = [(run.out / str(rank)).read_text() for rank in range(2)]
    assert found == ["11.0 2 0 2 127.0.0.1 x", "11.0 2 1 2 127.0.0.1 y"]
    assert "a ended: all went well" in run.text()


@pytest.mark.parametrize(
    ("threads", "env", "seen"),
    [(1, {"OMP_NUM_THREADS": "7"}, "1"), (0, {"OMP_NUM_THREADS": "7"}, "7"), (0, {}, "1")],
)
def test_threads_that_were_asked_for_win_over_the_environment(
    tmp_path: Path, threads: int, env: dict[str, str], seen: str
) -> None:
    command = program(tmp_path / "out", "(out / 'n').write_text(os.environ['OMP_NUM_THREADS'])")
    with trial(
        tmp_path, [Member("a")], mode="plain", command=command, env=env, threads=threads
    ) as run:
        assert run.job.wait(PATIENCE_S).state == "done"
    assert (run.out / "n").read_text() == seen


FAILS = """
while not (out / "ready0").exists():
    time.sleep(0.01)
sys.exit("no data")
"""


def test_a_failing_member_ends_the_others_which_may_save(tmp_path: Path) -> None:
    command = program(tmp_path / "out", SAVES, FAILS)
    with trial(tmp_path, list("ab"), mode="plain", command=command, limits=PATIENT) as run:
        result = run.job.wait(PATIENCE_S)
        assert not any(runs(run.pid(name)) for name in "ab")
    assert (result.state, result.error) == ("failed", "b: it exited with code 1: no data")
    assert (run.out / "saved0").exists()
    assert "a ended: all went well" in run.text()


def test_a_failing_member_ends_others_that_ignore_sigterm(tmp_path: Path) -> None:
    command, limits = program(tmp_path / "out", DEAF, FAILS), replace(PATIENT, leave_s=0.3)
    with trial(tmp_path, list("ab"), mode="plain", command=command, limits=limits) as run:
        result = run.job.wait(PATIENCE_S)
        assert not any(runs(run.pid(name)) for name in "ab")
    assert (result.state, result.error) == ("failed", "b: it exited with code 1: no data")
    assert "killed a" in run.text()


def test_a_stopped_member_may_write_a_checkpoint(tmp_path: Path) -> None:
    command = program(tmp_path / "out", SAVES, SLEEPS)
    with trial(tmp_path, list("ab"), mode="plain", command=command) as run:
        wait_for(run, 0, 1)
        assert run.job.settle(PATIENCE_S).active == ("a", "b")
        assert run.job.observe().pids == {name: run.pid(name) for name in "ab"}
        with pytest.raises(JobError, match="A plain job cannot be resized"):
            run.job.resize(["a"])
        run.job.stop(PATIENCE_S)
        result = run.job.wait(PATIENCE_S)
    assert (result.state, result.error) == ("stopped", "")
    assert (run.out / "saved0").exists()
    assert "b ended: it was killed by SIGTERM" in run.text()


def test_a_member_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    command = program(tmp_path / "out", DEAF)
    with trial(tmp_path, ["a"], mode="plain", command=command) as run:
        wait_for(run, 0)
        run.job.stop(0.3)
        result = run.job.wait(PATIENCE_S)
        assert (result.state, result.error) == ("stopped", "a: it was killed by SIGKILL")
        assert not runs(run.pid("a"))


def test_plain_members_end_with_their_agent(tmp_path: Path) -> None:
    command = program(tmp_path / "out", DEAF)
    with trial(tmp_path, list("ab"), mode="plain", command=command) as run:
        wait_for(run, 0, 1)
        members = [run.pid(name) for name in "ab"]
        os.kill(json.loads(run.text("agent.json"))["pid"], signal.SIGKILL)
        assert run.job.wait(PATIENCE_S).state == "failed"
        eventually(lambda: not any(runs(pid) for pid in members))


def test_a_script_for_another_mode_is_told_so(tmp_path: Path) -> None:
    command = script(tmp_path / "out", epochs=1)
    with trial(tmp_path, ["a"], mode="plain", command=command) as run:
        result = run.job.wait(PATIENCE_S)
    assert result.state == "failed"
    assert "Member a uses rota.elastic, but the job's mode is plain" in result.error


def test_a_job_is_done_only_if_all_members_ended_before_they_were_told_to() -> None:
    spec = JobSpec(command=("x",), members=(Member("a"), Member("b")), mode="plain")
    done, stopped = PlainController(spec, 0.0), PlainController(spec, 0.0)
    for plain in (done, stopped):
        plain.lose("a", "", 1.0)
        assert plain.status(1.0).active == ("b",)
    stopped.stop(5.0, 2.0)
    for plain in (done, stopped):
        assert plain.result is None
        plain.lose("b", "", 3.0)
    assert done.result is not None
    assert stopped.result is not None
    assert (done.result.state, stopped.result.state) == ("done", "stopped")
    ports = {p.table["a"].member.env["MASTER_PORT"] for p in (done, stopped)}
    assert len(ports) == 2


def test_members_that_no_plain_job_has_are_refused() -> None:
    for member, error in (
        (Member("a", outside=True), "a is outside"),
        (Member("s", "server"), "s is a server, but the job's mode is plain"),
    ):
        with pytest.raises(ConfigError, match=error):
            JobSpec(command=("x",), members=(Member("w"), member), mode="plain")
