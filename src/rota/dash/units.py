"""Numbers as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_TIMES: Final = (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))
NOTHING: Final = "–"
"""Stands where there is nothing to measure."""


def unit_of(longest_s: float) -> tuple[str, float]:
    """The unit, and its seconds, in which times up to `longest_s` read best."""
    return next(((name, size) for name, size in _TIMES if longest_s >= 2 * size), _TIMES[-1])


def times(seconds: Sequence[float | None]) -> list[str]:
    """A column of times, all in the one unit that suits the longest."""
    unit, size = unit_of(max((abs(s) for s in seconds if s is not None), default=0.0))
    shown = numbers([None if s is None else s / size for s in seconds])
    return [text if text == NOTHING else f"{text} {unit}" for text in shown]


def numbers(values: Sequence[float | None]) -> list[str]:
    """A column of numbers with equally many decimals: as many as the largest needs."""
    top = max((abs(v) for v in values if v is not None), default=0.0)
    digits = 2 if top < 30 else 1 if top < 1000 else 0
    return [NOTHING if v is None else f"{v:,.{digits}f}" for v in values]


def time(seconds: float | None) -> str:
    """One time by itself."""
    return times([seconds])[0]


def rough_time(seconds: float) -> str:
    """One time in few digits, such as 4.7 min or 12 s."""
    unit, size = next((entry for entry in _TIMES if seconds >= entry[1]), _TIMES[-1])
    return f"{seconds / size:.{0 if unit == 's' else 1}f} {unit}"


def percents(shares: Sequence[float | None]) -> list[str]:
    """A column of shares of 1."""
    return [NOTHING if share is None else f"{100 * share:.1f} %" for share in shares]


def counts(values: Sequence[float | None]) -> list[str]:
    """A column of counts; means of small counts keep one decimal."""
    known = [v for v in values if v is not None]
    whole = max(known, default=0) >= 100 or all(float(v).is_integer() for v in known)
    return [NOTHING if v is None else f"{v:,.{0 if whole else 1}f}" for v in values]


def plural(count: int, one: str, many: str = "") -> str:
    """A count and what is counted."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def change(ratio: float | None) -> str:
    """A relative difference, such as −12.3 %."""
    if ratio is None:
        return NOTHING
    return f"{_signed(ratio)} %"


def change_within(ends: tuple[float, float] | None) -> str:
    """An interval of relative differences, such as −12.3 to +0.1 %."""
    return NOTHING if ends is None else f"{_signed(ends[0])} to {_signed(ends[1])} %"


def _signed(ratio: float) -> str:
    return f"{100 * ratio:+,.1f}".replace("-", "−")  # as wide as the plus
