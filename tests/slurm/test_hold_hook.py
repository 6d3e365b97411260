"""Jobs of managed partitions are born held while rota is alive, and users cannot go around it."""

from __future__ import annotations

import os
from time import time
from typing import TYPE_CHECKING, Any

import pytest
from lab import NOBODY

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab import Lab

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(os.getuid() != 0, reason="only root can act as an ordinary user"),
]
SLEEP = "#!/bin/sh\nexec sleep 1000\n"
TWO_NODES = ("-N", "2", "--gres=gpu:1")


def is_held(lab: Lab, job: int) -> bool:
    found = lab.jobs()[job]
    return (found["job_state"], found["priority"], found["admin_comment"]) == (
        "PENDING", 0, "rota:held"
    )  # fmt: skip


def runs(lab: Lab, job: int) -> Callable[[], Any]:
    return lambda: lab.jobs()[job]["job_state"] == "RUNNING"


def said_by_hook(lab: Lab) -> str:
    log = (lab.state / "log" / "slurmctld.log").read_text()
    return "\n".join(line for line in log.splitlines() if "lua" in line or "rota: " in line)


@pytest.mark.parametrize("partition", [(), ("-prota",), ("-prota,free",), ("-pfree,rota",)])
def test_a_job_in_the_managed_partition_is_born_held_and_marked(
    lab: Lab, partition: tuple[str, ...]
) -> None:
    job = lab.submit(SLEEP, *partition, *TWO_NODES, "--comment=mine", uid=NOBODY)
    assert is_held(lab, job)
    assert lab.jobs()[job]["comment"] == "mine"
    assert is_held(lab, lab.submit(SLEEP, *partition))  # root's jobs, too


def test_a_job_in_another_partition_starts_at_once(lab: Lab) -> None:
    job = lab.submit(SLEEP, "-p", "free", uid=NOBODY)
    lab.until(runs(lab, job), "the job runs")
    assert lab.jobs()[job]["admin_comment"] == ""


@pytest.mark.parametrize(
    "beat",
    [None, "", "garbage", "0x7fffffff", "-1", "1e99", "99999999999", "old", "\0", "folder"],
)
def test_a_job_is_not_held_without_a_fresh_heartbeat(lab: Lab, beat: str | None) -> None:
    if beat == "old":
        lab.beat(age_s=lab.setup.hook_timeout_s + 60)
    else:
        lab.heartbeat.unlink()
        if beat == "folder":
            lab.heartbeat.mkdir()
        elif beat is not None:
            lab.heartbeat.write_text(beat)
    try:
        job = lab.submit(SLEEP, uid=NOBODY)
        lab.until(runs(lab, job), "the job runs")
        assert lab.jobs()[job]["admin_comment"] == ""
    finally:
        if beat == "folder":
            lab.heartbeat.rmdir()


def test_an_array_is_held_as_a_whole(lab: Lab) -> None:
    job = lab.submit(SLEEP, "-a", "0-3", uid=NOBODY)
    assert is_held(lab, job)
    assert lab.run("squeue", "-h", "-r", "-t", "R", "-o", "%i") == ""


def test_what_a_user_holds_is_marked_until_he_releases_it(lab: Lab) -> None:
    job = lab.submit(SLEEP, "--comment=my own words", uid=NOBODY)
    for verb, comment in [
        ("hold", "rota:user-held my own words"),
        ("hold", "rota:user-held my own words"),  # twice is no more
        ("release", "my own words"),
        ("release", "my own words"),
        ("uhold", "rota:user-held my own words"),
        ("release", "my own words"),
    ]:
        lab.run("scontrol", verb, str(job), uid=NOBODY)
        assert lab.jobs()[job]["comment"] == comment
        assert is_held(lab, job)


def test_a_job_without_a_comment_can_be_held_and_released_too(lab: Lab) -> None:
    job = lab.submit(SLEEP, "--hold", uid=NOBODY)
    for verb, comment in [
        ("hold", "rota:user-held"),
        ("release", "rota:user-released"),
        ("hold", "rota:user-held"),
    ]:
        assert lab.jobs()[job]["comment"] in ("rota:user-held", "rota:user-released")
        lab.run("scontrol", verb, str(job), uid=NOBODY)
        assert lab.jobs()[job]["comment"] == comment
        assert is_held(lab, job)


def test_a_new_comment_does_not_end_a_users_hold(lab: Lab) -> None:
    job = lab.submit(SLEEP, uid=NOBODY)
    lab.run("scontrol", "hold", str(job), uid=NOBODY)
    lab.run("scontrol", "update", f"jobid={job}", "comment=other words", uid=NOBODY)
    assert lab.jobs()[job]["comment"] == "rota:user-held other words"


def test_single_tasks_of_an_array_can_be_held(lab: Lab) -> None:
    job = lab.submit(SLEEP, "-a", "0-2", uid=NOBODY)
    lab.run("scontrol", "hold", f"{job}_1", uid=NOBODY)
    comments = {q["array_task_id"]: q["comment"] for q in lab.jobs().values()
                if q["array_job_id"] == job and q["job_state"] == "PENDING"}  # fmt: skip
    assert comments == {1: "rota:user-held", None: ""}


@pytest.mark.parametrize(
    "change",
    [["nice=5"], ["nice=5", "comment=x"], ["nice=-5"], ["priority=5"], ["timelimit=5"],
     ["numnodes=1-1"], ["starttime=now"], ["reqnodelist=n2"], ["jobname=rota:held"],
     ["partition=rota"], ["partition=free,rota"], ["dependency="], ["features=a100"],
     ["requeue=0"], ["shared=yes"], ["trespernode=gres:gpu:1"]],
)  # fmt: skip
def test_no_change_by_its_user_sets_a_job_free(lab: Lab, change: list[str]) -> None:
    job = lab.submit(SLEEP, "--begin=now+1hour", uid=NOBODY)
    lab.attempt("scontrol", "update", f"jobid={job}", *change, uid=NOBODY)  # some are refused
    assert is_held(lab, job)


@pytest.mark.parametrize("forged", ["rota:held", "rota:let-go", "rota:user-held", "x", ""])
def test_a_user_cannot_forge_or_clear_the_mark(lab: Lab, forged: str) -> None:
    job = lab.submit(SLEEP, uid=NOBODY)
    words = ("scontrol", "update", f"jobid={job}", f"admincomment={forged}")
    lab.attempt(*words, uid=NOBODY)
    assert is_held(lab, job)


def test_a_user_may_release_his_job_when_rota_is_gone(lab: Lab) -> None:
    job = lab.submit(SLEEP, uid=NOBODY)
    other = lab.submit(SLEEP, uid=NOBODY)
    lab.run("scontrol", "hold", str(other), uid=NOBODY)
    lab.beat(age_s=lab.setup.hook_timeout_s + 60)
    for number in (job, other):
        lab.run("scontrol", "release", str(number), uid=NOBODY)
        lab.until(runs(lab, number), "the job runs")
    assert lab.jobs()[other]["comment"] == "rota:user-released"


def test_a_job_that_leaves_the_managed_partition_is_let_go(lab: Lab) -> None:
    job = lab.submit(SLEEP, uid=NOBODY)
    lab.run("scontrol", "update", f"jobid={job}", "partition=free", uid=NOBODY)
    lab.until(runs(lab, job), "the job runs")


def test_a_job_that_its_user_holds_stays_so_in_another_partition(lab: Lab) -> None:
    job = lab.submit(SLEEP, uid=NOBODY)
    lab.run("scontrol", "hold", str(job), uid=NOBODY)
    lab.run("scontrol", "update", f"jobid={job}", "partition=free", uid=NOBODY)
    assert is_held(lab, job)
    lab.run("scontrol", "release", str(job), uid=NOBODY)
    lab.until(runs(lab, job), "the job runs")


@pytest.mark.parametrize("to", ["rota", "free,rota"])
def test_nobody_gets_around_rota_by_a_job_that_comes_from_another_partition(
    lab: Lab, to: str
) -> None:
    job = lab.submit(SLEEP, "-p", "free", "--begin=now+1hour", uid=NOBODY)
    move = ("scontrol", "update", f"jobid={job}", f"partition={to}", "starttime=now")
    assert "permission denied" in lab.attempt(*move, uid=NOBODY).stderr
    assert lab.jobs()[job]["partition"] == "free"
    lab.run("scontrol", "update", f"jobid={job}", "nice=5", uid=NOBODY)  # all else is as ever
    lab.beat(age_s=lab.setup.hook_timeout_s + 60)
    lab.run(*move, uid=NOBODY)
    lab.until(runs(lab, job), "the job runs")


@pytest.mark.parametrize("more", [[], ["nice=5"], ["priority=0"]])
def test_a_job_that_leaves_the_managed_partition_and_comes_back_is_held_again(
    lab: Lab, more: list[str]
) -> None:
    job = lab.submit(SLEEP, "--begin=now+1hour", uid=NOBODY)
    lab.run("scontrol", "update", f"jobid={job}", "partition=free", uid=NOBODY)
    assert not is_held(lab, job)
    lab.run("scontrol", "update", f"jobid={job}", "partition=rota", *more, uid=NOBODY)
    assert is_held(lab, job)
    assert lab.jobs()[job]["comment"] == ("rota:user-held" if more == ["priority=0"] else "")


def test_rota_can_place_and_release_what_is_held(lab: Lab) -> None:
    job = lab.submit(SLEEP, *TWO_NODES, uid=NOBODY)
    lab.run("scontrol", "update", f"jobid={job}", "NumNodes=2-2", "ReqNodeList=n3,n7")
    lab.run("scontrol", "release", str(job))
    lab.until(runs(lab, job), "the job runs")
    assert lab.jobs()[job]["nodes"] == "n[3,7]"


def test_what_rota_has_released_its_user_may_still_hold(lab: Lab) -> None:
    lab.submit(SLEEP, "-p", "free", "-N8", "--exclusive")
    job = lab.submit(SLEEP, uid=NOBODY)
    lab.run("scontrol", "release", str(job))
    lab.run("scontrol", "hold", str(job), uid=NOBODY)
    assert is_held(lab, job)
    assert lab.jobs()[job]["comment"] == "rota:user-held"


def test_other_jobs_are_held_and_released_as_ever(lab: Lab) -> None:
    job = lab.submit(SLEEP, "-p", "free", "--begin=now+1hour", "--comment=mine", uid=NOBODY)
    lab.run("scontrol", "hold", str(job), uid=NOBODY)
    assert lab.jobs()[job]["priority"] == 0
    lab.run("scontrol", "release", str(job), uid=NOBODY)
    assert lab.jobs()[job]["priority"] > 0
    assert lab.jobs()[job]["comment"] == "mine"


def test_an_error_in_the_hook_loses_no_job(lab: Lab) -> None:
    script = lab.state / "etc" / "job_submit.lua"
    good = script.read_text()
    spoiled = good.replace("job_desc.admin_comment = HELD", "job_desc.admin_comment = {}")
    spoiled = spoiled.replace("local is_held =", "local is_held = nil .. ")
    assert spoiled.count("nil ..") == 1
    held = lab.submit(SLEEP, uid=NOBODY)
    script.write_text(spoiled)
    try:
        job = lab.submit(SLEEP, uid=NOBODY)
        lab.until(runs(lab, job), "the job runs")
        lab.run("scontrol", "release", str(held), uid=NOBODY)
        lab.until(runs(lab, held), "the job runs")
        assert said_by_hook(lab).count("the job is left alone") == 2
    finally:
        script.write_text(good)
        # Slurm loads it again only if it is newer, in seconds, than when it was loaded last.
        later_s = time() + 2.0
        os.utime(script, (later_s, later_s))
    assert is_held(lab, lab.submit(SLEEP, uid=NOBODY))
