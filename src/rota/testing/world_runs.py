"""One run of a world under a policy, with everything that happened, whichever way it is played."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

from rota.core.layout import EVENT, ROUND, SHARE
from rota.errors import PolicyError
from rota.policies.classic.heuristic import Heuristic
from rota.sim import replay_choice
from rota.sim.briefing import informed
from rota.sim.replay_choice import facts_of, indexed_replay
from rota.sim.simulation import simulate
from rota.testing.backend_contract import check_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.core.decision import Decision
    from rota.core.seams import Policy
    from rota.core.snapshot import Snapshot
    from rota.core.types import Records
    from rota.run.outcome import Outcome
    from rota.scenarios.scenario import World

Way: TypeAlias = Literal["compiled", "queue", "rounds"]
"""Replayed compiled; the same with an indexed queue; or asked round by round in Python."""
ROUNDS_PER_EVENT: Final = 20
SPARE_ROUNDS: Final = 20_000
"""Rounds that a run may take beside those that its events account for."""


class TooManyRoundsError(PolicyError):
    """A run does not come to an end."""


@dataclass(frozen=True)
class Run:
    """What a run did."""

    outcome: Outcome
    events: Records  # (E,) EVENT
    entries: Records  # (S,) SHARE, each event's in turn
    rounds: Records  # (R,) ROUND


@dataclass
class _Log:
    """Takes what a simulation would write to a journal."""

    events: list[Records] = field(default_factory=lambda: [np.zeros(0, EVENT)])
    entries: list[Records] = field(default_factory=lambda: [np.zeros(0, SHARE)])
    rounds: list[Records] = field(default_factory=lambda: [np.zeros(0, ROUND)])
    spare: int = SPARE_ROUNDS
    """Rounds that may still come without another event."""

    def add_jobs(self, *_: Any) -> None: ...

    def finish(self, **_: Any) -> None: ...

    def stop(self, _why: str) -> None: ...

    def add_events(self, events: Records, entries: Records) -> None:
        self.events.append(events)
        self.entries.append(entries)
        self.spare += ROUNDS_PER_EVENT * len(events)

    def add_rounds(self, rounds: Records, notes: Any = None) -> None:
        del notes
        self.rounds.append(rounds)
        self.spare -= len(rounds)

    def check_length(self, _ended: int) -> None:
        """Raise once there are far more rounds than events call for."""
        if self.spare < 0:
            events, rounds = sum(map(len, self.events)), sum(map(len, self.rounds))
            raise TooManyRoundsError(
                f"{rounds} rounds for {events} events, and it is not over: does the policy ask to "
                "be called again and again, or stop and start jobs for ever?"
            )


@dataclass(frozen=True)
class ByRounds:
    """Hides that a policy could be replayed compiled, so that it is asked round by round."""

    policy: Policy
    checked: bool = True
    """Whether every snapshot and every decision is checked."""

    @property
    def name(self) -> str:
        return str(getattr(self.policy, "name", type(self.policy).__name__))

    @property
    def oracle(self) -> bool:
        return bool(getattr(self.policy, "oracle", False))

    def decide(self, snapshot: Snapshot) -> Decision:
        """What the policy decides, if it can be carried out."""
        if not self.checked:
            return self.policy.decide(snapshot)
        check_snapshot(snapshot)
        decision = self.policy.decide(snapshot)
        replace(decision, drafted=None).check(snapshot)
        return decision


def ways(policy: Policy, world: World) -> list[Way]:
    """How this policy can be played here; all must end alike."""
    if not (isinstance(policy, Heuristic) and policy.compiled):
        return ["rounds"]
    if indexed_replay(policy.rule, facts_of(world.cluster, world.trace, world.when)):
        return ["compiled", "rounds", "queue"]
    return ["compiled", "rounds"]


def play(world: World, policy: Policy, way: Way, seed: int, *, checked: bool = True) -> Run:
    """Play `policy` in `world`; raises what the simulation raises, or a check of its rounds."""
    log, when, played = _Log(), world.when, policy
    if way == "rounds":
        if isinstance(policy, Heuristic) and policy.error > 0:
            when = replace(when, estimate_error=policy.error)
        played = ByRounds(informed(policy, world.trace), checked)
    with _queues_from(0 if way == "queue" else 10**9):
        outcome = simulate(
            world.cluster, world.trace, played, when, seed=seed, physics=world.physics,
            journal=log, deadline_s=1e6, progress=log.check_length,  # type: ignore[arg-type]
        )  # fmt: skip
    return Run(outcome, *map(np.concatenate, (log.events, log.entries, log.rounds)))


@contextmanager
def _queues_from(jobs: int) -> Iterator[None]:
    """Let traces of at least that many jobs be replayed with an indexed queue."""
    before = replay_choice.MANY_JOBS
    replay_choice.MANY_JOBS = jobs
    try:
        yield
    finally:
        replay_choice.MANY_JOBS = before
