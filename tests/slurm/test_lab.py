"""The private Slurm does what tests build on, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from children import child, eventually
from lab import LabError
from lab_end import job_processes
from lab_files import LabSetup, write_files

if TYPE_CHECKING:
    from lab import Lab

pytestmark = pytest.mark.slurm
HERE = Path(__file__).parent
# A job whose processes would outlive it: one has a session of its own.
STUBBORN = "#!/bin/sh\ntrap '' TERM\nsetsid sleep 1000 &\nsrun -n1 sleep 1000 &\nsleep 1000\n"
OTHER_LAB = """
import sys
from lab import Lab
from lab_files import LabSetup
with Lab(LabSetup(nodes=2)) as lab:
    job = lab.submit(sys.argv[1], "-p", "free")
    lab.until(lambda: len(lab.run("squeue", "-h", "-s").split()) > 0, "a step runs")
    print(lab.state, flush=True)
    sys.stdin.read()
"""


def of(state: str) -> list[str]:
    """The processes that have to do with a lab."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
        except OSError:
            continue
        if state.encode() in words:
            found.append(words.decode(errors="replace"))
    return found


def test_jobs_run_on_pretended_gpus(lab: Lab) -> None:
    script = "#!/bin/sh\necho $SLURM_JOB_NODELIST $CUDA_VISIBLE_DEVICES\n"
    job = lab.submit(script, "-p", "free", "-w", "n4", "--gres=gpu:3")
    lab.until(lambda: lab.jobs()[job]["job_state"] == "COMPLETED", "the job is done")
    assert (lab.work / f"{job}.out").read_text() == "n4 0,1,2\n"


def test_a_node_dies_with_its_jobs_and_comes_back(lab: Lab) -> None:
    job = lab.submit(STUBBORN, "-p", "free", "-w", "n2", "--no-requeue")
    lab.until(lambda: len(job_processes(lab.state, "n2")) > 3, "the job runs")
    lab.kill_node("n2")
    assert job_processes(lab.state, "n2") == []
    lab.until(lambda: lab.jobs()[job]["job_state"] == "NODE_FAIL", "its death is noticed")
    assert "down" in lab.node_state("n2")
    lab.start_node("n2")
    assert lab.node_state("n2") == "idle"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_lab_whose_test_was_ended(lab: Lab, number: int) -> None:
    command = [sys.executable, "-c", OTHER_LAB, STUBBORN]
    paths = {"PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with child(command, env={**os.environ, **paths}, text=True, **pipes) as other:
        assert other.stdout is not None
        state = other.stdout.readline().strip()
        assert state  # it ran beside the first
        assert state != str(lab.state)
        assert len(of(state)) > 4
        other.send_signal(number)
        other.wait(300)
        eventually(lambda: of(state) == [], lambda: of(state))
        eventually(lambda: not Path(state).exists())
    assert lab.run("scontrol", "ping")


def test_a_path_that_sockets_would_not_fit_is_refused(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 70)
    deep.mkdir()
    with pytest.raises(ValueError, match="TMPDIR"):
        write_files(deep, LabSetup(), range(17000, 17009), "")


def test_a_command_that_fails_says_why(lab: Lab) -> None:
    with pytest.raises(LabError, match="Invalid job id"):
        lab.run("scontrol", "release", "4000000")
    with pytest.raises(LabError, match="not: the sky falls"):
        lab.until(lambda: False, "the sky falls", limit_s=0.1)
