"""What a job of the local backend needs next, decided from facts alone: no sockets, no clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from rota.backends.next_action import JobStanding, next_action

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.backends.reconciler import Action, Phase

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
    """The one thing to do now for this job: see to its agent, or what the reconciler says."""
    if now.open and now.reaping:
        return "reap" if now.look_due else "wait"
    if now.open and now.overdue:
        return "kill"
    if now.open and now.look_due:  # before anything else is asked of the agent: it may be over
        return "look"
    return _STEPS[next_action(_standing(now))]


def _standing(now: Situation) -> JobStanding[frozenset[str]]:
    """The members that the job shall have and has, as far as its agent has said which."""
    phase: Phase = "waiting" if not now.open else "stopping" if now.stopping else "running"
    wanted, holds = now.seats, now.members
    if phase == "running" and wanted and not now.cancelled:
        if now.plain and holds is None and now.leaving:
            holds = frozenset()  # others than it shall have, whichever they are
        elif not now.plain and holds is not None:
            wanted = now.ready()
    return JobStanding(phase, wanted, holds, not now.plain, now.cancelled, now.free)


_STEPS: Final[dict[Action, Step]] = {
    "wait": "wait", "start": "launch", "stop": "stop", "resize": "resize", "cancel": "cancel",
}  # fmt: skip
