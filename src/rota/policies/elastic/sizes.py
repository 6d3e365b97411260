"""What sizes an elastic job can have, what each costs, and how fast it is there.

A size is a number of parameter servers and of workers. Its cost is its dominant share: the
largest part of any of the cluster's resources that it takes. Jobs without a known curve are
believed to run in proportion to their workers.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from rota.perf.reference import Ask, best_speed

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.core.cluster import Cluster
    from rota.core.speed import Curves
    from rota.core.types import Floats

GPUS, CPUS, MEMORY = range(3)
Need: TypeAlias = tuple[float, float, float]
"""GPUs, CPUs, memory."""
MANY: Final = 4096
"""The most workers of a job without a curve, where nothing else limits them."""
ANY: Final = -1
"""In place of a GPU type: whichever; the slowest worker then sets the pace."""


class Point(NamedTuple):
    """One size of a job."""

    servers: int
    workers: int
    share: float  # of the cluster: the dominant one
    speed: float
    need: Need
    type: int  # the GPU type it is meant for


NOTHING: Final = Point(0, 0, 0.0, 0.0, (0.0, 0.0, 0.0), ANY)


class ElasticShape(NamedTuple):
    """All that the sizes of a job depend on; jobs of one shape share a `Sizes`."""

    curve: int
    type: int
    workers: tuple[int, int, int]  # fewest, most, requested
    servers: tuple[int, int, int]
    worker: Need
    server: Need


class Sizes:
    """The sizes of jobs of one shape on one GPU type."""

    def __init__(
        self,
        shape: ElasticShape,
        curves: Curves | None,
        capacity: tuple[float, ...],
        node_gpus: int,
    ) -> None:
        self.shape = shape
        speed = _by_curve(shape, curves, node_gpus) if shape.curve >= 0 else None
        self.guessed = speed is None or not speed.any()
        self.spread_only = self.guessed and _runs_spread(shape, curves)
        if speed is None or self.guessed:
            speed = _by_workers(shape, capacity)
        one_row = self.guessed or (curves is not None and curves.by_nodes)
        self.first = shape.servers[2] if one_row else 0
        """Servers of the first row: it may be the only one, and there may be very many of them."""
        self.speed: Floats = speed  # (servers − first + 1, workers + 1), 0: the job does not run
        self._capacity = capacity
        servers, workers = np.ogrid[: speed.shape[0], : speed.shape[1]]
        self.share: Floats = np.zeros(speed.shape)
        for k, has in enumerate(capacity):
            need = workers * shape.worker[k] + (servers + self.first) * shape.server[k]
            # What a cluster has none of makes the size impossible; what it does not count is free.
            with np.errstate(divide="ignore", invalid="ignore"):
                part = np.where(need > 0, need / has, 0.0)
            np.maximum(self.share, part, out=self.share)
        speed[self.share > 1 + 1e-9] = 0.0
        self._after: dict[tuple[int, int, bool], list[tuple[float, Point]]] = {}

    @property
    def fastest(self) -> float:
        """Speed at the best size that an empty cluster holds; 0 if it holds none."""
        return self.frontier[-1].speed

    def point(self, servers: int, workers: int) -> Point:
        """The size, with what belongs to it."""
        w, s = self.shape.worker, self.shape.server
        gpus, cpus, memory = (float(workers * w[k] + servers * s[k]) for k in range(3))
        need, speed = (gpus, cpus, memory), self.speed_at(servers, workers)
        if servers > self.most_servers or workers >= self.speed.shape[1]:
            share = 1.0  # held, though beyond the end of the curve
        elif servers >= self.first:
            share = float(self.share[servers - self.first, workers])
        else:
            share = max(_part(n, has) for n, has in zip(need, self._capacity, strict=True))
        return Point(servers, workers, share, speed, need, self.shape.type)

    @property
    def most_servers(self) -> int:
        """Servers of the last row."""
        return self.first + len(self.speed) - 1

    def speed_at(self, servers: int, workers: int) -> float:
        """Its speed there; 0 where it does not run."""
        if self.first <= servers <= self.most_servers and workers < self.speed.shape[1]:
            return float(self.speed[servers - self.first, workers])
        return 0.0

    @cached_property
    def frontier(self) -> list[Point]:
        """Nothing, and every size that is faster than all that cost no more, by cost."""
        servers, workers = self.speed.nonzero()
        speed, share = self.speed[servers, workers], self.share[servers, workers]
        best, found = 0.0, [NOTHING]
        for k in np.lexsort((workers, servers, -speed, share)).tolist():
            if speed[k] > best:
                best = float(speed[k])
                found.append(self.point(self.first + int(servers[k]), int(workers[k])))
        return found

    @cached_property
    def hull(self) -> list[Point]:
        """The part of the frontier that is on its concave hull: gains per cost only fall."""
        found: list[Point] = []
        for new in self.frontier:
            while len(found) > 1 and _slope(found[-2], new) >= _slope(found[-2], found[-1]):
                found.pop()
            found.append(new)
        return found

    @cached_property
    def bundles(self) -> list[Point]:
        """Sizes in steps of one worker and, as long as more are allowed, one server."""
        fewest, most, _ = self.shape.servers
        found = []
        for workers in range(self.shape.workers[0], self.speed.shape[1]):
            servers = min(max(workers, fewest), most, self.most_servers)
            if self.speed_at(servers, workers) == 0:  # with another number of servers only
                servers = self.first + int(self.speed[:, workers].argmax())
            if self.speed_at(servers, workers) > 0:
                found.append(self.point(servers, workers))
        return found

    def steps(self, at: Point, single: bool) -> list[tuple[float, Point]]:
        """Larger sizes by (time saved per unit of work) / (cost added), best first.

        With `single`, sizes of one worker or one server more only.
        """
        key = (at.servers, at.workers, single)
        if key not in self._after:
            self._after[key] = self._larger(at, single)
        return self._after[key]

    def _larger(self, at: Point, single: bool) -> list[tuple[float, Point]]:
        row = max(at.servers - self.first, 0)
        begin = self.first + row
        part = self.speed[row:, at.workers :]
        wanted = part > at.speed
        if single:
            wanted &= np.indices(part.shape).sum(axis=0) + begin - at.servers == 1
        servers, workers = wanted.nonzero()
        more = self.share[row:, at.workers :][servers, workers] - at.share
        saved = (1 / at.speed - 1 / part[servers, workers]) / np.maximum(more, 1e-12)
        # Two sizes can be as good in arithmetic that does not round: the smaller comes first.
        order = np.lexsort((workers, servers + workers, -saved)).tolist()
        return [
            (
                float(saved[k]),
                self.point(begin + int(servers[k]), at.workers + int(workers[k])),
            )
            for k in order
        ]


def better(sizes: Sizes, at: Point, fits: Callable[[Point], bool]) -> Point | None:
    """The fastest size that fits, if it is faster than `at`."""
    for point in reversed(sizes.frontier):
        if point.speed <= at.speed:
            return None
        if fits(point):
            return point
    return None


def _part(need: float, has: float) -> float:
    """The part that a need is of what there is; more than all where there is nothing."""
    if need <= 0:
        return 0.0
    return need / has if has > 0 else np.inf


def _slope(a: Point, b: Point) -> float:
    return (b.speed - a.speed) / max(b.share - a.share, 1e-12)


def _by_workers(shape: ElasticShape, capacity: tuple[float, ...]) -> Floats:
    """In proportion to the workers that the cluster can hold, with as many servers as requested."""
    fewest, most, asked = shape.workers
    most = min(most, max(asked, MANY))
    for need, has in zip(shape.worker, capacity, strict=True):
        if need > 0 and has < np.inf:
            most = min(most, int(has / need + 1e-9))
    speed = np.zeros((1, most + 1))
    speed[0, fewest:] = np.arange(fewest, most + 1) / asked
    return speed


def _runs_spread(shape: ElasticShape, curves: Curves | None) -> bool:
    """Whether the curve has a speed for the job on some number of nodes."""
    if curves is None or shape.curve < 0 or not curves.by_nodes:
        return False
    return bool(curves.speed[shape.curve, :, 1:, shape.workers[0] : shape.workers[1] + 1].any())


def _by_curve(shape: ElasticShape, curves: Curves | None, node_gpus: int) -> Floats | None:
    """As the job's curve has it, within the job's limits and the table's.

    A curve by nodes knows no servers: then there is one row, for as many as requested.
    """
    if curves is None:
        return None
    table = curves.speed[shape.curve]  # (T, A, W)
    known: Floats = table.min(axis=0) if shape.type == ANY else table[shape.type]
    fewest, most, _ = shape.workers
    columns = min(most + 1, known.shape[1])
    if curves.by_nodes:
        speed = np.zeros((1, columns))
        workers = np.arange(columns)
        spanned = np.ceil(workers * shape.worker[GPUS] / max(node_gpus, 1)).astype(np.int64)
        speed[0] = known[spanned.clip(1, known.shape[0] - 1), workers]
    else:
        speed = known[: shape.servers[1] + 1, :columns].copy()
        speed[: shape.servers[0]] = 0.0
    speed[:, :fewest] = 0.0
    return speed


def reference(sizes: Sizes, gpu_type: int, curves: Curves | None, cluster: Cluster) -> float:
    """The speed in which a job's remaining work is counted: the best at its requested size.

    It is that on its own GPU type, or else on the fastest; 1 where no curve is known.
    """
    if sizes.guessed or curves is None:
        return 1.0
    shape = sizes.shape
    gpus, cpus, memory_gb = shape.worker
    ask = Ask(shape.curve, gpu_type, shape.workers[2], shape.servers[2], int(gpus), cpus, memory_gb)
    return best_speed(curves, cluster, ask) or 1.0
