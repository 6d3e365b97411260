"""Where a job may run, and how fast: one pool per GPU type, and the whole cluster for the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rota.core.layout import SLACK
from rota.errors import DecisionError, PolicyError

if TYPE_CHECKING:
    from rota.core.draft import Draft
    from rota.core.snapshot import Snapshot
    from rota.core.speed import Curves
    from rota.core.types import Bools, Floats, Ints


@dataclass(frozen=True)
class TypePools:
    """The pools of a cluster for the jobs of a snapshot, each at its requested size.

    Pool t holds the nodes of GPU type t, so a job in it never waits for a slower sibling. The
    last pool is the whole cluster; it is open only to jobs that no single type can hold.
    """

    gpus: Ints  # (T,) of nodes that are up
    speed: Floats  # (J, T + 1) work per second; 0: cannot run there
    held: Ints  # (J,) the pool in which a job runs, −1: it waits

    @classmethod
    def of(cls, snapshot: Snapshot) -> TypePools:
        """What the snapshot says; without curves all types are equally fast."""
        nodes, T = snapshot.nodes, len(snapshot.cluster.gpu_types)
        gpus = np.bincount(nodes["type"], np.where(nodes["up"], nodes["gpus"], 0), T)
        speed = speeds_at(snapshot, snapshot.jobs.workers)
        return cls(gpus.astype(np.int64), speed, held_pool(snapshot))

    @property
    def share(self) -> Floats:
        """The part of a job's GPUs that each pool takes from each type (T + 1, T)."""
        total = max(1, int(self.gpus.sum()))
        return np.vstack([np.eye(len(self.gpus)), self.gpus / total])


def known_curves(snapshot: Snapshot) -> Curves | None:
    """The snapshot's curves, with GPU types in the cluster's order."""
    curves = snapshot.curves
    if curves is None or curves.gpu_types == snapshot.cluster.gpu_types:
        return curves
    return curves.on(snapshot.cluster.gpu_types)


def speeds_at(snapshot: Snapshot, workers: Ints) -> Floats:
    """Speed of each job with these workers (J,) in each pool, on as few nodes as possible.

    (J, T + 1); 0: it cannot run there. A curve that knows of no type where the job runs is taken
    for no curve: better a guess than a job that never starts. One that knows only of more nodes
    is an error: the job would hold its GPUs and never end.
    """
    curves = known_curves(snapshot)
    speed = _speeds(snapshot, curves, workers)
    unknown = speed.max(axis=1) == 0.0
    if unknown.any() and curves is not None:
        guess = _speeds(snapshot, None, workers)
        speed[unknown] = guess[unknown]
        if curves.by_nodes:
            for job in np.flatnonzero(unknown & (snapshot.jobs.curve >= 0)).tolist():
                curve, asked = int(snapshot.jobs.curve[job]), int(workers[job])
                w, types = min(asked, curves.speed.shape[3] - 1), np.flatnonzero(guess[job, :-1])
                if curves.speed[curve, types, 1:, w].any():
                    raise runs_spread_only(curves.names[curve], asked)
    return speed


def runs_spread_only(model: str, workers: int) -> PolicyError:
    """What a policy that packs jobs raises where one has a speed on more nodes only."""
    return PolicyError(
        f"{model!r} with {workers} workers has a speed only on more nodes than it needs, but this "
        "policy puts jobs on as few as possible. Use one that spreads them, such as "
        "fifo-skip+spread or contention-greedy"
    )


def _speeds(snapshot: Snapshot, curves: Curves | None, workers: Ints) -> Floats:
    jobs, nodes, T = snapshot.jobs, snapshot.nodes, len(snapshot.cluster.gpu_types)
    everywhere = np.where(nodes["up"], nodes["gpus"], 0)
    speed = np.zeros((len(jobs), T + 1))
    for pool in range(T + 1):
        gpus = everywhere if pool == T else everywhere[nodes["type"] == pool]
        span = _nodes_needed(gpus, jobs.gpus_per_worker, workers)
        allowed = (span > 0) & ((jobs.gpu_type == -1) | (jobs.gpu_type == pool))
        types = range(T) if pool == T else [pool]
        # A gang over several types goes as fast as its slowest member.
        slowest = np.min([_at(curves, snapshot, workers, t, span) for t in types], axis=0)
        speed[:, pool] = np.where(allowed, slowest, 0.0)
    speed[speed[:, :T].max(axis=1) > 0.0, T] = 0.0
    return speed


def _nodes_needed(gpus: Ints, each: Ints, workers: Ints) -> Ints:
    """The fewest nodes with `gpus` GPUs (N,) on which the workers fit (J,); 0: on none."""
    span = np.zeros(len(workers), np.int64)
    span[each == 0] = 1
    for size in np.unique(each[each > 0]).tolist():
        room = np.sort(gpus // size)[::-1].cumsum()
        mine = each == size
        count = np.searchsorted(room, workers[mine]) + 1
        span[mine] = np.where(count <= len(room), count, 0)
    return span


def _at(
    curves: Curves | None, snapshot: Snapshot, workers: Ints, gpu_type: int, span: Ints
) -> Floats:
    """Speed of each job with these workers on `span` nodes of a type (J,)."""
    jobs = snapshot.jobs
    plain = workers.astype(np.float64)
    if curves is None:
        return plain
    A, W = curves.speed.shape[2:]
    a = np.minimum(span if curves.by_nodes else jobs.servers, A - 1)
    w = np.minimum(workers, W - 1)
    return np.where(jobs.curve >= 0, curves.speed[jobs.curve, gpu_type, a, w], plain)


def held_pool(snapshot: Snapshot) -> Ints:
    """The pool in which each job runs (J,): its nodes' type, or the last if they differ."""
    rows, T = snapshot.jobs.rows, len(snapshot.cluster.gpu_types)
    length = rows["share_len"].astype(np.int64)
    before = length.cumsum() - length
    place = np.repeat(rows["share_at"] - before, length) + np.arange(length.sum())
    owner = np.repeat(np.arange(len(rows)), length)
    types = snapshot.nodes["type"][snapshot.shares["node"][place]]
    lowest, highest = np.full(len(rows), T), np.full(len(rows), -1)
    np.minimum.at(lowest, owner, types)
    np.maximum.at(highest, owner, types)
    return np.where(length == 0, -1, np.where(lowest == highest, highest, T))


def find_room(draft: Draft, job: int, workers: int, inside: Bools) -> list[tuple[int, int]] | None:
    """The fewest nodes among `inside` (N,) with room for that many workers, tightest last."""
    row, nodes = draft.rows[job], draft.nodes
    room = np.full(len(nodes), workers)
    for has, need in (
        ("free", row["gpus_per_worker"]),
        ("free_cpus", row["cpus_per_worker"]),
        ("free_memory_gb", row["memory_gb_per_worker"]),
    ):
        if need > 0:
            room = np.minimum(room, (nodes[has] + SLACK) // need)
    room = np.where(inside & nodes["up"], room, 0).astype(np.int64)
    if room.sum() < workers:
        return None
    share, left = [], workers
    while left:
        enough = room >= left
        # Of the nodes that hold all the rest, the one with least to spare in GPUs.
        free = np.where(enough, nodes["free"], 1 << 30) if enough.any() else -room
        node = int(free.argmin())
        taken = min(left, int(room[node]))
        share.append((node, taken))
        room[node], left = 0, left - taken
    return sorted(share)


def try_place(draft: Draft, job: int, share: list[tuple[int, int]]) -> bool:
    """Give the job these workers, and its servers evenly beside them, if that fits."""
    servers, count = int(draft.rows["servers"][job]), len(share)
    beside = [(node, servers // count + (k < servers % count)) for k, (node, _) in enumerate(share)]
    try:
        draft.place(job, share, beside if servers else ())
    except DecisionError:
        return False
    return True
