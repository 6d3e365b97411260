"""How fast an elastic job trains, measured from what its agent says."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

from rota.backends.local.held import STEADY_S

if TYPE_CHECKING:
    from rota.backends.local.held import Held
    from rota.backends.local.request import Request
    from rota.elastic.protocol import Status

AHEAD_S: Final = 2.0
"""Seconds after its last message for which a job is assumed to train on at the same speed."""
_NEVER: Final = float("inf")


class SpeedMeter:
    """Writes what it measures into `held`, which is kept on disk by its owner."""

    def __init__(self, request: Request, held: Held) -> None:
        self._request, self._held = request, held
        self.status: Status | None = None
        """What the agent said last."""
        self.heard_s = 0.0
        """When it said so."""
        self.settled_s = _NEVER
        """Since when the job has held what it shall hold, and trained; inf: it does not."""
        self._began = 0, 0.0  # samples, and the time they took, when it settled
        self._launched_s: float | None = None  # on this process' clock, until it trains
        self._counted: tuple[int, float, int] | None = None  # samples, their time, group

    @property
    def settled(self) -> bool:
        """Whether the job holds what it shall hold, and trains."""
        return self.settled_s < _NEVER

    def samples(self, now_s: float) -> float:
        """Samples done by now: those reported, and those expected since the report."""
        held, status = self._held, self.status
        if status is None or not self.settled:
            return held.samples
        since_s = min(max(0.0, status.ago_s + now_s - self.heard_s), AHEAD_S)
        more = status.samples_per_s * since_s
        if not 0 <= more < float("inf"):  # one job must not mislead the others
            return held.samples
        return min(held.samples + more, held.total or float("inf"))

    def launch(self) -> None:
        """A run is being launched."""
        self.status, self._launched_s = None, monotonic()

    def unsettle(self) -> None:
        """The job shall hold something else from now on."""
        self.settled_s = _NEVER

    def end(self) -> None:
        """A run is over."""
        if self.status is not None:  # the last that it said while it ran
            self._held.changes += self.status.changes
            self._held.paused_s += self.status.paused_s
        self.status = self._launched_s = self._counted = None
        self.settled_s = _NEVER

    def hear(self, status: Status, now_s: float) -> bool:
        """Take note of what the agent said; True if `held` should be written to disk."""
        self.status, self.heard_s = status, now_s
        started = self._note_start(status)
        self._count(status)
        if status.samples:
            self._held.samples, self._held.total = status.samples, status.total
        return started

    def settle(self, status: Status, now_s: float, *, in_place: bool) -> bool:
        """Note whether the job trains with all it shall hold; True if `held` should be written."""
        there = status.reached == status.target and status.state == "running"
        trains = self._request.kind == "plain" or status.samples_per_s > 0.0
        if not (there and trains and in_place):
            self.settled_s = _NEVER
        elif not self.settled:
            self.settled_s, self._began = now_s, (status.samples, status.busy_s)
        return self._measure(status, now_s)

    def _note_start(self, status: Status) -> bool:
        """Once it trains, note the seconds from its launch to its first step."""
        if self._launched_s is None or status.busy_s <= 0.0:
            return False
        self._held.starts += 1
        self._held.starting_s += max(0.0, monotonic() - self._launched_s - status.busy_s)
        self._launched_s = None
        return True

    def _count(self, status: Status) -> None:
        """Count samples and seconds at its present size, while nothing changes."""
        before, self._counted = self._counted, (status.samples, status.busy_s, status.generation)
        if before is None or not self.settled or status.generation != before[2]:
            return
        seats = list(self._held.seats.values())
        workers = sum(seat.kind == "worker" for seat in seats)
        tally = self._held.seen.setdefault(f"{workers}+{len(seats) - workers}", [0.0, 0.0])
        tally[0] += max(0, status.samples - before[0])
        tally[1] += max(0.0, status.busy_s - before[1])

    def _measure(self, status: Status, now_s: float) -> bool:
        """After STEADY_S of steady training, set the speed that counts as pace 1.

        Progress until then had no unit: the job counts as settled from here on.
        """
        if self._held.rate or not self.settled:
            return False
        done, span_s = status.samples - self._began[0], status.busy_s - self._began[1]
        if span_s < STEADY_S or not done:
            return False
        workers = sum(seat.kind == "worker" for seat in self._held.seats.values())
        self._held.rate = done / span_s / workers * self._request.workers
        self.settled_s = now_s
        return True
