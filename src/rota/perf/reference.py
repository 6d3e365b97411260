"""The reference speed of a job: the best that a cluster can give it at its requested size.

A job's duration is what it takes at this speed, which is pace 1, alone in its best place on the
empty cluster. So a gang of 16 GPUs on nodes of 4 is measured against four such nodes, never
against a node that does not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rota.core.kinds import kinds_of
from rota.core.layout import SLACK

if TYPE_CHECKING:
    from rota.core.cluster import Cluster
    from rota.core.speed import Curves
    from rota.core.types import Floats, Ints, Records


class Ask(NamedTuple):
    """What the best place of a job depends on; the fields of JOB."""

    curve: int
    gpu_type: int  # −1: any
    workers: int
    servers: int
    gpus_per_worker: int
    cpus_per_worker: float
    memory_gb_per_worker: float


def reference_speeds(rows: Records, curves: Curves, cluster: Cluster) -> Floats:
    """The reference speeds of these jobs (J,), all of which have a curve; each kind is met once."""
    first, kind = kinds_of(rows[name] for name in Ask._fields)
    asks = rows[list(Ask._fields)][first].tolist()
    return np.array([best_speed(curves, cluster, Ask(*ask)) for ask in asks], np.float64)[kind]


def best_speed(curves: Curves, cluster: Cluster, ask: Ask) -> float:
    """The best speed over all places for the job on the empty cluster; 0: it runs in none.

    Of a job that the cluster cannot hold at all, the best speed of its size in the table: to say
    that it does not fit is up to others. GPU types of `curves` are those of the cluster.
    """
    A, W = curves.speed.shape[2:]
    table = curves.speed[ask.curve, :, :, min(ask.workers, W - 1)]  # (T, A)
    if not curves.by_nodes:
        table = table[:, [min(ask.servers, A - 1)]]
    if len(table) == table.shape[1] == 1:
        return float(table[0, 0])
    room = _room(cluster, ask)
    types = [t for t in range(len(table)) if room[cluster.type == t].any()]
    spans: dict[frozenset[int], range] = {}
    best, held = 0.0, False
    for a in range(table.shape[1]):
        # The slowest GPU type sets the pace, so types are added while there is no room yet.
        together: list[int] = []
        for t in sorted(types, key=lambda t: -table[t, a]):
            together.append(t)
            key = frozenset(together)
            if key not in spans:
                spans[key] = _spans(room[np.isin(cluster.type, together)], ask.workers)
            # Beyond the table its edge counts, as in the simulator.
            if a in spans[key] or (a == table.shape[1] - 1 and a < spans[key].stop):
                best, held = max(best, float(table[t, a])), True
                break
    return best if held else float(table.max())


def _room(cluster: Cluster, ask: Ask) -> Ints:
    """The number of workers of the job that each empty node holds (N,); 0 on other GPU types."""
    room = np.full(len(cluster), float(ask.workers))
    for has, need in (
        (cluster.gpus, ask.gpus_per_worker),
        (cluster.cpus, ask.cpus_per_worker),
        (cluster.memory_gb, ask.memory_gb_per_worker),
    ):
        if need > 0:
            np.minimum(room, np.floor((has + SLACK) / need), out=room)
    if ask.gpu_type != -1:
        room[cluster.type != ask.gpu_type] = 0.0
    return room.astype(np.int64)


def _spans(room: Ints, workers: int) -> range:
    """The numbers of nodes over which the job can be spread, if they have this room (N,)."""
    total = np.sort(room)[::-1].cumsum()
    if not total.size or total[-1] < workers:
        return range(0)
    fewest = int(np.searchsorted(total, workers)) + 1
    return range(fewest, min(int((room > 0).sum()), workers) + 1)
