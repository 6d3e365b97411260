"""The policy's side of the contract."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np

from rota.core.decision import Decision
from rota.core.jobs import JobTable
from rota.core.layout import MOVE, STOP
from rota.core.snapshot import Snapshot
from rota.errors import RotaError
from rota.run.loop import rounds
from rota.sim.briefing import informed
from rota.sim.simulator import Simulator
from rota.testing.contract_worlds import CONTRACT_WORLDS, contract_world

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.core.seams import Policy
    from rota.core.types import Floats

    PolicyOrFactory: TypeAlias = Policy | Callable[[], Policy]

MOST_ROUNDS = 20_000
"""A sensible policy needs a few hundred."""
DEADLINE_S = 60.0
"""For one round, in which the policy is asked three times."""


class _Broken(BaseException):
    """The contract is broken. Not an Exception, so that the loop does not make it its own."""


def check_policy(policy: PolicyOrFactory, *, seed: int = 0) -> None:
    """Play `policy`, or what a class or function makes, in every contract world.

    Raises AssertionError, or the RotaError of the simulation, unless

    - every decision can be carried out;
    - the same snapshot gives the same decision, whatever was asked in between;
    - it depends on what jobs are, not on the numbers by which the backend knows them;
    - the snapshot is left as it was;
    - a job within its minimum run time is neither stopped nor moved;
    - the policy asks to be woken in the future, if at all;
    - every round takes a bounded time, and all jobs end after a bounded number of rounds.
    """
    for case in policy_cases():
        case(policy, seed=seed)


def policy_cases() -> list[PolicyCase]:
    """One check per world, for `pytest.mark.parametrize("case", policy_cases(), ids=str)`."""
    return [PolicyCase(name) for name in CONTRACT_WORLDS]


@dataclass(frozen=True)
class PolicyCase:
    """The contract in one world; call it with a policy, or with what makes one."""

    world: str

    def __str__(self) -> str:
        return self.world

    def __call__(self, policy: PolicyOrFactory, *, seed: int = 0) -> None:
        """Raise unless the policy keeps the contract here."""
        # The second time the policy is asked as often as a backend would.
        first, second = (_play(self.world, policy, seed, again=again) for again in (False, True))
        if not np.array_equal(first, second, equal_nan=True):
            raise AssertionError(
                f"World {self.world!r} ended otherwise when it was played again: the policy "
                "remembers something, or draws random numbers that no seed governs."
            )


def _play(name: str, policy: PolicyOrFactory, seed: int, *, again: bool) -> Floats:
    """When each job was done."""
    world = contract_world(name, seed)
    made = policy if hasattr(policy, "decide") and not isinstance(policy, type) else policy()
    taught = informed(made, world.trace)
    examined = _Examined(taught)
    simulator = Simulator(world.cluster, world.trace, world.when, seed=seed, physics=world.physics)
    try:
        for turn in rounds(taught if again else examined, simulator, deadline_s=DEADLINE_S):
            if turn.number >= MOST_ROUNDS:
                raise _Broken(
                    f"{simulator.finished} of {len(world.trace)} jobs have ended after "
                    f"{MOST_ROUNDS} rounds; does it starve a job, or stop and start jobs for ever?"
                )
    except _Broken as broken:
        where = f"{examined.name}, world {name!r}, {examined.where()}"
        raise AssertionError(f"Policy {where}: {broken}") from None
    except RotaError as error:
        error.add_note(f"In world {name!r} of rota.testing, seed {seed}.")
        raise
    done_s: Floats = simulator.state.truth["done_s"].copy()
    return done_s


class _Examined:
    """A policy under examination: it decides as the policy does, or raises _Broken."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.name = str(getattr(policy, "name", type(policy).__name__))
        self._round, self._now_s = 0, -np.inf

    def where(self) -> str:
        return f"round {self._round} at {self._now_s:g} s"

    def decide(self, snapshot: Snapshot) -> Decision:
        """Ask, check, ask again."""
        self._round, self._now_s = self._round + 1, snapshot.time_s
        original = _copy(snapshot)
        decision = self.policy.decide(snapshot)
        if not isinstance(decision, Decision):
            _fail(f"decide() returned {type(decision).__name__}, not a Decision.")
        wanted = _wanted(decision)
        if not _same(snapshot, original):
            _fail("decide() changed the snapshot, which is for reading only.")
        try:
            replace(decision, drafted=None).check(snapshot)
        except RotaError as error:
            _fail(f"the decision cannot be carried out: {error}")
        if not decision.wake_s > snapshot.time_s:
            _fail(f"wake_s={decision.wake_s} is not after now.")
        _check_pins(snapshot, decision)
        # Another snapshot object: a policy that remembers decisions by snapshot is caught.
        if _wanted(self.policy.decide(original)) != wanted:
            _fail("asked twice about the same snapshot, it decided differently.")
        if _wanted(self.policy.decide(_renumbered(original))) != wanted:
            _fail("it decided differently when only the jobs' numbers (uid) were others.")
        if _wanted(decision) != wanted:
            _fail("a decision changed after it had been given.")
        return decision


def _fail(message: str) -> NoReturn:
    raise _Broken(message)


def _copy(snapshot: Snapshot) -> Snapshot:
    return Snapshot(
        snapshot.time_s, snapshot.cluster, JobTable(snapshot.jobs.rows.copy()),
        snapshot.nodes.copy(), snapshot.shares.copy(), snapshot.curves, snapshot.contention,
        snapshot.learning,
    )  # fmt: skip


def _same(a: Snapshot, b: Snapshot) -> bool:
    pairs = ((a.jobs.rows, b.jobs.rows), (a.nodes, b.nodes), (a.shares, b.shares))
    # Field by field, since the padding between them means nothing; as bytes, since NaN != NaN.
    return a.time_s == b.time_s and all(
        x[field].tobytes() == y[field].tobytes() for x, y in pairs for field in x.dtype.names or ()
    )


def _renumbered(snapshot: Snapshot) -> Snapshot:
    """The same jobs in the same order, known by other numbers, the last by the lowest."""
    rows = snapshot.jobs.rows.copy()
    rows["uid"] = 1000 + 7 * np.arange(len(rows))[::-1]
    return Snapshot(
        snapshot.time_s, snapshot.cluster, JobTable(rows),
        snapshot.nodes.copy(), snapshot.shares.copy(), snapshot.curves, snapshot.contention,
        snapshot.learning,
    )  # fmt: skip


def _wanted(decision: Decision) -> tuple[Any, ...]:
    """What a decision says, apart from the numbers of the jobs; comparable."""
    shares = tuple(decision.share(job) for job in range(len(decision.uid)))
    tunes = {job: dict(settings) for job, settings in decision.tunes.items()}
    return shares, tunes, decision.wake_s


def _check_pins(snapshot: Snapshot, decision: Decision) -> None:
    rows, pinned = snapshot.jobs.rows, snapshot.pinned
    plan = decision.diff(snapshot)
    for kind, job in zip(plan.kind.tolist(), plan.job.tolist(), strict=True):
        row = rows[job]
        if kind in (STOP, MOVE) and pinned[job]:
            what = "stopped" if kind == STOP else "moved"
            _fail(
                f"job {row['uid']} is {what} {snapshot.time_s - row['since_s']:g} s after its "
                f"start; its min_run_s is {row['min_run_s']:g}."
            )
