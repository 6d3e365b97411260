"""A whole run: replay a trace under a policy and say how it went."""

from __future__ import annotations

from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.core.layout import FAILED, ROUND
from rota.errors import RotaError
from rota.run.loop import rounds
from rota.run.outcome import Outcome
from rota.sim.briefing import briefed
from rota.sim.journal_writer import JournalWriter, take_log
from rota.sim.queue_kernels import replay_queue, replay_shapes
from rota.sim.replay_choice import is_compiled, replay_of, warm_up
from rota.sim.replay_kernels import FLUSH, MORE
from rota.sim.setup import PLAIN, Conditions, fault_horizon_s
from rota.sim.simulator import Simulator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rota.core.cluster import Cluster
    from rota.core.seams import Policy
    from rota.core.types import Records
    from rota.perf.physics import Physics
    from rota.policies.classic.rule import Rule
    from rota.run.journal import Journal
    from rota.sim.replay_kernels import Replay
    from rota.traces.trace import Trace

LOG = 1 << 15
"""Events that the log holds before it is emptied into the journal."""
SLICE = 20_000
"""Rounds of a compiled replay between two calls of `progress`."""


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
    round. `progress` is told the number of jobs that have ended.
    """
    when = when or Conditions()
    policy, when, physics = briefed(policy, when, physics, history or trace)
    sim = Simulator(
        cluster, trace, when, seed=seed, log=LOG if journal or series else 0, physics=physics
    )
    warm_up(sim, policy)
    kept: list[Records] = [np.zeros(0, ROUND)]
    notes: list[dict[str, Any]] = []
    with JournalWriter(journal) as writer:

        def drain() -> None:
            events, entries, done = take_log(sim)
            # A round that was carried out and then stopped the run has none.
            said = [*notes, *[{}] * (len(done) - len(notes))] if notes else None
            notes.clear()
            writer.write(events, entries, done, said)
            if series:
                kept.append(done)

        turns = _turns(sim, policy, drain, notes, deadline_s)
        began_s = perf_counter()
        writer.begin(trace)
        try:
            for _ in turns:
                progress(sim.finished)
        except BaseException:
            with suppress(RotaError):  # what stopped the run is the error to tell
                drain()
            raise
        drain()
    wall_s = perf_counter() - began_s
    outcome = _outcome(sim, policy, seed, wall_s, np.concatenate(kept))
    writer.finish(outcome)
    return outcome


def _turns(
    sim: Simulator, policy: Policy, drain: Callable[[], None], notes: list[dict[str, Any]],
    deadline_s: float,
) -> Iterator[None]:  # fmt: skip
    """Play the whole run; yields now and then, so that progress can be reported."""
    if is_compiled(policy, sim.physics):
        return _compiled(sim, policy.rule, replay_of(sim, policy), drain)
    return _by_rounds(sim, policy, drain, notes, deadline_s)


def _compiled(
    sim: Simulator, rule: Rule, play: Replay, drain: Callable[[], None]
) -> Iterator[None]:
    """Replay in compiled code, slice by slice."""
    status = np.zeros(1, np.int64)
    sim.clock["indexed"] = play in (replay_queue, replay_shapes)
    while status[0] in (MORE, FLUSH):
        play(rule, sim.batch, SLICE, status)
        sim.check_books()
        if status[0] == FLUSH:
            drain()
        yield
    sim.check_over()


def _by_rounds(
    sim: Simulator, policy: Policy, drain: Callable[[], None], notes: list[dict[str, Any]],
    deadline_s: float,
) -> Iterator[None]:  # fmt: skip
    """Ask the policy round by round, in Python; `notes` gets one note per round of the log."""
    for turn in rounds(policy, sim, deadline_s=deadline_s):
        if sim.state.events.size:
            notes.append(turn.note())
            if sim.log_is_full:
                drain()
        if turn.number % 256 == 0:
            yield


def _outcome(sim: Simulator, policy: Policy, seed: int, wall_s: float, series: Records) -> Outcome:
    clock, trace = sim.clock, sim.trace
    jobs, truth = sim.state.jobs[: len(trace)], sim.state.truth[: len(trace)]
    learned: dict[str, Any] = {}
    if sim.learning is not None:
        accuracy, ungrown = sim.learning.at_deadlines(jobs)
        learned = {"accuracy": accuracy, "ungrown": ungrown, "level": sim.learning.level}
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
        wall_s=wall_s, series=series, notes=_notes(sim), **learned,
    )  # fmt: skip


def _notes(sim: Simulator) -> tuple[str, ...]:
    """Whether the run went on after the last failure of a node that was drawn for it."""
    end_s, until_s = float(sim.clock["now_s"]), fault_horizon_s(sim.cluster, sim.trace)
    if not np.isfinite(sim.when.faults.node_mtbf_s) or end_s <= until_s:
        return ()
    return (
        f"failures of nodes were drawn up to {until_s:,.0f} s, but the run ended at {end_s:,.0f} "
        "s, and no node failed in between: take fewer jobs or a larger cluster, or trust the "
        "numbers less.",
    )
