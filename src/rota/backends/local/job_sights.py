"""The jobs and nodes of this machine in the words of drivers."""

from __future__ import annotations

from math import inf, nan
from typing import TYPE_CHECKING

from rota.backends.driver import JobRequest, JobSight, NodeSight, Progress
from rota.backends.local.live_snapshot import resize_cost, restart_cost
from rota.elastic.protocol import ENDED

if TYPE_CHECKING:
    from rota.backends.driver import Place
    from rota.backends.local.live_job import LiveJob
    from rota.core.cluster import Cluster

HELD_BY_USER = "its user has put it on hold"
NEEDS_SERVERS = "it needs parameter servers, which only the local backend gives"


def nodes_of(cluster: Cluster) -> list[NodeSight]:
    """The nodes of a cluster, all of them up."""
    return [
        NodeSight(
            name=cluster.names[k], gpus=int(cluster.gpus[k]),
            gpu_type=cluster.gpu_types[int(cluster.type[k])], cpus=float(cluster.cpus[k]),
            memory_gb=float(cluster.memory_gb[k]), rack=int(cluster.rack[k]),
        )
        for k in range(len(cluster))
    ]  # fmt: skip


def sight_of(job: LiveJob, cluster: Cluster) -> JobSight:
    """A job as it is now."""
    orders, held, origin = job.orders, job.held, job.store.origin
    names = cluster.names  # fewer than the last daemon knew, perhaps
    place: Place = tuple((names[n], w, s) for n, w, s in orders.share if n < len(names))
    started = orders.phase in ("running", "stopping") and held.since_s is not None
    return JobSight(
        name=str(job.uid),
        submit_s=job.request.submitted_at,
        request=_request_of(job),
        phase=orders.phase,
        place=place,
        start_s=origin + held.since_s if started and held.since_s is not None else nan,
        managed=job.request.kind != "servers",
        waits_for=HELD_BY_USER if job.on_hold else "",
        progress=_progress_of(job, len(place)),
    )


def _request_of(job: LiveJob) -> JobRequest:
    request = job.request
    sizes = request.sizes()
    return JobRequest(
        user=request.user, model=request.model, workers=request.workers,
        min_workers=sizes["min_workers"], max_workers=sizes["max_workers"],
        gpus_per_worker=request.gpus_per_worker,
        estimate_s=nan if request.estimate_s is None else request.estimate_s,
        restart_s=restart_cost(job), stoppable=request.resumes, in_place=request.kind != "plain",
    )  # fmt: skip


def _progress_of(job: LiveJob, nodes: int) -> Progress | None:
    """What its agent has said; of a plain job nothing is known."""
    status = job.status
    if status is None or status.state in ENDED or job.request.kind == "plain":
        return None
    told_s = job.store.origin + job.meter.heard_s - status.ago_s
    if not 0.0 <= status.samples_per_s < inf:
        return None
    # On its way to what it shall hold it trains with something else.
    speed = status.samples_per_s if job.meter.settled else nan
    pause_s = resize_cost(job)
    return Progress(told_s, status.samples, status.total or nan, speed, nodes, pause_s)
