"""Checks of what rota needs beside Slurm: rights, the hook that holds jobs, signs of life."""

from __future__ import annotations

import os
import re
import stat
from math import isfinite
from time import time
from typing import TYPE_CHECKING, Final

from rota.backends.check_result import CheckResult
from rota.backends.slurm.hook import HELD, LET_GO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rota.backends.slurm.cluster_facts import ClusterFacts
    from rota.backends.slurm.replies import SlurmJob

STALE_S: Final = 60.0
"""A heartbeat older than this is not that of a daemon which runs."""
YOUNG_S: Final = 15.0
"""A job that is younger may not have been looked at."""
_MANAGED: Final = re.compile(r"(?m)^local MANAGED = \{(.*)\}$")
_BEAT: Final = re.compile(r'(?m)^local HEARTBEAT = "(.*)"$')
_OPERATORS: Final = re.compile(r"(?m)^local OPERATORS = \{(.*)\}$")
_SETUP: Final = (
    "Write it anew with `rota setup`, put it beside slurm.conf, and `scontrol reconfigure`."
)


def check_rights(facts: ClusterFacts) -> Iterator[CheckResult]:
    """Whether this account may do what rota does."""
    who = facts.account or str(facts.uid)
    storage = facts.config.get("AccountingStorageType", "").endswith("slurmdbd")
    fix = (
        f"sacctmgr add user {who} account=root adminlevel=operator, or run rota as SlurmUser."
        if storage
        else "Without slurmdbd only root and SlurmUser may change others' jobs: run rota (and this "
        f"check) as {facts.config.get('SlurmUser') or 'SlurmUser'}."
    )
    if facts.is_operator:
        yield CheckResult(
            "ok", "rights", f"account {who} may hold and release all jobs: {facts.may_why}"
        )
    elif facts.is_operator is None:
        yield CheckResult(
            "warn", "rights", f"it is not known whether {who} is an operator: {facts.may_why}", fix
        )
    else:
        yield CheckResult("bad", "rights", f"account {who} is no operator: {facts.may_why}", fix)


def check_hook(facts: ClusterFacts, heartbeat: Path, *, beats: bool) -> Iterator[CheckResult]:
    """Whether new jobs are held; `beats`: whether a heartbeat is fresh, without which none is."""
    plugins = facts.config.get("JobSubmitPlugins", "")
    if "lua" not in plugins.split(","):
        yield CheckResult(
            "bad",
            "hold hook",
            f"JobSubmitPlugins is {plugins or 'not set'}: new jobs are not held, "
            "and Slurm starts them before rota has seen them",
            "Put job_submit.lua (`rota setup` writes it) beside slurm.conf, set "
            "JobSubmitPlugins=lua, and `scontrol reconfigure`.",
        )
        return
    yield from _script(facts, heartbeat)
    yield from _jobs(facts, beats=beats)


def _script(facts: ClusterFacts, heartbeat: Path) -> Iterator[CheckResult]:
    """What the script itself says, where it can be read."""
    if facts.hook is None:
        yield CheckResult(
            "ok", "hold hook", "JobSubmitPlugins has lua; the script cannot be read here"
        )
        return
    managed, beat = _MANAGED.search(facts.hook), _BEAT.search(facts.hook)
    if managed is None or beat is None:
        yield CheckResult(
            "bad", "hold hook", "job_submit.lua beside slurm.conf is not rota's", _SETUP
        )
        return
    wrong = []
    held = set(re.findall(r'"([^"]*)"', managed[1]))
    if lacking := sorted(set(facts.partitions_wanted) - held):
        wrong.append(f"it does not hold jobs of {', '.join(lacking)}")
    if beat[1] != str(heartbeat):
        wrong.append(f"it reads the heartbeat at {beat[1]}, not at {heartbeat}")
    if wrong:
        yield CheckResult("bad", "hold hook", f"job_submit.lua: {'; '.join(wrong)}", _SETUP)
        return
    yield CheckResult("ok", "hold hook", f"job_submit.lua holds jobs of {', '.join(sorted(held))}")
    operators = _OPERATORS.search(facts.hook)
    if operators and str(facts.uid) not in re.findall(r"\d+", operators[1]):
        yield CheckResult(
            "warn",
            "hold hook",
            f"it does not know account {facts.account} "
            f"({facts.uid}) for an operator, which matters for its own jobs only",
            f"rota setup --operator {facts.uid}",
        )


def _jobs(facts: ClusterFacts, *, beats: bool) -> Iterator[CheckResult]:
    """Whether jobs that wait are held, as far as there are any."""
    now_s = time() + facts.ahead_s
    waiting = [job for job in facts.jobs if job.state == "PENDING" and _is_ours(facts, job)]
    held = [job for job in waiting if job.priority == 0 and job.mark.startswith(HELD)]
    others = [job for job in waiting if job.priority == 0 and not job.mark.startswith(HELD)]
    loose = [
        job.call
        for job in waiting
        if job.priority > 0
        and not job.mark.startswith((HELD, LET_GO))
        and now_s - job.submit_s > YOUNG_S
    ]
    if loose and beats:
        yield CheckResult(
            "bad",
            "held jobs",
            f"{len(loose)} waiting jobs are not held, such as {loose[0]}",
            "They came before the hook, or it does not work: look for lua in slurmctld's log. "
            "A running rota takes over jobs that Slurm has not started.",
        )
    elif others:
        yield CheckResult(
            "warn",
            "held jobs",
            f"{len(others)} waiting jobs are held, but not by rota, such as {others[0].call}",
            "scontrol release them, if nobody wants that.",
        )
    elif held:
        yield CheckResult("ok", "held jobs", f"{len(held)} waiting jobs are held for rota")
    else:
        yield CheckResult("ok", "held jobs", "no job waits that shows whether the hook works")


def _is_ours(facts: ClusterFacts, job: SlurmJob) -> bool:
    return not set(facts.partitions_wanted).isdisjoint(job.partition.split(","))


def check_life(
    facts: ClusterFacts, root: Path, heartbeat: Path, daemon: dict[str, object] | None
) -> Iterator[CheckResult]:
    """The daemon, its heartbeat, and the watchdog that gives jobs back without it."""
    if daemon is None:
        yield CheckResult(
            "warn",
            "daemon",
            f"no rota runs on {root}",
            "systemctl start rota-slurm, or `rota run --backend slurm`.",
        )
    else:
        yield CheckResult("ok", "daemon", f"process {daemon.get('pid', '?')} runs on {root}")
    yield from _heartbeat(facts, root, heartbeat)
    if facts.timer:
        yield CheckResult("ok", "watchdog", facts.timer)
    else:
        yield CheckResult(
            "warn",
            "watchdog",
            "nothing is seen of it here: if rota dies, held jobs wait for it",
            "systemctl enable --now rota-failopen.timer on the host of slurmctld, or run "
            "failopen.sh there from cron.",
        )


def _heartbeat(facts: ClusterFacts, root: Path, heartbeat: Path) -> Iterator[CheckResult]:
    if heartbeat.is_relative_to(root):
        yield CheckResult(
            "bad",
            "heartbeat",
            f"{heartbeat} is in the state directory, which only its owner can "
            "enter: slurmctld cannot read it, so its hook holds nothing",
            "Give `rota run` and `rota setup` a --heartbeat beside that directory.",
        )
        return
    age_s = heartbeat_age_s(heartbeat)
    if age_s is None:
        yield CheckResult(
            "warn",
            "heartbeat",
            f"there is none at {heartbeat}",
            "It is there while rota runs: name the same --heartbeat as for `rota run`.",
        )
        return
    if closed := _closed(heartbeat, facts.config.get("SlurmUser", "")):
        yield CheckResult(
            "bad",
            "heartbeat",
            f"SlurmUser cannot read {heartbeat}: {closed} is closed to others",
            f"chmod o+rx {closed}",
        )
    elif age_s > STALE_S:
        yield CheckResult(
            "warn",
            "heartbeat",
            f"{heartbeat} is {age_s:.0f} s old: the hook stops to hold jobs",
            "Start rota; look at its log if it should be running.",
        )
    else:
        yield CheckResult("ok", "heartbeat", f"{heartbeat} is fresh, and SlurmUser can read it")


def heartbeat_age_s(heartbeat: Path) -> float | None:
    """Seconds since the last sign of life; None if there is none that can be read."""
    try:
        with heartbeat.open("rb") as file:
            told = float(file.read(64))
    except (OSError, ValueError):
        return None
    return abs(time() - told) if isfinite(told) else None


def _closed(heartbeat: Path, slurm_user: str) -> Path | None:
    """The first part of its path that SlurmUser cannot enter or read; None if it can."""
    number = re.search(r"\((\d+)\)$", slurm_user)
    uid = int(number[1]) if number else None
    if uid == 0:
        return None
    for path in (*reversed(heartbeat.parents), heartbeat):
        facts = os.stat(path)
        needed = stat.S_IROTH if path == heartbeat else stat.S_IXOTH
        if facts.st_uid != uid and not facts.st_mode & needed:
            return path
    return None
