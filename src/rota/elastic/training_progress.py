"""The progress of a job, from the messages of its members."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

RATE_S: Final = 5.0
"""Seconds over which samples per second are averaged."""
NEWS_S: Final = 1.0
"""Seconds after which the news of a step is late: members report twice a second."""
KEPT_SUMS: Final = 16
"""Steps for which checksums are kept, since some members report theirs later than others."""


class TrainingProgress:
    """Steps, samples and their rate; and whether all members have the same parameters."""

    def __init__(self, now_s: float) -> None:
        self.step = self.epoch = self.samples = 0
        self.moved_s = now_s
        """When the last step was reported."""
        self.stepped_s = now_s
        """When it ended."""
        self._last_rate = 0.0  # before the last change
        self.busy_s = 0.0
        """Seconds that all steps until then took, without the pauses of changes."""
        # (end of a step, its number, samples by then): the last seconds, since the last change
        self._heard: deque[tuple[float, int, int]] = deque([(now_s, 0, 0)])
        # By step, version, trial: checksum, first member to report it.
        self._sums: dict[tuple[int, ...], tuple[Any, str]] = {}

    def note(self, message: Mapping[str, Any], now_s: float, since_s: float) -> bool:
        """Note the progress in a message; True if a new step was made.

        `since_s` is when the first step would have begun if there had been no pauses.
        """
        moved, joined = bool(message["step"] > self.step), message.get("op") == "joined"
        resumes = moved and joined and self.step == 0  # it continues a parked training
        if moved:
            self.step, self.epoch = message["step"], message["epoch"]
            self.samples = message["samples"]
        if moved and not resumes:
            self.moved_s = now_s
            # A member that has just joined made its last step before its pause.
            ago_s = message.get("pause_s" if joined else "ago_s") or 0.0
            self.stepped_s = min(max(now_s - ago_s, self.stepped_s), now_s)
            self.busy_s = max(self.busy_s, self.stepped_s - since_s)
        if joined:
            self._last_rate = self._rate() or self._last_rate
            self._heard = deque([(now_s, self.step, self.samples)])
        elif moved:
            self._heard.append((self.stepped_s, self.step, self.samples))
            while len(self._heard) > 2 and self.stepped_s - self._heard[1][0] > RATE_S:
                self._heard.popleft()
        return moved

    def samples_per_s(self, now_s: float) -> float:
        """Samples per second of late; 0 after a change until a step is reported."""
        (begun_s, begun_step, _), (last_s, step, _) = self._heard[0], self._heard[-1]
        if step == begun_step:
            return 0.0
        span_s = max(last_s - begun_s, 1e-3)
        late_s = now_s - last_s - span_s / (step - begun_step) - NEWS_S
        return self._rate() * span_s / (span_s + max(late_s, 0.0))

    def _rate(self) -> float:
        """Samples per second from the first to the last step that is remembered."""
        (begun_s, _, begun), (last_s, _, samples) = self._heard[0], self._heard[-1]
        return (samples - begun) / max(last_s - begun_s, 1e-3)

    def pace(self) -> dict[str, float]:
        """What one who decides about a growth is told of the time that steps take."""
        return {"busy_s": self.busy_s, "samples_per_s": self._last_rate}

    def differs(self, name: str, moment: tuple[int, ...], value: Any) -> str:
        """The member that had other parameters at the same moment; empty if there is none.

        A moment is a step, and what tells apart the networks that members may have after it.
        """
        known, other = self._sums.setdefault(moment, (value, name))
        while len(self._sums) > KEPT_SUMS:  # messages of members may be several comparisons apart
            del self._sums[min(self._sums)]
        return other if value != known else ""
