"""Where the tasks of elastic jobs go, once the size of each job is chosen.

Jobs keep their tasks where they are, as far as they can. Workers are packed onto as few nodes
as possible; servers, and workers without GPUs, go where the CPUs are not needed to feed free
GPUs, so that what the nodes have together can be used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rota.core.decision import Decision
from rota.core.draft import Draft
from rota.core.layout import SHARE, SLACK
from rota.policies.classic.placing import start_if_idle
from rota.policies.elastic.sizes import ANY, CPUS, GPUS, NOTHING
from rota.policies.gpu_types.type_pools import runs_spread_only

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from rota.core.snapshot import Snapshot
    from rota.core.types import Bools, Floats, Ints
    from rota.policies.elastic.climb import Survey
    from rota.policies.elastic.sizes import Point

WORKERS, SERVERS = 0, 1
_MANY = 1 << 30
Shares = dict[int, list[int]]
"""Node → workers and servers there."""


class TaskPlacement:
    """The nodes' free room, and the tasks on them, while tasks are being placed."""

    def __init__(self, view: Survey) -> None:
        nodes, rows = view.snapshot.nodes, view.snapshot.jobs.rows
        self.type: Ints = nodes["type"]
        self.up: Bools = nodes["up"]
        self.free: Floats = np.stack([nodes["gpus"], nodes["cpus"], nodes["memory_gb"]]).astype(
            np.float64
        )  # (3, N)
        self.free[:, ~self.up] = 0.0
        self.held: dict[int, Shares] = {}
        self.demand = [(sizes[0].shape.worker, sizes[0].shape.server) for sizes in view.sizes]
        with_gpus = rows[rows["gpus_per_worker"] > 0]
        per_gpu = with_gpus["cpus_per_worker"] / with_gpus["gpus_per_worker"]
        self.cpus_per_gpu = float(per_gpu.max(initial=0.0))

    def put(self, job: int, node: int, role: int, count: int) -> None:
        """Add `count` tasks; a negative count takes them away."""
        here = self.held.setdefault(job, {}).setdefault(node, [0, 0])
        here[role] += count
        for k, need in enumerate(self.demand[job][role]):
            if need:
                self.free[k, node] -= need * count

    def release(self, job: int) -> None:
        for node, counts in self.held.get(job, {}).items():
            for role in (WORKERS, SERVERS):
                self.put(job, node, role, -counts[role])
        self.held.pop(job, None)

    def count(self, job: int, role: int) -> int:
        return sum(counts[role] for counts in self.held.get(job, {}).values())

    def add(self, job: int, role: int, count: int, type_: int) -> bool:
        """Place `count` more tasks; False, with some of them placed, if there is no room."""
        if count > 0 and (role == SERVERS or not self.demand[job][WORKERS][GPUS]):
            spare = self.free[CPUS] - self.cpus_per_gpu * self.free[GPUS]
            room = self._room(job, role, type_, spare)
            count = self._pack(job, role, count, room)
        if count > 0:
            room = self._room(job, role, type_, self.free[CPUS])
            count = self._pack(job, role, count, room)
        return count <= 0

    def trim(self, job: int, role: int, count: int) -> None:
        """Take `count` tasks away: where few are, or where their CPUs would feed a free GPU."""
        spare = self.free[CPUS] - self.cpus_per_gpu * self.free[GPUS]
        here = [node for node, counts in self.held[job].items() if counts[role]]
        fewest = {node: self.held[job][node][role] for node in here}
        here.sort(key=lambda n: ((spare[n] if role == SERVERS else 0.0), fewest[n], -n))
        for node in here:
            taken = min(count, fewest[node])
            self.put(job, node, role, -taken)
            count -= taken
            if not count:
                break

    def _room(self, job: int, role: int, type_: int, cpus: Floats) -> Ints:
        """The number of tasks that each node has room for (N,)."""
        room = np.full(len(self.up), float(_MANY))
        for k, need in enumerate(self.demand[job][role]):
            if need:
                np.minimum(room, ((cpus if k == CPUS else self.free[k]) + SLACK) / need, out=room)
        room[~self.up] = 0.0
        if type_ != ANY and role == WORKERS:
            room[self.type != type_] = 0.0
        whole: Ints = np.maximum(room, 0.0).astype(np.int64)
        return whole

    def _pack(self, job: int, role: int, count: int, room: Ints) -> int:
        """Fill nodes until `count` tasks are placed, beside the job's own first; what is left."""
        for node in sorted(self.held.get(job, {})):
            taken = min(count, int(room[node]))
            if taken > 0:
                self.put(job, node, role, taken)
                room[node] = 0
                count -= taken
        while count > 0:
            enough = room >= count
            if enough.any():  # the tightest node that holds the rest
                node = int(np.where(enough, room, _MANY).argmin())
            else:
                node = int(room.argmax())
            taken = min(count, int(room[node]))
            if taken <= 0:
                break
            self.put(job, node, role, taken)
            room[node] = 0
            count -= taken
        return count


def fill(view: Survey, given: Mapping[int, Point]) -> Decision:
    """The decision that gives every job its size, or the largest smaller one that fits."""
    for job in given:
        mine, curves = view.sizes[job][0], view.snapshot.curves
        if mine.spread_only and curves is not None:
            raise runs_spread_only(curves.names[mine.shape.curve], mine.shape.workers[0])
    same = {job for job, point in given.items() if _same(view.held[job], point)}
    attempts: list[Collection[int]] = [given, same]
    if not view.snapshot.jobs.resize_s.any():  # moving jobs costs nothing
        attempts.append([])
    for keep in attempts:
        placement, short = _place_all(view, given, keep)
        if not short:
            break
    for job in short:
        placement.release(job)
    for job in short:
        _squeeze(view, placement, job, given[job])
    if not any(placement.held.values()):
        draft = Draft(view.snapshot)
        start_if_idle(draft)
        return draft.commit()
    return decision(view.snapshot, placement.held)


def _same(held: Point, wanted: Point) -> bool:
    return held[:2] == wanted[:2] and held.type == wanted.type


def _place_all(
    view: Survey, given: Mapping[int, Point], keep: Collection[int]
) -> tuple[TaskPlacement, list[int]]:
    """Place all jobs, those in `keep` from what they hold; also returns those that do not fit."""
    placement = TaskPlacement(view)
    for job in given:
        if view.pinned[job] or (job in keep and view.held[job].workers):
            _hold_on(view, placement, job, given[job])
    for job, point in given.items():
        for role, wanted in ((WORKERS, point.workers), (SERVERS, point.servers)):
            surplus = placement.count(job, role) - wanted
            if surplus > 0:
                placement.trim(job, role, surplus)
    short: set[int] = set()
    # GPUs are scarcest: first workers that need them, then workers that do not, then servers.
    order = sorted(given, key=lambda job: not placement.demand[job][WORKERS][GPUS])
    for role in (WORKERS, SERVERS):
        for job in order:
            point = given[job]
            wanted = point.workers if role == WORKERS else point.servers
            missing, type_ = wanted - placement.count(job, role), _type(view, job, point)
            if job not in short and not placement.add(job, role, missing, type_):
                short.add(job)
    return placement, [job for job in given if job in short]


def _hold_on(view: Survey, placement: TaskPlacement, job: int, point: Point) -> None:
    """Put the job's tasks where they are, except on nodes that are down or of another type."""
    nodes, type_ = view.snapshot.nodes, _type(view, job, point)
    if view.pinned[job]:
        type_ = ANY
    for node, workers, servers in view.snapshot.share(job):
        if nodes["up"][node] and (type_ == ANY or nodes["type"][node] == type_):
            placement.put(job, node, WORKERS, workers)
            placement.put(job, node, SERVERS, servers)


def _type(view: Survey, job: int, point: Point) -> int:
    return point.type if len(view.sizes[job]) > 1 else int(view.snapshot.jobs.gpu_type[job])


def _squeeze(view: Survey, placement: TaskPlacement, job: int, wanted: Point) -> None:
    """Give the job the fastest size below the one wanted for which there is room on the nodes."""
    for point in reversed(view.sized(job, wanted.type).frontier):
        if point is NOTHING or point.share > wanted.share:
            continue
        type_ = _type(view, job, point)
        if placement.add(job, WORKERS, point.workers, type_) and placement.add(
            job, SERVERS, point.servers, type_
        ):
            return
        placement.release(job)


def decision(snapshot: Snapshot, held: Mapping[int, Shares]) -> Decision:
    """Every job shall hold these shares, written in one go; the loop checks it like any other."""
    rows = snapshot.jobs.rows
    at, length = np.zeros((2, len(rows)), np.int64)
    entries: list[tuple[int, int, int]] = []
    for job, shares in held.items():
        mine = [(n, w, s) for n, (w, s) in sorted(shares.items()) if w or s]
        at[job], length[job] = len(entries), len(mine)
        entries += mine
    return Decision(rows["uid"], at, length, np.array(entries, SHARE))
