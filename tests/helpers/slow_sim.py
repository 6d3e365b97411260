"""The slow twin: an event simulator written from the rules alone, with lists and dicts.

It knows rigid jobs on GPUs (no types, CPUs or servers), all orderings and placements whose rules
fit on a page, restart costs, minimum run times, slots and node failures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slow_place import Ask, Node, find

if TYPE_CHECKING:
    from collections.abc import Callable

INF = math.inf
Share = list[tuple[int, int]]


@dataclass
class SlowJob:
    """One job: what it asks for, what it has had, what it holds."""

    index: int
    submit_s: float
    duration_s: float
    gpus: int
    known: bool = True  # whether backfilling knows its length
    progress_s: float = 0.0
    arrived: bool = False
    share: Share | None = None
    since_s: float = 0.0  # start of the stint
    resume_s: float = 0.0  # no progress before
    mark_s: float = 0.0  # progress is written down up to here
    safe_s: float = 0.0  # progress at the start of the stint
    started: bool = False
    done_s: float | None = None
    preemptions: int = 0
    lost_s: float = 0.0
    pace: float = 1.0

    def catch_up(self, now_s: float) -> None:
        """Write progress down up to now."""
        if self.share is not None:
            self.progress_s += self.pace * max(0.0, now_s - max(self.mark_s, self.resume_s))
            self.mark_s = now_s

    def left_s(self) -> float:
        """Work to do."""
        return self.duration_s - self.progress_s

    def end_s(self, now_s: float) -> float:
        """When it ends if nobody disturbs it."""
        return max(now_s, self.resume_s) + self.left_s() / self.pace


@dataclass
class SlowSim:
    """A cluster, its rules, and the jobs; `run()` plays it to the end."""

    gpus: list[int]
    jobs: list[SlowJob]
    order: str = "fifo"  # fifo, sjf, srtf, srsf, las, tiresias
    passing: str = "skip"  # skip, strict, easy, conservative
    preempt: bool = False
    place: str = "best-fit"
    restart_s: float = 0.0
    resize_s: float | None = None  # of a move; as a restart if None
    min_run_s: float = 0.0
    slot_s: float = 0.0
    quantum_s: float = INF
    limits: tuple[float, ...] = ()
    faults: list[tuple[float, int, bool]] = field(default_factory=list)
    checkpoint_s: float = 1800.0
    depth: int = 100
    law: Callable[[SlowSim, SlowJob], float] | None = None  # its pace among those who run

    def __post_init__(self) -> None:
        self.up = [True] * len(self.gpus)
        self.move_s = self.restart_s if self.resize_s is None else self.resize_s
        self.now_s = -INF
        self.wake_s = INF
        self.due = sorted(self.faults)

    # -- what is the case ----------------------------------------------------------------

    def live(self) -> list[SlowJob]:
        return [job for job in self.jobs if job.arrived and job.done_s is None]

    def running(self) -> list[SlowJob]:
        return [job for job in self.live() if job.share is not None]

    def free(self, held: dict[int, Share]) -> list[int]:
        """Free GPUs per node if jobs hold what `held` says."""
        left = [gpus if up else 0 for gpus, up in zip(self.gpus, self.up, strict=True)]
        for share in held.values():
            for node, count in share:
                left[node] -= count
                assert left[node] >= 0
        return left

    def room(self, gpus: int, free: list[int]) -> Share | None:
        nodes = [Node(has, left) for has, left in zip(self.gpus, free, strict=True)]
        return find(self.place, nodes, Ask(gpus))

    def pinned(self, job: SlowJob) -> bool:
        return job.share is not None and self.now_s < job.since_s + self.min_run_s

    def stays(self, job: SlowJob) -> bool:
        slow = job.share is not None and self.restart_s >= self.quantum_s
        return self.pinned(job) or (slow and self.now_s < job.resume_s + self.restart_s)

    def level(self, job: SlowJob) -> int:
        service = job.progress_s * job.gpus
        return sum(service >= limit - 1e-6 for limit in self.limits)

    def in_line(self) -> list[SlowJob]:
        """Live jobs in the order in which they are served; sorting is stable."""
        key = {
            "fifo": lambda _: 0.0,
            "sjf": lambda job: job.duration_s,
            "srtf": lambda job: job.left_s(),
            "srsf": lambda job: job.left_s() * job.gpus,
            "las": lambda job: job.progress_s * job.gpus,
            "tiresias": self.level,
        }[self.order]
        return sorted(self.live(), key=key)

    # -- what happens --------------------------------------------------------------------

    def next_s(self) -> float:
        times = [job.end_s(self.now_s) for job in self.running()]
        times += [job.submit_s for job in self.jobs if not job.arrived]
        times += [self.due[0][0]] if self.due else []
        return min(times, default=INF)

    def happen(self, now_s: float) -> None:
        """Go to `now_s`: endings, then faults, then arrivals."""
        ended = [job for job in self.running() if job.end_s(self.now_s) <= now_s]
        self.now_s = now_s
        for job in self.running():
            job.catch_up(now_s)
        for job in ended:
            job.done_s, job.share = now_s, None
        while self.due and self.due[0][0] <= now_s:
            _, node, up = self.due.pop(0)
            self.up[node] = up
            for job in self.running():
                if not up and any(n == node for n, _ in job.share or []):
                    self.kill(job)
        for job in self.jobs:
            job.arrived |= job.submit_s <= now_s
        self.rate()

    def rate(self) -> None:
        """Everybody's pace, from scratch."""
        for job in self.running() if self.law else []:
            job.catch_up(self.now_s)
            job.pace = self.law(self, job)

    def kill(self, job: SlowJob) -> None:
        """Back to the last checkpoint of this stint."""
        done_s = job.progress_s - job.safe_s
        kept_s = done_s // self.checkpoint_s * self.checkpoint_s
        job.progress_s = job.safe_s + kept_s
        job.lost_s += done_s - kept_s
        job.share = None

    def to_next_decision(self) -> bool:
        if all(job.done_s is not None for job in self.jobs):
            return False
        if not self.slot_s:
            self.happen(min(self.next_s(), self.wake_s))
        else:
            # The first slot after now at which somebody is there to decide about.
            slot_s = -INF if self.now_s == -INF else (self.now_s // self.slot_s + 1) * self.slot_s
            while self.next_s() <= slot_s or not self.live():
                if self.next_s() == INF:
                    return False
                slot_s = max(slot_s, math.ceil(self.next_s() / self.slot_s) * self.slot_s)
                self.happen(self.next_s())
            for job in self.running():
                job.catch_up(slot_s)
            self.now_s = slot_s
        return any(job.done_s is None for job in self.jobs)

    # -- what is decided -----------------------------------------------------------------

    def decide(self) -> dict[int, Share]:
        line = self.in_line()
        held = {job.index: job.share for job in line if job.share is not None}
        if self.passing in ("easy", "conservative"):
            return self.backfill(line, held)
        if self.preempt and (self.restart_s or self.move_s):
            held = self.keep(line, held)
        elif self.preempt:
            held = {i: share for i, share in held.items() if self.pinned(self.jobs[i])}
        for job in line:
            if job.index in held:
                continue
            share = self.room(job.gpus, self.free(held))
            if share is not None:
                held[job.index] = share
            elif self.passing == "strict":
                break
        return held

    def keep(self, line: list[SlowJob], held: dict[int, Share]) -> dict[int, Share]:
        """Sticky: who stays selected stays put; who is not selected gives way."""
        pool = sum(gpus for gpus, up in zip(self.gpus, self.up, strict=True) if up)
        chosen = set()
        for job in sorted(line, key=lambda job: not self.stays(job)):
            if job.gpus <= pool:
                chosen.add(job.index)
                pool -= job.gpus
        left = {i: share for i, share in held.items() if i not in chosen}
        held = {i: share for i, share in held.items() if i in chosen}
        for job in line:
            if job.index in chosen and job.index not in held:
                share = self.room(job.gpus, self.free(held))
                if share is not None:
                    held[job.index] = share
                elif job.gpus <= max(self.gpus):
                    held = self.defragment(job, line, held)
        for job in line:
            if job.index in left:
                free = self.free(held)
                if all(free[node] >= count for node, count in left[job.index]):
                    held[job.index] = left[job.index]
        return held

    def defragment(
        self, job: SlowJob, line: list[SlowJob], held: dict[int, Share]
    ) -> dict[int, Share]:
        """Move the smallest jobs off the emptiest node, if that makes room for `job`."""
        free = self.free(held)
        nodes = [n for n, has in enumerate(self.gpus) if self.up[n] and has >= job.gpus]
        if not nodes:
            return held
        target = min(nodes, key=lambda n: (-free[n], n))
        trial = dict(held)
        while self.free(trial)[target] < job.gpus:
            here = [
                other
                for other in line
                if other.index in trial
                and [node for node, _ in trial[other.index]] == [target]
                and not self.stays(other)
            ]
            if not here:
                return held
            smallest = min(here, key=lambda other: other.gpus)
            free = self.free(trial)
            free[target] = 0
            share = self.room(smallest.gpus, free)
            if share is None:
                return held
            trial[smallest.index] = share
        share = self.room(job.gpus, self.free(trial))
        if share is None:
            return held
        trial[job.index] = share
        return trial

    def believed_end_s(self, job: SlowJob) -> float:
        """A job of unknown length is believed never to end."""
        if not job.known:
            return INF
        if job.share is not None:
            return job.end_s(self.now_s)
        pause_s = self.restart_s if job.progress_s else 0.0
        return self.now_s + pause_s + job.left_s()

    def backfill(self, line: list[SlowJob], held: dict[int, Share]) -> dict[int, Share]:
        waiting = [job for job in line if job.index not in held]
        while waiting:
            share = self.room(waiting[0].gpus, self.free(held))
            if share is None:
                break
            held[waiting.pop(0).index] = share
        if not waiting:
            return held
        return self.easy(waiting, held) if self.passing == "easy" else self.book(waiting, held)

    def easy(self, waiting: list[SlowJob], held: dict[int, Share]) -> dict[int, Share]:
        """Start whoever fits and does not delay the head, which has the only reservation."""
        head = waiting[0]
        ends = {i: self.believed_end_s(self.jobs[i]) for i in held}
        shadow_s, later = INF, {}
        for moment_s in sorted(set(ends.values()) - {INF}):
            later = {i: share for i, share in held.items() if ends[i] > moment_s}
            if self.room(head.gpus, self.free(later)) is not None:
                shadow_s = moment_s
                break
        for job in waiting[1:]:
            share = self.room(job.gpus, self.free(held))
            if share is None or self.believed_end_s(job) == shadow_s == INF:
                continue
            if self.believed_end_s(job) > shadow_s:
                trial = {**later, job.index: share}
                if self.room(head.gpus, self.free(trial)) is None:
                    continue
                later = trial
            held[job.index] = share
        return held

    def book(self, waiting: list[SlowJob], held: dict[int, Share]) -> dict[int, Share]:
        """Everybody gets the first reservation that delays no earlier one."""
        up = [gpus if up else 0 for gpus, up in zip(self.gpus, self.up, strict=True)]
        booked = [
            (self.now_s, self.believed_end_s(self.jobs[i]), share) for i, share in held.items()
        ]

        def free_at(moment_s: float) -> list[int]:
            left = list(up)
            for begin_s, end_s, share in booked:
                if begin_s <= moment_s < end_s:
                    for node, count in share:
                        left[node] -= count
            return left

        everybody_has_one = True
        for job in waiting[: self.depth]:
            span_s = self.believed_end_s(job) - self.now_s
            if span_s == INF and not everybody_has_one:
                continue
            for begin_s in sorted({self.now_s, *(end_s for _, end_s, _ in booked)} - {INF}):
                ends_s = max(begin_s + span_s, math.nextafter(begin_s, INF))
                steps = {begin_s, *(end_s for _, end_s, _ in booked)}
                steps |= {start_s for start_s, _, _ in booked}
                through = [free_at(t) for t in steps if begin_s <= t < ends_s]
                share = self.room(job.gpus, [min(column) for column in zip(*through, strict=True)])
                if share is not None:
                    booked.append((begin_s, ends_s, share))
                    if begin_s == self.now_s:
                        held[job.index] = share
                    break
            else:
                everybody_has_one = False
        return held

    # -- what is done --------------------------------------------------------------------

    def apply(self, held: dict[int, Share]) -> None:
        self.free(held)  # asserts that nothing is given twice
        for job in self.live():
            share = held.get(job.index)
            if share is None:
                job.preemptions += job.share is not None
                job.share = None
            elif job.share is None:
                job.since_s = job.mark_s = self.now_s
                job.resume_s = self.now_s + (self.restart_s if job.started else 0.0)
                job.safe_s, job.share, job.started = job.progress_s, share, True
            elif sorted(job.share) != sorted(share):
                job.share = share
                if self.move_s:
                    job.since_s, job.safe_s = self.now_s, job.progress_s
                    job.resume_s = self.now_s + self.move_s
        self.rate()

    def next_wake_s(self) -> float:
        """While somebody waits: a lease ends, a job falls to another queue, a pin is drawn."""
        if not self.preempt or len(self.running()) == len(self.live()):
            return INF
        times = [self.now_s + self.quantum_s]
        for job in self.running():
            if self.pinned(job) and self.quantum_s == INF:
                times.append(job.since_s + self.min_run_s)
            if self.level(job) < len(self.limits):
                left = self.limits[self.level(job)] - job.progress_s * job.gpus
                times.append(max(self.now_s, job.resume_s) + left / job.gpus)
        return min(times)

    def run(self) -> list[float]:
        """Play to the end; returns when each job was done."""
        for _ in range(100_000):
            if not self.to_next_decision():
                assert all(job.done_s is not None for job in self.jobs), "starved"
                return [job.done_s or 0.0 for job in self.jobs]
            self.apply(self.decide())
            self.wake_s = self.next_wake_s()
        raise AssertionError("the slow twin does not come to an end")
