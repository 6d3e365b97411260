"""When rota is gone, the watchdog gives its jobs back to Slurm, and nobody else's."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from children import child
from lab import NOBODY

import rota.backends.slurm

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab import Lab

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(os.getuid() != 0, reason="only root can act as an ordinary user"),
]
SCRIPT = Path(rota.backends.slurm.__file__).with_name("failopen.sh")
TIMEOUT_S = 60
SLEEP = "#!/bin/sh\nexec sleep 1000\n"
HOSTILE = (
    "a\n1 1 0 N/A rota:held\n\"';|&`touch evil` $(touch evil) AdminComment=rota:held \\",
    "--help",
    "%n%s rota:held JobHeldAdmin",
)


def command(lab: Lab, partitions: str = "rota", *more: str) -> tuple[str, ...]:
    return ("sh", str(SCRIPT), *more, str(lab.heartbeat), str(TIMEOUT_S), partitions)


def check(lab: Lab, partitions: str = "rota") -> str:
    """One check that has to succeed; gives what it says."""
    done = lab.attempt(*command(lab, partitions))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return done.stderr


def die(lab: Lab) -> None:
    """Let rota be dead for the watchdog."""
    lab.beat(age_s=TIMEOUT_S + 60)


def runs(lab: Lab, *jobs: int) -> Callable[[], Any]:
    def all_run() -> bool:
        found = lab.jobs()
        return all(found[job]["job_state"] == "RUNNING" for job in jobs)

    return all_run


def marks(lab: Lab) -> dict[int, str]:
    return {number: job["admin_comment"] for number, job in lab.jobs().items()}


def waiting(lab: Lab) -> set[str]:
    """What waits at priority 0, each task of an array by itself."""
    lines = lab.run("squeue", "-h", "-r", "-t", "PD", "-o", "%i %Q").splitlines()
    return {line.split()[0] for line in lines if line.split()[1] == "0"}


def running(lab: Lab) -> list[str]:
    return lab.run("squeue", "-h", "-r", "-t", "R", "-o", "%i").split()


def test_nothing_happens_while_rota_is_alive(lab: Lab) -> None:
    job = lab.submit(SLEEP, uid=NOBODY)
    assert check(lab) == ""
    assert waiting(lab) == {str(job)}
    assert marks(lab)[job] == "rota:held"


@pytest.mark.parametrize("beat", [None, "", "garbage", "0x7fffffff", "08", "99999999999", "old"])
def test_without_a_fresh_heartbeat_jobs_go_back_to_slurm(lab: Lab, beat: str | None) -> None:
    job = lab.submit(SLEEP, "-N2", "--gres=gpu:2", uid=NOBODY)
    if beat == "old":
        die(lab)
    elif beat is None:
        lab.heartbeat.unlink()
    else:
        lab.heartbeat.write_text(beat)
    assert "jobs go back to Slurm" in check(lab)
    lab.until(runs(lab, job), "the job runs")
    assert marks(lab)[job] == "rota:let-go"
    assert check(lab) == ""  # nothing is left to do


def test_only_what_rota_holds_is_released(lab: Lab) -> None:
    placed = lab.submit(SLEEP, "-N1")
    lab.run("scontrol", "release", str(placed))
    lab.until(runs(lab, placed), "the job runs")
    ours = lab.submit(SLEEP, uid=NOBODY)
    listed = lab.submit(SLEEP, "-p", "free,rota", uid=NOBODY)
    by_user = lab.submit(SLEEP, uid=NOBODY)
    lab.run("scontrol", "hold", str(by_user), uid=NOBODY)
    at_birth = lab.submit(SLEEP, "--hold", "--comment=words", uid=NOBODY)
    by_admin = lab.submit(SLEEP, uid=NOBODY)
    lab.run("scontrol", "hold", str(by_admin))
    unmarked = lab.submit(SLEEP, uid=NOBODY)
    lab.run("scontrol", "update", f"jobid={unmarked}", "admincomment=")
    similar = lab.submit(SLEEP, uid=NOBODY)
    lab.run("scontrol", "update", f"jobid={similar}", "admincomment=rota:held-by-somebody")
    elsewhere = lab.submit(SLEEP, "-p", "free", "--hold", uid=NOBODY)
    lab.run("scontrol", "update", f"jobid={elsewhere}", "admincomment=rota:held")
    before = marks(lab)

    die(lab)
    check(lab)
    lab.until(runs(lab, placed, ours, listed), "what rota held runs")
    others = {by_user, at_birth, by_admin, unmarked, similar, elsewhere}
    assert waiting(lab) == {str(job) for job in others}
    assert marks(lab) == {**before, ours: "rota:let-go", listed: "rota:let-go"}
    assert lab.jobs()[by_admin]["state_reason"] == "JobHeldAdmin"


def test_several_partitions_can_be_watched(lab: Lab) -> None:
    elsewhere = lab.submit(SLEEP, "-p", "free", "--hold", uid=NOBODY)
    lab.run("scontrol", "update", f"jobid={elsewhere}", "admincomment=rota:held")
    ours = lab.submit(SLEEP, uid=NOBODY)
    die(lab)
    check(lab, "rota,free")
    lab.until(runs(lab, ours, elsewhere), "both run")


def test_the_nodes_that_rota_chose_are_forgotten(lab: Lab) -> None:
    job = lab.submit(SLEEP, "-N2", uid=NOBODY)
    lab.run("scontrol", "update", f"jobid={job}", "NumNodes=2-2", "ReqNodeList=n1,n8")
    lab.run("scontrol", "update", "nodename=n8", "state=down", "reason=test")
    try:
        die(lab)
        check(lab)
        lab.until(runs(lab, job), "the job runs without n8")
        assert lab.jobs()[job]["required_nodes"] == ""
    finally:
        lab.attempt("scontrol", "update", "nodename=n8", "state=resume")  # it may be back already


@pytest.mark.parametrize("own", ["", "n5,n6"])
def test_a_job_that_was_released_onto_nodes_that_are_down_is_given_others(
    lab: Lab, own: str
) -> None:
    job = lab.submit(SLEEP, "-N2", *([f"--nodelist={own}"] if own else []), uid=NOBODY)
    lab.kill_node("n8")
    lab.run("scontrol", "update", "nodename=n8", "state=down", "reason=test")
    try:
        words = ("ReqNodeList=n1,n8", f"AdminComment=rota:held nodelist={own}")
        lab.run("scontrol", "update", f"jobid={job}", *words)
        lab.run("scontrol", "release", str(job))
        assert check(lab) == ""  # rota is alive: it will see to it
        die(lab)
        check(lab)
        lab.until(runs(lab, job), "the job runs without n8")
        assert marks(lab)[job] == "rota:let-go"
    finally:
        lab.start_node("n8")


def test_a_running_job_keeps_its_nodes(lab: Lab) -> None:
    job = lab.submit(SLEEP, "-N2", "--nodelist=n5,n6", uid=NOBODY)
    words = ("ReqNodeList=n5,n6", "AdminComment=rota:held nodelist=n5")
    lab.run("scontrol", "update", f"jobid={job}", *words)
    lab.run("scontrol", "release", str(job))
    lab.until(runs(lab, job), "the job runs")
    die(lab)
    assert check(lab) == ""
    assert (lab.jobs()[job]["job_state"], lab.jobs()[job]["nodes"]) == ("RUNNING", "n[5-6]")


def test_a_job_whose_nodes_do_not_fit_its_size_is_released(lab: Lab) -> None:
    job = lab.submit(SLEEP, "-N1", uid=NOBODY)
    lab.run("scontrol", "update", f"jobid={job}", "ReqNodeList=n1,n2")
    lab.run("scontrol", "release", str(job))
    lab.until(lambda: lab.jobs()[job]["state_reason"] == "BadConstraints", "Slurm holds it")
    die(lab)
    check(lab)
    lab.until(runs(lab, job), "the job runs")


def test_the_nodes_that_the_user_chose_are_restored(lab: Lab) -> None:
    job = lab.submit(SLEEP, "-N2", "--nodelist=n5,n6", uid=NOBODY)
    words = ("ReqNodeList=n1,n2", "AdminComment=rota:held nodelist=n5,n6")
    lab.run("scontrol", "update", f"jobid={job}", *words)
    die(lab)
    check(lab)
    lab.until(runs(lab, job), "the job runs")
    assert lab.jobs()[job]["nodes"] == "n[5-6]"
    assert marks(lab)[job] == "rota:let-go"


def test_a_long_list_of_nodes_is_restored_whole(lab: Lab) -> None:
    nodes = ",".join(["n1"] * 60 + ["n7", "n[2-3]"])
    job = lab.submit(SLEEP, "-N4", uid=NOBODY)
    lab.run("scontrol", "update", f"jobid={job}", f"AdminComment=rota:held nodelist={nodes}")
    die(lab)
    check(lab)
    lab.until(runs(lab, job), "the job runs")
    assert lab.jobs()[job]["nodes"] == "n[1-3,7]"


@pytest.mark.parametrize("nodes", ["no-such-node", "$(touch evil)", "n1;evil", ""])
def test_a_list_that_does_not_fit_is_left_out_rather_than_keep_the_job(
    lab: Lab, nodes: str
) -> None:
    job = lab.submit(SLEEP, uid=NOBODY)
    words = ("ReqNodeList=n8", f"AdminComment=rota:held nodelist={nodes}")
    lab.run("scontrol", "update", f"jobid={job}", *words)
    die(lab)
    check(lab)
    lab.until(runs(lab, job), "the job runs")
    assert lab.jobs()[job]["required_nodes"] == ""
    assert not (lab.work / "evil").exists()


def test_a_requeued_job_does_not_wait_for_the_delay(lab: Lab) -> None:
    job = lab.submit(SLEEP, uid=NOBODY)
    lab.run("scontrol", "release", str(job))
    lab.until(runs(lab, job), "the job runs")
    lab.run("scontrol", "requeuehold", str(job))
    lab.until(lambda: waiting(lab) == {str(job)}, "the job waits")
    lab.run("scontrol", "update", f"jobid={job}", "StartTime=now+500")
    die(lab)
    check(lab)
    lab.until(runs(lab, job), "the job runs", limit_s=300)


def test_a_time_that_the_user_asked_for_is_kept(lab: Lab) -> None:
    job = lab.submit(SLEEP, "--begin=now+1hour", uid=NOBODY)
    begin = lab.jobs()[job]["start_time"]
    die(lab)
    check(lab)
    found = lab.jobs()[job]
    assert (found["job_state"], found["start_time"]) == ("PENDING", begin)
    assert found["priority"] > 0


def test_tasks_of_an_array_are_released_but_for_those_that_are_held(lab: Lab) -> None:
    array = lab.submit(SLEEP, "-a", "0-12:3%2", uid=NOBODY)
    lab.run("scontrol", "hold", f"{array}_3", uid=NOBODY)
    lab.run("scontrol", "hold", f"{array}_9")
    lab.run("scontrol", "release", f"{array}_6")
    lab.until(lambda: running(lab) == [f"{array}_6"], "task 6 runs")
    die(lab)
    check(lab)
    assert waiting(lab) == {f"{array}_3", f"{array}_9"}
    lab.until(lambda: len(running(lab)) == 2, "two tasks run, as many as the user allows")


def test_a_large_array_is_released_in_one_check(lab: Lab) -> None:
    array = lab.submit("#!/bin/sh\n", "-a", "0-249", uid=NOBODY)
    lab.run("scontrol", "hold", f"{array}_[17,203]", uid=NOBODY)
    die(lab)
    check(lab)
    assert waiting(lab) == {f"{array}_17", f"{array}_203"}


def test_a_heterogeneous_job_is_released_whole(lab: Lab) -> None:
    pair = ("--gres=gpu:3", "-N1", ":", "--gres=gpu:1", "-N1")
    job = lab.submit(SLEEP, *pair, uid=NOBODY)
    assert waiting(lab) == {f"{job}+0", f"{job}+1"}
    die(lab)
    check(lab)
    lab.until(runs(lab, job, job + 1), "both parts run")


@pytest.mark.parametrize("words", HOSTILE)
def test_words_of_users_are_not_read(lab: Lab, words: str) -> None:
    safe = lab.submit(SLEEP, "--hold", "-p", "free", f"--job-name={words}", uid=NOBODY)
    ours = lab.submit(SLEEP, f"--job-name={words}", f"--comment={words}", uid=NOBODY)
    mine = lab.submit(SLEEP, f"--job-name={words}", f"--comment={words}", uid=NOBODY)
    lab.run("scontrol", "hold", str(mine), uid=NOBODY)
    die(lab)
    check(lab)
    lab.until(runs(lab, ours), "the job runs")
    assert waiting(lab) == {str(safe), str(mine)}
    found = marks(lab)
    assert [found[job] for job in (safe, ours, mine)] == ["", "rota:let-go", "rota:held"]
    assert not (lab.work / "evil").exists()


def test_it_survives_a_dead_controller_and_tries_again(lab: Lab) -> None:
    job = lab.submit(SLEEP, uid=NOBODY)
    die(lab)
    lab.end_ctld()
    done = lab.attempt(*command(lab))
    assert (done.returncode, done.stdout) == (1, "")
    assert "the next check tries again" in done.stderr
    lab.start_ctld()
    lab.until(lambda: check(lab) is not None, "Slurm is back")
    lab.until(runs(lab, job), "the job runs")


def test_a_loop_goes_on_when_the_controller_has_been_away(lab: Lab) -> None:
    job = lab.submit(SLEEP, uid=NOBODY)
    with child(
        command(lab, "rota", "--loop", "1"), env=lab.env, stderr=subprocess.PIPE, text=True
    ) as loop:
        lab.end_ctld()
        die(lab)
        assert loop.stderr is not None
        assert any("the next check tries again" in line for line in iter(loop.stderr.readline, ""))
        lab.start_ctld()
        lab.until(runs(lab, job), "the job runs")


def test_it_needs_no_room_on_disk(lab: Lab) -> None:
    job = lab.submit(SLEEP, uid=NOBODY)
    die(lab)
    # No file may be written to, and messages go to a device that is full.
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command(lab), env=lab.env, stderr=full, stdout=full, check=False, timeout=300,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        )  # fmt: skip
    assert done.returncode == 0
    lab.until(runs(lab, job), "the job runs")


def test_it_goes_on_when_nobody_reads_what_it_says(lab: Lab) -> None:
    jobs = [lab.submit(SLEEP, uid=NOBODY) for _ in range(3)]
    die(lab)
    read, write = os.pipe()
    os.close(read)
    assert subprocess.run(command(lab), env=lab.env, stderr=write, check=False).returncode == 0
    os.close(write)
    lab.until(runs(lab, *jobs), "the jobs run")


def test_users_formats_in_the_environment_change_nothing(lab: Lab) -> None:
    job = lab.submit(SLEEP, uid=NOBODY)
    die(lab)
    spoiled = {"SQUEUE_FORMAT": "%j", "SQUEUE_STATES": "R", "SQUEUE_USERS": "root",
               "SQUEUE_SORT": "j", "SLURM_TIME_FORMAT": "%c", "LANG": "C.UTF-8"}  # fmt: skip
    assert lab.attempt(*command(lab), env=spoiled).returncode == 0
    lab.until(runs(lab, job), "the job runs")


@pytest.mark.parametrize(
    "words",
    [[], ["beat"], ["beat", "60"], ["beat", "0", "rota"], ["beat", "1m", "rota"],
     ["beat", "60", "rota", "more"], ["--loop", "x", "beat", "60", "rota"], ["-x", "b", "6", "r"]],
)  # fmt: skip
def test_a_wrong_call_is_refused(words: list[str]) -> None:
    done = subprocess.run(
        ["sh", str(SCRIPT), *words], capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.returncode == 2
    assert "usage:" in done.stderr
