"""Asking a policy for its decision: in time and checked, or an error that names the policy."""

from __future__ import annotations

import signal
import threading
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from rota.core.decision import Decision
from rota.errors import DecisionError, PolicyError, RotaError
from rota.jit_lock import compilations

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from rota.core.seams import Policy
    from rota.core.snapshot import Snapshot

AGAIN_S: Final = 1.0
"""Seconds after which an alarm that had no effect rings again."""


def name_of(policy: Policy) -> str:
    """What a policy is called."""
    return str(getattr(policy, "name", type(policy).__name__))


def ask(
    policy: Policy, snapshot: Snapshot, watch: Watch | Alarm, number: int,
    check: Callable[[Decision, Snapshot], None] = Decision.check,
) -> Decision:  # fmt: skip
    """The decision of `policy` in round `number`, counted from 1; it is always checked.

    Whatever is wrong raises a PolicyError, also an attempt to exit; an interrupt passes through.
    """
    try:
        with watch:
            decision = policy.decide(snapshot)
        if not isinstance(decision, Decision):
            raise DecisionError(
                f"decide() returned {type(decision).__name__}, not a Decision; "
                "end it with `return draft.commit()`."
            )
        check(decision, snapshot)
        if not decision.wake_s > snapshot.time_s:
            raise DecisionError(
                f"It asks to be woken at {decision.wake_s:g} s, "
                f"which is not after now ({snapshot.time_s:g} s)."
            )
    except TooSlow:
        watch.stop()  # it may have rung while the `with` block was being left
        raise PolicyError(
            f"Policy {name_of(policy)!r} had not decided after {watch.seconds:g} s (round "
            f"{number}, {len(snapshot.jobs)} live jobs); does it loop?"
        ) from None
    except RotaError as error:
        raise PolicyError(f"Policy {name_of(policy)!r}, round {number}: {error}") from error
    except (Exception, SystemExit) as error:
        raise raised(policy, snapshot, number, error) from error
    return decision


def raised(policy: Policy, snapshot: Snapshot, number: int, error: BaseException) -> PolicyError:
    """The error for a policy that raised an exception of its own."""
    return PolicyError(
        f"Policy {name_of(policy)!r} raised {type(error).__name__} in round {number} at "
        f"{snapshot.time_s:g} s: {error}. --debug shows where."
    )


class TooSlow(BaseException):
    """Not an Exception, so that a policy's own `except Exception` cannot swallow it."""


class Watch:
    """Interrupts its body when it takes longer than `seconds`, at the latest after twice that.

    It works in the main thread only. One alarm signal rings every `seconds`; a body that was
    already running at the signal before is interrupted. Setting an alarm per body would cost more
    than most bodies do. Time in which kernels are compiled does not count: on a busy machine that
    takes long, and it ends.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self._entered, self._left = seconds, 0, 0
        self._seen: tuple[int, ...] = ()
        """What the last signal met: the body, and the compilations before."""
        self._armed = threading.current_thread() is threading.main_thread()
        self._before: Any = None

    def __enter__(self) -> None:
        if self._armed and self._entered == 0:
            self._before = signal.signal(signal.SIGALRM, self._ring)
            signal.setitimer(signal.ITIMER_REAL, self.seconds, self.seconds)
        self._entered += 1

    def __exit__(self, *_: object) -> None:
        self._left += 1

    def _ring(self, _number: int, _frame: FrameType | None) -> None:
        begun, ended = compilations()
        now = (self._entered, begun) if self._entered > self._left and begun == ended else ()
        if now and now == self._seen:
            raise TooSlow
        self._seen = now

    def stop(self) -> None:
        """Switch the alarm off and restore the signal's handler, unless it was replaced since."""
        # An abandoned loop is stopped when it is collected, which may be any time later.
        if self._armed and signal.getsignal(signal.SIGALRM) == self._ring:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, self._before)


class Alarm:
    """Interrupts its body after exactly `seconds`, and refuses a body that ended later.

    In the main thread it uses the alarm signal while the body runs. Compiled code is interrupted
    only when it returns; in other threads nothing is interrupted. A body that took too long is
    refused in every case.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._inside, self._began_s, self._before = False, 0.0, None

    def __enter__(self) -> None:
        self._began_s = perf_counter()
        if threading.current_thread() is threading.main_thread():
            before: Any = signal.signal(signal.SIGALRM, self._ring)
            self._inside, self._before = True, before
            signal.setitimer(signal.ITIMER_REAL, self.seconds, AGAIN_S)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stop()
        if kind is None and perf_counter() - self._began_s > self.seconds:
            raise TooSlow

    def _ring(self, _number: int, _frame: FrameType | None) -> None:
        if self._inside:
            raise TooSlow

    def stop(self) -> None:
        """Switch the alarm off and restore the signal's handler."""
        if self._inside:
            self._inside = False
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, self._before)
