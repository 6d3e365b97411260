"""Why jobs wait, as far as policies cannot tell: they know nothing of what jobs ask of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from rota.core.layout import SLACK
from rota.run.wait_reason import MOST_NAMED, WaitReason

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from rota.backends.driver import JobRequest
    from rota.backends.job_roll import ClusterJob, JobRoll
    from rota.backends.node_table import NodeTable
    from rota.core.cluster import Cluster
    from rota.core.plan import Share
    from rota.core.types import Floats

_AGAIN: Final = "It is tried again in every round; after a while nodes are kept for it."


class ClusterWaits:
    """Adds to the reasons of a round what only the backend knows."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._cluster: object = None
        self._never: dict[tuple[object, ...], str] = {}

    def all(
        self, reasons: Mapping[int, WaitReason], roll: JobRoll, unplaced: Collection[int]
    ) -> dict[int, WaitReason]:
        """The reasons by uid, also of jobs about which no policy was asked.

        `unplaced` were given a share that no nodes were found for.
        """
        found, listed = dict(reasons), roll.jobs
        shares = {uid: roll.share(job) for uid, job in listed.items()}
        for uid, job in listed.items():
            if shares.get(uid) or not job.sight.managed:
                continue
            if why := self.never(job.sight.request):
                found[uid] = WaitReason(
                    "never", f"never fits: {why}",
                    "Cancel it and ask for less, or let rota schedule a larger cluster.",
                )  # fmt: skip
            elif job.sight.waits_for:
                then = "No policy is asked about it until then."
                found[uid] = WaitReason("outside", job.sight.waits_for, then)
            elif uid in unplaced:
                found[uid] = self._unplaced(job.sight.request, listed, shares)
        return found

    def never(self, request: JobRequest) -> str:
        """Why a job could not start if all nodes were up and empty; "" if it could."""
        if self._nodes.cluster is not self._cluster:
            self._cluster = self._nodes.cluster
            self._never.clear()
        shape = (request.min_workers, request.gpus_per_worker, request.cpus_per_worker,
                 request.memory_gb_per_worker, request.gpu_type, request.only_on,
                 request.must_have, request.apart)  # fmt: skip
        if shape not in self._never:
            self._never[shape] = self._too_much(request)
        return self._never[shape]

    def _too_much(self, request: JobRequest) -> str:
        cluster, least = self._nodes.cluster, max(1, request.min_workers)
        assert cluster is not None
        if missing := sorted(request.must_have - set(cluster.names)):
            return f"it names node {missing[0]}, which is not among the nodes that rota schedules"
        room = self._room(request)
        may = {cluster.names[k] for k in np.flatnonzero(room)}
        if low := sorted(request.must_have - may):
            return f"it names node {low[0]}, which it may not use or which is too small for it"
        if (len(may) if request.apart else room.sum()) >= least:
            return ""
        unit = "node" if request.apart else "worker"
        asks = f"it asks for {least} {unit}{'s' * (least > 1)} with {_each(request)}"
        asks += " each" * (least > 1)
        most = "" if may else f", the largest has {_largest(request, cluster)}"
        return f"{asks}; {len(may)} of {len(cluster)} nodes have that and may be used{most}"

    def _room(self, request: JobRequest) -> Floats:
        """Workers of a job that each node has room for when it is empty (N,)."""
        cluster = self._nodes.cluster
        assert cluster is not None
        room = np.full(len(cluster), float(request.max_workers))
        for has, each in ((cluster.gpus, request.gpus_per_worker),
                          (cluster.cpus, request.cpus_per_worker),
                          (cluster.memory_gb, request.memory_gb_per_worker)):  # fmt: skip
            if each > 0:
                room = np.minimum(room, (has + SLACK) // each)
        if request.gpu_type:
            room[cluster.type != cluster.type_code(request.gpu_type)] = 0
        if request.only_on is not None:
            room[[name not in request.only_on for name in cluster.names]] = 0
        return room

    def _unplaced(
        self, request: JobRequest, jobs: Mapping[int, ClusterJob], shares: Mapping[int, Share]
    ) -> WaitReason:
        cluster = self._nodes.cluster
        assert cluster is not None
        may = np.flatnonzero(self._room(request)).tolist()
        held = {
            uid: sum(w * jobs[uid].sight.request.gpus_per_worker for k, w, _ in share if k in may)
            for uid, share in shares.items()
            if uid in jobs
        }
        holders = sorted(((u, float(n)) for u, n in held.items() if n), key=lambda h: (-h[1], h[0]))
        named = [f"job {jobs[u].known.name} holds {n:g}" for u, n in holders[:MOST_NAMED]]
        names = ", ".join(cluster.names[k] for k in may[:MOST_NAMED])
        more = f" and {len(may) - MOST_NAMED} more" if len(may) > MOST_NAMED else ""
        text = f"fits none of the nodes that it may use now ({names}{more})"
        return WaitReason(
            "unplaced", "; ".join([text, ", ".join(named)] if named else [text]), _AGAIN,
            tuple(holders), "GPUs",
        )  # fmt: skip


def _each(request: JobRequest) -> str:
    """What one worker asks for, in words."""
    gpus, kind = request.gpus_per_worker, request.gpu_type
    told = [f"{gpus} {kind}{' ' * bool(kind)}GPU{'s' * (gpus != 1)}"] if gpus else []
    if request.cpus_per_worker > 0:
        told.append(f"{request.cpus_per_worker:g} CPU{'s' * (request.cpus_per_worker != 1)}")
    if request.memory_gb_per_worker > 0:
        told.append(f"{request.memory_gb_per_worker:g} GB of memory")
    return ", ".join(told) or "nothing"


def _largest(request: JobRequest, cluster: Cluster) -> str:
    """The most that any node has of what a job asks for."""
    told = [f"{cluster.gpus.max()} GPUs"] if request.gpus_per_worker else []
    if request.cpus_per_worker > 0 and np.isfinite(cluster.cpus.max()):
        told.append(f"{cluster.cpus.max():g} CPUs")
    if request.memory_gb_per_worker > 0 and np.isfinite(cluster.memory_gb.max()):
        told.append(f"{cluster.memory_gb.max():g} GB of memory")
    return ", ".join(told) or "no more"
