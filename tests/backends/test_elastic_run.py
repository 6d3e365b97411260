"""`rota elastic-run` without a Slurm: its commands are stand-ins, its training is real."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from math import nan
from typing import TYPE_CHECKING, Any

import pytest
from children import PATIENCE_S, child, eventually
from elastic_jobs import SOURCE, Trial, script

from rota.backends.slurm.elastic_member import gpus_here, names_of
from rota.backends.slurm.elastic_run import beat_of, own_folder, own_job
from rota.backends.slurm.satellite_jobs import MOST_AGAIN, SatelliteJobs
from rota.backends.slurm.tools import SlurmTools
from rota.elastic import ElasticJob, Status
from rota.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

STAND_INS = {
    "squeue": 'if [ "$1" = --json ]; then cat squeue.json; else cat listed; fi',
    "scontrol": "echo NodeName=$3 NodeAddr=127.0.0.1 Port=1",
    "sbatch": 'echo "$@" >> sbatch.log; echo $((100 + $(wc -l < sbatch.log)))',
    "scancel": 'echo "$@" >> scancel.log',
    "srun": 'while case "$1" in --*) true ;; *) false ;; esac; do shift; done; exec "$@"',
}
JOB = {
    "job_id": 5, "array_job_id": 0, "job_state": "RUNNING", "nodes": "n1", "cpus": 2,
    "node_count": 1, "comment": "rota:elastic=yes,max_nodes=3", "user_id": 0, "partition": "rota",
}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The working directory of job 5, with Slurm's commands in `bin`."""
    (tmp_path / "bin").mkdir()
    for name, text in STAND_INS.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    row = {**JOB, "current_working_directory": str(tmp_path)}
    (tmp_path / "squeue.json").write_text(json.dumps({"jobs": [row]}))
    return tmp_path


def environ(place: Path, **more: str) -> dict[str, str]:
    """What Slurm tells the processes of a job."""
    return {
        **os.environ, "PYTHONPATH": SOURCE, "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "5", "SLURM_JOB_NODELIST": "n1", "SLURMD_NODENAME": "n1", **more,
    }  # fmt: skip


def read(place: Path, name: str) -> list[str]:
    path = place / name
    return path.read_text().splitlines() if path.exists() else []


def test_a_training_gains_and_loses_a_satellite_and_ends_them_all(place: Path) -> None:
    training = script(place / "out", epochs=6, pace_s=0.05)
    command = [sys.executable, "-m", "rota", "elastic-run", "--", *training]
    folder = place / "rota-elastic-5" / "run-0"
    run = Trial(ElasticJob(folder), place / "out")
    satellite = [sys.executable, "-m", "rota.backends.slurm.elastic_member", str(folder)]
    where = environ(place, SLURM_JOB_ID="101", SLURMD_NODENAME="n2")
    with child(command, cwd=place, env=environ(place)) as leader:
        eventually((folder / "agent.json").exists)
        with child(satellite, cwd=place, env=where) as member:
            eventually(lambda: len(run.job.observe().active) == 2)
            member.send_signal(signal.SIGTERM)
            assert member.wait(PATIENCE_S) == 0
        assert run.job.observe().refused == {}
        assert leader.wait(PATIENCE_S) == 0
    assert set(run.taken().values()) == {1}
    assert len(read(place, "sbatch.log")) == 2
    assert "--comment=rota:satellite-of=5" in read(place, "sbatch.log")[0]
    assert read(place, "scancel.log") == ["101", "102"]
    beat = place / "rota-heartbeat-5.json"
    assert beat.stat().st_mode & 0o777 == 0o644  # rota runs under another account
    told = json.loads(beat.read_text())
    assert told["samples"] == told["total"] == sum(run.taken().values())


@pytest.mark.parametrize("restarts", ["1", "0"])  # a controller that was killed forgets runs
def test_a_training_that_is_stopped_goes_on_in_the_next_run(place: Path, restarts: str) -> None:
    training = script(place / "out", epochs=6, pace_s=0.05)
    command = [sys.executable, "-m", "rota", "elastic-run", "--", *training]
    root = place / "rota-elastic-5"
    run = Trial(ElasticJob(root / "run-0"), place / "out")
    with child(command, cwd=place, env=environ(place)) as leader:
        eventually((root / "run-0" / "agent.json").exists)
        eventually(lambda: run.job.observe().step > 3)
        leader.send_signal(signal.SIGTERM)
        assert leader.wait(PATIENCE_S) == 0
    assert run.job.observe().state == "stopped"
    with child(command, cwd=place, env=environ(place, SLURM_RESTART_COUNT=restarts)) as leader:
        assert leader.wait(PATIENCE_S) == 0
    assert set(run.taken().values()) == {1}
    assert (root / "run-1").is_dir()
    assert len(read(place, "scancel.log")) == 4


@pytest.mark.parametrize(("program", "printed"), [("1 / 0", "ZeroDivisionError"), ("pass", "")])
def test_a_script_that_never_trains_fails_the_job_at_once_and_says_why(
    place: Path, program: str, printed: str
) -> None:
    command = [sys.executable, "-m", "rota", "elastic-run", "--", sys.executable, "-c", program]
    with child(command, cwd=place, env=environ(place), stderr=-1, text=True) as leader:
        _, said = leader.communicate(timeout=PATIENCE_S)
    assert leader.returncode == 1
    assert printed in said
    # Not from the agent, which waits two minutes for members that it has not started itself.
    assert "No member could start; see above what they have printed." in said


def test_a_training_whose_folder_is_removed_fails_at_once(place: Path) -> None:
    training = script(place / "out", epochs=100_000, pace_s=0.05)
    command = [sys.executable, "-m", "rota", "elastic-run", "--", *training]
    folder = place / "rota-elastic-5" / "run-0"
    with child(command, cwd=place, env=environ(place), stderr=-1, text=True) as leader:
        eventually((folder / "agent.json").exists)
        eventually(lambda: ElasticJob(folder).observe().step > 3)
        shutil.rmtree(folder.parent)
        _, said = leader.communicate(timeout=PATIENCE_S)
    assert leader.returncode == 1
    assert "agent was killed, or could not write its result" in said


def test_a_job_that_may_not_submit_jobs_trains_on_its_own_nodes(place: Path) -> None:
    (place / "bin" / "sbatch").write_text("#!/bin/sh\necho not from here >&2; exit 1\n")
    training = script(place / "out", epochs=1)
    command = [sys.executable, "-m", "rota", "elastic-run", "--", *training]
    with child(command, cwd=place, env=environ(place), stderr=-1, text=True) as leader:
        _, said = leader.communicate(timeout=PATIENCE_S)
    assert leader.returncode == 0
    assert "the job cannot grow: sbatch gave no satellite: not from here" in said


def test_satellites_that_are_over_are_replaced_but_not_for_ever(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    tools = SlurmTools({"PATH": f"{place / 'bin'}:{os.environ['PATH']}"})
    job = own_job({"SLURM_JOB_ID": "5", "SLURMD_NODENAME": "n1"}, tools)
    satellites, facts = SatelliteJobs(tools, place / "satellites.json"), {"SLURM_JOB_ID": "5"}

    def replaced(listed: str) -> tuple[int, list[int]]:
        (place / "listed").write_text(listed)
        count = satellites.replace_lost(job, place, facts)
        return count, json.loads((place / "satellites.json").read_text())["satellites"]

    assert satellites.submit(job, place, facts) == 2
    assert replaced("101\n102\n") == (0, [101, 102])
    assert replaced("102\n") == (1, [102, 103])
    (place / "bin" / "squeue").rename(place / "bin" / "away")
    (place / "bin" / "squeue").symlink_to("/bin/false")  # nobody knows which are over
    assert replaced("") == (0, [102, 103])
    (place / "bin" / "away").rename(place / "bin" / "squeue")
    assert [replaced("")[0] for _ in range(6)] == [2, 2, 2, 1, 0, 0]
    satellites.cancel()
    assert read(place, "scancel.log") == ["110"]
    assert len(read(place, "sbatch.log")) == 2 + MOST_AGAIN


DAMAGED = ("", "{", "[]", '{"satellites": 5}', '{"satellites": ["-x", null]}')


@pytest.mark.parametrize("text", DAMAGED)
def test_of_a_damaged_list_no_satellite_is_cancelled(place: Path, text: str) -> None:
    (place / "satellites.json").write_text(text)
    tools = SlurmTools({"PATH": f"{place / 'bin'}:{os.environ['PATH']}"})
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        SatelliteJobs(tools, place / "satellites.json").cancel()
    assert read(place, "scancel.log") == []
    assert not (place / "satellites.json").exists()


def test_a_damaged_list_of_satellites_ends_no_training(place: Path) -> None:
    training = script(place / "out", epochs=1)
    folder = place / "rota-elastic-5"
    folder.mkdir()
    (folder / "satellites.json").write_text(DAMAGED[-1])
    (place / "bin" / "sbatch").write_text("#!/bin/sh\nexit 1\n")
    (place / "bin" / "scancel").unlink()
    command = [sys.executable, "-m", "rota", "elastic-run", "--", *training]
    where = environ(place)
    with child(command, cwd=place, env=where, stderr=-1, text=True) as leader:
        _, said = leader.communicate(timeout=PATIENCE_S)
    assert leader.returncode == 0
    assert "the job cannot grow" in said


def test_satellites_are_not_cancelled_one_after_the_other_while_slurm_is_away(
    place: Path,
) -> None:
    (place / "bin" / "scancel").write_text(
        '#!/bin/sh\necho "$@" >> scancel.log\n'
        'echo "Unable to contact slurm controller" >&2; exit 1\n'
    )
    tools = SlurmTools({"PATH": f"{place / 'bin'}:{os.environ['PATH']}"})
    (place / "satellites.json").write_text('{"satellites": [101, 102, 103]}')
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        SatelliteJobs(tools, place / "satellites.json").cancel()
    assert read(place, "scancel.log") == ["101"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder of somebody else's")
def test_a_folder_that_somebody_else_has_made_is_not_trained_in(place: Path) -> None:
    folder = place / "rota-elastic-5"
    folder.mkdir(mode=0o777)
    os.chown(folder, 65534, 65534)
    command = [sys.executable, "-m", "rota", "elastic-run", "--", "true"]
    with child(command, cwd=place, env=environ(place), stderr=-1, text=True) as leader:
        _, said = leader.communicate(timeout=PATIENCE_S)
    assert leader.returncode == 1
    assert "belongs to somebody else (user 65534); submit the job from" in said
    assert list(folder.iterdir()) == []


def test_into_the_folder_of_a_job_only_its_user_can_put_files(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert own_folder(tmp_path / "a").stat().st_mode & 0o777 == 0o755
        (tmp_path / "b").mkdir(mode=0o775)
    finally:
        os.umask(before)
    assert own_folder(tmp_path / "b").stat().st_mode & 0o777 == 0o755
    (tmp_path / "link").symlink_to("b")
    with pytest.raises(OSError, match="link"):
        own_folder(tmp_path / "link")


def test_outside_of_a_job_it_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match="submit a script with it by sbatch"):
        own_job({}, SlurmTools())


def test_members_are_named_by_node_job_and_run_and_there_is_one_for_each_gpu() -> None:
    facts = {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "2", "CUDA_VISIBLE_DEVICES": "0,3"}
    assert gpus_here(facts) == ["0", "3"]
    assert names_of(facts, "n1", 2) == ["n1-7-2-0", "n1-7-2-1"]


def test_a_heartbeat_says_what_is_known_and_nothing_else() -> None:
    status: dict[str, Any] = {"state": "running", "samples": 8, "ago_s": 2.0}
    told = beat_of(Status(**status, active=("a", "b")), 2, 100.0, nan)
    assert told == {"time": 98.0, "samples": 8, "nodes": 1}
    full = Status(**status, total=16, samples_per_s=4.0, changes=2, paused_s=1.0)
    told = beat_of(full, 1, 100.0, 90.0)
    assert told == {"time": 98.0, "samples": 8, "nodes": 0, "total": 16, "samples_per_s": 4.0,
                    "pause_s": 0.5, "saved": 90.0}  # fmt: skip
