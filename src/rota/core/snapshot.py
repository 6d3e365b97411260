"""All that a policy may know, at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rota.core.jobs import JobTable
from rota.core.layout import JOB, NODE, RUNNING, SHARE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.core.cluster import Cluster
    from rota.core.jobs import Job
    from rota.core.learning import Learning
    from rota.core.speed import Contention, Curves
    from rota.core.types import Bools, Records


@dataclass(frozen=True)
class Snapshot:
    """Time, cluster, jobs and what each job holds; read-only.

    It is of the same kind whether it comes from the simulator or from a real cluster.
    """

    time_s: float
    cluster: Cluster
    jobs: JobTable
    nodes: Records  # (N,) NODE: what is free now
    shares: Records  # (S,) SHARE: what the jobs hold; JobTable.share_at points into it
    curves: Curves | None = None
    """Speed by what a job holds, as far as it is known; JobTable.curve points into it."""
    contention: Contention | None = None
    """How jobs that share nodes slow each other down, as far as it is known."""
    learning: Learning | None = None
    """How accurate each job is and can become, where a world has learning curves."""

    def __post_init__(self) -> None:
        for array, kind in ((self.jobs.rows, JOB), (self.nodes, NODE), (self.shares, SHARE)):
            # Compiled code relies on this without looking.
            if array.dtype != kind or not array.flags.c_contiguous:
                raise TypeError("A snapshot is made of contiguous records of rota.core.layout.")
            array.flags.writeable = False

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        jobs: Sequence[Job],
        held: Mapping[int, Sequence[tuple[int, ...]]] | None = None,
        *,
        time_s: float = 0.0,
        curves: Curves | None = None,
        contention: Contention | None = None,
    ) -> Snapshot:
        """A snapshot made by hand.

        `held` maps a job's index to its (node, workers) pairs, or (node, workers, servers).
        """
        table, nodes = JobTable.of(jobs), cluster.empty()
        entries: list[tuple[int, int, int]] = []
        for index, share in (held or {}).items():
            row = table.rows[index]
            row["status"], row["share_at"], row["share_len"] = RUNNING, len(entries), len(share)
            triples = sorted((node, workers, sum(servers)) for node, workers, *servers in share)
            row["held_workers"] = sum(workers for _, workers, _ in triples)
            row["held_servers"] = sum(servers for _, _, servers in triples)
            row["started_s"] = row["since_s"] = row["settled_s"] = row["resume_s"] = time_s
            row["pace"] = row["held_workers"] / row["workers"]
            for node, workers, servers in triples:
                entries.append((node, workers, servers))
                nodes[node]["free"] -= workers * row["gpus_per_worker"]
                for what in ("cpus", "memory_gb"):
                    nodes[node][f"free_{what}"] -= (
                        workers * row[f"{what}_per_worker"] + servers * row[f"{what}_per_server"]
                    )
        return cls(time_s, cluster, table, nodes, np.array(entries, SHARE), curves, contention)

    @property
    def pinned(self) -> Bools:
        """Which jobs run and may not be touched yet (J,)."""
        jobs = self.jobs
        return jobs.running & (self.time_s < jobs.since_s + jobs.min_run_s)

    def share(self, job: int) -> list[tuple[int, int, int]]:
        """What `job` (its index here) holds: (node, workers, servers), by node."""
        row = self.jobs.rows[job]
        at = int(row["share_at"])
        return self.shares[at : at + int(row["share_len"])].tolist()  # type: ignore[no-any-return]
