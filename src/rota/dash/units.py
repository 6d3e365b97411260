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
    digits = 2 if top < 10 else 1 if top < 1000 else 0
    return [NOTHING if v is None else f"{v:,.{digits}f}" for v in values]


def time(seconds: float | None) -> str:
    """One time by itself."""
    return times([seconds])[0]


def percents(shares: Sequence[float | None]) -> list[str]:
    """A column of shares of 1."""
    return [NOTHING if share is None else f"{100 * share:.1f} %" for share in shares]


def counts(values: Sequence[float | None]) -> list[str]:
    """A column of counts; means of counts keep one decimal."""
    whole = all(v is None or float(v).is_integer() for v in values)
    return [NOTHING if v is None else f"{v:,.{0 if whole else 1}f}" for v in values]


def change(ratio: float | None) -> str:
    """A relative difference, such as −12.3 %."""
    if ratio is None:
        return NOTHING
    text = f"{100 * ratio:+,.1f} %"
    return text.replace("-", "−")  # as wide as the plus
