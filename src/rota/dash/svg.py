"""Small charts as SVG text; colours, fonts and dark mode come from the page's style sheet.

A chart is drawn in its own units, 1 to a pixel at natural size, and scales with the page.
Policy k is drawn in one of the classes `c0` … `c6` and, from the fifth on, with dashes too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

from rota.dash import units

if TYPE_CHECKING:
    from collections.abc import Sequence

COLOURS: Final = 7
_PER_DASH: Final = 4
"""So many policies in a row share a kind of line, which tells the first 16 apart."""
_DASHES: Final = ("", "7 3", "2 3", "9 3 2 3")
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 14, 34, 46
_WIDTH, _HEIGHT = 520, 300
_ROUND_TIMES: Final = (
    (1e-3, "1 ms"), (1e-2, "10 ms"), (0.1, "0.1 s"), (1, "1 s"), (10, "10 s"), (60, "1 min"),
    (600, "10 min"), (3600, "1 h"), (36000, "10 h"), (86400 * 4, "4 d"), (86400 * 40, "40 d"),
    (86400 * 400, "400 d"), (86400 * 4000, "4000 d"),
)  # fmt: skip


@dataclass(frozen=True)
class Line:
    """One curve: a label, its place in the palette, and its points; a None breaks it."""

    label: str
    colour: int
    x: Sequence[float]
    y: Sequence[float | None]


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


def time_axis(label: str, high_s: float) -> Axis:
    """Seconds from 0 on, marked in the unit that suits them."""
    unit, size = units.unit_of(high_s)
    step = _nice_step(high_s / size / 5)
    marks = [k * step for k in range(int(high_s / size / step + 1e-9) + 1)]
    return Axis(f"{label} ({unit})", 0.0, high_s, [(mark * size, f"{mark:g}") for mark in marks])


def share_axis(label: str) -> Axis:
    """Shares from 0 to 1, in percent."""
    return Axis(label, 0.0, 1.0, [(k / 4, f"{25 * k} %") for k in range(5)])


def _nice_step(rough: float) -> float:
    """The smallest of 1, 2, 5 × a power of ten that is at least `rough`."""
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    return next(k * power for k in (1, 2, 5, 10) if k * power >= rough * (1 - 1e-9))


def swatch(colour: int) -> str:
    """A short piece of a policy's line, for legends."""
    return (
        '<svg class="swatch" viewBox="0 0 26 10" width="26" height="10" aria-hidden="true">'
        f'<path {_stroke(colour)} d="M1 5H25"/></svg>'
    )


def _stroke(colour: int) -> str:
    dash = _DASHES[colour // _PER_DASH % len(_DASHES)]
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'class="line c{colour % COLOURS}"{dashes}'


def chart(name: str, title: str, about: str, lines: Sequence[Line], x: Axis, y: Axis) -> str:
    """A line chart; `name` is unique on the page, `about` says in words what it shows."""
    parts = [*_axes(x, y)]
    for line in lines:
        path = _path(line, x, y)
        if path:
            label = f"<title>{escape(line.label)}</title>"
            parts.append(f'<path {_stroke(line.colour)} d="{path}">{label}</path>')
    return frame(name, title, about, _WIDTH, _HEIGHT, parts)


def frame(
    name: str, title: str, about: str, width: float, height: float, parts: Sequence[str]
) -> str:
    """A picture with its title; `name` is unique on the page, `about` says what it shows."""
    return (
        f'<svg class="chart" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-labelledby="{name}-t {name}-d"><title id="{name}-t">{escape(title)}</title>'
        f'<desc id="{name}-d">{escape(about)}</desc>'
        f'<text class="head" x="0" y="16">{escape(shortened(title, 62))}</text>'
        f"{''.join(parts)}</svg>"
    )


def _x(axis: Axis, value: float) -> float:
    return _LEFT + axis.at(value) * (_WIDTH - _LEFT - _RIGHT)


def _y(axis: Axis, value: float) -> float:
    return _HEIGHT - _BOTTOM - axis.at(value) * (_HEIGHT - _TOP - _BOTTOM)


def _axes(x: Axis, y: Axis) -> list[str]:
    foot, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts = []
    for value, text in y.ticks:
        at = _y(y, value)
        parts.append(f'<path class="grid" d="M{_LEFT} {at:.1f}H{right}"/>')
        parts.append(f'<text class="end" x="{_LEFT - 7}" y="{at + 4:.1f}">{text}</text>')
    for value, text in x.ticks:
        at = _x(x, value)
        parts.append(f'<path class="grid" d="M{at:.1f} {_TOP}V{foot}"/>')
        parts.append(f'<text class="mid" x="{at:.1f}" y="{foot + 17}">{text}</text>')
    middle = (_LEFT + right) / 2
    parts.append(f'<path class="axis" d="M{_LEFT} {foot}H{right}"/>')
    parts.append(f'<text class="mid name" x="{middle}" y="{_HEIGHT - 8}">{escape(x.label)}</text>')
    turn = f'transform="translate(13 {(_TOP + foot) / 2}) rotate(-90)"'
    parts.append(f'<text class="mid name" {turn}>{escape(y.label)}</text>')
    return parts


def _path(line: Line, x: Axis, y: Axis) -> str:
    """The points as a path; those that lie within a third of a pixel of the last are left out."""
    steps: list[str] = []
    pen, last = "M", (-9.0, -9.0)
    for value, height in zip(line.x, line.y, strict=True):
        if height is None:
            pen = "M"
            continue
        at = (_x(x, value), _y(y, height))
        if pen == "L" and abs(at[0] - last[0]) + abs(at[1] - last[1]) < 1 / 3:
            continue
        steps.append(f"{pen}{at[0]:.1f} {at[1]:.1f}")
        pen, last = "L", at
    return "".join(steps)


@dataclass(frozen=True)
class Interval:
    """One row of a forest plot: a relative difference and where it may lie."""

    label: str
    colour: int
    ratio: float
    ends: tuple[float, float]
    text: str


_CHANGES: Final = (
    -0.99, -0.95, -0.9, -0.8, -0.65, -0.5, -0.35, -0.2, -0.1, -0.05, -0.02, 0.0, 0.02, 0.05, 0.1,
    0.25, 0.5, 1.0, 2.0, 4.0, 9.0, 19.0, 99.0,
)  # fmt: skip


def forest(name: str, title: str, about: str, axis_label: str, rows: Sequence[Interval]) -> str:
    """Relative differences with their intervals; the scale is that of the ratio's logarithm."""
    left, right, row_height, top = 220, 640, 26, 34
    low = min(0.97, *(max(1 + row.ends[0], 0.005) for row in rows)) / 1.04
    high = max(1.03, *(1 + row.ends[1] for row in rows)) * 1.04
    axis = Axis(axis_label, low, high, _spaced(low, high), log=True)
    foot = top + row_height * len(rows)

    def at(ratio: float) -> float:
        return left + axis.at(1 + ratio) * (right - left)

    parts = []
    for value, text in axis.ticks:
        kind = "axis" if value == 1 else "grid"
        parts.append(f'<path class="{kind}" d="M{at(value - 1):.1f} {top - 6}V{foot}"/>')
        parts.append(f'<text class="mid" x="{at(value - 1):.1f}" y="{foot + 15}">{text}</text>')
    for k, row in enumerate(rows):
        y = top + row_height * (k + 0.5)
        colour = f"c{row.colour % COLOURS}"
        parts.append(
            f"<g><title>{escape(f'{row.label}: {row.text}')}</title>"
            f'<text class="end label" x="{left - 12}" y="{y + 4}">'
            f"{escape(shortened(row.label, 30))}</text>"
            f'<path class="line {colour}" d="M{at(row.ends[0]):.1f} {y}H{at(row.ends[1]):.1f}"/>'
            f'<circle class="dot {colour}" cx="{at(row.ratio):.1f}" cy="{y}" r="4.5"/>'
            f'<text class="label" x="{right + 12}" y="{y + 4}">{escape(row.text)}</text></g>'
        )
    middle = (left + right) / 2
    parts.append(f'<text class="mid name" x="{middle}" y="{foot + 34}">{escape(axis_label)}</text>')
    return frame(name, title, about, 860, foot + 42, parts)


def _spaced(low: float, high: float) -> list[tuple[float, str]]:
    """Marks at round changes that do not crowd: 0 first, then outwards."""
    width = math.log(high / low)
    kept = [change for change in _CHANGES if low <= 1 + change <= high and change]
    chosen = [0.0]
    for change in sorted(kept, key=abs, reverse=True):  # large ones frame the picture
        if all(abs(math.log((1 + change) / (1 + other))) > width / 8 for other in chosen):
            chosen.append(change)
    return [(1 + c, "0 %" if c == 0 else units.change(c).replace(".0 %", " %")) for c in chosen]


def shortened(text: str, most: int) -> str:
    """The text, cut to `most` characters if it must be."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
