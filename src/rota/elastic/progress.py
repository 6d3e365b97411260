"""How far a job has come, as its members tell."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

RATE_S: Final = 5.0
"""Window of the samples per second."""
KEPT_SUMS: Final = 16
"""Comparisons of parameters for which some members' words may still be on their way."""


class Progress:
    """Steps, samples and their rate; and whether the members still agree."""

    def __init__(self, now_s: float) -> None:
        self.step = self.epoch = self.samples = 0
        self.moved_s = now_s
        """When the last step was heard of."""
        self.busy_s = 0.0
        """How long the steps until then took, without pauses."""
        self._rates: deque[tuple[float, int]] = deque([(now_s, 0)])
        self._sums: dict[int, tuple[Any, str]] = {}  # by step, the last ones: who said it first

    def note(self, message: Mapping[str, Any], now_s: float, since_s: float) -> bool:
        """Take in a sign of life; True if the job has moved on.

        Without any pause the first step would have begun at `since_s`.
        """
        moved = bool(message["step"] > self.step)
        if (
            moved and self.step == 0 and message.get("op") == "joined"
        ):  # goes on where it was stopped
            self.step, self.epoch = message["step"], message["epoch"]
            self.samples = message["samples"]
            self._rates = deque([(now_s, self.samples)])
        elif moved:
            self.moved_s = now_s
            self.step, self.epoch = message["step"], message["epoch"]
            self.samples = message["samples"]
            # Who has just joined made its last step before its pause.
            worked_s = now_s - message.get("pause_s", 0.0) - since_s
            self.busy_s = max(self.busy_s, worked_s)
        self._rates.append((now_s, self.samples))
        while len(self._rates) > 2 and now_s - self._rates[1][0] > RATE_S:
            self._rates.popleft()
        return moved

    def samples_per_s(self, now_s: float) -> float:
        """Of the last seconds."""
        begun_s, begun = self._rates[0]
        return (self.samples - begun) / max(now_s - begun_s, 0.5)

    def differs(self, name: str, step: int, value: Any) -> str:
        """Who had other parameters after the same step, or nobody."""
        known, other = self._sums.setdefault(step, (value, name))
        while len(self._sums) > KEPT_SUMS:  # members may be some comparisons apart in what is read
            del self._sums[min(self._sums)]
        return other if value != known else ""
