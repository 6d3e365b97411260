"""The baselines of DL2 exactly as published, with their defects: `dl2-drf`, `dl2-fifo`, ….

Each round begins with an empty cluster. Jobs get bundles of one worker and one server, both on
one node: that with the least in use; no other node is tried, and the first bundle that does not
fit ends the round for all jobs. `srtf` sorts by the remaining part, not time; `tetris` prefers
what has long to go; `optimus` stops at the first job that would gain nothing. For an honest
comparison see `rota.policies.elastic.bundles` and `rota.policies.elastic.optimus`.

Rounds are many and nodes few, hence plain Python throughout.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from rota.policies.elastic.climb import Known, survey
from rota.policies.elastic.filling import decision, fill
from rota.policies.elastic.hull import known_or_typical
from rota.policies.elastic.sizes import ANY, CPUS, GPUS
from rota.policies.settings import PolicyEntry

if TYPE_CHECKING:
    from rota.core.decision import Decision
    from rota.core.snapshot import Snapshot
    from rota.core.types import Bools
    from rota.policies.elastic.climb import Survey
    from rota.policies.elastic.filling import Shares
    from rota.policies.elastic.sizes import Need

SLOTS_PER_GPU: Final = 4
"""A GPU counts as four slots, a CPU as one."""
AT_ONCE: Final = -(2.0**31) + 1
"""Priority of a first worker and a first server in `optimus`."""


@dataclass(frozen=True)
class Published:
    """One of the five baselines."""

    rule: str
    name: str = "dl2"
    oracle: bool = False
    """Whether it is shown the truth where a scenario hides it."""
    known: Known = field(default_factory=Known, repr=False, compare=False)

    def decide(self, snapshot: Snapshot) -> Decision:
        """One slot."""
        view = survey(snapshot, self.known)
        view.pinned = (np.array(view.pinned, np.bool_) | starting(snapshot)).tolist()
        slot = Slot(view)
        if self.rule == "drf":
            slot.by_share()
        elif self.rule == "tetris":
            slot.by_packing(_part_left(snapshot))
        elif self.rule == "optimus":
            slot.by_time_saved(known_or_typical(view.work).tolist())
        else:
            part = _part_left(snapshot)
            by_part = self.rule == "srtf"
            slot.by_order(sorted(slot.live, key=lambda job: (part[job] if by_part else 0.0, job)))
        held = slot.result()
        if not held:  # gangs over nodes of several sizes, which DL2 does not know
            first = next((j for j in slot.live if len(view.sizes[j][0].frontier) > 1), None)
            return fill(view, {} if first is None else {first: view.sizes[first][0].frontier[-1]})
        return decision(snapshot, held)


def starting(snapshot: Snapshot) -> Bools:
    """Which jobs have not yet run as long as their last change took (J,).

    DL2's changes cost nothing. Where one takes longer than a slot, a job that is changed in every
    slot would never go on.
    """
    jobs = snapshot.jobs
    took_s = np.maximum(jobs.restart_s, jobs.resize_s)
    return jobs.running & (snapshot.time_s < jobs.resume_s + took_s)


class Slot:
    """Nodes and jobs while one slot is being shared out."""

    def __init__(self, view: Survey) -> None:
        self.view = view
        nodes, jobs = view.snapshot.nodes, view.snapshot.jobs
        self.node_ids = np.flatnonzero(nodes["up"]).tolist()
        self.free: list[list[float]] = [
            [float(g), float(c), float(m)]
            for g, c, m in zip(nodes["gpus"], nodes["cpus"], nodes["memory_gb"], strict=True)
        ]
        self.type: list[int] = nodes["type"].tolist()
        self.held: list[Shares] = [{} for _ in view.sizes]
        self.workers, self.servers = ([0] * len(view.sizes) for _ in range(2))
        shapes = [sizes[0].shape for sizes in view.sizes]
        self.need = [(shape.worker, shape.server) for shape in shapes]
        self.fewest = [(shape.workers[0], shape.servers[0]) for shape in shapes]
        self.most = [(shape.workers[1], shape.servers[1]) for shape in shapes]
        # A gang that needs more servers than workers gets several with each worker.
        self.beside = [
            min(most, max(1, -(-fewest[1] // fewest[0])))
            for (_, most), fewest in zip(self.most, self.fewest, strict=True)
        ]
        self.wanted_type: list[int] = jobs.gpu_type.tolist()
        used = [0.0] * len(nodes)
        for job, pinned in enumerate(view.pinned):
            for node, workers, servers in view.snapshot.share(job) if pinned else ():
                self._put(job, node, workers, servers)
                used[node] += self._slots(job, workers, servers)
        self.queue: dict[int, list[tuple[float, int]]] = {}
        for node in self.node_ids:
            self.queue.setdefault(self.type[node], []).append((used[node], node))
        for heap in self.queue.values():
            heapq.heapify(heap)
        self.live = [job for job, pinned in enumerate(view.pinned) if not pinned]

    def by_share(self) -> None:
        """DRF: a bundle for the job with the smallest dominant share."""
        total = [sum(self.free[n][k] for n in self.node_ids) or 1.0 for k in range(2)]
        heap = [(0.0, job) for job in self.live]
        while heap:
            _, job = heapq.heappop(heap)
            if not self._bundle(job):
                return
            if self.workers[job] < self.most[job][0]:
                worker, server = self.need[job]
                heapq.heappush(heap, (max(
                    (self.workers[job] * worker[k] + self.servers[job] * server[k]) / total[k]
                    for k in (GPUS, CPUS)
                ), job))  # fmt: skip

    def by_order(self, order: list[int]) -> None:
        """FIFO and SRTF: all that a job may have, one job after the other."""
        for job in order:
            while self.workers[job] < self.most[job][0]:
                if not self._bundle(job):
                    return

    def by_time_saved(self, work: list[float]) -> None:
        """Optimus: a worker or a server for the job whose remaining time it shortens most."""
        heap: list[tuple[float, int, tuple[int, int]]] = []

        def push(job: int) -> None:
            step = self._gain(job, work[job])
            if step:
                heapq.heappush(heap, (step[0], job, step[1]))

        for job in self.live:
            push(job)
        while heap:
            priority, job, (workers, servers) = heapq.heappop(heap)
            if priority >= 0 or not self._take(job, workers, servers):
                return
            push(job)

    def by_packing(self, part_left: list[float]) -> None:
        """Tetris: node by node, what is most along its free room and has longest to go."""
        if not self.live:
            return
        bundle = {job: self._bundle_slots(job) for job in self.live}
        long = {job: sum(bundle[job]) * part_left[job] for job in self.live}
        mean_long = sum(long.values()) / len(long)
        kinds: dict[tuple[Need, Need, int, tuple[float, float]], list[int]] = {}
        for job in sorted(self.live, key=lambda job: (long[job], -job)):
            kinds.setdefault((*self.need[job], self.wanted_type[job], bundle[job]), []).append(job)
        weights: dict[tuple[float, float], float] = {}
        for node in self.node_ids:
            while kinds:
                free = self.free[node]
                room = (free[CPUS] if free[CPUS] < np.inf else 0.0, SLOTS_PER_GPU * free[GPUS])
                if room not in weights:
                    mean = sum(_along(room, each) for each in bundle.values()) / len(bundle)
                    weights[room] = mean / mean_long if mean_long else 0.0
                # Within a kind the last job has longest to go, so only one of each is compared.
                _, minus_job, kind = max(
                    (_along(room, kind[3]) + weights[room] * long[jobs[-1]], -jobs[-1], kind)
                    for kind, jobs in kinds.items()
                )
                if not self._take(-minus_job, 1, self._next_servers(-minus_job), node):
                    break
                if self.workers[-minus_job] >= self.most[-minus_job][0]:
                    kinds[kind].pop()
                    if not kinds[kind]:
                        del kinds[kind]

    def result(self) -> dict[int, Shares]:
        """What each job holds; jobs with fewer workers or servers than they need hold nothing."""
        return {
            job: held for job, held in enumerate(self.held)
            if held and (self.view.pinned[job] or self._is_enough(job))
        }  # fmt: skip

    def _is_enough(self, job: int) -> bool:
        workers, servers = self.fewest[job]
        return self.workers[job] >= workers and self.servers[job] >= servers

    def _bundle(self, job: int) -> bool:
        """Add one bundle, or as many as the job's fewest workers need; False if one fails."""
        while True:
            if not self._take(job, 1, self._next_servers(job)):
                return False
            if self.workers[job] >= self.fewest[job][0]:
                return True

    def _next_servers(self, job: int) -> int:
        return min(self.beside[job], self.most[job][1] - self.servers[job])

    def _gain(self, job: int, work: float) -> tuple[float, tuple[int, int]] | None:
        """Priority and kind of the job's next task; None where it may have no more."""
        workers, servers = self.workers[job], self.servers[job]
        if workers < self.fewest[job][0]:
            return AT_ONCE, (1, 0)
        if servers < self.fewest[job][1]:
            return AT_ONCE, (0, 1)
        sizes = self.view.sizes[job][0]
        now_s = _time_s(work, sizes.speed_at(servers, workers))
        saved = []
        if servers < self.most[job][1] and servers < sizes.most_servers:
            saved.append((now_s - _time_s(work, sizes.speed_at(servers + 1, workers)), (0, 1)))
        if workers < self.most[job][0] and workers + 1 < sizes.speed.shape[1]:
            saved.append((now_s - _time_s(work, sizes.speed_at(servers, workers + 1)), (1, 0)))
        if not saved:
            return None
        most, kind = max(saved, key=lambda pair: pair[0])  # the first, the server, if equal
        return -most, kind

    def _take(self, job: int, workers: int, servers: int, node: int | None = None) -> bool:
        """Put tasks on `node`, or else on the least used one if it has room for them."""
        queue = None
        if node is None:
            queue = self._least_used(job)
            if queue is None:
                return False
            used, node = queue[0]
        elif self.wanted_type[job] not in (ANY, self.type[node]):
            return False
        worker, server = self.need[job]
        for has, w, s in zip(self.free[node], worker, server, strict=True):
            if workers * w + servers * s > has + 1e-9:
                return False
        self._put(job, node, workers, servers)
        if queue is not None:
            heapq.heapreplace(queue, (used + self._slots(job, workers, servers), node))
        return True

    def _least_used(self, job: int) -> list[tuple[float, int]] | None:
        """The queue whose head the job has to take: that of its GPU type, if it names one."""
        if self.wanted_type[job] != ANY:
            return self.queue.get(self.wanted_type[job])
        if len(self.queue) == 1:
            return next(iter(self.queue.values()))
        return min(self.queue.values(), key=lambda heap: heap[0], default=None)

    def _put(self, job: int, node: int, workers: int, servers: int) -> None:
        here = self.held[job].setdefault(node, [0, 0])
        here[0] += workers
        here[1] += servers
        self.workers[job] += workers
        self.servers[job] += servers
        free, (worker, server) = self.free[node], self.need[job]
        for k in range(3):
            free[k] -= workers * worker[k] + servers * server[k]

    def _slots(self, job: int, workers: int, servers: int) -> float:
        worker, server = self.need[job]
        slots = workers * (worker[CPUS] + SLOTS_PER_GPU * worker[GPUS])
        return slots + servers * server[CPUS]

    def _bundle_slots(self, job: int) -> tuple[float, float]:
        """CPU and GPU slots of one bundle."""
        worker, server = self.need[job]
        return worker[CPUS] + self.beside[job] * server[CPUS], SLOTS_PER_GPU * worker[GPUS]


def _along(room: tuple[float, float], bundle: tuple[float, float]) -> float:
    return room[0] * bundle[0] + room[1] * bundle[1]


def _time_s(work: float, speed: float) -> float:
    return work / speed if speed > 0 else 1e30  # a failed measurement: as good as for ever


def _part_left(snapshot: Snapshot) -> list[float]:
    """Remaining part of the whole work of each job; 1 if it is unknown (J,)."""
    jobs = snapshot.jobs
    with np.errstate(invalid="ignore", divide="ignore"):
        part = jobs.remaining_s / jobs.estimate_s
    return np.where(np.isfinite(part), part, 1.0).tolist()  # type: ignore[no-any-return]


POLICIES: Final = {
    f"dl2-{rule}": PolicyEntry(
        f"{title} as the baselines of DL2 have it: least used node only, stops at the first "
        "failure.",
        "DL2, TPDS 2021, public code", Published, preset={"rule": rule})
    for rule, title in (("drf", "DRF"), ("fifo", "FIFO"), ("srtf", "SRTF"), ("tetris", "Tetris"),
                        ("optimus", "Optimus"))
}  # fmt: skip
