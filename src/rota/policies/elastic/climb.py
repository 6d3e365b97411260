"""Sharing a cluster out step by step: the job whose next step is worth most takes it.

Here nodes do not matter yet, only what they have together; where the tasks go is decided
afterwards (`rota.policies.elastic.filling`).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from rota.core.layout import SLACK
from rota.policies.elastic.sizes import ANY, NOTHING, ElasticShape, Sizes, reference

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from rota.core.cluster import Cluster
    from rota.core.snapshot import Snapshot
    from rota.core.speed import Curves
    from rota.core.types import Floats, Records
    from rota.policies.elastic.sizes import Point

Fits: TypeAlias = "Callable[[Point], bool]"
Step: TypeAlias = (
    "Callable[[int, Sizes, Point, Fits | None], tuple[tuple[float, ...], Point] | None]"
)
"""The next step of a job that is at a size: its key, lowest first, and the size it leads to.

Asked with a predicate, it names the best step among those that fit.
"""

FIELDS: Final = [
    "curve", "gpu_type", "min_workers", "max_workers", "workers", "min_servers", "max_servers",
    "servers", "gpus_per_worker", "cpus_per_worker", "memory_gb_per_worker", "cpus_per_server",
    "memory_gb_per_server",
]  # fmt: skip
"""What the sizes of a job depend on, in the order of `ElasticShape`."""


@dataclass
class FreeCapacity:
    """What is free in a cluster, by GPU type and in all."""

    amounts: list[list[float]]  # (T + 1, 3): GPUs, CPUs, memory; last: all types together

    def fits(self, held: Point, wanted: Point) -> bool:
        """Whether a job can go from one size to the other."""
        for row in self._rows(wanted):
            shared = held.type == wanted.type or row is self.amounts[-1]
            for k, left in enumerate(row):
                if wanted.need[k] - (held.need[k] if shared else 0.0) > left + SLACK:
                    return False
        return True

    def take(self, held: Point, wanted: Point) -> None:
        for point, sign in ((held, 1.0), (wanted, -1.0)):
            for row in self._rows(point):
                for k, need in enumerate(point.need):
                    if need:
                        row[k] += sign * need

    def _rows(self, point: Point) -> list[list[float]]:
        return (
            self.amounts[-1:] if point.type == ANY else [self.amounts[point.type], self.amounts[-1]]
        )


@dataclass
class Known:
    """Sizes worked out before; they hold as long as curves and capacity do."""

    curves: Curves | None = None
    capacity: tuple[tuple[float, ...], ...] = ()
    sizes: dict[tuple[Any, ...], list[Sizes]] = field(default_factory=dict)
    """By what `FIELDS` say about a job."""
    cluster: Cluster | None = None
    units: dict[tuple[Any, ...], float] = field(default_factory=dict)
    """The reference speed, by the same."""


@dataclass
class Survey:
    """What a policy for elastic jobs reads from a snapshot."""

    snapshot: Snapshot
    sizes: list[list[Sizes]]  # (J,) on each GPU type that will do, the fastest first
    work: Floats  # (J,) remaining, in the unit of the job's speeds; NaN if unknown
    total: Floats  # (J,) the same when it was submitted
    held: list[Point]  # (J,)
    pinned: list[bool]  # (J,) runs and may not be changed yet
    capacity: tuple[tuple[float, ...], ...]  # (T + 1, 3): GPUs, CPUs, memory; last: of all types
    unit: float
    """The dominant share of the smallest task of any job."""
    left: FreeCapacity = field(init=False)
    """What the last climb left."""

    def fastest(self, job: int) -> float:
        """The job's speed at its best size."""
        return self.sizes[job][0].fastest

    def sized(self, job: int, type: int) -> Sizes:  # noqa: A002
        """The sizes of `job` on one GPU type."""
        return next((s for s in self.sizes[job] if s.shape.type == type), self.sizes[job][0])


def survey(snapshot: Snapshot, known: Known) -> Survey:
    """Everything that a policy for elastic jobs asks of a snapshot."""
    nodes = snapshot.nodes[snapshot.nodes["up"]]
    kinds = max(len(snapshot.cluster.gpu_types), 1)
    capacity = (*(_has(nodes[nodes["type"] == t]) for t in range(kinds)), _has(nodes))
    if known.curves is not snapshot.curves or known.capacity != capacity:
        known.curves, known.capacity, known.sizes, known.units = snapshot.curves, capacity, {}, {}
    if known.cluster is not snapshot.cluster:
        known.cluster, known.units = snapshot.cluster, {}
    most = [int(nodes["gpus"][nodes["type"] == t].max(initial=0)) for t in range(kinds)]
    most.append(int(nodes["gpus"].max(initial=0)))
    jobs = snapshot.jobs
    rows = jobs.rows[FIELDS].tolist()
    sizes = [_sizes(row, known, most) for row in rows]
    for row, mine in zip(rows, sizes, strict=True):
        if row not in known.units:
            gpu_type = row[FIELDS.index("gpu_type")]
            known.units[row] = reference(mine[0], gpu_type, snapshot.curves, snapshot.cluster)
    unit_speed = np.array([known.units[row] for row in rows]).reshape(len(rows))
    view = Survey(
        snapshot, sizes, _work(jobs.remaining_s) * unit_speed, _work(jobs.estimate_s) * unit_speed,
        [], snapshot.pinned.tolist(), capacity, _smallest(jobs.rows, nodes),
    )  # fmt: skip
    for job, (servers, workers) in enumerate(
        zip(jobs.held_servers.tolist(), jobs.held_workers.tolist(), strict=True)
    ):
        view.held.append(_held(view, job, servers, workers) if workers or servers else NOTHING)
    return view


def climb(view: Survey, step: Step, staying: Collection[int] = ()) -> dict[int, Point]:
    """Let the job with the lowest key take its step, until no step is left that fits.

    Gives what every job gets, the first to have taken a step first; before all come those that
    stay as they are, pinned jobs among them.
    """
    view.left = left = FreeCapacity([list(part) for part in view.capacity])
    given: dict[int, Point] = {}
    for job, pinned in enumerate(view.pinned):
        if pinned or job in staying:
            given[job] = view.held[job]
            left.take(NOTHING, view.held[job])
    heap: list[tuple[tuple[float, ...], int, Point]] = []

    def push(job: int, at: Point, fits: Fits | None) -> None:
        for sizes in [view.sized(job, at.type)] if at.workers else view.sizes[job]:
            found = step(job, sizes, at, fits)
            if found:
                heapq.heappush(heap, (found[0], job, found[1]))
                return

    for job in range(len(view.sizes)):
        if job not in given:
            push(job, NOTHING, None)
    while heap:
        _, job, wanted = heapq.heappop(heap)
        at = given.get(job, NOTHING)
        if left.fits(at, wanted):
            left.take(at, wanted)
            given[job] = wanted
            push(job, wanted, None)
        else:
            push(job, at, lambda point, at=at: left.fits(at, point))  # type: ignore[misc]
    return given


def small_changes(view: Survey, given: dict[int, Point], units: float) -> set[int]:
    """Running jobs whose size changes by `units` or less, if no other job needs what they hold.

    Jobs that would grow come first: what they do not take lets others stay.
    """
    changes, staying = [], set()
    for job, wanted in given.items():
        held = view.held[job]
        more = wanted.share - held.share
        if held.workers and held.speed > 0 and abs(more) <= units * view.unit + 1e-12:
            changes.append((-more, job))
    for _, job in sorted(changes):
        if view.left.fits(given[job], view.held[job]):
            view.left.take(given[job], view.held[job])
            staying.add(job)
    return staying


def _has(nodes: Records) -> tuple[float, float, float]:
    return float(nodes["gpus"].sum()), float(nodes["cpus"].sum()), float(nodes["memory_gb"].sum())


def _work(seconds: Floats) -> Floats:
    return np.where(np.isfinite(seconds), np.maximum(seconds, 0.0), np.nan)


def _sizes(row: tuple[Any, ...], known: Known, most: list[int]) -> list[Sizes]:
    """The sizes of a job with these FIELDS on each GPU type that will do, the fastest first."""
    if row not in known.sizes:
        curve, wanted, *limits = row
        hidden = known.curves is None or curve < 0
        kinds = len(most) - 1
        if wanted != ANY:
            types = [wanted]
        elif kinds == 1:
            types = [0]
        else:  # a gang may need more than one type has; without a curve all types are the same
            types = [ANY] if hidden else [*range(kinds), ANY]
        found = []
        for type_ in types:
            shape = ElasticShape(
                -1 if hidden else curve, type_, tuple(limits[:3]), tuple(limits[3:6]),
                tuple(limits[6:9]), (0.0, *limits[9:]),
            )  # fmt: skip
            has = known.capacity[type_] if type_ >= ANY else (0.0, 0.0, 0.0)  # no such GPUs
            found.append(Sizes(shape, known.curves, has, most[type_]))
        known.sizes[row] = sorted(found, key=lambda s: (s.shape.type == ANY, -s.fastest))
    return known.sizes[row]


def _held(view: Survey, job: int, servers: int, workers: int) -> Point:
    """The size that a running job has now."""
    sizes, types = view.sizes[job], view.snapshot.nodes["type"]
    type_ = sizes[0].shape.type
    if len(sizes) > 1:
        on = {int(types[node]) for node, workers, _ in view.snapshot.share(job) if workers}
        type_ = on.pop() if len(on) == 1 else ANY
    return view.sized(job, type_).point(servers, workers)


def _smallest(rows: Records, nodes: Records) -> float:
    has, smallest = _has(nodes), 1.0
    for task in ("worker", "server"):
        share = np.zeros(len(rows))
        for k, name in enumerate(("gpus", "cpus", "memory_gb")):
            if f"{name}_per_{task}" in (rows.dtype.names or ()) and 0 < has[k] < np.inf:
                np.maximum(share, rows[f"{name}_per_{task}"] / has[k], out=share)
        smallest = float(share[share > 0].min(initial=smallest))
    return smallest
