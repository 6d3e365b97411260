"""A whole run: replay a trace under a policy and say how it went."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from rota.core.layout import FAILED, ROUND
from rota.errors import RotaError
from rota.jit import is_ready
from rota.policies.classic.heuristic import Heuristic
from rota.policies.classic.orderings import ATTAINED, FIFO, GITTINS, QUEUES, REMAINING, SHORTEST
from rota.policies.classic.rule import EASY, RIGID, SKIP, STRICT
from rota.run.loop import rounds
from rota.run.outcome import Outcome
from rota.sim.event_kernels import advance_once
from rota.sim.queue_kernels import FEW, replay_queue, replay_shapes
from rota.sim.rank_kernels import replay_ranked
from rota.sim.replay_kernels import FLUSH, MORE, replay, replay_backfill, replay_free
from rota.sim.setup import PLAIN, Conditions, shapes_of
from rota.sim.simulator import Simulator
from rota.traces.plain_csv import spoken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from rota.core.cluster import Cluster
    from rota.core.seams import Policy
    from rota.core.types import Records
    from rota.perf.physics import Physics
    from rota.run.journal import Journal
    from rota.traces.trace import Trace

Notes: TypeAlias = "list[dict[str, Any]] | None"
LOG = 1 << 15
"""Events that the log holds before it is emptied into the journal."""
MANY_JOBS = 2000
"""For fewer, an indexed queue gains less than its kernel takes to compile; results are the same."""
SLICE = 20_000
"""Rounds between two signs of life from a compiled replay."""


def simulate(
    cluster: Cluster,
    trace: Trace,
    policy: Policy,
    when: Conditions | None = None,
    *,
    seed: int = 0,
    physics: Physics = PLAIN,
    history: Trace | None = None,
    journal: Journal | None = None,
    series: bool = False,
    deadline_s: float = 60.0,
    progress: Callable[[int], None] = lambda _ended: None,
) -> Outcome:
    """Replay `trace` under `policy` until every job has ended.

    A policy that draws on past jobs is given those of `history`, or else of the trace itself.
    `physics` says how fast jobs are and what policies see of it; an oracle sees the truth.
    With `series` the outcome keeps every round. A policy in Python may take `deadline_s` per
    round. `progress` is told how many jobs have ended.
    """
    when = when or Conditions()
    policy, when, physics = briefed(policy, when, physics, history or trace)
    sim = Simulator(
        cluster, trace, when, seed=seed, log=LOG if journal or series else 0, physics=physics
    )
    kept: list[Records] = []
    writer = Writer(journal)

    def drain(notes: Notes = None) -> None:
        events, entries, done = take_log(sim)
        writer.write(events, entries, done, notes)
        if series:
            kept.append(done)

    if isinstance(policy, Heuristic) and policy.compiled:
        play = _compiled(sim, policy, drain)
    else:
        play = _by_rounds(sim, policy, drain, deadline_s)
    warm_up(sim, policy)
    began_s = perf_counter()
    with writer:
        writer.begin(trace)
        for _ in play:
            progress(sim.finished)
        drain()
    wall_s = perf_counter() - began_s
    result = _outcome(
        sim, policy, seed, wall_s, np.concatenate(kept) if kept else np.zeros(0, ROUND)
    )
    if journal:
        sums = ("begin_s", "end_s", "held_gpu_s", "up_gpu_s", "stray_gpu_s", "moves", "resizes",
                "kills", "rounds", "wall_s", "lost_s", "fee")  # fmt: skip
        journal.finish(**{name: getattr(result, name) for name in sums})
    return result


class Writer:
    """Writes a journal from a thread of its own, beside the simulation, which needs no GIL."""

    def __init__(self, journal: Journal | None) -> None:
        self._journal = journal
        self._pool = ThreadPoolExecutor(1)
        self._pending: list[Future[Any]] = []

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._pool.shutdown()
        if kind is None:
            self._check()

    def begin(self, trace: Trace) -> None:
        """Write down the jobs that the run is about."""
        if self._journal:
            self._submit(
                self._journal.add_jobs, trace.job_id, trace.user, trace.users, trace.num_gpus,
                trace.submit_s, trace.duration_s, *_further(trace),
            )  # fmt: skip

    def write(self, events: Records, entries: Records, rounds: Records, notes: Notes) -> None:
        """Write down what has happened since the last call."""
        self._check()
        if self._journal and len(events):
            self._submit(self._journal.add_events, events, entries)
        if self._journal and len(rounds):
            self._submit(self._journal.add_rounds, rounds, notes)

    def _submit(self, what: Callable[..., Any], *data: Any) -> None:
        self._pending.append(self._pool.submit(what, *data))

    def _check(self) -> None:
        """Raise what went wrong in the thread, such as a full disk."""
        while self._pending and self._pending[0].done():
            self._pending.pop(0).result()


def _further(trace: Trace) -> tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
    """What a journal needs beside its own columns to give the trace back."""
    own = ("job_id", "user", "num_gpus", "submit_s", "duration_s")
    more = [column for column in spoken(trace) if column.name not in own]
    names = {c.name: getattr(trace, f"{c.name}s") for c in more if c.kind == "name"}
    return {column.name: getattr(trace, column.name) for column in more}, names


def briefed(
    policy: Policy, when: Conditions, physics: Physics, past: Trace
) -> tuple[Policy, Conditions, Physics]:
    """The policy with its tables from past jobs, and a world's conditions and laws as it sees them.

    Whoever lets a policy decide in a simulated world begins here, or it is another policy.
    """
    policy = informed(policy, past)
    if isinstance(policy, Heuristic) and policy.error > 0:
        when = replace(when, estimate_error=policy.error)
    if getattr(policy, "oracle", False):
        when = replace(when, hide_durations=False, estimate_error=0.0, trust_trace=False)
        physics = replace(physics, sight="true")
    return policy, when, physics


def informed(policy: Policy, past: Trace) -> Policy:
    """The policy with its tables drawn from past jobs, if it uses any."""
    if isinstance(policy, Heuristic) and policy.learns:
        return policy.learned(past.duration_s, past.num_gpus)
    return policy


def needs_compiling(
    policy: Policy, cluster: Cluster, when: Conditions, trace: Trace, physics: Physics = PLAIN
) -> bool:
    """Whether the first round over these jobs will have to wait for the compiler."""
    net = physics.contention is not None or physics.drift is not None
    if isinstance(policy, Heuristic) and policy.compiled:
        costly = when.restart_s > 0 or (when.resize_s or 0.0) > 0
        shapes = len(shapes_of(trace)[0])
        play = _kernel(policy, cluster, when, trace, shapes, costly=costly)
        return not is_ready(play, net=net)
    return not is_ready(advance_once, net=net)


def warm_up(sim: Simulator, policy: Policy) -> None:
    """Compile, or load from disk, what a run needs, before any clock is started."""
    if isinstance(policy, Heuristic) and policy.compiled:
        play = _kernel_for(sim, policy)
        play(policy.rule, sim.batch, 0, np.zeros(1, np.int64))
    elif isinstance(policy, Heuristic) or getattr(policy, "compiles", False):
        first = Simulator(sim.cluster, sim.trace.head(4), sim.when, physics=sim.physics)
        next(rounds(policy, first, deadline_s=3600.0), None)


def _kernel_for(sim: Simulator, policy: Heuristic) -> Callable[..., None]:
    shapes = sim.state.waits.size
    return _kernel(policy, sim.cluster, sim.when, sim.trace, shapes, costly=sim.costly)


def _kernel(
    policy: Heuristic,
    cluster: Cluster,
    when: Conditions,
    trace: Trace,
    shapes: int,
    *,
    costly: bool,
) -> Callable[..., None]:
    """The compiled replay for this policy."""
    if policy.rule.passing >= EASY:
        return replay_backfill
    if len(trace) >= MANY_JOBS:
        indexed = indexed_replay(policy, cluster, when, trace, shapes, costly=costly)
        if indexed is not None:
            return indexed
    return replay if costly else replay_free


def indexed_replay(
    policy: Heuristic,
    cluster: Cluster,
    when: Conditions,
    trace: Trace,
    shapes: int,
    *,
    costly: bool,
) -> Callable[..., None] | None:
    """The replay with an indexed queue that makes the same schedule, if there is one.

    It counts on nodes alike, where a shape that does not fit stays so until room is given back,
    and on an order of the waiting that never changes: without preemption, with each job entering
    the queue once; or with all of the room dealt out anew in every round. There, a gang's servers
    may fit in less room where they do not in more.
    """
    rule = policy.rule
    if rule.passing >= EASY or not (cluster.gpus == cluster.gpus[0]).all():
        return None
    if not rule.preempt:
        if rule.order not in (FIFO, SHORTEST) or not when.faults.never:
            return None
        return replay_queue if rule.passing == STRICT or shapes <= FEW else replay_shapes
    still = rule.order in (REMAINING, ATTAINED, QUEUES, GITTINS)
    plain = rule.passing == SKIP and rule.sizing == RIGID and not trace.num_servers.any()
    return replay_ranked if still and plain and not costly and when.min_run_s == 0 else None


def _compiled(sim: Simulator, policy: Heuristic, drain: Callable[[], None]) -> Iterator[None]:
    play, status = _kernel_for(sim, policy), np.zeros(1, np.int64)
    sim.clock["indexed"] = play in (replay_queue, replay_shapes)
    while status[0] in (MORE, FLUSH):
        play(policy.rule, sim.batch, SLICE, status)
        sim.check_books()
        if status[0] == FLUSH:
            drain()
        yield
    sim.check_over()


def _by_rounds(
    sim: Simulator, policy: Policy, drain: Callable[..., None], deadline_s: float
) -> Iterator[None]:
    notes: list[dict[str, Any]] = []
    for turn in rounds(policy, sim, deadline_s=deadline_s):
        if sim.state.events.size:
            notes.append(turn.note())
            if sim.log_is_full:
                drain(notes)
                notes = []
        if turn.number % 256 == 0:
            yield
    drain(notes)


def take_log(sim: Simulator) -> tuple[Records, Records, Records]:
    """Empty the simulator's log: events, their shares, rounds."""
    s, clock = sim.state, sim.clock
    if clock["lost"]:
        raise RotaError(
            f"{clock['lost']} events did not fit into the simulator's log of {s.events.size}; "
            "empty it with take_log() whenever `log_is_full`."
        )
    counts = (s.events, "events"), (s.entries, "entries"), (s.rounds, "logged")
    events, entries, rounds_ = (log[: clock[count]].copy() for log, count in counts)
    clock["events"] = clock["entries"] = clock["logged"] = 0
    return events, entries, rounds_


def _outcome(sim: Simulator, policy: Policy, seed: int, wall_s: float, series: Records) -> Outcome:
    clock, trace = sim.clock, sim.trace
    jobs, truth = sim.state.jobs[: len(trace)], sim.state.truth[: len(trace)]
    return Outcome(
        policy=getattr(policy, "name", type(policy).__name__), seed=seed,
        total_gpus=sim.cluster.total_gpus, job_id=trace.job_id, user=trace.user, users=trace.users,
        num_gpus=trace.num_gpus, submit_s=trace.submit_s, duration_s=trace.duration_s,
        started_s=jobs["started_s"].copy(),
        done_s=truth["done_s"].copy(), gave_up=jobs["status"] == FAILED,
        preemptions=jobs["preemptions"].astype(np.int64), lost_s=truth["lost_s"].copy(),
        fee=truth["fee"].copy(),
        begin_s=float(clock["begin_s"]), end_s=max(float(clock["begin_s"]), float(clock["now_s"])),
        held_gpu_s=float(clock["held_gpu_s"]), up_gpu_s=float(clock["up_gpu_s"]),
        stray_gpu_s=float(clock["stray_gpu_s"]), moves=int(clock["moves"]),
        resizes=int(clock["resizes"]), kills=int(clock["kills"]), rounds=int(clock["rounds"]),
        wall_s=wall_s, series=series,
    )  # fmt: skip
