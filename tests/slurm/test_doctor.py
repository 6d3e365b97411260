"""`rota doctor` beside real Slurms: nothing bad in a sound one; what is broken is named."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from daemon import SLEEP, daemon, state_of
from lab import NOBODY, Lab
from lab_files import LabSetup

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slurm


def checked(lab: Lab, *words: str, uid: int | None = None) -> tuple[int, dict[str, list[Any]]]:
    """The exit code, and the findings by what was checked."""
    command = [sys.executable, "-m", "rota", "doctor", "--backend", "slurm", "--json"]
    if "--heartbeat" not in words:
        command += ["--heartbeat", str(lab.heartbeat)]
    if "--partition" not in words:
        command += ["--partition", "rota"]
    if "--state" not in words:
        command += ["--state", str(lab.state / "rota")]
    if uid is not None:  # it may read all files, since rota may be installed in a private folder
        reads = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
        command = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *reads,
                   *command]  # fmt: skip
    done = lab.attempt(*command, *words)
    found: dict[str, list[Any]] = {}
    assert done.stdout, done.stderr
    for one in json.loads(done.stdout)["findings"]:
        found.setdefault(one["check"], []).append(one)
    return done.returncode, found


def bad(found: dict[str, list[Any]]) -> set[str]:
    """What is bad."""
    return {check for check, every in found.items() for one in every if one["level"] == "bad"}


@contextmanager
def changed(lab: Lab, before: str, after: str) -> Iterator[None]:
    """Another line in slurm.conf."""
    conf = lab.state / "etc" / "slurm.conf"
    text = conf.read_text()
    assert before in text
    conf.write_text(text.replace(before, after))
    lab.run("scontrol", "reconfigure")
    try:
        yield
    finally:
        conf.write_text(text)
        lab.run("scontrol", "reconfigure")


def test_nothing_is_bad_about_a_sound_cluster_with_a_running_rota(lab: Lab) -> None:
    runner = lab.submit(SLEEP.format(seconds=600), "-N8", "--gres=gpu:4")
    with daemon(lab, "fifo"):
        lab.until(lambda: state_of(lab, runner) == "RUNNING", "it runs")
        lab.submit(SLEEP.format(seconds=1), "--gres=gpu:1")
        code, found = checked(lab)
    assert (code, bad(found)) == (0, set())
    assert "1 waiting jobs are held" in found["held jobs"][0]["found"]
    assert found["daemon"][0]["level"] == "ok"
    assert found["heartbeat"][0]["level"] == "ok"
    assert "32 GPUs (a100)" in found["GPUs"][0]["found"]
    assert "free" in found["other jobs"][0]["found"]
    assert found["rights"][0]["level"] == "ok"


def test_a_table_says_the_same(lab: Lab) -> None:
    words = (sys.executable, "-m", "rota", "doctor", "--partition", "rota", "--state")
    done = lab.attempt(*words, str(lab.state / "x"), "--heartbeat", str(lab.heartbeat))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SelectType" in done.stdout
    assert "→ " in done.stdout
    assert "0 things bad" in done.stdout


@pytest.mark.parametrize(
    ("before", "after", "check", "said"),
    [
        ("JobSubmitPlugins=lua", "", "hold hook", "JobSubmitPlugins is not set"),
        ("JobRequeue=1", "JobRequeue=0", "JobRequeue", "JobRequeue=0"),
    ],
)
def test_a_broken_setting_is_named(
    lab: Lab, before: str, after: str, check: str, said: str
) -> None:
    with changed(lab, before, after):
        code, found = checked(lab)
    assert (code, bad(found)) == (1, {check})
    assert said in found[check][0]["found"]


def test_settings_that_make_rota_worse_are_warned_of(lab: Lab) -> None:
    with changed(lab, "ReturnToService=2", "ReturnToService=0"):
        code, found = checked(lab)
    assert code == 0
    assert found["ReturnToService"][0]["level"] == "warn"
    lab.run("scontrol", "update", "nodename=n1", "state=drain", "reason=test")
    try:
        job = lab.submit(SLEEP.format(seconds=1), "--comment=rota:checkpointable=yes,grace=10m")
        _, found = checked(lab)
    finally:
        lab.run("scontrol", "update", "nodename=n1", "state=resume")
    assert (found["nodes"][0]["level"], "n1" in found["nodes"][0]["found"]) == ("warn", True)
    assert f"{job} (600 s)" in found["KillWait"][0]["found"]
    assert found["daemon"][0]["level"] == "warn"


def test_a_partition_that_is_not_there_or_not_up_is_named(lab: Lab) -> None:
    code, found = checked(lab, "--partition", "gpuu")
    assert code == 1
    assert "'gpuu'" in found["partitions"][0]["found"]
    assert "does not hold jobs of gpuu" in found["hold hook"][0]["found"]
    lab.run("scontrol", "update", "partitionname=rota", "state=down")
    try:
        code, found = checked(lab)
    finally:
        lab.run("scontrol", "update", "partitionname=rota", "state=up")
    assert (code, bad(found)) == (1, {"partitions"})


def test_jobs_that_the_hook_does_not_hold_are_seen(lab: Lab) -> None:
    lab.beat(age_s=10_000)  # so that the hook lets these jobs be
    lab.submit(SLEEP.format(seconds=600), "-N8", "--exclusive")
    loose = lab.submit(SLEEP.format(seconds=600), "-N8", "--exclusive")
    lab.beat()
    lab.until(lambda: bad(checked(lab)[1]) == {"held jobs"}, "it is seen")
    assert str(loose) in checked(lab)[1]["held jobs"][0]["found"]


def test_a_heartbeat_that_slurm_does_not_read_is_named(lab: Lab) -> None:
    code, found = checked(lab, "--heartbeat", str(lab.state / "rota" / "heartbeat"))
    assert (code, bad(found)) == (1, {"heartbeat", "hold hook"})
    assert "in the state directory" in found["heartbeat"][0]["found"]
    other = lab.state / "etc" / "other"
    code, found = checked(lab, "--heartbeat", str(other))
    assert (code, bad(found)) == (1, {"hold hook"})
    assert str(other) in found["hold hook"][0]["found"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as an ordinary user")
def test_an_account_without_rights_is_named(lab: Lab) -> None:
    code, found = checked(lab, "--state", str(lab.work / "nobody"), uid=NOBODY)
    assert (code, bad(found)) == (1, {"rights"})
    assert "no operator" in found["rights"][0]["found"]
    assert "SlurmUser" in found["rights"][0]["fix"]


def test_a_controller_that_is_away_is_named(lab: Lab) -> None:
    lab.end_ctld()
    code, found = checked(lab)
    lab.start_ctld()
    assert code == 1
    assert "slurmctld" in bad(found)


def test_a_cluster_without_gpus_in_which_slurm_preempts_is_named() -> None:
    extra = "PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE"
    with Lab(LabSetup(nodes=2, gpus_per_node=0, extra_settings=extra)) as lab:
        code, found = checked(lab)
    assert (code, bad(found)) == (1, {"preemption"})
    assert "rota (REQUEUE)" in found["preemption"][0]["found"]
    assert found["GPUs"][0]["level"] == "warn"
