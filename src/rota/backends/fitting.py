"""Makes decided shares fit what jobs demand of nodes, which policies know nothing about.

A policy knows GPU types, but not that a job names its nodes, excludes some, or wants its workers on
different nodes. Where its share will not do, other nodes with room are taken instead; where there
are none, the job goes on waiting. One that has waited so for long gets nodes of its own: nothing
else is started there until it fits.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from rota.core.layout import SLACK

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from rota.backends.driver import JobRequest
    from rota.backends.node_table import NodeTable
    from rota.core.plan import Share

KEEP_S: Final = 60.0
"""Seconds for which a decided job finds no nodes that it may use, until some are kept for it."""


class Room:
    """What is free on the nodes on which jobs can be started."""

    def __init__(self, nodes: NodeTable) -> None:
        assert nodes.cluster is not None
        self._nodes, self._cluster = nodes, nodes.cluster
        self.gpus = nodes.up_gpus()
        """By number of the node."""
        self._cpus = {k: float(self._cluster.cpus[k]) for k in self.gpus}
        self._memory_gb = {k: float(self._cluster.memory_gb[k]) for k in self.gpus}

    def take(self, request: JobRequest, share: Share, times: int = 1) -> None:
        """A job holds this; with -1 times it does not hold it any more."""
        for node, workers, _ in share:
            if node in self.gpus:
                self.gpus[node] -= times * workers * request.gpus_per_worker
                self._cpus[node] -= times * workers * request.cpus_per_worker
                self._memory_gb[node] -= times * workers * request.memory_gb_per_worker

    def workers(self, request: JobRequest) -> dict[int, float]:
        """Workers of a job that each node has room for."""
        kind = request.gpu_type
        code = self._cluster.type_code(kind) if kind else -1
        return {
            node: self._most(request, node)
            for node in self.gpus
            if code in (-1, int(self._cluster.type[node]))
        }

    def holds(self, request: JobRequest, share: Share, but: Collection[int] = ()) -> bool:
        """Whether there is room for a share, and none of it on the nodes `but`."""
        return all(
            node in self.gpus and node not in but and self._most(request, node) >= workers
            for node, workers, _ in share
        )

    def _most(self, request: JobRequest, node: int) -> float:
        needs = ((self.gpus, request.gpus_per_worker), (self._cpus, request.cpus_per_worker),
                 (self._memory_gb, request.memory_gb_per_worker))  # fmt: skip
        return min(((free[node] + SLACK) // each for free, each in needs if each > 0), default=inf)


class Fitter:
    """Makes the shares of one plan fit, and remembers which jobs could not be made to fit."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._since_s: dict[int, float] = {}
        self._kept: dict[int, frozenset[int]] = {}

    def forget(self, uid: int) -> None:
        """A job is over."""
        self._since_s.pop(uid, None)
        self._kept.pop(uid, None)

    def lay_out(
        self, wanted: Mapping[int, tuple[JobRequest, Share]], room: Room, now_s: float,
        held: Mapping[int, Share] = MappingProxyType({}),
    ) -> dict[int, Share | None]:  # fmt: skip
        """What each job gets of what was decided about it, or None.

        `room` is what is free beside all jobs that are not in `wanted`. Where other nodes than the
        decided ones are taken, those come first that a job has by now: `held`.
        """
        names, fixed = self._nodes.names, self._fixed(wanted)
        # One that cannot be stopped keeps what it cannot give up.
        wanted = {uid: (asked[0], asked[1] or fixed.get(uid, ())) for uid, asked in wanted.items()}
        for uid, base in fixed.items():
            room.take(wanted[uid][0], base)

        def fit(uid: int) -> Share | None:
            base = fixed.get(uid, ())
            room.take(wanted[uid][0], base, -1)
            own, has = {node for node, _, _ in base}, held.get(uid, ())
            share = self._fit(wanted[uid], room, self._of_others(uid) - own, len(base), has)
            if share is None:  # it goes on with what it has
                room.take(wanted[uid][0], has)
            return share

        self._kept = {uid: own for uid, own in self._kept.items() if uid in wanted}
        late = [uid for uid in wanted if now_s - self._since_s.get(uid, inf) > KEEP_S]
        found: dict[int, Share | None] = {}
        for uid in sorted(late, key=lambda one: (self._since_s[one], one)):
            found[uid] = fit(uid)
            if found[uid] is None:
                self._keep(uid, wanted[uid], room)
        rest = [uid for uid in wanted if uid not in found]
        # What fits as it was decided comes first: what does not must not push it aside.
        for uid in sorted(rest, key=lambda one: not suits(*wanted[one], names)):
            found[uid] = fit(uid)
        for uid, share in found.items():
            if share is not None:
                self.forget(uid)
            else:
                self._since_s.setdefault(uid, now_s)
        return found

    def _fixed(self, wanted: Mapping[int, tuple[JobRequest, Share]]) -> dict[int, Share]:
        """What running jobs cannot give up, but for those that are stopped altogether."""
        return {
            uid: self._nodes.share([(name, 1, 0) for name in request.fixed])
            for uid, (request, share) in wanted.items()
            if request.fixed and (share or not request.stoppable)
        }

    def _fit(
        self, asked: tuple[JobRequest, Share], room: Room, but: Collection[int], fixed: int,
        held: Share,
    ) -> Share | None:  # fmt: skip
        """What a job gets; one that grows in place may get less now, but no less than is fixed."""
        request, share = asked
        least = fixed or request.min_workers
        if suits(request, share, self._nodes.names) and room.holds(request, share, but):
            found: Share | None = share
        else:
            free = {node: n for node, n in room.workers(request).items() if node not in but}
            found = fitted(request, share, self._nodes.names, free, held)
            while found is None and request.in_place and workers_of(share) > least:
                share = _one_less(share)
                found = fitted(request, share, self._nodes.names, free, held)
        if found is not None:
            room.take(request, found)
        return found

    def _of_others(self, uid: int) -> frozenset[int]:
        """Nodes that are kept for other jobs."""
        return frozenset().union(*(own for one, own in self._kept.items() if one != uid))

    def _keep(self, uid: int, asked: tuple[JobRequest, Share], room: Room) -> None:
        """Keep nodes for a job: those that it names, then those with most room."""
        if uid in self._kept:
            return
        request, share = asked
        names, others = self._nodes.names, self._of_others(uid)
        may = [
            node
            for node in room.workers(request)
            if node not in others and (request.only_on is None or names[node] in request.only_on)
        ]
        may.sort(key=lambda n: (names[n] not in request.must_have, -room.gpus[n], n))
        self._kept[uid] = frozenset(may[: sum(workers for _, workers, _ in share)])


def workers_of(share: Share) -> int:
    """Workers in a share."""
    return sum(workers for _, workers, _ in share)


def _one_less(share: Share) -> Share:
    """A share without its last worker."""
    *rest, (node, workers, servers) = share
    return (*rest, (node, workers - 1, servers)) if workers > 1 else tuple(rest)


def suits(request: JobRequest, share: Share, names: Sequence[str]) -> bool:
    """Whether a job may hold `share`; `names` are those of the nodes."""
    here = {names[node] for node, _, _ in share}
    if request.only_on is not None and not here <= request.only_on:
        return False
    if share and not request.must_have <= here:
        return False
    return not request.apart or all(workers == 1 for _, workers, _ in share)


def fitted(
    request: JobRequest, share: Share, names: Sequence[str], room: Mapping[int, float],
    held: Share,
) -> Share | None:  # fmt: skip
    """A share of the same size that the job may hold, or None.

    `room` is the number of workers of this job that each node has room for, beside all that is
    decided about others. As many of the decided nodes as possible stay, and of those that it has by
    now (`held`); then full nodes come first.
    """
    wanted = workers_of(share)
    decided, has = ({node for node, _, _ in one} for one in (share, held))
    may = [
        node
        for node, places in room.items()
        if places >= 1 and (request.only_on is None or names[node] in request.only_on)
    ]
    must = [node for node in may if names[node] in request.must_have]
    if len(must) < len(request.must_have) or len(must) > wanted:
        return None
    first = {node: k for k, node in enumerate(must)}
    may.sort(key=lambda n: (first.get(n, len(first)), n not in decided, n not in has, room[n], n))
    count: Counter[int] = Counter(must)
    for node in may:
        most = 1 if request.apart else int(min(room[node], wanted))
        count[node] += min(most - count[node], wanted - count.total())
        if count.total() == wanted:
            return tuple((n, workers, 0) for n, workers in sorted(count.items()) if workers)
    return None
