"""Every failure ends in one clear line, and leaves no process behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest
from children import child, eventually
from elastic_jobs import LIMIT_S, PATIENCE_S, SOURCE, ending, runs, script, trial

from rota.elastic import ElasticJob, JobSpec, Member, TimeLimits
from rota.elastic.handshake import open_connection
from rota.errors import ConfigError, JobError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SLEEPER = (sys.executable, "-c", "import time; time.sleep(3600)")
HASTY = TimeLimits(start_s=PATIENCE_S, connect_s=LIMIT_S, silent_s=12, stall_s=15)
"""For tests of the limits themselves: as short as a healthy member can keep on a busy machine."""


def test_a_member_that_is_stopped_raises_or_hangs_is_left_out(tmp_path: Path) -> None:
    misdeeds = {"b": ["raise", 30], "c": ["hang", 60]}
    with trial(
        tmp_path, list("abcd"), limits=HASTY, misdeeds=misdeeds, epochs=20, pace_s=0.02
    ) as run:
        run.until(5)
        run.kill("d", signal.SIGSTOP)
        result = run.job.wait(PATIENCE_S)
        assert (result.state, result.step) == ("done", 200)
        said = run.text()
    assert "d ended: it was killed by SIGKILL" in said
    assert "'op': 'failed', 'error': 'ValueError: the script is wrong'" in said
    assert "ValueError: the script is wrong" in run.text("logs/b.log")
    assert "c ended: it was killed by SIGKILL" in said
    assert {line["step"] for line in run.lines() if "step" in line} == set(range(200))


def test_a_member_started_from_outside_joins_and_its_loss_is_noticed(tmp_path: Path) -> None:
    with trial(tmp_path, ["a"], epochs=10**6, pace_s=0.01) as run:
        run.until(3)
        run.job.join(Member("b", outside=True))
        address = json.loads(run.text("agent.json"))
        env = {
            "PYTHONPATH": SOURCE,
            "OMP_NUM_THREADS": "1",
            "ROTA_AGENT": f"{address['host']}:{address['port']}",
            "ROTA_TOKEN": address["token"],
            "ROTA_MEMBER": "b",
        }
        command = script(run.out, epochs=10**6, pace_s=0.01)
        with child(command, env={**os.environ, **env}):
            assert run.job.settle(PATIENCE_S).active == ("a", "b")
        run.members(["a"])
        assert run.job.observe().refused == {"b": "its connection ended"}
        run.job.join(Member("c"))  # who was lost is no obstacle
        assert run.job.settle(PATIENCE_S).active == ("a", "c")
        run.job.leave("a")
        assert run.job.settle(PATIENCE_S).active == ("c",)


def test_members_that_differ_are_found_out(tmp_path: Path) -> None:
    with trial(tmp_path, list("ab"), misdeeds={"b": ["spoil", 14]}, epochs=1000) as run:
        result = run.job.wait(PATIENCE_S)
    assert result.state == "failed"
    assert "differ" in result.error
    assert "after step 16" in result.error  # compared after 1, 2, 4, 8, 10, 16, 20, 30, …


def test_members_that_differ_in_the_end_are_found_out(tmp_path: Path) -> None:
    with trial(tmp_path, list("ab"), misdeeds={"b": ["spoil", 17]}, check_every=10**6) as run:
        result = run.job.wait(PATIENCE_S)
    assert (result.state, result.step) == ("failed", 20)
    assert "differ" in result.error
    assert "after step 20" in result.error


def test_a_member_that_leaves_the_loop_alone_does_not_block_the_others_for_long(
    tmp_path: Path,
) -> None:
    limits = replace(HASTY, stall_s=PATIENCE_S, transfer_s=3)
    with trial(tmp_path, list("ab"), limits=limits, misdeeds={"b": ["quit", 7]}) as run:
        result = run.job.wait(PATIENCE_S)
    assert (result.state, result.step) == ("failed", 7)
    assert "b left the loop after step 7, but a waited for more than 3 s" in result.error


def test_a_loop_without_step_is_told_so(tmp_path: Path) -> None:
    with trial(tmp_path, ["a"], misdeeds={"a": ["forget", 3]}) as run:
        result = run.job.wait(PATIENCE_S)
    assert result.state == "failed"
    assert "The loop did not call step() for step 3" in result.error


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ((sys.executable, "-c", "pass"), "its script ended before the training did"),
        ((sys.executable, "-c", "raise SystemExit('no data')"), "code 1: no data"),
        (("/no/such/program",), "/no/such/program cannot be started: No such file"),
        (("/etc/passwd",), "/etc/passwd cannot be started: Permission denied"),
        (SLEEPER, "it was not heard of within 0.5 s"),
    ],
)
def test_a_script_that_never_joins_fails_the_job(
    tmp_path: Path, command: tuple[str, ...], reason: str
) -> None:
    limits = TimeLimits(start_s=0.5) if command == SLEEPER else None
    with trial(tmp_path, ["a"], command=command, limits=limits) as run:
        result = run.job.wait(PATIENCE_S)
    assert result.state == "failed"
    assert result.error.startswith("No member could start; a: ")
    assert reason in result.error


BARE = ("-S", "-c", "import torch")
"""Arguments with which Python finds no installed packages, as one in which torch is missing."""


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (
            (sys.executable, *BARE),
            f"No module named 'torch'; install it: {sys.executable} -m pip install 'rota[elastic]'",
        ),
        (
            (sys.executable, "-c", "import no_such.thing"),
            f"install it: {sys.executable} -m pip install no_such",
        ),
        (
            (sys.executable, "-m", "no_such"),
            f"install it: {sys.executable} -m pip install no_such",
        ),
        (
            (sys.executable, "-c", "x = 1\nif x print(x)"),
            "(<string>, line 2); correct the script, or use another Python than " + sys.executable,
        ),
        (("no-such-program",), "; give its full path, or add its folder to PATH="),
        (("../no/such/program",), "; correct the path in the job's command"),
        ((sys.executable, "-c", "raise SystemExit(3)"), "code 3: it printed nothing"),
    ],
)
@pytest.mark.parametrize("mode", ["allreduce", "plain"])
def test_a_process_that_cannot_start_says_what_ran_and_what_to_do(
    tmp_path: Path, command: tuple[str, ...], reason: str, mode: str
) -> None:
    with trial(tmp_path, ["a"], command=command, mode=mode, env={"PYTHONPATH": ""}) as run:
        result = run.job.wait(PATIENCE_S)
    assert result.state == "failed"
    if mode == "plain" and command[1:] == BARE:  # its script needs no rota
        reason = reason.replace("'rota[elastic]'", "torch")
    assert reason in result.error
    if mode != "plain":
        assert result.error.startswith("No member could start; a: ")
        assert f"(command: {command[0]}" in result.error or command[0] == "../no/such/program"


def test_a_script_whose_interpreter_is_missing_says_so(tmp_path: Path) -> None:
    program = tmp_path / "train.sh"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    with trial(tmp_path, ["a"], command=(str(program),)) as run:
        result = run.job.wait(PATIENCE_S)
    assert f"{program} cannot be started" in result.error
    assert "the interpreter that its first line (#!) names does not exist" in result.error


def test_modules_that_cannot_be_preloaded_are_named(folder: Path) -> None:
    script = folder.parent / "train.py"
    script.touch()
    command = (sys.executable, str(script))
    spec = JobSpec(command=command, members=(Member("a"),), preload=("no_such",))
    error = ElasticJob.launch(folder, spec).wait(PATIENCE_S).error
    assert "the process that imports no_such exited with code 1" in error
    assert f"{sys.executable} -m pip install no_such" in error
    spec = replace(spec, command=("no-such-program", str(script)))
    with pytest.raises(JobError, match="the job cannot be launched: no-such-program cannot be"):
        ElasticJob.launch(folder.parent / "other", spec)


@pytest.mark.parametrize("preload", [(), ("json",)])
def test_a_folder_that_cannot_be_entered_is_named(tmp_path: Path, preload: tuple[str, ...]) -> None:
    (tmp_path / "file").touch()
    for cwd, reason in (("../nowhere", "No such file"), ("../file", "Not a directory")):
        job, command = tmp_path / f"job{len(cwd)}", (sys.executable, "train.py")
        spec = JobSpec(command=command, members=(Member("a"),), cwd=cwd, preload=preload)
        if preload:
            with pytest.raises(JobError, match=rf"the job's folder .*{cwd} cannot be .* {reason}"):
                ElasticJob.launch(job, spec)
            continue
        with ending(job):
            result = ElasticJob.launch(job, spec).wait(PATIENCE_S)
        assert result.state == "failed"
        assert f"a: its folder {job}/{cwd} cannot be entered: {reason}" in result.error


def test_a_training_in_which_all_hang_is_given_up(tmp_path: Path) -> None:
    misdeeds = {"a": ["hang", 3], "b": ["deaf", 3]}
    with trial(tmp_path, list("ab"), limits=HASTY, misdeeds=misdeeds) as run:
        result = run.job.wait(PATIENCE_S)
    assert result.state == "failed"
    assert result.error == "No step for 15 s: a, b did not call step()."


def test_a_member_that_does_not_listen_is_killed_in_the_end(tmp_path: Path) -> None:
    with trial(tmp_path, ["a"], misdeeds={"a": ["deaf", 3]}) as run:
        run.until(3)
        run.job.stop(0.2)
        result = run.job.wait(PATIENCE_S)
        assert not runs(run.pid("a"))
    assert result.state == "stopped"
    assert "a was lost (it was killed by SIGKILL), and no worker is left" in result.error


def test_a_training_whose_members_differ_does_not_begin(tmp_path: Path) -> None:
    for key, value, error in (("width", 17, "another model"), ("batch", 25, "batch=25")):
        with trial(tmp_path / key, list("ab"), only={"b": {key: value}}) as run:
            result = run.job.wait(PATIENCE_S)
        assert (result.state, result.step) == ("failed", 0)
        assert error in result.error


def test_members_end_with_their_agent(tmp_path: Path) -> None:
    with trial(tmp_path, ["a"], command=SLEEPER) as run:
        run.see(lambda _: "started a" in run.text())
        member = run.pid("a")
        os.kill(json.loads(run.text("agent.json"))["pid"], signal.SIGKILL)
        result = run.job.wait(PATIENCE_S)
        assert result.state == "failed"
        assert result.error == "The job's agent was killed, or could not write its result."
        eventually(lambda: not runs(member))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where a test may launch a job; its processes have ended when the test is over."""
    with ending(tmp_path / "job"):
        yield tmp_path / "job"


def test_the_agent_survives_its_launcher_and_is_found_again(folder: Path) -> None:
    program = (
        "import sys; from rota.elastic import *; "
        f"spec = JobSpec(command={SLEEPER!r}, members=(Member('a'),)); "
        f"ElasticJob.launch({str(folder)!r}, spec); "
        "import os; os.kill(os.getpid(), 9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": SOURCE}, check=False
    )
    assert done.returncode == -signal.SIGKILL
    job = ElasticJob.find(folder)
    assert job.observe().state == "starting"
    with pytest.raises(ConfigError, match="already holds a job"):
        ElasticJob.launch(folder, JobSpec(command=SLEEPER, members=(Member("a"),)))
    again = subprocess.run(
        [sys.executable, "-m", "rota.elastic.agent", str(folder)],
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 1
    assert again.stderr.strip().endswith("the job has an agent already.")
    job.stop(0.1)
    assert job.wait(PATIENCE_S).state == "stopped"
    with pytest.raises(JobError, match=r"the job is over \(stopped\)"):
        job.resize(["a"])


def test_a_port_in_use_is_named(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        spec = JobSpec(command=SLEEPER, members=(Member("a"),), port=port)
        with pytest.raises(JobError, match=f"cannot listen at 127.0.0.1:{port}: Address already"):
            ElasticJob.launch(folder, spec)
    # Nothing was launched, so the folder can be used again.
    job = ElasticJob.launch(folder, replace(spec, port=0))
    job.stop(0)
    assert job.wait(PATIENCE_S).state == "stopped"


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A disk of its own with 128 kB of space."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(folder)]
    if (
        not shutil.which("mount")
        or subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode
    ):
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


FILLS = """
with open("big", "wb", buffering=0) as big:
    try:
        while True:
            big.write(b"x" * 512)
    except OSError:
        pass
"""


def test_a_disk_that_fills_up_is_named(tmp_path: Path) -> None:
    command = (sys.executable, "-c", f"{FILLS}\nprint('x' * 10000, flush=True)")
    with (
        small_disk(tmp_path / "disk") as disk,
        trial(disk, ["a"], command=command, mode="plain") as run,
    ):
        result = run.job.wait(PATIENCE_S)
        assert result.state == "failed"
        assert result.error.startswith("a: it exited with code 1: ")
        assert result.error.endswith("(the disk is full)")


def test_what_a_job_has_achieved_is_not_lost_with_a_full_disk(tmp_path: Path) -> None:
    command = (sys.executable, "-c", FILLS)
    with (
        small_disk(tmp_path / "disk") as disk,
        trial(disk, ["a"], command=command, mode="plain") as run,
    ):
        assert run.job.wait(PATIENCE_S).state == "done"


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    try:
        os.mknod(folder / "agent.part", stat.S_IFCHR | 0o600, os.stat("/dev/full").st_rdev)
    except PermissionError:
        pytest.skip("needs the right to make a device")
    with pytest.raises(JobError, match="No space left on device"):
        ElasticJob.launch(folder, JobSpec(command=SLEEPER, members=(Member("a"),)))


def test_a_full_disk_ends_no_job_by_itself(folder: Path) -> None:
    logs = folder / "logs"
    logs.mkdir(parents=True)
    (logs.parent / "agent.log").symlink_to("/dev/full")
    (logs / "a.log").symlink_to("/dev/full")
    program = "import time; time.sleep(0.2); print('x' * 10000, flush=True)"
    spec = JobSpec(command=(sys.executable, "-c", program), members=(Member("a"),))
    result = ElasticJob.launch(folder, spec).wait(PATIENCE_S)
    assert "No member could start; a: it exited with code 1" in result.error


def ask(address: dict[str, Any], *lines: str | bytes) -> list[dict[str, Any]]:
    """Send lines to an agent, with its token; returns the answers."""
    where = (address["host"], address["port"])
    with open_connection(where, address["token"], PATIENCE_S) as link:
        link.settimeout(PATIENCE_S)
        said = [line.encode() if isinstance(line, str) else line for line in lines]
        link.sendall(b"".join(line + b"\n" for line in said))
        link.shutdown(socket.SHUT_WR)
        return [json.loads(line) for line in link.makefile("rb").read().splitlines()]


HELLO = json.dumps({"op": "hello", "protocol": 2})


def test_requests_that_make_no_sense_are_answered(tmp_path: Path) -> None:
    with trial(tmp_path, ["a"], command=SLEEPER) as run:
        address = json.loads(run.text("agent.json"))
        cases: dict[str | bytes, str] = {
            "what": "is not a message",
            b"[" * 100_000: "is not a message",
            b'{"a":' * 100_000: "is not a message",
            b"1" * 1_000_000: "is not a message",
            b'{"op": "\xff\xfe"}': "is not a message",
            '{"op": "\\ud800"}': "There is no request",
            '{"op": ["stop"]}': "There is no request",
            '{"op": "dance"}': "There is no request 'dance'",
            '{"op": "stop"}': "is not understood: KeyError('grace_s')",
            '{"op": "stop", "grace_s": NaN}': "grace_s=nan is not a number of seconds",
            '{"op": "stop", "grace_s": -1}': "grace_s=-1.0",
            '{"op": "stop", "grace_s": 1' + "0" * 400 + "}": "is not understood: OverflowError",
            '{"op": "resize", "members": []}': "at least one worker",
            '{"op": "resize", "members": [{"name": "a b"}]}': "cannot be called 'a b'",
            '{"op": "resize", "members": [{"name": ["a"]}]}': "cannot be called ['a']",
            '{"op": "resize", "members": [{"nam": "b"}]}': "is not a list of members",
            '{"op": "resize", "members": [{"name": "a"}, {"name": "a"}]}': "Two members",
            '{"op": "resize", "members": [{"name": "a"}, {"name": "s", "kind": "server"}]}': (
                "Member s is a server"
            ),
        }
        for env in ('{"A": 1}', '{"A": "\\u0000"}', '{"A": "\\ud800"}', '{"A=B": ""}', '"A"'):
            line = f'{{"op": "resize", "members": [{{"name": "b", "env": {env}}}]}}'
            cases[line] = "environment"
        for line, error in cases.items():
            first, answer = ask(address, HELLO, line)
            assert first["ok"]
            assert (answer["ok"], error in answer["error"]) == (False, True), answer
        for line in (
            '{"op": "observe"}',
            '{"op": "hello", "protocol": 1}',
            '{"op": "hello", "protocol": 2, "name": {}}',
            '{"op": "hello", "protocol": 2, "name": "a", "card": {}}',
            '{"op": "hello", "protocol": 2, "name": "a", "card": {"host": "h", "state_port": 1}}',
        ):
            (answer,) = ask(address, line)
            assert not answer["ok"]
        with pytest.raises(OSError, match="is the token right"):
            ask({**address, "token": "0" * 64}, HELLO)
        assert run.job.observe().state == "starting"
        assert (tmp_path / "job" / "agent.json").stat().st_mode & 0o077 == 0


def test_no_message_of_a_member_ends_its_agent(tmp_path: Path) -> None:
    with trial(tmp_path, ["a", Member("b", outside=True)], command=SLEEPER) as run:
        address = json.loads(run.text("agent.json"))
        hello = json.loads(HELLO) | {
            "name": "b",
            "card": {"host": "127.0.0.1", "state_port": 1},
            "outline": {"sizes": [1], "form": "", "plan": {"samples": 1, "epochs": 1}},
        }
        words = (
            {"op": "joined", "number": 1, "step": "x", "epoch": 0, "samples": 0, "pause_s": 0},
            {"op": "joined", "number": 1, "step": 1, "epoch": 0, "samples": 0},
            {"op": "alive", "step": float("nan"), "epoch": 0, "samples": 0},
            {"op": "alive", "step": 10**30, "epoch": 0, "samples": 0},
            {"op": "trouble", "number": None, "error": "?"},
            {"op": "failed", "error": ["?"]},
            {"op": {}},
        )
        answers = ask(address, *map(json.dumps, (hello, *words)))
        assert [answer["ok"] for answer in answers] == [True] + [False] * len(words)
        status = run.see(lambda status: bool(status.refused))
        assert status.refused == {"b": "its connection ended"}
        assert status.waiting == ("a",)


def test_settings_that_make_no_sense_are_refused() -> None:
    spec = JobSpec(command=SLEEPER, members=(Member("a"),))
    for change, error in (
        ({"command": ()}, "command is empty"),
        ({"mode": "ring"}, "mode='ring'"),
        ({"mode": "servers"}, "needs at least one server"),
        ({"port": 70000}, "70000 is not a port"),
        ({"preload": ("torch",), "command": ("train",)}, "preload needs a command"),
    ):
        with pytest.raises(ConfigError, match=error):
            replace(spec, **change)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="stall_s=0"):
        TimeLimits(stall_s=0)


def test_a_job_waits_no_longer_than_told(tmp_path: Path) -> None:
    with trial(tmp_path, ["a"], command=SLEEPER) as run:
        began_s = monotonic()
        with pytest.raises(JobError, match="was not done within"):
            run.job.settle(0.2)
        with pytest.raises(JobError, match="was not over"):
            run.job.wait(0.2)
        assert monotonic() - began_s < PATIENCE_S
