"""The jobs and nodes of a cluster that others run, as a snapshot: the same records as simulated."""

from __future__ import annotations

from math import inf, isfinite, nan
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.backends.job_roll import measures
from rota.backends.packed_needs import packed_needs
from rota.core.jobs import Job, JobTable
from rota.core.layout import JOB, RUNNING, SHARE
from rota.core.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rota.backends.job_roll import ClusterJob
    from rota.backends.node_table import NodeTable
    from rota.core.cluster import Cluster
    from rota.core.plan import Share

OVERDUE: Final = 0.1
"""A job that outlives its estimate is assumed to need this part of its run time again."""
MOST_S: Final = 1e9
"""Work of a job, done or in all, whatever it says of itself: policies count with finite numbers."""
MOST_PACE: Final = 1e6
RESIZE_S: Final = 1.0
"""What a resize in place costs, until the job tells."""


def snapshot_of(
    nodes: NodeTable, jobs: Sequence[ClusterJob], shares: Mapping[int, Share], now_s: float,
    origin_s: float, codes: Callable[[ClusterJob], tuple[int, int]],
    pinned: Callable[[ClusterJob], bool], restart_s: Callable[[ClusterJob], float],
    min_run_s: float = 0.0,
) -> Snapshot:  # fmt: skip
    """The cluster and its jobs; `shares` are what they hold or shall hold, by uid.

    `codes` gives the numbers of a job's user and model, `restart_s` what a restart costs it.
    """
    assert nodes.cluster is not None
    ordered = sorted(jobs, key=lambda job: (job.known.submit_s, job.uid))
    rows = bytearray().join(
        _waiting(job, nodes.cluster, codes, restart_s, now_s, origin_s) for job in ordered
    )
    table = JobTable(np.frombuffer(rows, JOB) if rows else np.zeros(0, JOB))
    table.rows["min_run_s"], table.rows["settled_s"] = min_run_s, now_s
    free = nodes.cluster.empty()
    entries: list[tuple[int, int, int]] = []
    for row, job in zip(table.rows, ordered, strict=True):
        share = shares[job.uid]
        if not share:
            continue
        if pinned(job):
            row["min_run_s"] = inf
        _note_run(row, job, share, now_s, origin_s, there=share == nodes.share(job.sight.place))
        row["share_at"], row["share_len"] = len(entries), len(share)
        entries += share
        request = job.sight.request
        for node, workers, _ in share:
            free[node]["free"] -= workers * request.gpus_per_worker
            free[node]["free_cpus"] -= workers * request.cpus_per_worker
            free[node]["free_memory_gb"] -= workers * request.memory_gb_per_worker
    free["up"] = nodes.up
    for what, has in (("free", "gpus"), ("free_cpus", "cpus"), ("free_memory_gb", "memory_gb")):
        # Others may put more on a node than it has, and no policy could leave that as it is.
        free[has] -= np.minimum(free[what], 0)
        free[what] = np.where(nodes.up, np.maximum(free[what], 0), 0)
    return Snapshot(now_s, nodes.cluster, table, free, np.array(entries, SHARE))


def _waiting(
    job: ClusterJob, cluster: Cluster, codes: Callable[[ClusterJob], tuple[int, int]],
    restart_s: Callable[[ClusterJob], float], now_s: float, origin_s: float,
) -> bytes:  # fmt: skip
    """A job as a record of a table, as if it held nothing; kept until it is seen otherwise."""
    if job.row is None:
        request, known = job.sight.request, job.known
        user, model = codes(job)
        cpus, memory_gb = packed_needs(request, cluster)
        rows = JobTable.of([
            Job(
                workers=request.workers, min_workers=request.min_workers,
                max_workers=request.max_workers, gpus_per_worker=request.gpus_per_worker,
                cpus_per_worker=cpus, memory_gb_per_worker=memory_gb,
                gpu_type=cluster.type_code(request.gpu_type) if request.gpu_type else -1,
                user=user, model=model, estimate_s=request.estimate_s,
                submit_s=min(job.known.submit_s - origin_s, now_s), restart_s=restart_s(job),
            )
        ]).rows  # fmt: skip
        row = rows[0]
        row["uid"], row["preemptions"] = known.uid, known.preemptions
        row["started_s"] = nan if known.started_s is None else known.started_s
        row["attained_gpu_s"] = known.attained_gpu_s
        _note_work(row, job, known.ran_s)
        job.row = rows.tobytes()
    return job.row


def _note_run(
    row: Any, job: ClusterJob, share: Share, now_s: float, origin_s: float, *, there: bool
) -> None:
    """What a job holds, and what it has done with it."""
    began_s = run_since(job, now_s, origin_s)
    # One that moves or is resized may not be touched again before that can have been of use.
    since_s = min(max(began_s, job.since_s), now_s) if isfinite(job.since_s) else began_s
    row["status"], row["since_s"] = RUNNING, since_s
    row["started_s"] = since_s if np.isnan(row["started_s"]) else row["started_s"]
    held = row["held_workers"] = sum(workers for _, workers, _ in share)
    # A cluster may tell another size while it stops a job, and no policy could leave it as it is.
    row["min_workers"] = min(int(row["min_workers"]), held)
    row["max_workers"] = max(int(row["max_workers"]), held)
    row["resume_s"] = min(since_s + row["restart_s"], now_s) if job.known.started_s else since_s
    # What it has by now: it may be about to get more, or not have started yet.
    has = sum(workers for _, workers, _ in job.sight.place) if isfinite(job.sight.start_s) else 0
    known, progress = job.known, job.sight.progress
    lasted_s = now_s - max(began_s, min(now_s, known.counted_s - origin_s))
    row["attained_gpu_s"] = known.attained_gpu_s + has * int(row["gpus_per_worker"]) * lasted_s
    if progress is not None and known.rate > 0 and measures(job.sight):
        row["pace"] = min(max(0.0, progress.samples_per_s / known.rate), MOST_PACE)
    else:
        row["pace"] = row["held_workers"] / row["workers"]
    if job.sight.request.in_place:
        pause_s = nan if progress is None else progress.pause_s
        row["resize_s"] = pause_s if pause_s >= 0 else RESIZE_S
        row["resume_s"] = _steady_since(job, share, there, now_s)
    _note_work(row, job, known.ran_s + lasted_s * has / row["workers"])


def _steady_since(job: ClusterJob, share: Share, there: bool, now_s: float) -> float:
    """Since which round it is known that a job trains with its share; what came before is mixed."""
    told = job.sight.progress
    if not (there and told is not None and measures(job.sight) and told.samples_per_s > 0):
        job.steady = None
    elif job.steady is None or job.steady[0] != share:
        job.steady = share, now_s
    return now_s if job.steady is None else job.steady[1]


def run_since(job: ClusterJob, now_s: float, origin_s: float) -> float:
    """When the present run began, or was decided, in seconds of the backend's clock."""
    started_s = job.sight.start_s - origin_s
    since_s = started_s if isfinite(started_s) and job.sight.place else job.since_s
    return min(max(0.0, since_s), now_s) if isfinite(since_s) else now_s


def _note_work(row: Any, job: ClusterJob, ran_s: float) -> None:
    """Work done and left, in seconds at the size asked for; NaN: not known."""
    known, told_s = job.known, job.sight.request.estimate_s
    done_s, total_s = ran_s, told_s
    if known.rate > 0 and known.samples > 0:
        done_s = min(known.samples / known.rate, MOST_S)
        total_s = min(known.total / known.rate, MOST_S) if known.total > 0 else told_s
    row["progress_s"], row["estimate_s"] = done_s, max(total_s, done_s)
    row["remaining_s"] = max(total_s - done_s, OVERDUE * done_s)
