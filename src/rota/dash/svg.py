"""Small charts as SVG text; colours, fonts and dark mode come from the page's style sheet.

Horizontal places are percentages and vertical ones pixels. So a chart fills the page at every
width while its text keeps its size. Curves cannot use percentages: they are drawn in an inner
picture that is stretched, with strokes that are not. Policy k is drawn in one of the classes
`c0` … `c6` and, from the fifth on, with dashes too.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

from rota.dash.axes import change_axis

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.dash.axes import Axis

COLOURS: Final = 7
_PER_DASH: Final = 4
"""Policies in a row that share a kind of line, which tells the first 16 apart."""
_DASHES: Final = ("", "7 3", "2 3", "9 3 2 3")
ROW_LABEL: Final = 14
"""Characters of the text that stands before a row."""
WIDE: Final = 1000
"""Width of an inner picture in its own units; it is stretched to the width of the chart."""
_TOP, _FOOT, _HEIGHT = 10, 240, 284
_MOST_TICKS: Final = 5
"""If there are more marks, a narrow page shows the text of every second one."""


@dataclass(frozen=True)
class Line:
    """One curve: a label, its place in the palette, and its points; a None breaks it."""

    label: str
    colour: int
    x: Sequence[float]
    y: Sequence[float | None]
    filled: bool = False
    """Whether the area below it is shaded."""


def percent(share: float) -> str:
    """A horizontal place or width, of a share of the chart's width."""
    return f"{100 * share:.2f}".rstrip("0").rstrip(".") + "%"


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
    curves = []
    for line in lines:
        path = _path(line, x, y)
        if line.filled:
            area = _path(line, x, y, closed=True)
            curves.append(f'<path class="area c{line.colour % COLOURS}" d="{area}"/>')
        if path:
            label = f"<title>{escape(line.label)}</title>"
            curves.append(f'<path {_stroke(line.colour)} d="{path}">{label}</path>')
    return frame(name, title, about, _HEIGHT, [*_axes(x, y), stretched("".join(curves), _HEIGHT)])


def frame(
    name: str, title: str, about: str, height: float, parts: Sequence[str], kind: str = ""
) -> str:
    """A figure with its title; `name` is unique on the page, `about` says what it shows."""
    return (
        f'<figure><figcaption class="head">{escape(title)}</figcaption>'
        f'<svg class="chart{f" {kind}" if kind else ""}" height="{height:g}" role="img" '
        f'aria-labelledby="{name}-t {name}-d"><title id="{name}-t">{escape(title)}</title>'
        f'<desc id="{name}-d">{escape(about)}</desc>{"".join(parts)}</svg></figure>'
    )


def stretched(inside: str, height: float, *, y: float = 0, width: float = WIDE) -> str:
    """An inner picture, `width` units wide, that fills the chart's width; `height` in pixels."""
    return (
        f'<svg class="stretched" y="{y:g}" width="100%" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" preserveAspectRatio="none">{inside}</svg>'
    )


def time_marks(axis: Axis, top: float, foot: float) -> list[str]:
    """Vertical lines at the marks of a horizontal axis, their texts, and its label below."""
    parts = []
    for number, (value, text) in enumerate(axis.ticks):
        at = percent(axis.at(value))
        kind = "mid odd" if number % 2 and len(axis.ticks) > _MOST_TICKS else "mid"
        parts.append(f'<line class="grid" x1="{at}" x2="{at}" y1="{top:g}" y2="{foot:g}"/>')
        parts.append(f'<text class="{kind}" x="{at}" y="{foot + 17:g}">{escape(text)}</text>')
    parts.append(
        f'<text class="mid name" x="50%" y="{foot + 36:g}">{escape(axis.label)}</text>'
    )  # fmt: skip
    return parts


def _axes(x: Axis, y: Axis) -> list[str]:
    parts = []
    for value, text in y.ticks:
        at = _y(y, value)
        parts.append(f'<line class="grid" x1="0" x2="100%" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text class="end" x="-7" y="{at + 4:.1f}">{escape(text)}</text>')
    parts += time_marks(x, _TOP, _FOOT)
    parts.append(f'<line class="axis" x1="0" x2="100%" y1="{_FOOT}" y2="{_FOOT}"/>')
    turn = f'transform="translate(-50 {(_TOP + _FOOT) / 2}) rotate(-90)"'
    parts.append(f'<text class="mid name" {turn}>{escape(y.label)}</text>')
    return parts


def _y(axis: Axis, value: float) -> float:
    return _FOOT - axis.at(value) * (_FOOT - _TOP)


def _path(line: Line, x: Axis, y: Axis, *, closed: bool = False) -> str:
    """The points as a path; those that lie within a third of a unit of the last are left out."""
    steps: list[str] = []
    pen, last, begun = "M", (-9.0, -9.0), 0.0
    for value, height in (*zip(line.x, line.y, strict=True), (0.0, None)):
        if height is None:
            if closed and pen == "L":
                steps.append(f"V{_FOOT}H{begun:.1f}Z")
            pen = "M"
            continue
        at = (WIDE * x.at(value), _y(y, height))
        if pen == "L" and abs(at[0] - last[0]) + abs(at[1] - last[1]) < 1 / 3:
            continue
        begun = at[0] if pen == "M" else begun
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


def forest(name: str, title: str, about: str, axis_label: str, rows: Sequence[Interval]) -> str:
    """Relative differences with their intervals, a row each, on one axis."""
    low = min(0.97, *(max(1 + row.ends[0], 0.005) for row in rows)) / 1.04
    high = max(1.03, *(1 + row.ends[1] for row in rows)) * 1.04
    axis, row_height = change_axis(axis_label, low, high), 40
    foot = 4 + row_height * len(rows)
    same = percent(axis.at(1.0))
    parts = [
        *time_marks(axis, 0, foot),
        f'<line class="axis" x1="{same}" x2="{same}" y1="0" y2="{foot}"/>',
    ]
    for k, row in enumerate(rows):
        y = 4 + row_height * k
        colour = f"c{row.colour % COLOURS}"
        left, middle, right = (
            percent(axis.at(1 + r)) for r in (row.ends[0], row.ratio, row.ends[1])
        )
        parts.append(
            f"<g><title>{escape(f'{row.label}: {row.text}')}</title>"
            f'<text class="label" x="0" y="{y + 13}">{escape(shortened(row.label, 30))}</text>'
            f'<text class="end label" x="100%" y="{y + 13}">{escape(row.text)}</text>'
            f'<line class="line {colour}" x1="{left}" x2="{right}" y1="{y + 26}" y2="{y + 26}"/>'
            f'<circle class="dot {colour}" cx="{middle}" cy="{y + 26}" r="5"/></g>'
        )
    return frame(name, title, about, foot + 44, parts, "forest")


def shortened(text: str, most: int) -> str:
    """The text, cut to `most` characters if it must be."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
