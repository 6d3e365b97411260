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

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rota.backends.slurm.tools import SlurmTools


def checkup(
    tools: SlurmTools, partitions: Sequence[str], root: Path, heartbeat: Path
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
    if facts.config:
        yield from check_config(facts)
        yield from check_rights(facts)
        age_s = heartbeat_age_s(heartbeat)
        yield from check_hook(facts, heartbeat, beats=age_s is not None and age_s <= STALE_S)
    yield from check_life(facts, root, heartbeat, daemon_of(root))
