"""The one thing to do for a job on its way from what it holds to what it shall hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.backends.reconciler import Action, Phase

T = TypeVar("T")


@dataclass(frozen=True)
class JobStanding(Generic[T]):
    """What one job shall hold, and what it holds."""

    phase: Phase
    wanted: T
    """Anything that is false: nothing."""
    holds: T | None
    """None: not known."""
    in_place: bool
    """Whether it gets from one to the other while it runs; otherwise it is stopped first."""
    cancelled: bool
    room: Callable[[], bool]
    """Whether what it shall hold is free."""


def next_action(now: JobStanding[T]) -> Action:
    """The one thing to do now for a job, if nothing else is under way for it."""
    if now.phase == "waiting":
        if now.cancelled:
            return "cancel"
        return "start" if now.wanted and now.room() else "wait"
    if now.phase == "stopping":
        return "wait"
    starting = now.phase == "starting"
    if now.cancelled or not now.wanted:
        return "withdraw" if starting else "stop"
    if now.holds is None or now.holds == now.wanted:
        return "wait"
    if starting:
        return "withdraw"
    return "resize" if now.in_place else "stop"
