"""What a log records of its own schedule, in the form of a run: the row *as it was*.

Nothing is simulated. Starts and run times are those of the log, for the very jobs that are
replayed. The jobs of the record also waited for others that a replay leaves out (still running,
without GPUs, never exported), so a policy that does better may owe part of that to their absence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core.layout import ROUND
from rota.run.metrics import summarise
from rota.run.outcome import Outcome
from rota.traces.log_cluster import gpu_type_use, gpus_of, peak_gpus

if TYPE_CHECKING:
    from rota.core.cluster import Cluster
    from rota.core.types import Records
    from rota.traces.log_cluster import GpuTypeUse
    from rota.traces.trace import Trace

AS_IT_WAS: Final = "as it was"
UNKNOWN: Final = (
    "gave_up", "fragmentation", "preemptions", "moves", "resizes", "kills", "lost_gpu_h",
    "mean_fee", "rounds", "wall_s",
)  # fmt: skip
"""Metrics that a log's own record cannot give."""


def as_it_was(trace: Trace, cluster: Cluster) -> Outcome | None:
    """The log's own record of the jobs whose start it gives; None if it gives none.

    Of the cluster only the number of GPUs counts, to which utilisation and fairness refer.
    """
    known = ~np.isnan(trace.started_s)
    if not known.any():
        return None
    jobs = trace if known.all() else trace.take(known)
    done_s = jobs.started_s + jobs.duration_s
    begin_s, end_s = float(jobs.submit_s[0]), float(done_s.max())
    none = np.zeros(len(jobs))
    return Outcome(
        policy=AS_IT_WAS, total_gpus=cluster.total_gpus, job_id=jobs.job_id, user=jobs.user,
        users=jobs.users, num_gpus=jobs.num_gpus, submit_s=jobs.submit_s,
        duration_s=jobs.duration_s, started_s=jobs.started_s, done_s=done_s,
        gave_up=np.zeros(len(jobs), np.bool_), preemptions=np.zeros(len(jobs), np.int64),
        lost_s=none, fee=none, begin_s=begin_s, end_s=end_s,
        held_gpu_s=float(gpus_of(jobs) @ jobs.duration_s),
        up_gpu_s=cluster.total_gpus * (end_s - begin_s), stray_gpu_s=0.0,
        series=_series(jobs, cluster),
    )  # fmt: skip


def _series(jobs: Trace, cluster: Cluster) -> Records:
    """Where the cluster stood after every submission, start and end."""
    gpus, one = gpus_of(jobs), np.ones(len(jobs), np.int64)
    times_s = np.concatenate([jobs.submit_s, jobs.started_s, jobs.started_s + jobs.duration_s])
    order = np.argsort(times_s, kind="stable")
    rounds = np.zeros(len(times_s), ROUND)
    rounds["time_s"], rounds["up_gpus"] = times_s[order], cluster.total_gpus
    for name, by_submission, by_start, by_end in (
        ("waiting", one, -one, 0 * one), ("running", 0 * one, one, -one),
        ("held_gpus", 0 * one, gpus, -gpus),
    ):  # fmt: skip
        rounds[name] = np.concatenate([by_submission, by_start, by_end])[order].cumsum()
    last = np.append(np.diff(rounds["time_s"]) > 0, True)  # of all that happens at one moment
    kept: Records = rounds[last]
    return kept


def summary_as_it_was(outcome: Outcome) -> dict[str, Any]:
    """The metrics of a log's own record; None for those that it cannot give."""
    return {**summarise(outcome), **dict.fromkeys(UNKNOWN), "seed": None}


def doubts_as_it_was(trace: Trace, cluster: Cluster) -> list[str]:
    """What a reader of the row must know, in whole sentences."""
    known = ~np.isnan(trace.started_s)
    if not known.any():
        return []
    found = []
    if missing := int((~known).sum()):
        found.append(
            f"{trace.name}: the log records no start of {missing:,} of {len(trace):,} jobs; the "
            f"row {AS_IT_WAS!r} leaves them out."
        )
    peak = peak_gpus(trace, known)
    if peak > cluster.total_gpus:
        found.append(
            f"{trace.name}: by the log's own record up to {peak:,} GPUs were in use at once, but "
            f"this cluster has {cluster.total_gpus:,}: the row {AS_IT_WAS!r} had more."
        )
    if len(cluster.gpu_types) > 1 and (trace.gpu_type >= 0).any():
        found += [_of_type(trace, cluster, use) for use in gpu_type_use(trace)]
    return [sentence for sentence in found if sentence]


def _of_type(trace: Trace, cluster: Cluster, use: GpuTypeUse) -> str:
    """The same of one GPU type; empty if the cluster has enough of it."""
    has = int(cluster.gpus[cluster.type == cluster.type_code(use.gpu_type)].sum())
    if not use.gpu_type or (use.peak_gpus or 0) <= has:
        return ""
    return (
        f"{trace.name}: by the log's own record up to {use.peak_gpus:,} GPUs of type "
        f"{use.gpu_type!r} were in use at once, but this cluster has {has:,}: the row "
        f"{AS_IT_WAS!r} had more."
    )
