"""Checks a Slurm cluster, and what rota needs beside it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rota.backends.check_result import CheckResult
from rota.backends.local.daemon_lock import daemon_of
from rota.backends.slurm.check_config import check_config
from rota.backends.slurm.check_hold import (
    STALE_S,
    check_hook,
    check_life,
    check_rights,
    heartbeat_age_s,
)
from rota.backends.slurm.cluster_facts import gather
from rota.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rota.backends.slurm.cluster_facts import ClusterFacts
    from rota.backends.slurm.rest import Slurmrestd
    from rota.backends.slurm.tools import SlurmTools


def checkup(
    tools: SlurmTools,
    partitions: Sequence[str],
    root: Path,
    heartbeat: Path,
    rest: Slurmrestd | None = None,
) -> Iterator[CheckResult]:
    """Everything that was found; it changes nothing."""
    facts = gather(tools, partitions, os.geteuid())
    if facts.missing:
        yield CheckResult(
            "bad",
            "commands",
            f"not here: {', '.join(facts.missing)}",
            "Install Slurm's client commands (Debian: slurm-client) on this host.",
        )
    else:
        yield CheckResult("ok", "commands", "squeue, sinfo, scontrol, scancel and sacct are here")
    if facts.trouble:
        yield CheckResult(
            "bad",
            "slurmctld",
            facts.trouble,
            "Start slurmctld and munged; `scontrol ping` says whether they answer.",
        )
    if rest is not None:
        yield check_rest(facts, rest)
    if facts.config:
        yield from check_config(facts)
        yield from check_rights(facts)
        age_s = heartbeat_age_s(heartbeat)
        yield from check_hook(facts, heartbeat, beats=age_s is not None and age_s <= STALE_S)
    yield from check_life(facts, root, heartbeat, daemon_of(root))


def check_rest(facts: ClusterFacts, rest: Slurmrestd) -> CheckResult:
    """Whether slurmrestd offers jobs and nodes, of the same cluster."""
    try:
        nodes, jobs = rest.nodes(), rest.jobs()
    except BackendError as error:
        return CheckResult(
            "bad", "slurmrestd", str(error),
            "Start slurmrestd as the account that rota runs as, or leave --slurmrestd out: rota "
            "then asks squeue and sinfo.",
        )  # fmt: skip
    if facts.nodes and {node.name for node in nodes} != {node.name for node in facts.nodes}:
        return CheckResult(
            "bad", "slurmrestd", f"{rest.address} lists other nodes than sinfo",
            "Give the slurmrestd of this cluster; its slurm.conf says which one it serves.",
        )  # fmt: skip
    found = f"{rest.address} answers in {rest.version}: {len(nodes)} nodes, {len(jobs)} jobs"
    return CheckResult("ok", "slurmrestd", found)
