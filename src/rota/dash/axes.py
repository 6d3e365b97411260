"""Axes of charts: where a value lies, and round marks at regular distances."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rota.dash import units

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROUND_TIMES: Final = (
    (1e-3, "1 ms"), (1e-2, "10 ms"), (0.1, "0.1 s"), (1, "1 s"), (10, "10 s"), (60, "1 min"),
    (600, "10 min"), (3600, "1 h"), (21600, "6 h"), (86400, "1 d"), (864000, "10 d"),
    (8640000, "100 d"), (86400000, "1000 d"),
)  # fmt: skip
_STEPS: Final = {"h": (1, 2, 3, 6, 12), "min": (1, 2, 5, 10, 15, 30), "s": (1, 2, 5, 10, 15, 30)}
"""Distances of marks that are round on a clock."""
_CHANGE_STEPS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5)
_WIDEST_LINEAR: Final = 2.5
"""Largest ratio that is drawn on a linear scale."""


@dataclass(frozen=True)
class Axis:
    """A scale from `low` to `high`, its label and where it has marks."""

    label: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    log: bool = False

    def at(self, value: float) -> float:
        """Where a value lies: 0 at the low end, 1 at the high end."""
        low, high = self.low, self.high
        if self.log:
            value, low, high = (math.log(max(v, 1e-300)) for v in (value, low, high))
        return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.5


def log_time_axis(label: str, low_s: float, high_s: float) -> Axis:
    """Seconds on a logarithmic scale, with marks at round times."""
    low_s = max(low_s, 1e-3)
    high_s = max(high_s, 2 * low_s)
    ticks = [(s, text) for s, text in _ROUND_TIMES if low_s <= s <= high_s]
    return Axis(label, low_s, high_s, ticks, log=True)


def time_axis(label: str, high_s: float, low_s: float = 0.0) -> Axis:
    """Seconds from `low_s` on, marked in the unit that suits the time shown."""
    span_s = max(high_s - low_s, 1e-3)
    unit, size = units.unit_of(span_s)
    rough = span_s / size / 5
    step = next((s for s in _STEPS.get(unit, ()) if s >= rough >= 0.5), nice_step(rough))
    first = math.ceil(low_s / size / step - 1e-9)
    marks = [k * step for k in range(first, int((low_s + span_s) / size / step + 1e-9) + 1)]
    ticks = [(mark * size, f"{mark:,.6g}") for mark in marks]
    return Axis(f"{label} ({unit})", low_s, low_s + span_s, ticks)


def share_axis(label: str) -> Axis:
    """Shares from 0 to 1, in percent."""
    return Axis(label, 0.0, 1.0, [(k / 4, f"{25 * k} %") for k in range(5)])


def count_axis(label: str, high: float) -> Axis:
    """Whole numbers from 0 to at least `high`."""
    step = max(1.0, nice_step(high / 4))
    top = max(1, math.ceil(high / step - 1e-9))
    return Axis(label, 0.0, top * step, [(k * step, f"{k * step:,.0f}") for k in range(top + 1)])


def change_axis(label: str, low: float, high: float) -> Axis:
    """Ratios from `low` to `high`: marked by percent of change or, where they are far apart, ×."""
    if high <= _WIDEST_LINEAR:
        rough = (high - low) / 6
        step = next((s for s in _CHANGE_STEPS if s >= rough * (1 - 1e-9)), 0.5)
        ends = math.ceil((low - 1) / step - 1e-9), math.floor((high - 1) / step + 1e-9)
        marks = range(ends[0], ends[1] + 1)
        return Axis(label, low, high, [(1 + k * step, _change(k * step)) for k in marks])
    factor = next(f for f in (2.0, 10.0, 100.0, 1e4, 1e300) if f**6 >= high / low)
    ends = (math.ceil(math.log(low, factor) - 1e-9), math.floor(math.log(high, factor) + 1e-9))
    ticks = [(factor**k, f"× {factor**k:,.4g}") for k in range(ends[0], ends[1] + 1)]
    return Axis(label, low, high, ticks, log=True)


def _change(ratio: float) -> str:
    return "0 %" if abs(ratio) < 1e-9 else units.change(ratio).replace(".0 %", " %")


def nice_step(rough: float) -> float:
    """The smallest of 1, 2, 5 × a power of ten that is at least `rough`."""
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    return next(k * power for k in (1, 2, 5, 10) if k * power >= rough * (1 - 1e-9))
