"""Live jobs as a snapshot: the same records that the simulator gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core.jobs import Job as Asked
from rota.core.jobs import JobTable
from rota.core.layout import JOB, RUNNING, SHARE
from rota.core.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rota.backends.local.live_job import LiveJob
    from rota.core.cluster import Cluster

OVERDUE: Final = 0.1
"""A job that outlives its estimate is assumed to need this part of its run time again."""
FIRST_PAUSE_S: Final = 0.5
"""Seconds that a resize of an elastic job is assumed to cost until one was timed."""


def snapshot_of(
    cluster: Cluster,
    jobs: Sequence[LiveJob],
    now_s: float,
    users: Mapping[str, int],
    number: Callable[[str], int],
    min_run_s: float = 0.0,
) -> Snapshot:
    """The cluster and its jobs, in order of submission; `number` gives the number of a model."""
    rows = bytearray().join(_waiting(job, users, number) for job in jobs)
    table = JobTable(np.frombuffer(rows, JOB)) if jobs else JobTable.of([])
    table.rows["min_run_s"], table.rows["settled_s"] = min_run_s, now_s
    nodes = cluster.empty()
    entries: list[tuple[int, int, int]] = []
    for row, job in zip(table.rows, jobs, strict=True):
        if job.fresh:
            continue
        share, held = job.share, job.held
        row["attained_gpu_s"] = held.attained_by(now_s)
        row["preemptions"] = held.preemptions
        row["started_s"] = np.nan if held.started_s is None else held.started_s
        _note_work(row, job, now_s)
        if not share:
            continue
        if not job.request.resumes:
            row["min_run_s"] = np.inf  # it would begin again
        row["status"], row["share_at"], row["share_len"] = RUNNING, len(entries), len(share)
        since_s = now_s if held.since_s is None else held.since_s
        row["since_s"] = since_s if held.changed_s is None else max(since_s, held.changed_s)
        row["held_workers"] = sum(workers for _, workers, _ in share)
        row["held_servers"] = sum(servers for _, _, servers in share)
        row["pace"] = pace(job)
        row["resume_s"] = min(job.meter.settled_s, now_s)
        for node, workers, servers in share:
            entries.append((node, workers, servers))
            nodes[node]["free"] -= workers * row["gpus_per_worker"]
            for what in ("cpus", "memory_gb"):
                nodes[node][f"free_{what}"] -= workers * row[f"{what}_per_worker"]
    return Snapshot(now_s, cluster, table, nodes, np.array(entries, SHARE))


def _waiting(job: LiveJob, users: Mapping[str, int], number: Callable[[str], int]) -> bytes:
    """A job as a record of a table, as if it had never run; kept while that is so."""
    if job.fresh and job.record is not None:
        return job.record
    request = job.request
    rows = JobTable.of([asked(job, users.get(request.user, -1), number(request.model))]).rows
    rows["uid"] = job.uid
    _note_work(rows[0], job, 0.0)
    job.record = rows.tobytes()
    return job.record


def _note_work(row: Any, job: LiveJob, now_s: float) -> None:
    progress_s, total_s = work(job, now_s)
    row["progress_s"], row["estimate_s"] = progress_s, total_s
    row["remaining_s"] = max(total_s - progress_s, OVERDUE * progress_s)


def asked(job: LiveJob, user: int = -1, model: int = -1) -> Asked:
    """What a job asks for, with the numbers that snapshots give its user and its model."""
    return Asked(
        workers=job.request.workers,
        servers=job.request.servers,
        **job.request.sizes(),
        user=user,
        model=model,
        submit_s=job.submit_s,
        restart_s=_seconds(restart_cost(job)),
        resize_s=_seconds(resize_cost(job)),
    )


def _seconds(told_s: float) -> float:
    """A duration reported by a job, or 0 if it is none: one job must not stop the others."""
    return told_s if 0 <= told_s < np.inf else 0.0


def work(job: LiveJob, now_s: float) -> tuple[float, float]:
    """Work done and in all, in seconds at the size it asks for; NaN: not known."""
    held = job.held
    said = np.nan if job.request.estimate_s is None else job.request.estimate_s
    if job.request.kind == "plain":
        # Only the script knows its progress: it is assumed to run as fast as it asked to.
        return held.ran_s + (now_s - held.since_s if held.since_s is not None else 0.0), said
    if not held.rate:
        return 0.0, said
    done = job.meter.samples(now_s) / held.rate
    total = held.total / held.rate if held.total else said
    return done, max(total, done)


def pace(job: LiveJob) -> float:
    """Progress per second now; until it was measured, in proportion to its workers."""
    told = 0.0 if job.status is None else job.status.samples_per_s
    if not (job.held.rate and 0 < told < np.inf):
        return sum(workers for _, workers, _ in job.share) / job.request.workers
    return told / job.held.rate


def restart_cost(job: LiveJob) -> float:
    """Seconds from a launch to the first step: as measured, or as assumed by its request."""
    held = job.held
    return held.starting_s / held.starts if held.starts else job.request.restart_s


def resize_cost(job: LiveJob) -> float:
    """Seconds without progress after a resize or a move: as measured, or as assumed."""
    if job.request.kind == "plain":  # it is stopped and started again
        return job.request.restart_s
    changes, paused_s = job.held.changes, job.held.paused_s
    if job.status is not None:
        changes, paused_s = changes + job.status.changes, paused_s + job.status.paused_s
    return paused_s / changes if changes else FIRST_PAUSE_S
