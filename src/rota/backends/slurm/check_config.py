"""Checks of how a Slurm is configured: versions, partitions, GPUs, what else would interfere."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rota.backends.check_result import CheckResult
from rota.backends.slurm.hints import read_hints
from rota.backends.slurm.replies import ENDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.backends.slurm.cluster_facts import ClusterFacts

LEAST_VERSION: Final = (22, 5)
MOST_NAMED: Final = 5
CLOCK_OFF_S: Final = (5.0, 60.0)
"""Seconds between the clocks from which a finding is a warning, and from which it is bad."""
LEAST_JOB_AGE_S: Final = 60.0


def check_config(facts: ClusterFacts) -> Iterator[CheckResult]:
    """What `scontrol show config` and the lists of partitions, nodes and jobs tell."""
    yield _version(facts)
    yield _clock(facts)
    yield from _partitions(facts)
    yield from _gpus(facts)
    yield from _nodes(facts)
    yield _select(facts)
    yield _requeue(facts)
    yield from _preemption(facts)
    yield _kill_wait(facts)
    yield _return_to_service(facts)
    yield _accounting(facts)


def _version(facts: ClusterFacts) -> CheckResult:
    version = facts.config.get("SLURM_VERSION", "")
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    newer = "Use Slurm 22.05 or later."
    if facts.unreadable:
        return CheckResult(
            "bad",
            "version",
            f"Slurm {version}: {facts.unreadable}",
            f"{newer} Its squeue and sinfo need their JSON serializer.",
        )
    if numbers < LEAST_VERSION:
        return CheckResult("warn", "version", f"Slurm {version or 'unknown'} is not tried", newer)
    return CheckResult("ok", "version", f"Slurm {version}; squeue and sinfo answer in JSON")


def _clock(facts: ClusterFacts) -> CheckResult:
    off_s = abs(facts.ahead_s)
    way = "ahead of" if facts.ahead_s > 0 else "behind"
    found = f"Slurm's clock is {off_s:.0f} s {way} the one here"
    fix = "Synchronise the clocks of all hosts (chrony or ntpd); heartbeats compare them."
    if off_s >= CLOCK_OFF_S[1]:
        return CheckResult("bad", "clock", found, fix)
    if off_s >= CLOCK_OFF_S[0]:
        return CheckResult("warn", "clock", found, fix)
    return CheckResult("ok", "clock", "Slurm's clock and the one here agree")


def _partitions(facts: ClusterFacts) -> Iterator[CheckResult]:
    known = ", ".join(facts.partitions) or "none"
    if not facts.partitions_wanted:
        yield CheckResult(
            "bad",
            "partitions",
            f"no partition was named; Slurm has: {known}",
            "Say --partition NAME, as for `rota run`.",
        )
    for name in facts.partitions_wanted:
        told = facts.partitions.get(name)
        if told is None:
            yield CheckResult(
                "bad",
                "partitions",
                f"there is no partition {name!r}; Slurm has: {known}",
                "Name one that there is, or add it to slurm.conf.",
            )
            continue
        nodes = sum(name in node.partitions for node in facts.nodes)
        state = told.get("State", "UP")
        if not nodes or state != "UP":
            yield CheckResult(
                "bad",
                "partitions",
                f"partition {name} has {nodes} nodes, and is {state}",
                f"Give it nodes; scontrol update partitionname={name} state=up.",
            )
        else:
            yield CheckResult("ok", "partitions", f"partition {name} is up and has {nodes} nodes")
        if told.get("OverSubscribe", "NO").startswith("FORCE"):
            yield CheckResult(
                "bad",
                "partitions",
                f"partition {name} lets jobs share CPUs by force",
                "Set OverSubscribe=NO: what Slurm gives twice, rota cannot see.",
            )
    beside = sorted(
        {other for node in facts.ours for other in node.partitions} - set(facts.partitions_wanted)
    )
    if beside:
        yield CheckResult(
            "warn",
            "other jobs",
            f"jobs of {', '.join(beside[:MOST_NAMED])} run on the same nodes, "
            "and Slurm starts them whenever there is room",
            "rota plans around them. Give rota nodes of its own, or manage these partitions, too.",
        )


def _gpus(facts: ClusterFacts) -> Iterator[CheckResult]:
    total = sum(node.gpus for node in facts.ours)
    if total:
        kinds = sorted({node.gpu_type for node in facts.ours if node.gpus})
        named = f" ({', '.join(filter(None, kinds))})" if any(kinds) else ""
        yield CheckResult("ok", "GPUs", f"{total} GPUs{named} on {len(facts.ours)} nodes")
    else:
        gres = facts.config.get("GresTypes", "")
        yield CheckResult(
            "warn",
            "GPUs",
            f"no node has GPUs (GresTypes={gres or 'not set'})",
            "Set GresTypes=gpu, Gres=gpu:… for nodes, and gres.conf; without, rota counts CPUs.",
        )


def _nodes(facts: ClusterFacts) -> Iterator[CheckResult]:
    def names(*words: str) -> list[str]:
        return [
            node.name
            for node in facts.ours
            if any(word in state for state in (node.state, *node.flags) for word in words)
        ]

    if wrong := names("inval"):
        yield CheckResult(
            "bad",
            "nodes",
            f"{_some(wrong)}: Slurm takes what they have for invalid",
            "Their slurmd found less than slurm.conf says (`sinfo -R`): correct gres.conf or "
            "slurm.conf.",
        )
    if out := names("down", "drain", "fail", "not_responding"):
        level, fix = "warn", "Look at `sinfo -R`; scontrol update nodename=… state=resume."
        found = f"{_some(out)}: down or drained; rota leaves them alone"
        if len(out) == len(facts.ours):
            yield CheckResult("bad", "nodes", f"no node can be used: {found}", fix)
        else:
            yield CheckResult(level, "nodes", found, fix)  # type: ignore[arg-type]
    if not (wrong or out):
        yield CheckResult("ok", "nodes", f"all {len(facts.ours)} nodes can be used")


def _select(facts: ClusterFacts) -> CheckResult:
    kind = facts.config.get("SelectType", "")
    if kind == "select/cons_tres":
        parameters = facts.config.get("SelectTypeParameters", "")
        return CheckResult("ok", "SelectType", f"cons_tres ({parameters or 'no parameters'})")
    return CheckResult(
        "bad",
        "SelectType",
        f"{kind or 'not known'} cannot give out single GPUs",
        "Set SelectType=select/cons_tres in slurm.conf and restart slurmctld.",
    )


def _requeue(facts: ClusterFacts) -> CheckResult:
    if facts.config.get("JobRequeue", "1") == "1":
        return CheckResult("ok", "JobRequeue", "jobs can be put back in line")
    return CheckResult(
        "bad",
        "JobRequeue",
        "JobRequeue=0: no job can be stopped to go on later, nor after a node "
        "failed, unless it was submitted with --requeue",
        "Set JobRequeue=1 in slurm.conf; jobs that must not be repeated say --no-requeue.",
    )


def _preemption(facts: ClusterFacts) -> Iterator[CheckResult]:
    kind = facts.config.get("PreemptType", "preempt/none") or "preempt/none"
    modes = {
        name: facts.partitions.get(name, {}).get("PreemptMode", "OFF")
        for name in facts.partitions_wanted
    }
    on = [f"{name} ({mode})" for name, mode in modes.items() if mode != "OFF"]
    fix = (
        "Set PreemptMode=OFF for these partitions: of two schedulers that stop jobs, neither "
        "knows why a job has stopped."
    )
    if kind == "preempt/none" and "GANG" not in facts.config.get("PreemptMode", ""):
        yield CheckResult("ok", "preemption", "Slurm itself stops no job for another one")
    elif on:
        yield CheckResult("bad", "preemption", f"{kind}: Slurm stops jobs of {', '.join(on)}", fix)
    else:
        yield CheckResult(
            "warn", "preemption", f"{kind} is on, though not for these partitions", fix
        )


def _kill_wait(facts: ClusterFacts) -> CheckResult:
    wait_s = facts.seconds("KillWait")
    if wait_s is None:
        return CheckResult("warn", "KillWait", "it is not known", "`scontrol show config` has it.")
    late = []
    for job in facts.jobs:
        ours = {*job.partition.split(",")} & set(facts.partitions_wanted)
        if ours and job.state not in ENDS:
            hints, _ = read_hints(job.comment)
            if hints.checkpointable and not hints.signal and hints.grace_s > wait_s:
                late.append(f"{job.call} ({hints.grace_s:g} s)")
    if late:
        return CheckResult(
            "warn",
            "KillWait",
            f"{wait_s:g} s after SIGTERM jobs are killed, but {_some(late)} "
            "may take longer to save",
            "Raise KillWait, or have these jobs ask for notice (rota:signal=USR1,grace=…).",
        )
    return CheckResult(
        "ok",
        "KillWait",
        f"jobs have {wait_s:g} s from SIGTERM to SIGKILL; with "
        "rota:signal=… they have their grace before that",
    )


def _return_to_service(facts: ClusterFacts) -> CheckResult:
    value = facts.config.get("ReturnToService", "")
    if value in ("1", "2"):
        return CheckResult("ok", "ReturnToService", f"{value}: nodes that come back are used again")
    return CheckResult(
        "warn",
        "ReturnToService",
        f"{value or 'not known'}: a node that was down stays so until an administrator resumes it",
        "Set ReturnToService=1 or 2.",
    )


def _accounting(facts: ClusterFacts) -> CheckResult:
    kind = facts.config.get("AccountingStorageType", "")
    age_s = facts.seconds("MinJobAge") or 0.0
    if kind.endswith("slurmdbd"):
        return CheckResult("ok", "accounting", "slurmdbd tells how jobs ended")
    if age_s < LEAST_JOB_AGE_S:
        return CheckResult(
            "warn",
            "accounting",
            f"there is no slurmdbd, and jobs that are over are forgotten after "
            f"{age_s:g} s (MinJobAge): rota may not learn how they ended",
            "Set MinJobAge=300, or use slurmdbd.",
        )
    return CheckResult(
        "ok",
        "accounting",
        f"no slurmdbd: how jobs ended is known for {age_s:g} s after "
        "that (MinJobAge), which is enough while rota runs",
    )


def _some(names: list[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
