"""The contention-aware policies as anybody would write them first: everything from scratch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from rota.core.speed import LINKS, MACHINES, PAIRS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.core import Snapshot
    from rota.core.speed import Contention

TIE = 1e-12


@dataclass(frozen=True)
class Placed:
    """A job where it runs."""

    curve: int
    gpus: int
    held: tuple[tuple[int, int], ...]
    """(node, GPUs)"""
    left: float

    @property
    def nodes(self) -> set[int]:
        return {node for node, _ in self.held}


@dataclass(frozen=True)
class Rule:
    """The greedy rule's settings."""

    threshold: float = 0.0
    min_ratio: float = 0.0
    size: float = 0.0


class SlowWorld:
    """One snapshot of rigid jobs with a GPU per worker on equal nodes of one type."""

    def __init__(self, snapshot: Snapshot) -> None:
        assert snapshot.curves is not None
        assert snapshot.contention is not None
        self.laws: Contention = snapshot.contention
        self.speed = snapshot.curves.speed[:, 0]
        self.gpus = snapshot.cluster.gpus.tolist()
        self.link = snapshot.cluster.link_gbps.tolist()
        self.rack = snapshot.cluster.rack.tolist()
        self.running: dict[int, Placed] = {}
        self.waiting: dict[int, Placed] = {}
        for j, row in enumerate(snapshot.jobs.rows):
            held = tuple((node, workers) for node, workers, _ in snapshot.share(j))
            job = Placed(int(row["curve"]), int(row["workers"]), held, float(row["remaining_s"]))
            (self.running if held else self.waiting)[j] = job
        for j, job in self.running.items():
            pace = float(snapshot.jobs.pace[j])
            rate = self.value(job) * self.ratio(j, self.running)
            self.running[j] = replace(job, left=job.left * rate / pace)

    def spans(self, job: Placed) -> list[int]:
        most = min(len(self.gpus), job.gpus)
        fewest = next(m for m in range(1, most + 1) if m * max(self.gpus) >= job.gpus)
        return [
            m for m in range(1, most + 1)
            if (m == fewest or (m > fewest and m in (2, 4, 8)))
            and sum(has >= -(-job.gpus // m) for has in self.gpus) >= m
            and self.speed[job.curve, m, job.gpus] > 0
        ]  # fmt: skip

    def value(self, job: Placed) -> float:
        """Speed alone, relative to the mean over the spreads."""
        mean = np.mean([self.speed[job.curve, m, job.gpus] for m in self.spans(job)])
        return float(self.speed[job.curve, len(job.held), job.gpus] / mean)

    def kind(self, job: Placed) -> int:
        return int(self.laws.kind[job.curve, len(job.held), job.gpus])

    def ratio(self, j: int, jobs: dict[int, Placed]) -> float:
        laws, mine = self.laws, self.kind(jobs[j])
        worst = 1.0
        for n in jobs[j].nodes:
            here = [
                (self.kind(o), dict(o.held)[n]) for i, o in jobs.items()
                if i != j and n in o.nodes and self.kind(o) >= 0
            ]  # fmt: skip
            if mine < 0:
                continue
            if laws.mode == PAIRS:
                kept = min((laws.ratio[mine, k] for k, _ in here), default=1.0)
            elif laws.mode == LINKS:
                load = laws.traffic_gbps[mine] + sum(laws.traffic_gbps[k] for k, _ in here)
                share = min(1.0, self.link[n] / load)
                kept = 1.0 / (1.0 - laws.talk[mine] + laws.talk[mine] / share)
            else:
                kept = 1.0
                for k, held in here:
                    weight = held / self.gpus[n] if laws.mode == MACHINES else 1.0
                    kept *= max(0.0, 1.0 - weight * laws.hurt[mine] * laws.harm[k])
            worst = min(worst, kept)
        if mine >= 0:
            talk, share = laws.talk[mine], self.share_of_uplinks(j, jobs)
            worst = min(worst, 1.0 / (1.0 - talk + talk / share))
        return max(laws.floor, worst)

    def share_of_uplinks(self, j: int, jobs: dict[int, Placed]) -> float:
        """What uplinks and spine give job j of what it wants."""
        if self.laws.mode != LINKS or not len(self.laws.uplink_gbps):
            return 1.0
        load: dict[int, float] = {}
        for job in jobs.values():
            for link in self.uplinks(job):
                load[link] = load.get(link, 0.0) + self.laws.traffic_gbps[self.kind(job)]
        gbps = {-1: self.laws.spine_gbps, **dict(enumerate(self.laws.uplink_gbps))}
        return min([1.0, *(gbps[link] / load[link] for link in self.uplinks(jobs[j]))])

    def uplinks(self, job: Placed) -> set[int]:
        """The racks' uplinks that a job sends over, and −1 for the spine."""
        racks = {self.rack[n] for n in job.nodes}
        return {*racks, -1} if len(racks) > 1 and self.kind(job) >= 0 else set()

    def total(self, jobs: dict[int, Placed]) -> float:
        """GPUs × speed over all jobs."""
        return sum(job.gpus * self.value(job) * self.ratio(j, jobs) for j, job in jobs.items())

    def placements(
        self, running: dict[int, Placed], waiting: dict[int, Placed], rule: Rule
    ) -> list[tuple[float, int, Placed]]:
        """All that the rule allows: (score, job, placed), best first."""
        found: list[tuple[float, int, Placed]] = []
        before = self.total(running)
        old = {j: self.ratio(j, running) for j in running}
        for j, placed in self._every(running, waiting):
            jobs = {**running, j: placed}
            gain = self.total(jobs) - before
            low = [
                r for i in jobs
                if (r := self.ratio(i, jobs)) < rule.min_ratio and r < old.get(i, np.inf)
            ]  # fmt: skip
            if gain > rule.threshold * placed.gpus and not low:
                found.append((gain / placed.gpus ** (1 + rule.size), j, placed))
        order: list[tuple[float, int, Placed]] = []
        for one in found:  # a stable sort in which close scores are equal
            at = len(order)
            while at and one[0] > order[at - 1][0] + TIE:
                at -= 1
            order.insert(at, one)
        return order

    def _every(
        self, running: dict[int, Placed], waiting: dict[int, Placed]
    ) -> Iterator[tuple[int, Placed]]:
        free = list(self.gpus)
        for job in running.values():
            for node, held in job.held:
                free[node] -= held
        seen = set()
        contents = [
            (
                free[n],
                self.rack[n] if len(self.laws.uplink_gbps) else 0,
                frozenset((i, dict(o.held)[n]) for i, o in running.items() if n in o.nodes),
            )
            for n in range(len(free))
        ]
        for j, job in waiting.items():
            if (job.curve, job.gpus) in seen:
                continue
            seen.add((job.curve, job.gpus))
            for m in self.spans(job):
                parts = [job.gpus // m + (i < job.gpus % m) for i in range(m)]
                able = [n for n in range(len(free)) if free[n] >= parts[0]]
                same = set()
                for nodes in combinations(able, m):
                    alike = tuple(sorted(map(repr, (contents[n] for n in nodes))))
                    if alike not in same:
                        same.add(alike)
                        yield j, replace(job, held=tuple(zip(nodes, parts, strict=True)))

    def best(
        self, running: dict[int, Placed], waiting: dict[int, Placed], rule: Rule
    ) -> tuple[int, Placed] | None:
        found = self.placements(running, waiting, rule)
        if not found and not running:
            found = self.placements(running, waiting, Rule(-np.inf, 0.0, rule.size))
        return found[0][1:] if found else None

    def greedy(self, rule: Rule) -> dict[int, Placed]:
        """All who run once the greedy rule has placed what it places."""
        running, waiting = dict(self.running), dict(self.waiting)
        self._fill(running, waiting, rule)
        return running

    def _fill(self, running: dict[int, Placed], waiting: dict[int, Placed], rule: Rule) -> None:
        while (choice := self.best(running, waiting, rule)) is not None:
            running[choice[0]] = choice[1]
            del waiting[choice[0]]

    def play(
        self, running: dict[int, Placed], waiting: dict[int, Placed], rule: Rule, *, waits: bool
    ) -> float:
        """Total completion time under the greedy rule."""
        running, waiting, now, total = dict(running), dict(waiting), 0.0, 0.0
        while True:
            if not waits:
                self._fill(running, waiting, rule)
            waits = False
            if not running:
                return total
            rate = {j: self.value(o) * self.ratio(j, running) for j, o in running.items()}
            step = min(o.left / rate[j] for j, o in running.items())
            now += step
            for j, job in list(running.items()):
                running[j] = replace(job, left=job.left - rate[j] * step)
                if job.left / rate[j] <= step * (1 + 1e-12):
                    total += now
                    del running[j]

    def rollout(self, rule: Rule, most: int) -> dict[int, Placed]:
        """All who run once the best of each list has been placed, until waiting is best."""
        running, waiting = dict(self.running), dict(self.waiting)
        while True:
            listed = self.placements(running, waiting, Rule(-np.inf, rule.min_ratio, rule.size))
            totals = []
            for _, j, placed in listed[:most]:
                rest = {i: job for i, job in waiting.items() if i != j}
                totals.append(self.play({**running, j: placed}, rest, rule, waits=False))
            if not totals:
                return running
            if running and self.play(running, waiting, rule, waits=True) < min(totals) * (1 - TIE):
                return running
            choice = next(i for i, t in enumerate(totals) if t <= min(totals) * (1 + TIE))
            _, j, placed = listed[choice]
            running[j] = placed
            del waiting[j]
