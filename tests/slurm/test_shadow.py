"""`rota run --shadow` beside a Slurm that schedules by itself: all is seen, nothing is touched."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING, Any

import pytest
from daemon import SLEEP, all_over, daemon, state_of

from rota.backends.book_reader import read_known
from rota.run.reader import read_journal

if TYPE_CHECKING:
    from pathlib import Path

    from lab import Lab

pytestmark = pytest.mark.slurm
WHOLE = ("-p", "free", "-N8", "--gres=gpu:4", "-t", "10")
UNTIL_TOLD = "#!/bin/sh\nwhile [ ! -e go ]; do sleep .1; done\n"
READS = {"squeue", "sinfo", "sacct", "scontrol show"}


def recorded(lab: Lab, calls: Path) -> dict[str, str]:
    """An environment in which every call of Slurm's commands is written down."""
    folder = calls.parent / "bin"
    folder.mkdir(exist_ok=True)
    for tool in ("squeue", "sinfo", "sacct", "scontrol", "scancel", "sbatch", "srun", "salloc"):
        real = shutil.which(tool, path=lab.env["PATH"])
        wrapper = folder / tool
        wrapper.write_text(f'#!/bin/sh\necho "{tool} $*" >> {calls}\nexec {real} "$@"\n')
        wrapper.chmod(0o755)
    return {**lab.env, "PATH": f"{folder}:{lab.env['PATH']}"}


def commands(calls: Path) -> set[str]:
    """What was called, without what it was asked for; of scontrol, with its verb."""
    lines = [line.split() for line in calls.read_text().splitlines()]
    return {" ".join(words[:2]) if words[0] == "scontrol" else words[0] for words in lines}


def jobs_in(journal: Path) -> int:
    """Jobs that a journal tells of."""
    with read_journal(journal) as view:
        return len(view.jobs.job_id)


def untouched(job: dict[str, Any]) -> bool:
    """Whether a job is as Slurm and its user have made it."""
    return (job["restart_cnt"], job["admin_comment"], job["required_nodes"]) == (0, "", "")


def report(lab: Lab, journal: Path, *words: str) -> Any:
    """What `rota report --shadow --json` says."""
    text = lab.run(sys.executable, "-m", "rota", "report", str(journal), "--shadow", "--json",
                   *words, timeout=600)  # fmt: skip
    return json.loads(text)


def test_shadow_sees_all_that_slurm_does_and_does_nothing(lab: Lab, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    env = recorded(lab, calls)
    shadow = {"name": "shadow", "partition": "free", "env": env}
    with daemon(lab, "srtf", "--shadow", **shadow) as rota:
        first = lab.submit(UNTIL_TOLD, *WHOLE, "--comment=rota:estimate=1h")
        lab.until(lambda: state_of(lab, first) == "RUNNING", "the first job runs")
        long = lab.submit(SLEEP.format(seconds=12), *WHOLE, "--comment=rota:estimate=12s")
        short = lab.submit(SLEEP.format(seconds=3), *WHOLE, "--comment=rota:estimate=3s")
        lab.until(lambda: jobs_in(rota.journal) == 3, "the journal has all jobs")
        (lab.work / "go").touch()
        lab.until(lambda: state_of(lab, long) != "PENDING", "Slurm goes by the order of arrival")
        rota.kill()
    lab.until(lambda: state_of(lab, short) != "PENDING", "the short job has begun")
    with daemon(lab, "srtf", "--shadow", **shadow) as rota:
        lab.until(lambda: all_over(lab, first, long, short), "all jobs are over")

        def told() -> bool:
            with read_journal(rota.journal) as view:
                return int((view.outcome().done_s > 0).sum()) == 3

        lab.until(told, "the journal has all")
        assert rota.stop() == 0

    assert commands(calls) <= READS
    jobs = lab.jobs()
    assert all(untouched(jobs[job]) for job in (first, long, short))
    with read_journal(rota.journal) as view:
        outcome = view.outcome()
    known = {job.uid: job for job in read_known(rota.journal)}
    for row, job in enumerate((first, long, short)):
        begin_s, end_s = jobs[job]["start_time"], jobs[job]["end_time"]
        assert outcome.done_s[row] - outcome.started_s[row] == pytest.approx(end_s - begin_s, abs=2)
        assert (known[row + 1].name, known[row + 1].end_s) == (str(job), end_s)

    found = report(lab, rota.journal)
    assert (found["compared"], found["not_compared"]) == (3, {})
    assert [job["job"] for job in found["jobs"]] == [str(first), str(long), str(short)]
    real_s = [job["slurm_wait_s"] for job in found["jobs"]]
    wait_s = [job["wait_s"]["srtf"] for job in found["jobs"]]
    for job, told_s in zip((first, long, short), real_s, strict=True):
        waited_s = jobs[job]["start_time"] - jobs[job]["submit_time"]
        assert told_s == pytest.approx(waited_s, abs=3)
    # The first job cannot be stopped; then the short one goes before the long one.
    assert wait_s[2] < wait_s[1] < real_s[2]
    rows = {row["policy"]: row for row in found["policies"]}
    assert rows["srtf"]["preemptions"] == 0
    assert rows["srtf"]["less"] >= 1
    assert rows["fifo"]["mean_wait_s"] <= found["slurm"]["mean_wait_s"] + 2
    live = found["live"]
    assert (live["decided"].keys(), live["troubles"]) == ({"srtf"}, {})
    assert (live["starts"], live["stops"]) == (3, 0)
    assert live["differed"] > 0


def test_shadow_does_not_keep_the_hook_waiting_and_has_a_state_of_its_own(lab: Lab) -> None:
    lab.beat(age_s=10_000)
    with daemon(lab, "srtf", "--shadow", name="quiet") as rota:
        job = lab.submit(SLEEP.format(seconds=2))
        lab.until(lambda: all_over(lab, job), "Slurm runs it, although the hook is there")
        assert rota.stop() == 0
    words = ("run", "--backend", "slurm", "--partition", "rota", "--state", str(rota.state))
    done = lab.attempt(sys.executable, "-m", "rota", *words)
    assert done.returncode != 0
    assert "was begun with --shadow" in done.stderr
    assert not (rota.state / "heartbeat").exists()
