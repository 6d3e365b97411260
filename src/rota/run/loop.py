"""The loop: observe, decide, diff, apply, wait. The same for a simulated and a real cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from rota.core.draft import Draft
from rota.errors import PolicyError
from rota.run.ask import Watch, ask, name_of
from rota.run.check_kernels import Check
from rota.run.guard import Guarded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.core.decision import Decision
    from rota.core.plan import Plan
    from rota.core.seams import Backend, Policy
    from rota.core.snapshot import Snapshot
    from rota.run.guard import Guard

IDLE_ROUNDS: Final = 100_000
"""Rounds in a row that only the policy asked for and that change nothing, until it is stopped."""


@dataclass(frozen=True)
class Round:
    """One turn of the loop: snapshot, decision, what changes, and how long it took."""

    number: int
    snapshot: Snapshot
    plan: Plan
    decide_s: float
    apply_s: float
    by: str
    """The policy that decided what was carried out; "" if none did."""
    trouble: str = ""
    """Why the policy did not decide, in one line; under a guard only."""
    shadow: Plan | None = None
    """What the policy would have done, in shadow mode."""
    weights: str = ""
    """Which weights decided, or would have in shadow mode; "" if the policy has none it names."""

    def note(self) -> dict[str, Any]:
        """What a journal keeps of every round: how long it took, and why it is so."""
        note: dict[str, Any] = {"decide_s": self.decide_s, "apply_s": self.apply_s}
        if self.weights:
            note["weights"] = self.weights
        decision = self.plan.decision
        if decision.reasons:
            reasons = decision.reasons.items()
            note["reasons"] = {str(decision.uid[job]): str(why) for job, why in reasons}
        if decision.tunes:
            tunes = decision.tunes.items()
            note["tunes"] = {str(decision.uid[job]): dict(settings) for job, settings in tunes}
        return note


def unheeded(turn: Round, fitted: Decision | None = None) -> Round:
    """A round of a backend that carries nothing out: its plan is what would have been done.

    `fitted` is what its decision would have come to, if that is not just what was decided.
    """
    nothing = Draft(turn.snapshot).commit().diff(turn.snapshot)
    wished = turn.plan if fitted is None else fitted.diff(turn.snapshot)
    return replace(turn, plan=nothing, shadow=wished)


def rounds(
    policy: Policy, backend: Backend, *, deadline_s: float = 60.0, guard: Guard | None = None
) -> Iterator[Round]:
    """Run `policy` on `backend` until the backend says that it is over.

    A decision that the cluster cannot carry out, an exception, or no answer within
    `deadline_s` ends the run with an error that names the policy. With a `guard` none of that
    does: its fallback decides in that round, and its own deadline holds. What the backend
    raises ends the run either way.
    """
    if guard is None:
        return _bare(policy, backend, deadline_s)
    return _guarded(Guarded(policy, guard), backend)


def _bare(policy: Policy, backend: Backend, deadline_s: float) -> Iterator[Round]:
    name, number, idle, wake_s = name_of(policy), 0, 0, inf
    watch, check = Watch(deadline_s), Check()
    try:
        while backend.wait(wake_s):
            snapshot = backend.observe()
            began_s = perf_counter()
            number += 1
            decision = ask(policy, snapshot, watch, number, check)
            plan = decision.diff(snapshot)
            decided_s = perf_counter()
            backend.apply(plan)
            applied_s = perf_counter()
            wake_s = decision.wake_s
            idle = 0 if len(plan) or wake_s == inf else idle + 1
            if idle > IDLE_ROUNDS:
                raise PolicyError(
                    f"Policy {name!r} has asked for {idle} rounds in a row that change nothing."
                )
            yield Round(number, snapshot, plan, decided_s - began_s, applied_s - decided_s, name)
    finally:
        watch.stop()


def _guarded(policy: Guarded, backend: Backend) -> Iterator[Round]:
    number, wake_s = 0, inf
    while backend.wait(wake_s):
        policy.refresh()
        snapshot = backend.observe()
        number += 1
        began_s = perf_counter()
        ruling = policy.rule(snapshot, number)
        decided_s = perf_counter()
        backend.apply(ruling.plan)
        applied_s = perf_counter()
        # Only now, so that a policy in shadow mode delays no job.
        ruling = policy.overhear(ruling, snapshot, number)
        yield Round(
            number, snapshot, ruling.plan, decided_s - began_s, applied_s - decided_s,
            ruling.by, ruling.trouble, ruling.shadow, ruling.weights,
        )  # fmt: skip
        wake_s = ruling.wake_s
