"""How often jobs may be stopped, whatever a policy says."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

HOUR_S: Final = 3600.0


@dataclass
class PreemptionLimits:
    """A limit for all jobs together, and a budget for each one.

    A job that may not be stopped now is pinned in the snapshot, so that policies plan around it.
    """

    per_hour: int = 120
    """Stops, moves and resizes of running jobs within an hour."""
    per_job: int = 20
    """Times that one job is stopped, moved or resized in all."""
    _times: deque[float] = field(default_factory=deque)

    def note(self, now_s: float) -> None:
        """A running job is taken what it held."""
        self._times.append(now_s)

    def left(self, now_s: float) -> int:
        """Jobs that may be stopped now."""
        while self._times and self._times[0] <= now_s - HOUR_S:
            self._times.popleft()
        return max(0, self.per_hour - len(self._times))

    def spares(self, preemptions: int) -> bool:
        """Whether a job that was stopped so often may be stopped once more."""
        return preemptions < self.per_job
