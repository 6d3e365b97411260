"""From a snapshot to the arrays that the kernels of the contention-aware policies take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from rota.core.speed import no_contention
from rota.perf.laws import check_models
from rota.policies.contention.neighbour_kernels import Found, Law, Occupancy, Options, Scratch
from rota.policies.contention.rollout_kernels import rate_all

if TYPE_CHECKING:
    from rota.core.cluster import Cluster
    from rota.core.draft import Draft
    from rota.core.snapshot import Snapshot
    from rota.core.speed import Contention, Curves
    from rota.core.types import Floats, Ints, Records

MOST_SPREADS: Final = 4
"""Of a job: over as few nodes as it fits on, and twice, four times, … as many."""


class JobShape(NamedTuple):
    """What makes two jobs alike to a placement; the fields of JOB."""

    curve: int
    workers: int
    servers: int
    gpus_per_worker: int
    gpu_type: int
    cpus_per_worker: float
    memory_gb_per_worker: float
    cpus_per_server: float
    memory_gb_per_server: float


class Spread(NamedTuple):
    """One way to run a job: evenly over `span` nodes."""

    span: int
    kind: int
    speed: Floats  # (T,) alone on each GPU type, relative to the reference


class PlacementModel:
    """What placements are worth in a cluster: its curves and contention, kept between rounds."""

    def __init__(
        self, cluster: Cluster, curves: Curves | None, contention: Contention | None
    ) -> None:
        self.cluster, self.curves, self.contention = cluster, curves, contention
        if curves is not None and curves.gpu_types != cluster.gpu_types:
            curves = curves.on(cluster.gpu_types)
        self._by_nodes = curves is not None and curves.by_nodes
        self._speed = np.zeros((0, 1, 1, 1)) if curves is None else curves.speed
        laws = contention or no_contention(curves)
        check_models(laws, laws.kind.shape[0] - 1)
        self._kind = laws.kind
        links = laws.link_gbps if len(laws.link_gbps) == len(cluster) else cluster.link_gbps
        self.law = Law(
            laws.mode, laws.floor, np.array(laws.ratio), np.array(laws.hurt), np.array(laws.harm),
            np.array(laws.traffic_gbps), np.array(laws.talk), np.array(links, np.float64),
        )  # fmt: skip
        self._known: dict[JobShape, tuple[list[Spread], float]] = {}

    def suits(self, snapshot: Snapshot) -> bool:
        """Whether this is the model of the cluster of `snapshot`."""
        return (
            self.cluster is snapshot.cluster
            and self.curves is snapshot.curves
            and self.contention is snapshot.contention
        )

    def kind(self, curve: int, span: int, workers: int) -> int:
        """The kind of traffic of a job over `span` nodes; beyond the table, that of its edge."""
        C, A, W = self._kind.shape
        row = curve if curve < C else -1  # it has a curve, which is not known here
        return int(self._kind[row, min(span, A - 1), min(workers, W - 1)])

    def speed(self, curve: int, span: int, servers: int, workers: int) -> Floats:
        """Work per second on each GPU type (T,); 0 where it does not run or no curve says."""
        C, _, A, W = self._speed.shape
        if not 0 <= curve < C:
            return np.zeros(len(self.cluster.gpu_types))
        a = span if self._by_nodes else servers
        return self._speed[curve, :, min(a, A - 1), min(workers, W - 1)]

    def spreads(self, shape: JobShape) -> tuple[list[Spread], float]:
        """The spreads of a job, and its reference: the mean of their speeds, on the best GPUs.

        Without a curve, or where it knows no spread that fits, all are as fast.
        """
        known = self._known.get(shape)
        if known is None:
            fitting = [m for m in self._spans(shape) if self._fits(shape, m)]
            speeds = [self.speed(shape.curve, m, shape.servers, shape.workers) for m in fitting]
            able = self._allowed(shape)
            running = [
                (m, speed) for m, speed in zip(fitting, speeds, strict=True)
                if speed[able].max(initial=0.0) > 0
            ][:MOST_SPREADS]  # fmt: skip
            if not running:
                running = [(m, np.ones_like(speeds[0])) for m in fitting[:MOST_SPREADS]]
            reference = float(np.mean([speed[able].max() for _, speed in running] or [1.0]))
            found = [
                Spread(m, self.kind(shape.curve, m, shape.workers), speed / reference)
                for m, speed in running
            ]
            known = self._known[shape] = (found, reference)
        return known

    def alone(self, shape: JobShape, span: int, servers: int, workers: int, on: Ints) -> float:
        """The speed of a running job on these GPU types, relative to its reference."""
        _, reference = self.spreads(shape)
        speed = float(self.speed(shape.curve, span, servers, workers)[on].min())
        return speed / reference if speed > 0 else workers / shape.workers

    def _allowed(self, shape: JobShape) -> Ints:
        """The GPU types that the job may run on."""
        if shape.gpu_type != -1:
            return np.array([shape.gpu_type])
        return np.unique(self.cluster.type)

    def _spans(self, shape: JobShape) -> list[int]:
        most = min(len(self.cluster), shape.workers)
        largest = int(self.cluster.gpus.max())
        each = shape.gpus_per_worker
        fewest = max(1, -(-shape.workers // (largest // each))) if 0 < each <= largest else 1
        return [m for m in range(fewest, most + 1) if m == fewest or m & (m - 1) == 0]

    def _fits(self, shape: JobShape, span: int) -> bool:
        """Whether an empty cluster has room for it."""
        workers, servers = -(-shape.workers // span), -(-shape.servers // span)
        cpus = workers * shape.cpus_per_worker + servers * shape.cpus_per_server
        memory_gb = workers * shape.memory_gb_per_worker + servers * shape.memory_gb_per_server
        able = (
            (self.cluster.gpus >= workers * shape.gpus_per_worker)
            & (self.cluster.cpus >= cpus)
            & (self.cluster.memory_gb >= memory_gb)
        )
        if shape.gpu_type != -1:
            able &= self.cluster.type == shape.gpu_type
        return int(able.sum()) >= span


@dataclass(frozen=True)
class KernelArrays:
    """One snapshot, ready for the kernels."""

    options: Options
    room: Occupancy
    scratch: Scratch
    before: int
    """The number of jobs that ran already; those behind them in `room.run` are new."""
    odd: Ints  # (O,)
    """Waiting jobs that no even spread suits."""

    def found(self, most: int) -> Found:
        """Space for `most` placements."""
        width = self.room.node.shape[1]
        option, job = np.zeros((2, most + 1), np.int64)
        return Found(np.zeros(most + 1), option, job, np.zeros((most + 1, width), np.int64))

    def trial(self) -> Occupancy:
        """A copy of the occupancy, to play in."""
        return Occupancy._make(column.copy() for column in self.room)

    def write(self, draft: Draft) -> None:
        """Give the jobs that were started what they were started on."""
        room, last = self.room, len(self.room.run) - 1
        for job in room.run[self.before : room.run[last]].tolist():
            nodes = room.node[job, : room.span[job]].tolist()
            row = draft.rows[job]
            draft.place(job, _split(int(row["workers"]), nodes), _split(int(row["servers"]), nodes))


def set_up(snapshot: Snapshot, model: PlacementModel, *, fraction: bool) -> KernelArrays:
    """The arrays for a snapshot.

    With `fraction`, a job's speed counts by the part of the job that it does per second, and of
    jobs alike the shortest comes first.
    """
    rows = snapshot.jobs.rows.copy()  # a snapshot is read-only, which is another type to Numba
    running = np.flatnonzero(rows["share_len"] > 0)
    waiting = np.flatnonzero(rows["share_len"] == 0)
    left_s = _known(rows["remaining_s"])
    size = np.maximum(1.0, np.where(rows["gpus"] > 0, rows["gpus"], rows["workers"]))
    weight = size
    if fraction:
        total_s = np.maximum(left_s + rows["progress_s"], 1.0)
        weight = total_s.mean() / total_s  # so that a threshold means the same
        waiting = waiting[np.argsort(total_s[waiting], kind="stable")]
    options, odd = _options(rows, model, waiting, weight, size)
    room = _occupancy(snapshot, options, waiting, left_s)
    for job, key in zip(
        running.tolist(), rows[list(JobShape._fields)][running].tolist(), strict=True
    ):
        _enter(snapshot, model, job, JobShape(*key), room)
    rate_all(model.law, options, room)
    # The observed pace of a running job says more about its length than its reference speed.
    pace = rows["pace"][running]
    expected = room.alone[running] * np.maximum(model.law.floor, room.low[running])
    left_s[running] *= np.where(pace > 0, expected / np.where(pace > 0, pace, 1.0), 1.0)
    J, N = len(rows), len(snapshot.cluster)
    able, pick, order, twin = np.zeros((4, N), np.int64)
    scratch = Scratch(np.zeros(J), np.zeros(J + 1, np.int64), able, pick, order, twin)
    return KernelArrays(options, room, scratch, len(running), odd)


def _known(remaining_s: Floats) -> Floats:
    """Remaining work (J,); where it is unknown, the mean of the others, or an hour."""
    known = np.isfinite(remaining_s)
    guess_s = float(remaining_s[known].mean()) if known.any() else 3600.0
    return np.where(known, remaining_s, guess_s)


def _options(
    rows: Records, model: PlacementModel, waiting: Ints, weight: Floats, size: Floats
) -> tuple[Options, Ints]:
    """What may be placed, type by type, and the jobs that no even spread suits."""
    by_shape: dict[JobShape, list[int]] = {}
    for job, key in zip(
        waiting.tolist(), rows[list(JobShape._fields)][waiting].tolist(), strict=True
    ):
        by_shape.setdefault(JobShape(*key), []).append(job)
    queue: list[int] = []
    odd: list[int] = []
    end: list[int] = []
    spread_rows: list[tuple[int, int, int]] = []
    speeds: list[Floats] = []
    for shape, jobs in by_shape.items():
        spreads, _ = model.spreads(shape)
        if not spreads:
            odd += jobs
            continue
        queue += jobs
        for spread in spreads:
            spread_rows.append((len(end), spread.span, spread.kind))
            speeds.append(spread.speed)
        end.append(len(queue))
    of, span, kind = np.array(spread_rows, np.int64).reshape(-1, 3).T.copy()
    speed = np.array(speeds).reshape(len(spread_rows), len(model.cluster.gpu_types))
    sign = _signs(len(rows))
    return Options(rows, weight, size, sign, np.array(queue, np.int64), np.array(end, np.int64),
                of, span, kind, speed), np.array(sorted(odd), np.int64)  # fmt: skip


def _signs(count: int) -> Ints:
    """Numbers without a pattern (the finaliser of SplitMix64), always the same."""
    x = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return (x ^ (x >> np.uint64(27))).view(np.int64)


def _occupancy(snapshot: Snapshot, options: Options, waiting: Ints, left_s: Floats) -> Occupancy:
    """The nodes as they are; running jobs are not entered yet."""
    nodes, rows = snapshot.nodes, options.jobs
    J, N = len(rows), len(nodes)
    jobs_on = int(np.bincount(snapshot.shares["node"], minlength=1).max())
    # A newcomer takes a GPU or more of every node it is on, unless its workers need none.
    light = int((rows["gpus_per_worker"][waiting] == 0).sum())
    slots = jobs_on + min(len(waiting), int(nodes["gpus"].max()) + light) + 1
    width = int(max(options.span.max(initial=1), rows["share_len"].max(initial=1)))
    return Occupancy(
        head=np.concatenate([np.zeros(1, np.int64), options.end])[: len(options.end)],
        gpus=nodes["gpus"].astype(np.int64),
        type=nodes["type"].astype(np.int64),
        free=np.where(nodes["up"], nodes["free"], -1).astype(np.int64),
        cpus=nodes["free_cpus"].copy(),
        memory_gb=nodes["free_memory_gb"].copy(),
        load=np.zeros(N),
        sign=np.zeros(N, np.int64),
        jobs_on=np.zeros(N, np.int64),
        job=np.zeros((N, slots), np.int64),
        held=np.zeros((N, slots), np.int64),
        here=np.ones((N, slots)),
        kind=np.full(J, -1),
        alone=np.ones(J),
        low=np.ones(J),
        left=left_s,
        span=np.zeros(J, np.int64),
        node=np.zeros((J, width), np.int64),
        run=np.zeros(J + 1, np.int64),
    )


def _enter(
    snapshot: Snapshot, model: PlacementModel, job: int, shape: JobShape, room: Occupancy
) -> None:
    """Enter a running job into the occupancy."""
    shares = snapshot.share(job)
    each, nodes = shape.gpus_per_worker, [node for node, _, _ in shares]
    workers, servers = sum(w for _, w, _ in shares), sum(s for _, _, s in shares)
    room.kind[job] = model.kind(shape.curve, len(shares), workers)
    on = [node for node, w, _ in shares if w] or nodes
    room.alone[job] = model.alone(shape, len(shares), servers, workers, room.type[on])
    room.span[job] = len(shares)
    for i, (node, held, _) in enumerate(shares):
        slot = room.jobs_on[node]
        room.node[job, i], room.job[node, slot] = node, job
        room.held[node, slot] = held * each
        room.jobs_on[node] += 1
    room.run[room.run[-1]] = job
    room.run[-1] += 1


def _split(count: int, nodes: list[int]) -> list[tuple[int, int]]:
    """`count` over nodes: equal parts, the first ones one more."""
    each, more = divmod(count, len(nodes))
    return [(node, each + (i < more)) for i, node in enumerate(nodes)]
