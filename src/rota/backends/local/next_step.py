"""What a job of the local backend needs next, decided from facts alone: no sockets, no clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

Step = Literal["wait", "cancel", "launch", "reap", "kill", "look", "stop", "resize"]
"""`look`: ask its agent; `kill`: end a run whose agent does not; `reap`: end what a run left."""


@dataclass(frozen=True)
class Situation:
    """What is known of one job when the daemon looks at it."""

    open: bool
    """A run has begun and is not known to be over."""
    plain: bool
    """Its members are fixed from start to end: another set of members means another run."""
    cancelled: bool
    stopping: bool
    """Its agent was told to end the run."""
    reaping: bool
    """Its run is over, but processes of it may be left."""
    overdue: bool
    """Its agent was told to end the run and has not done so in time."""
    look_due: bool
    seats: frozenset[str]
    """Names of the members that it shall have."""
    leaving: bool
    """Members that shall go have not gone yet."""
    members: frozenset[str] | None
    """Names that its agent was last asked for; None: not known."""
    free: Callable[[], bool]
    """Whether no process of another run is left on any of its seats."""
    ready: Callable[[], frozenset[str]]
    """Members of `seats` that can be there now; empty if these could not train by themselves."""


def next_step(now: Situation) -> Step:
    """The one thing to do now for this job."""
    if not now.open:
        if now.cancelled:
            return "cancel"
        return "launch" if now.seats and now.free() else "wait"
    if now.reaping:
        return "reap" if now.look_due else "wait"
    if now.overdue:
        return "kill"
    if now.look_due:  # before anything else is asked of the agent: the run may be over
        return "look"
    if now.stopping:
        return "wait"
    if now.cancelled or not now.seats:
        return "stop"
    return _change(now)


def _change(now: Situation) -> Step:
    """How a running job gets from the members it has to those it shall have."""
    if now.plain:
        other = now.leaving if now.members is None else now.members != now.seats
        return "stop" if other else "wait"
    if now.members is None:
        return "wait"  # its agent has not said yet which members are there
    ready = now.ready()
    if not ready:
        return "stop"
    return "resize" if ready != now.members else "wait"
