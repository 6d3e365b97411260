"""Which compiled replay suits a policy, a cluster and a trace, and whether it is compiled yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from rota.jit import is_ready
from rota.policies.classic.heuristic import Heuristic
from rota.policies.classic.orderings import FIXED_SCORES, STILL_SCORES
from rota.policies.classic.rule import EASY, RIGID, SKIP, STRICT
from rota.run.loop import rounds
from rota.sim.event_kernels import advance_once
from rota.sim.queue_kernels import FEW, replay_queue, replay_shapes
from rota.sim.rank_kernels import replay_ranked
from rota.sim.replay_kernels import replay, replay_backfill, replay_free
from rota.sim.setup import PLAIN, change_costs, shapes_of
from rota.sim.simulator import Simulator

if TYPE_CHECKING:
    from rota.core.cluster import Cluster
    from rota.core.seams import Policy
    from rota.perf.physics import Physics
    from rota.policies.classic.rule import Rule
    from rota.sim.replay_kernels import Replay
    from rota.sim.setup import Conditions
    from rota.traces.trace import Trace

MANY_JOBS = 2000
"""For fewer, an indexed queue gains less than its kernel takes to compile; results are the same."""


@dataclass(frozen=True)
class ReplayFacts:
    """What of a simulation decides which kernels can replay it."""

    jobs: int
    shapes: int
    even: bool
    """All nodes have as many GPUs."""
    costly: bool
    """Some job pays for a restart, a move or a resize."""
    servers: bool
    """Some job has parameter servers."""
    pins: bool
    """Jobs have a minimum run time."""
    faulty: bool
    """Nodes or jobs may fail."""


def facts_of(
    cluster: Cluster, trace: Trace, when: Conditions, shapes: int | None = None
) -> ReplayFacts:
    """The facts of a simulation; `shapes` is the number of shapes, if it is known already."""
    return ReplayFacts(
        jobs=len(trace),
        shapes=len(shapes_of(trace)[0]) if shapes is None else shapes,
        even=bool((cluster.gpus == cluster.gpus[0]).all()),
        costly=any(bool((cost_s > 0).any()) for cost_s in change_costs(trace, when)),
        servers=bool(trace.num_servers.any()),
        pins=when.min_run_s > 0 or not trace.stoppable.all(),
        faulty=not when.faults.never,
    )


def replay_for(rule: Rule, facts: ReplayFacts) -> Replay:
    """The compiled replay for this policy."""
    if rule.passing >= EASY:
        return replay_backfill
    indexed = indexed_replay(rule, facts) if facts.jobs >= MANY_JOBS else None
    return indexed or (replay if facts.costly else replay_free)


def indexed_replay(rule: Rule, facts: ReplayFacts) -> Replay | None:
    """The replay with an indexed queue that makes the same schedule, if there is one.

    It relies on nodes with as many GPUs each, where a shape that does not fit stays so until room
    is given back, and on waiting jobs that keep their order. A job with servers may fit in less
    room where it does not in more: so there may be none, unless nobody starts before the first job
    does. Without preemption each job enters the queue once, so that its score must never change.
    With preemption all of the room is given out anew in every round.
    """
    if rule.passing >= EASY or not facts.even or (facts.servers and rule.passing != STRICT):
        return None
    if not rule.preempt:
        if rule.order not in FIXED_SCORES or facts.faulty:
            return None
        return replay_queue if rule.passing == STRICT or facts.shapes <= FEW else replay_shapes
    plain = rule.passing == SKIP and rule.sizing == RIGID
    still = rule.order in STILL_SCORES and not facts.pins
    return replay_ranked if plain and still and not facts.costly else None


def replay_of(sim: Simulator, policy: Heuristic) -> Replay:
    """The compiled replay for a simulation that has been set up."""
    shapes = sim.state.waits.size
    return replay_for(policy.rule, facts_of(sim.cluster, sim.trace, sim.when, shapes))


def is_compiled(policy: Policy, physics: Physics) -> TypeGuard[Heuristic]:
    """Whether whole traces are replayed without leaving compiled code.

    Not in a world with learning curves: what jobs have learned is kept outside of it.
    """
    return isinstance(policy, Heuristic) and policy.compiled and physics.learning is None


def needs_compiling(
    policy: Policy, cluster: Cluster, when: Conditions, trace: Trace, physics: Physics = PLAIN
) -> bool:
    """Whether the first round over these jobs will have to wait for the compiler."""
    has = {
        "net": physics.contention is not None or physics.drift is not None,
        "breakdowns": not when.faults.never,
    }
    if is_compiled(policy, physics):
        return not is_ready(replay_for(policy.rule, facts_of(cluster, trace, when)), **has)
    return not is_ready(advance_once, **has)


def warm_up(sim: Simulator, policy: Policy) -> None:
    """Compile, or load from disk, what a run needs, before any clock is started."""
    if is_compiled(policy, sim.physics):
        replay_of(sim, policy)(policy.rule, sim.batch, 0, np.zeros(1, np.int64))
    elif isinstance(policy, Heuristic) or getattr(policy, "compiles", False):
        first = Simulator(sim.cluster, sim.trace.head(4), sim.when, physics=sim.physics)
        next(rounds(policy, first, deadline_s=3600.0), None)
