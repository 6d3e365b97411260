"""What must hold after every run, in every world and under every policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from rota.core.layout import (
    ARRIVE,
    FINISH,
    GIVE_UP,
    KILL,
    MOVE,
    NODE_DOWN,
    NODE_UP,
    RESIZE,
    START,
    STOP,
)
from rota.run.metrics import summarise
from rota.sim.setup import job_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.core.types import Floats
    from rota.run.outcome import Outcome
    from rota.scenarios.scenario import World
    from rota.testing.world_runs import Run

ROUNDING: Final = 1e-6
_NAMES: Final = {STOP: "stopped", MOVE: "moved", RESIZE: "resized"}
FACTS: Final = (
    "started_s", "done_s", "gave_up", "preemptions", "lost_s", "fee", "begin_s", "end_s",
    "held_gpu_s", "up_gpu_s", "stray_gpu_s", "moves", "resizes", "kills", "rounds",
)  # fmt: skip
"""What two ways of playing the same must agree on."""


@dataclass(frozen=True)
class Violation:
    """A rule that was broken."""

    kind: str
    message: str


def violations(world: World, run: Run) -> list[Violation]:
    """Every rule that this run breaks, each kind once."""
    books = _Books(world)
    found: dict[str, Violation] = {}
    for kind, message in (*books.follow(run), *_ending(world, run, books), *_numbers(run)):
        found.setdefault(kind, Violation(kind, message))
    return list(found.values())


def differences(a: Outcome, b: Outcome) -> list[str]:
    """Which facts of two outcomes differ by a single bit."""
    return [
        fact
        for fact in FACTS
        if not np.array_equal(getattr(a, fact), getattr(b, fact), equal_nan=True)
    ]


@dataclass
class _Books:
    """Follows a log of events and keeps an account of what each job holds."""

    world: World
    held: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    since_s: dict[int, float] = field(default_factory=dict)
    spans: dict[int, list[tuple[float, int]]] = field(default_factory=dict)
    """Per job (seconds, workers) of every stint."""

    def __post_init__(self) -> None:
        world = self.world
        self.rows = job_records(world.trace, world.cluster, world.when, np.random.default_rng(0))
        self.nodes = world.cluster.empty()
        self.up = np.ones(len(self.nodes), np.bool_)
        self.began_s: dict[int, float] = {}

    def follow(self, run: Run) -> Iterator[tuple[str, str]]:
        """Play the log; whenever time moves on, no node may be overfull."""
        at, now_s = 0, -np.inf
        times_s = run.events["time_s"].tolist()
        for number, (time_s, job, kind, count) in enumerate(run.events.tolist()):
            if not time_s >= now_s:
                yield "time", f"an event at {time_s!r} s comes after one at {now_s!r} s."
            now_s = time_s
            share = run.entries[at : at + count].tolist()
            at += count
            if kind in (NODE_DOWN, NODE_UP):
                self.up[job] = kind == NODE_UP
            elif kind != ARRIVE:
                yield from self._change(job, kind, share, now_s)
            if number + 1 == len(times_s) or times_s[number + 1] != time_s:
                yield from self._capacity(now_s)
        rounds_s = run.rounds["time_s"]
        if not (np.diff(rounds_s) >= 0).all():
            yield "time", "a round comes before the one that was played before it."
        if at != len(run.entries):
            yield "log", f"the events announce {at} shares, the log has {len(run.entries)}."

    def _change(
        self, job: int, kind: int, share: list[tuple[int, int, int]], now_s: float
    ) -> Iterator[tuple[str, str]]:
        row = self.rows[job]
        if kind == GIVE_UP:
            if job in self.held:
                yield "held", f"job {job} gave up and holds {self.held[job]}."
            return
        if (job in self.held) != (kind != START):
            yield "log", f"event {kind} at {now_s:g} s for job {job}, holding {job in self.held}."
        since_s = self.since_s.get(job, -np.inf)
        if kind in _NAMES and now_s < since_s + row["min_run_s"]:
            yield (
                "min-run",
                f"job {job} is {_NAMES[kind]} {now_s - since_s:g} s after its start; "
                f"its min_run_s is {row['min_run_s']:g}.",
            )
        if job in self.held:
            workers = sum(w for _, w, _ in self.held[job])
            self.spans.setdefault(job, []).append((now_s - self.began_s[job], workers))
        if kind in (STOP, KILL, FINISH):
            self.held.pop(job, None)
            return
        self.held[job], self.began_s[job] = share, now_s
        # A move that costs nothing may begin a new stint or not; the old one is the safe side.
        if kind != MOVE:
            self.since_s[job] = now_s
        yield from self._size(job, share, now_s)

    def _size(
        self, job: int, share: list[tuple[int, int, int]], now_s: float
    ) -> Iterator[tuple[str, str]]:
        row = self.rows[job]
        for what, k in (("workers", 1), ("servers", 2)):
            has = sum(part[k] for part in share)
            if not row[f"min_{what}"] <= has <= row[f"max_{what}"]:
                yield (
                    "size",
                    f"job {job} gets {has} {what} at {now_s:g} s; it runs with "
                    f"{row[f'min_{what}']} to {row[f'max_{what}']}.",
                )
        if min(min(part) for part in share) < 0 or any(w + s == 0 for _, w, s in share):
            yield "log", f"job {job} gets {share}."
        if row["gpu_type"] >= 0:
            wrong = [n for n, w, _ in share if w and self.nodes[n]["type"] != row["gpu_type"]]
            if wrong:
                yield "type", f"job {job} sits on node {wrong[0]}, which has another GPU type."

    def _capacity(self, now_s: float) -> Iterator[tuple[str, str]]:
        """GPUs, CPUs and memory given out, against what is there."""
        used = np.zeros((3, len(self.nodes)))
        for job, share in self.held.items():
            row = self.rows[job]
            for node, workers, servers in share:
                used[0, node] += workers * row["gpus_per_worker"]
                used[1, node] += workers * row["cpus_per_worker"] + servers * row["cpus_per_server"]
                used[2, node] += (
                    workers * row["memory_gb_per_worker"] + servers * row["memory_gb_per_server"]
                )
                if not self.up[node]:
                    yield "down", f"job {job} sits on node {node}, which is down at {now_s:g} s."
        for what, use in zip(("gpus", "cpus", "memory_gb"), used, strict=True):
            over = np.flatnonzero(use > self.nodes[what] + ROUNDING)
            if over.size:
                node = int(over[0])
                yield (
                    "overfull",
                    f"node {node} has {self.nodes[what][node]} {what}, of which {use[node]} are "
                    f"given out at {now_s:g} s.",
                )


def _ending(world: World, run: Run, books: _Books) -> Iterator[tuple[str, str]]:
    """All jobs have ended, hold nothing, and have run for as long as their work takes."""
    outcome = run.outcome
    if books.held:
        yield "held", f"jobs {sorted(books.held)} hold something at the end."
    open_ = np.flatnonzero(np.isnan(outcome.done_s))
    if open_.size:
        yield "unfinished", f"{open_.size} jobs have no end, the first is job {open_[0]}."
        return
    if outcome.gave_up.any() and world.when.faults.never:
        yield "unfinished", f"job {int(outcome.gave_up.argmax())} gave up where nothing fails."
    early = np.flatnonzero(
        (outcome.started_s < outcome.submit_s) | (outcome.done_s < outcome.started_s)
    )
    if early.size:
        yield "time", f"job {early[0]} starts before it is submitted, or ends before it starts."
    if world.physics.contention is None and world.physics.drift is None:
        yield from _work(world, run, books)


def _work(world: World, run: Run, books: _Books) -> Iterator[tuple[str, str]]:
    """Jobs without a curve run at (workers / requested)^scaling: compare with their durations."""
    outcome, trace, scaling = run.outcome, world.trace, world.physics.scaling
    late_s = np.abs([outcome.begin_s, outcome.end_s]).max()
    grain_s = (
        2e-9 * world.when.slot_s
    )  # an end this close after that of a slot counts as being there
    plain = trace.model < 0 if world.physics.curves is not None else np.ones(len(trace), np.bool_)
    for job in np.flatnonzero(plain & ~outcome.gave_up).tolist():
        asked, spans = books.rows["workers"][job], books.spans.get(job, [])
        done_s = sum(span_s * (workers / asked) ** scaling for span_s, workers in spans)
        fastest = max([(w / asked) ** scaling for _, w in spans], default=1.0)
        duration_s = trace.duration_s[job]
        slack_s = (
            grain_s
            + 1e-9 * duration_s
            + 4 * (1 + len(spans)) * np.spacing(late_s) * max(1.0, fastest)
        )
        if done_s < duration_s - slack_s:
            yield "work", f"job {job} ended after {done_s!r} s of work, not {duration_s!r} s."
        paused = books.rows["restart_s"][job] > 0 or outcome.lost_s[job] > 0
        if not (paused or world.when.whole_slots) and done_s > duration_s + slack_s:
            yield "work", f"job {job} did {done_s!r} s of work where {duration_s!r} s were asked."


def _numbers(run: Run) -> Iterator[tuple[str, str]]:
    """Sums and metrics are numbers, and those that cannot be negative are not."""
    outcome = run.outcome
    columns: dict[str, Floats] = {
        name: np.atleast_1d(np.asarray(getattr(outcome, name), np.float64))
        for name in ("lost_s", "fee", "held_gpu_s", "up_gpu_s", "stray_gpu_s", "preemptions")
    }
    for name, column in columns.items():
        if column.size and not (np.isfinite(column).all() and column.min() >= -ROUNDING):
            yield "metrics", f"{name} holds {column.min()!r}."
    if outcome.held_gpu_s > outcome.up_gpu_s * (1 + ROUNDING) + ROUNDING:
        yield "metrics", f"{outcome.held_gpu_s!r} GPU-s were held of {outcome.up_gpu_s!r}."
    for name, value in summarise(outcome).items():
        if isinstance(value, float) and not np.isfinite(value):
            yield "metrics", f"{name} is {value}."
