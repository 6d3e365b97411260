"""The guard: a live loop goes on whatever its policy does; docs/guard.md says what is certain."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from rota.core.draft import Draft
from rota.core.layout import MOVE, RESIZE, STOP
from rota.errors import ConfigError, PolicyError
from rota.run.ask import Alarm, ask, name_of, raised

if TYPE_CHECKING:
    from rota.core.plan import Plan
    from rota.core.seams import Policy
    from rota.core.snapshot import Snapshot

RETRY_S: Final = 10.0
"""Seconds after which a round in which no policy decided is followed by another one."""
LONGEST: Final = 500
"""Characters of what is told of one failure."""


@dataclass(frozen=True)
class Guard:
    """What happens when a policy does not decide, and whether it may at all."""

    fallback: Policy | None = None
    """Decides in a round in which the policy does not; None: that round changes nothing."""
    deadline_s: float = 60.0
    """Time to decide, for the policy and for the fallback each."""
    shadow: bool = False
    """Record what the policy decides; carry out what the fallback decides, if there is one."""

    def __post_init__(self) -> None:
        if not self.deadline_s > 0:
            raise ConfigError(
                f"A guard's deadline_s={self.deadline_s:g} leaves no time to decide; "
                "give some seconds."
            )


@dataclass(frozen=True)
class Ruling:
    """What comes of a guarded round."""

    plan: Plan
    by: str
    """The policy that decided it; "" if none did."""
    wake_s: float
    trouble: str = ""
    shadow: Plan | None = None
    weights: str = ""
    """The weights of the policy that decided it, or would have in shadow mode."""


@runtime_checkable
class Refreshing(Protocol):
    """A policy that may change between rounds."""

    def refresh(self) -> None:
        """Change, if there is anything to change to; it never raises."""
        ...


class Guarded:
    """A policy under a guard: it may fail in any way, except that it never returns."""

    def __init__(self, policy: Policy, guard: Guard) -> None:
        self._policy, self._guard = policy, guard
        self._alarm = Alarm(guard.deadline_s)

    def refresh(self) -> None:
        """Let the policy change before a round, if it is of those that may."""
        if isinstance(self._policy, Refreshing):
            self._policy.refresh()

    def rule(self, snapshot: Snapshot, number: int) -> Ruling:
        """What is to be done in round `number`, and which policy says so; it never raises."""
        trouble: list[str] = []
        decider = None if self._guard.shadow else self._policy
        for policy in (decider, self._guard.fallback):
            if policy is None:
                continue
            answer = self._ask(policy, snapshot, number)
            if not isinstance(answer, str):
                wake_s = answer.decision.wake_s
                told = "; ".join(trouble)
                return Ruling(answer, name_of(policy), wake_s, told, weights=_weights(policy))
            trouble.append(answer)
        # Without a fallback in shadow mode none was to decide, so none failed: no retry is needed.
        wake_s = snapshot.time_s + RETRY_S if trouble else inf
        nothing = Draft(snapshot).commit(wake_s=wake_s).diff(snapshot)
        return Ruling(nothing, "", wake_s, "; ".join(trouble))

    def overhear(self, ruling: Ruling, snapshot: Snapshot, number: int) -> Ruling:
        """The ruling, in shadow mode with what the policy would have done."""
        if not self._guard.shadow:
            return ruling
        answer = self._ask(self._policy, snapshot, number)
        if isinstance(answer, str):
            trouble = "; ".join(filter(None, (answer, ruling.trouble)))
            wake_s = ruling.wake_s if ruling.by else snapshot.time_s + RETRY_S
            return replace(ruling, trouble=trouble, wake_s=wake_s)
        wake_s = min(ruling.wake_s, answer.decision.wake_s)
        return replace(ruling, shadow=answer, wake_s=wake_s, weights=_weights(self._policy))

    def _ask(self, policy: Policy, snapshot: Snapshot, number: int) -> Plan | str:
        """The policy's plan, or in one line why there is none."""
        try:
            decision = ask(policy, snapshot, self._alarm, number)
            plan = replace(decision, drafted=None).diff(snapshot)
            tuple(plan)  # whatever cannot be carried out shows here, not in the backend
            _check_pins(plan, snapshot, policy)
            return plan
        except KeyboardInterrupt:
            raise
        except PolicyError as error:
            return _line(error)
        # A policy that calls sys.exit() must not end the loop.
        except BaseException as error:
            return _line(raised(policy, snapshot, number, error))


def _weights(policy: Policy) -> str:
    """What a policy calls its weights, if it tells."""
    return str(getattr(policy, "weights", ""))


def _check_pins(plan: Plan, snapshot: Snapshot, policy: Policy) -> None:
    """Refuse a plan that stops or moves a job before its time.

    One that can never be stopped cannot be resized either: that would mean to begin again.
    """
    pinned = snapshot.pinned
    for kind, job in zip(plan.kind.tolist(), plan.job.tolist(), strict=True):
        row = snapshot.jobs.rows[job]
        touched = (STOP, MOVE, RESIZE) if row["min_run_s"] == inf else (STOP, MOVE)
        if kind in touched and pinned[job]:
            until = "it has ended" if row["min_run_s"] == inf else f"{row['min_run_s']:g} s"
            raise PolicyError(
                f"Policy {name_of(policy)!r} stops, moves or resizes job {row['uid']} "
                f"{snapshot.time_s - row['since_s']:g} s after its start or last change; it runs "
                f"until {until}."
            )


def _line(error: PolicyError) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
