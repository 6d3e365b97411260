"""From a snapshot to the memory that the kernels of the contention-aware policies work in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from rota.core.speed import LINKS, no_contention
from rota.perf.laws import check_models
from rota.policies.contention.greedy_kernels import EXACT
from rota.policies.contention.neighbour_kernels import Found, Law, Occupancy, Options, Scratch
from rota.policies.contention.occupy_kernels import HOUR_S, Counts, Rooms
from rota.policies.contention.spread_kernels import MOST_SPREADS, JobTypes, PlacementTables

if TYPE_CHECKING:
    from rota.core.cluster import Cluster
    from rota.core.draft import Draft
    from rota.core.snapshot import Snapshot
    from rota.core.speed import Contention, Curves
    from rota.core.types import Floats, Ints, Records

MOST_KEPT: Final = 256
"""Spreads of waiting types of which it is remembered what every node is worth."""
MOST_FREE: Final = 64
"""Nodes are counted by free GPUs up to this number."""


Memory = TypeVar("Memory", Occupancy, Scratch)


class PlacementModel:
    """What placements are worth in a cluster: its curves and contention, kept between rounds."""

    def __init__(
        self, cluster: Cluster, curves: Curves | None, contention: Contention | None
    ) -> None:
        self.cluster, self.curves, self.contention = cluster, curves, contention
        if curves is not None and curves.gpu_types != cluster.gpu_types:
            curves = curves.on(cluster.gpu_types)
        none = np.zeros((0, len(cluster.gpu_types), 1, 1))
        speed = none if curves is None else _floats(curves.speed)
        laws = contention or no_contention(curves)
        check_models(laws, laws.kind.shape[0] - 1)
        links = laws.link_gbps if len(laws.link_gbps) == len(cluster) else cluster.link_gbps
        law = Law(
            int(laws.mode), float(laws.floor), _floats(laws.ratio), _floats(laws.hurt),
            _floats(laws.harm), _floats(laws.traffic_gbps), _floats(laws.talk), _floats(links),
            _uplinks(cluster, laws),
        )  # fmt: skip
        by_nodes = curves is not None and bool(curves.by_nodes)
        self.tables = PlacementTables(
            law, by_nodes, speed, np.array(laws.kind, np.int64, order="C")
        )

    @classmethod
    def of(cls, snapshot: Snapshot, last: PlacementModel | None) -> PlacementModel:
        """The model of a snapshot's cluster: the last one, if it still is."""
        if last is not None and last.suits(snapshot):
            return last
        return cls(snapshot.cluster, snapshot.curves, snapshot.contention)

    def suits(self, snapshot: Snapshot) -> bool:
        """Whether this is the model of the cluster of `snapshot`."""
        return (
            self.cluster is snapshot.cluster
            and self.curves is snapshot.curves
            and self.contention is snapshot.contention
        )


def new_rooms(
    lead: tuple[int, ...], jobs: int, nodes: int, laws: PlacementTables, slots: int, width: int
) -> Rooms:
    """Memory for occupancies; every array has the axes `lead` in front.

    slots  the most jobs that a node lists
    width  the most nodes of a job
    """
    J, Q, N, P = jobs, jobs, nodes, jobs * MOST_SPREADS
    U, T = laws.law.uplink_gbps.size, laws.speed.shape[1]
    kept = min(P, MOST_KEPT) if N > EXACT else 0  # options whose parts are remembered

    def ints(*shape: int) -> Any:
        return np.zeros((*lead, *shape), np.int64)

    def floats(*shape: int) -> Any:
        return np.zeros((*lead, *shape))

    signs = np.broadcast_to(_signs(J), (*lead, J)).copy()
    slot_count = 1 << max(1, J).bit_length() + 1
    return Rooms(
        Options(None, floats(J), floats(J), signs, ints(J), ints(Q), ints(P), ints(P), ints(P),
                floats(P, T)),
        Occupancy(ints(Q + 1), ints(N), ints(N), ints(N), ints(N), floats(N), floats(N), floats(N),
                  floats(N),
                  ints(N), ints(N), ints(N, slots), ints(N, slots), floats(N, slots), ints(J),
                  floats(J), floats(J), floats(J), ints(J), ints(J, width), ints(J + 1), floats(U),
                  ints(U), ints(U, J), ints(N + 1), ints(U)),
        Scratch(floats(J), ints(J + 1), ints(N), ints(N), ints(N), ints(N), floats(N), floats(N),
                floats(kept + 1, U), floats(kept + 1, U), ints(kept + 1), floats(U), floats(U),
                ints(U), ints(N), ints(U), ints(U), ints(kept + 1, N), floats(kept + 1, U),
                floats(kept + 1, U), ints(kept + 1), floats(kept + 1), ints(P), floats(P),
                floats(P), ints(MOST_FREE + 1), ints(kept + 2), floats(kept + 1, N),
                floats(kept + 1, N)),
        JobTypes(ints(J), ints(J), ints(J), floats(J), floats(J), ints(slot_count), ints(T)),
        Counts(*(ints(1) for _ in Counts._fields)),
    )  # fmt: skip


def rooms_for(
    snapshot: Snapshot, rows: Records, laws: PlacementTables, *, again: bool = False
) -> Rooms:
    """Memory for one snapshot; with `again`, running jobs may be placed anew too."""
    J, nodes = len(rows), snapshot.nodes
    waiting = (rows["share_len"] == 0) | again
    jobs_on = int(np.bincount(snapshot.shares["node"], minlength=1).max())
    # A newcomer takes a GPU or more of every node it is on, unless its workers need none.
    light = int((rows["gpus_per_worker"][waiting] == 0).sum())
    slots = jobs_on + min(int(waiting.sum()), int(nodes["gpus"].max()) + light) + 1
    asked = min(len(nodes), int(rows["workers"][waiting].max(initial=1)))
    width = max(asked, int(rows["share_len"].max(initial=1)))
    return new_rooms((), J, len(nodes), laws, slots, width)


def zeros_like(memory: Memory) -> Memory:
    """As much memory as this, for another cluster."""
    return type(memory)._make(np.zeros_like(array) for array in memory)


def found_of(rooms: Rooms, most: int) -> Found:
    """Memory for `most` placements, with the axes in front that `rooms` has."""
    *lead, _, width = rooms.room.node.shape
    option, job = np.zeros((2, *lead, most + 1), np.int64)
    node = np.zeros((*lead, most + 1, width), np.int64)
    return Found(np.zeros((*lead, most + 1)), option, job, node)


def weigh(rooms: Rooms, rows: Records, *, fraction: bool) -> Ints:
    """Write what jobs' speeds count for; returns the jobs in the order of their queues.

    With `fraction`, a job's speed counts by the part of the job that it does per second, and of
    jobs alike the shortest comes first.
    """
    size = np.maximum(1.0, np.where(rows["gpus"] > 0, rows["gpus"], rows["workers"]))
    rooms.options.size[:] = rooms.options.weight[:] = size
    if not fraction:
        return np.arange(len(rows))
    total_s = np.maximum(_known(rows["remaining_s"]) + rows["progress_s"], 1.0)
    rooms.options.weight[:] = total_s.mean() / total_s  # so that a threshold means the same
    return np.argsort(total_s, kind="stable")


def write_started(rooms: Rooms, draft: Draft) -> None:
    """Give the jobs that were started what they were started on."""
    room, begin = rooms.room, int(rooms.counts.ran[0])
    for job in room.run[begin : room.run[-1]].tolist():
        place_evenly(draft, job, room.node[job, : room.span[job]].tolist())


def odd_jobs(rooms: Rooms, rows: Records) -> Ints:
    """Waiting jobs that no even spread suits."""
    waiting = np.flatnonzero(rows["share_len"] == 0)
    odd: Ints = waiting[rooms.types.spreads[rooms.types.of[waiting]] == 0]
    return odd


def _floats(array: Any) -> Floats:
    """A copy of the type and order that compiled code was made for."""
    return np.array(array, np.float64, order="C")


def _uplinks(cluster: Cluster, laws: Contention) -> Floats:
    """What racks' uplinks and, last, the spine carry; (0,) if they never slow a job down."""
    racks = int(cluster.rack.max()) + 1
    if laws.mode != LINKS or racks == 1 or len(laws.uplink_gbps) < racks:
        return np.zeros(0)
    return np.append(laws.uplink_gbps[:racks], laws.spine_gbps).astype(np.float64)


def _known(remaining_s: Floats) -> Floats:
    """Remaining work (J,); where it is unknown, the mean of the others, or an hour."""
    known = np.isfinite(remaining_s)
    guess_s = float(remaining_s[known].mean()) if known.any() else HOUR_S
    return np.where(known, remaining_s, guess_s)


def _signs(count: int) -> Ints:
    """Numbers without a pattern (the finaliser of SplitMix64), always the same."""
    x = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return (x ^ (x >> np.uint64(27))).view(np.int64)


def place_evenly(draft: Draft, job: int, nodes: list[int]) -> None:
    """Give a job what it asks for, in equal parts on these nodes."""
    row = draft.rows[job]
    workers, servers = _split(int(row["workers"]), nodes), _split(int(row["servers"]), nodes)
    draft.place(job, workers, servers)


def _split(count: int, nodes: list[int]) -> list[tuple[int, int]]:
    """`count` over nodes: equal parts, the first ones one more."""
    each, more = divmod(count, len(nodes))
    return [(node, each + (i < more)) for i, node in enumerate(nodes)]
