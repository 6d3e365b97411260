"""`rota run --backend slurm` drives a real Slurm: order, place, preemption, size, crashes."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import pytest
from daemon import COUNTING, SAVES, SLEEP, all_over, daemon, ledger, rota_command, runs, state_of
from lab import NOBODY

from rota.backends.slurm.slurm_driver import SlurmDriver
from rota.backends.slurm.tools import SlurmTools
from rota.errors import BackendError
from rota.run.reader import read_journal
from rota.testing import check_driver

if TYPE_CHECKING:
    from pathlib import Path

    from lab import Lab

pytestmark = pytest.mark.slurm
PREEMPTED = "--comment=rota:checkpointable=yes,estimate={estimate}"


def journal_ends(path: Path) -> int:
    """Jobs of which a journal says that they are done."""
    with read_journal(path) as view:
        return int((view.outcome().done_s > 0).sum())


def test_jobs_of_all_kinds_run_once_and_the_journal_tells_of_all(lab: Lab) -> None:
    gpu = "--gres=gpu:1"
    jobs = [lab.submit(COUNTING.format(steps=5), f"-N{k}", "--gres=gpu:2") for k in (1, 2, 3, 4)]
    first = jobs[0]
    array = lab.submit(SLEEP.format(seconds=1), "-a", "0-5%3", gpu)
    jobs += [
        lab.submit(COUNTING.format(steps=5), gpu, uid=NOBODY),
        lab.submit(COUNTING.format(steps=5), "-n", "2", "-N2"),
        lab.submit(COUNTING.format(steps=5), gpu, f"--dependency=afterok:{first}"),
        lab.submit(COUNTING.format(steps=5), gpu, "--exclude=n[1-7]"),
        lab.submit(COUNTING.format(steps=5), gpu, "--nodelist=n5"),
        lab.submit(COUNTING.format(steps=5), "--gres=gpu:4", "--nodelist=n2,n6", "-N3"),
        lab.submit(COUNTING.format(steps=5), "--gpus=8", "-C", "a100"),
        lab.submit(COUNTING.format(steps=5), gpu, "--begin=now+8"),
    ]
    with daemon(lab, "srtf", name="kinds") as rota:
        lab.until(lambda: all_over(lab, *jobs), "all jobs are over")
        lab.until(lambda: not lab.run("squeue", "-h", "-j", str(array)), "the array is over")
        lab.until(lambda: journal_ends(rota.journal) == len(jobs) + 6, "the journal has all")
        assert rota.stop() == 0
    assert [len(runs(lab, job)) for job in jobs] == [1] * len(jobs)
    assert runs(lab, jobs[7]) == ["n8"]
    assert runs(lab, jobs[8]) == ["n5"]
    assert runs(lab, jobs[9])[0].startswith("n[2,") or "6" in runs(lab, jobs[9])[0]
    dependent, begun = ledger(lab, jobs[6])[0][1], ledger(lab, first)[-1][1]
    assert dependent > begun


def test_a_short_job_takes_the_place_of_a_long_one_that_can_be_stopped(lab: Lab) -> None:
    hints = PREEMPTED.format(estimate="1h")
    long = [lab.submit(COUNTING.format(steps=400), "-N4", "--gres=gpu:4", hints) for _ in range(2)]
    with daemon(lab, "srtf"):
        lab.until(lambda: all(runs(lab, job) for job in long), "the long jobs run")
        short = lab.submit(COUNTING.format(steps=5), "-N4", "--gres=gpu:4",
                           "--comment=rota:estimate=1s")  # fmt: skip
        lab.until(lambda: all_over(lab, short), "the short job is over")
        lab.until(lambda: all_over(lab, *long), "the long jobs are over")
    assert [what for what, *_ in ledger(lab, short)] == ["began", "ended"]
    whats = {tuple(what for what, *_ in ledger(lab, job)) for job in long}
    assert ("began", "stopped", "began", "ended") in whats
    for job in long:
        assert 400 <= int((lab.work / f"{job}.steps").read_text()) < 404


def test_a_job_without_hints_is_never_stopped(lab: Lab) -> None:
    long = lab.submit(COUNTING.format(steps=30), "-N8", "--gres=gpu:4", "-t", "600")
    with daemon(lab, "srtf"):
        lab.until(lambda: runs(lab, long), "it runs")
        short = lab.submit(COUNTING.format(steps=2), "-N1", "--gres=gpu:4", "-t", "1")
        lab.until(lambda: all_over(lab, long, short), "both are over")
    assert [what for what, *_ in ledger(lab, long)] == ["began", "ended"]
    assert ledger(lab, short)[0][1] > ledger(lab, long)[-1][1]


def test_a_job_is_given_notice_and_stopped_as_soon_as_it_has_saved(lab: Lab) -> None:
    hints = "rota:checkpointable=yes,signal=USR1,grace=1h,heartbeat=yes,estimate=1h"
    long = lab.submit(SAVES, "-N8", "--gres=gpu:4", f"--comment={hints}")
    with daemon(lab, "srtf"):
        lab.until(lambda: runs(lab, long), "it runs")
        short = lab.submit(COUNTING.format(steps=5), "--gres=gpu:4", "--comment=rota:estimate=1s")
        lab.until(lambda: all_over(lab, short), "the short job is over")
        lab.run("scancel", str(long))
    whats = [what for what, *_ in ledger(lab, long)]
    assert whats[:3] == ["began", "noticed", "stopped"]


def test_a_job_is_resized_by_a_requeue(lab: Lab) -> None:
    hints = "--comment=rota:checkpointable=yes,min_nodes=1,max_nodes=8,estimate=10m,restart=1s"
    job = lab.submit(COUNTING.format(steps=400), "-N2", "--gres=gpu:4", hints)
    with daemon(lab, "las+elastic", "--min-run", "3s"):
        lab.until(lambda: any("[1-8]" in nodes for nodes in runs(lab, job)), "it has all nodes")
        other = lab.submit(COUNTING.format(steps=30), "-N4", "--gres=gpu:4", "-t", "2")
        lab.until(lambda: all_over(lab, job, other), "both are over")
    assert len(runs(lab, other)) == 1
    assert len(runs(lab, job)) >= 2


def test_jobs_of_tasks_get_the_nodes_that_they_need_and_no_more(lab: Lab) -> None:
    asked = {"-n1 -c2": 1, "-n4 -c4": 1, "-n3 -c8 -N2": 2, "-n3 -c20": 3, "-n4": 1}
    with daemon(lab, "fifo-skip"):
        jobs = {lab.submit(COUNTING.format(steps=3), "--gres=gpu:1", *words.split()): count
                for words, count in asked.items()}  # fmt: skip
        lab.until(lambda: all_over(lab, *jobs), "all are over")
    assert {job: lab.jobs()[job]["node_count"] for job in jobs} == jobs


def test_a_job_that_slurm_never_starts_does_not_keep_nodes_from_others(lab: Lab) -> None:
    whole = ("-N8", "--gres=gpu:4")
    lab.run("scontrol", "update", "partitionname=rota", "maxtime=10")
    try:
        with daemon(lab, "fifo") as rota:
            first = lab.submit(SLEEP.format(seconds=1000), *whole, "-t", "100")
            other = lab.submit(COUNTING.format(steps=3), *whole, "-t", "1")
            lab.until(lambda: all_over(lab, other), "the other one is over")
            assert "Slurm does not start it (PartitionTimeLimit)" in rota.said
            lab.run("scontrol", "update", f"jobid={first}", "timelimit=5")
            lab.until(lambda: state_of(lab, first) == "RUNNING", "the first one runs")
    finally:
        lab.run("scontrol", "update", "partitionname=rota", "maxtime=infinite")


def test_a_job_with_tasks_per_node_that_has_grown_shrinks_to_what_it_was(lab: Lab) -> None:
    hints = "--comment=rota:checkpointable=yes,max_nodes=8,estimate=10m,restart=1s"
    script = COUNTING.format(steps=100_000)
    job = lab.submit(script, "-N2", "--ntasks-per-node=2", "--gres=gpu:4", hints)
    with daemon(lab, "las+elastic", "--min-run", "2s"):
        lab.until(lambda: "n[1-8]" in runs(lab, job), "it has all nodes")
        rigid = [lab.submit(COUNTING.format(steps=40), "-N3", "--gres=gpu:4") for _ in range(2)]
        lab.until(lambda: all(runs(lab, one) for one in rigid), "it has made room for both")
        lab.until(lambda: all_over(lab, *rigid), "both are over")
    assert ledger(lab, job)[-1][0] != "ended"


def test_a_killed_daemon_is_followed_by_one_that_goes_on(lab: Lab) -> None:
    with daemon(lab, "srtf", name="killed") as rota:
        jobs = [
            lab.submit(COUNTING.format(steps=60 + 7 * k), "-N2", "--gres=gpu:4",
                       PREEMPTED.format(estimate="30s"))
            for k in range(8)
        ]  # fmt: skip
        lab.until(lambda: any(runs(lab, job) for job in jobs), "a job runs")
        rota.kill()
    with daemon(lab, "srtf", name="killed") as rota:
        lab.until(lambda: all_over(lab, *jobs), "all jobs are over")
        lab.until(lambda: journal_ends(rota.journal) == len(jobs), "the journal has all")
    for job in jobs:
        whats = [what for what, *_ in ledger(lab, job)]
        assert (whats[0], whats[-1], whats.count("ended")) == ("began", "ended", 1)


def test_a_drained_node_is_left_alone_and_a_dead_one_gives_its_jobs_back(lab: Lab) -> None:
    hints = PREEMPTED.format(estimate="1m")
    lab.run("scontrol", "update", "nodename=n1", "state=drain", "reason=test")
    try:
        jobs = [lab.submit(COUNTING.format(steps=100), "--gres=gpu:4", hints) for _ in range(7)]
        with daemon(lab, "srtf"):
            lab.until(lambda: all(runs(lab, job) for job in jobs), "all run")
            victim = next(job for job in jobs if runs(lab, job) == ["n4"])
            lab.kill_node("n4")
            lab.run("scontrol", "update", "nodename=n4", "state=down", "reason=test")
            lab.until(lambda: all_over(lab, *jobs), "all jobs are over")
    finally:
        lab.run("scontrol", "update", "nodename=n1", "state=resume")
    assert all("n1" not in runs(lab, job) for job in jobs)
    assert len(runs(lab, victim)) == 2
    assert runs(lab, victim)[1] != "n4"


def test_jobs_of_others_and_jobs_that_users_hold_are_left_alone(lab: Lab) -> None:
    foreign = lab.submit(SLEEP.format(seconds=1000), "-p", "free", "-N4", "--gres=gpu:4")
    lab.until(lambda: state_of(lab, foreign) == "RUNNING", "it runs")
    before = lab.jobs()[foreign]["nodes"]
    held = lab.submit(SLEEP.format(seconds=1), "--hold", uid=NOBODY)
    hostile = "--comment=rota:checkpointable=yes,min_nodes=0,max_nodes=999999999,model=$(reboot);'"
    jobs = [lab.submit(COUNTING.format(steps=5), "-N2", "--gres=gpu:4", hostile,
                       "--job-name=a\n1;`touch evil` \"'") for _ in range(4)]  # fmt: skip
    with daemon(lab, "srtf") as rota:
        lab.until(lambda: all_over(lab, *jobs), "all jobs are over")
        assert "is ignored" in rota.said
        assert state_of(lab, foreign) == "RUNNING"
        assert state_of(lab, held) == "PENDING"
        lab.run("scontrol", "release", str(held), uid=NOBODY)
        lab.until(lambda: all_over(lab, held), "the held job is over")
    found = lab.jobs()[foreign]
    assert (found["restart_cnt"], found["nodes"]) == (0, before)
    assert not (lab.work / "evil").exists()


def test_a_scheduler_that_stops_for_good_leaves_jobs_to_the_hook_and_slurm(lab: Lab) -> None:
    with daemon(lab, "srtf") as rota:
        job = lab.submit(SLEEP.format(seconds=1))
        lab.until(lambda: all_over(lab, job), "it is over")
        assert rota.stop() == 0
    lab.beat(age_s=10_000)
    after = lab.submit(SLEEP.format(seconds=1))
    lab.until(lambda: all_over(lab, after), "Slurm runs it by itself")


def test_what_is_asked_for_wrongly_is_said_clearly(lab: Lab) -> None:
    words = ("rota", "run", "--backend", "slurm")
    done = lab.attempt(sys.executable, "-m", *words, "--state", str(lab.state / "x"))
    assert done.returncode == 2
    assert "--partition" in done.stderr
    done = lab.attempt(sys.executable, "-m", *words, "--partition", "gpuu", "--state",
                       str(lab.state / "x"))  # fmt: skip
    assert done.returncode != 0
    assert "gpuu" in done.stderr
    done = lab.attempt(sys.executable, "-m", *words, "--partition", "rota", "--partition", "gpuu",
                       "--state", str(lab.state / "x"))  # fmt: skip
    assert done.returncode != 0
    assert "Slurm has no nodes in gpuu;" in done.stderr
    assert json.loads(lab.run("squeue", "--json"))["errors"] == []


def test_a_controller_that_hangs_is_not_taken_for_one_without_jobs(lab: Lab) -> None:
    job = lab.submit(SLEEP.format(seconds=1000), "--gres=gpu:1")
    driver = SlurmDriver(SlurmTools(lab.env), frozenset({"rota"}))
    assert str(job) in [one.name for one in driver.observe().jobs]
    lab.pause_ctld()
    try:
        with pytest.raises(BackendError, match="listed no nodes"):
            driver.observe()
    finally:
        lab.pause_ctld(pause=False)
    assert str(job) in [one.name for one in driver.observe().jobs]


def test_the_driver_keeps_the_contract_of_drivers(lab: Lab) -> None:
    driver = SlurmDriver(SlurmTools(lab.env), frozenset({"rota"}))
    hints = "--comment=rota:checkpointable=yes,signal=USR1,grace=1s"

    def submit() -> str:
        return str(lab.submit(COUNTING.format(steps=100_000), "--gres=gpu:1", hints))

    check_driver(driver, submit, patience_s=300.0)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as an ordinary user")
@pytest.mark.parametrize(("odd", "nodes"), [("n[1-]", ["n1"]), ("n1 n2", ["n1", "n2"])])
def test_a_list_of_nodes_that_a_user_writes_oddly_stops_nobodys_job(
    lab: Lab, odd: str, nodes: list[str]
) -> None:
    job = lab.submit(COUNTING.format(steps=2), uid=NOBODY)
    lab.run("scontrol", "update", f"jobid={job}", f"excnodelist={odd}", uid=NOBODY)
    with daemon(lab, "srtf", name="odd"):
        other = lab.submit(COUNTING.format(steps=2))
        lab.until(lambda: all_over(lab, job, other), "both are over")
    assert runs(lab, job)[0] not in nodes


def test_a_job_that_an_administrator_holds_waits_until_he_releases_it(lab: Lab) -> None:
    filler = lab.submit(SLEEP.format(seconds=600), "-N8", "--gres=gpu:4")
    with daemon(lab, "srtf") as rota:
        lab.until(lambda: state_of(lab, filler) == "RUNNING", "all nodes are full")
        job = lab.submit(SLEEP.format(seconds=1), "--gres=gpu:1", uid=NOBODY)
        other = lab.submit(SLEEP.format(seconds=1), "--gres=gpu:1", uid=NOBODY)
        lab.run("scontrol", "hold", str(job))
        lab.run("scancel", str(filler))
        lab.until(lambda: all_over(lab, other), "the other one is over")
        assert state_of(lab, job) == "PENDING"
        assert f"job {job}: start" not in rota.said
        lab.run("scontrol", "release", str(job))
        lab.until(lambda: all_over(lab, job), "the released job is over")


def test_a_second_daemon_with_another_state_is_refused(lab: Lab) -> None:
    with daemon(lab, "srtf", name="first"):
        other = rota_command(lab, "fifo", state=lab.state / "second")
        done = lab.attempt(*other)
        assert done.returncode == 2
        assert f"Another rota gives signs of life at {lab.heartbeat}" in done.stderr
        with daemon(lab, "srtf", "--shadow", name="beside") as shadow:
            assert shadow.stop() == 0
    with daemon(lab, "fifo", name="second") as after:
        assert after.stop() == 0
