"""The loop: observe, decide, diff, apply, wait. The same for a simulated and a real cluster."""

from __future__ import annotations

import signal
import threading
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.core.decision import Decision
from rota.errors import DecisionError, PolicyError, RotaError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from rota.core.plan import Plan
    from rota.core.seams import Backend, Policy
    from rota.core.snapshot import Snapshot

TRUST_ROUNDS = 64
"""A draft keeps its own books, so its decision is only checked anew once in so many rounds."""
IDLE_ROUNDS = 100_000
"""So many rounds in a row that change nothing and that only the policy asked for: it loops."""


@dataclass(frozen=True)
class Round:
    """One turn of the loop: what was seen, what was decided, what changes, how long it took."""

    number: int
    snapshot: Snapshot
    plan: Plan
    decide_s: float
    apply_s: float


def rounds(policy: Policy, backend: Backend, *, deadline_s: float = 60.0) -> Iterator[Round]:
    """Run `policy` on `backend` until the backend says that it is over.

    A decision that the cluster cannot carry out, an exception, or no answer within
    `deadline_s` ends the run with an error that names the policy.
    """
    name, number, idle, wake_s = _name(policy), 0, 0, np.inf
    watch = Watch(deadline_s)
    try:
        while backend.wait(wake_s):
            snapshot = backend.observe()
            began_s = perf_counter()
            try:
                with watch:
                    decision = policy.decide(snapshot)
                if not isinstance(decision, Decision):
                    raise DecisionError(
                        f"decide() returned {type(decision).__name__}, not a Decision; "
                        "end it with `return draft.commit()`."
                    )
                decision.check(snapshot)
                if number % TRUST_ROUNDS == 0:
                    replace(decision, drafted=None).check(snapshot)
            except _TooSlow:
                raise PolicyError(
                    f"Policy {name} had not decided after {deadline_s:g} s (round {number + 1}, "
                    f"{len(snapshot.jobs)} live jobs); does it loop?"
                ) from None
            except RotaError as error:
                raise PolicyError(f"Policy {name}, round {number + 1}: {error}") from error
            except Exception as error:
                raise PolicyError(
                    f"Policy {name} raised {type(error).__name__} in round {number + 1} at "
                    f"{snapshot.time_s:g} s: {error}. --debug shows where."
                ) from error
            if not decision.wake_s > snapshot.time_s:
                raise PolicyError(
                    f"Policy {name} asks to be woken at {decision.wake_s:g} s, "
                    f"which is not after now ({snapshot.time_s:g} s)."
                )
            plan = decision.diff(snapshot)
            decided_s = perf_counter()
            backend.apply(plan)
            applied_s = perf_counter()
            number += 1
            idle = 0 if len(plan) or decision.wake_s == np.inf else idle + 1
            if idle > IDLE_ROUNDS:
                raise PolicyError(
                    f"Policy {name} has asked for {idle} rounds in a row that change nothing."
                )
            yield Round(number, snapshot, plan, decided_s - began_s, applied_s - decided_s)
            wake_s = decision.wake_s
    finally:
        watch.stop()


def _name(policy: Policy) -> str:
    return repr(getattr(policy, "name", type(policy).__name__))


class _TooSlow(BaseException):
    """Not an Exception, so that a policy's own `except Exception` cannot swallow it."""


class Watch:
    """Interrupts its body when it takes longer than `seconds`, at the latest after twice that.

    It works in the main thread only, by an alarm signal that rings once per `seconds` and
    finds the body it found last time: setting an alarm per body would cost more than most
    bodies do.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._entered, self._left, self._seen = seconds, 0, 0, -1
        self._armed = threading.current_thread() is threading.main_thread()
        self._before: Any = None

    def __enter__(self) -> None:
        if self._armed and self._entered == 0:
            self._before = signal.signal(signal.SIGALRM, self._ring)
            signal.setitimer(signal.ITIMER_REAL, self._seconds, self._seconds)
        self._entered += 1

    def __exit__(self, *_: object) -> None:
        self._left += 1

    def _ring(self, _number: int, _frame: FrameType | None) -> None:
        inside = self._entered > self._left
        if inside and self._seen == self._entered:
            raise _TooSlow
        self._seen = self._entered if inside else -1

    def stop(self) -> None:
        """Switch the alarm off and give the signal back."""
        if self._armed and self._entered:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, self._before)
