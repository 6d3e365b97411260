"""Small panels of dots (measured) and lines (fitted), as SVG that stands on its own."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_WIDTH, _HEIGHT, _LEFT, _TOP, _FOOT = 250, 190, 46, 26, 34
_COLOURS = ("#2f6fb2", "#c8551b", "#2e8b57", "#8a4fa3", "#8c7a13", "#b03060")
_STYLE = (
    "text{font:11px system-ui,sans-serif;fill:#444}.head{font-weight:600;font-size:12px}"
    ".axis{stroke:#999;fill:none}.line{fill:none;stroke-width:1.6}"
    "@media(prefers-color-scheme:dark){text{fill:#ccc}.axis{stroke:#777}}"
)


@dataclass
class Panel:
    """One chart; series of the same number have the same colour."""

    title: str
    x: str
    y: str
    log: bool = False
    dots: list[tuple[int, Sequence[float], Sequence[float]]] = field(default_factory=list)
    lines: list[tuple[int, Sequence[float], Sequence[float]]] = field(default_factory=list)
    legend: Sequence[str] = ()

    def draw(self, left: float, top: float) -> str:
        """The panel as SVG, with its corner there."""
        series = [*self.dots, *self.lines]
        low_x, high_x = _ends([v for _, xs, _ in series for v in xs], self.log)
        low_y, high_y = _ends([v for _, _, ys in series for v in ys], self.log)

        def at(x: float, y: float) -> tuple[float, float]:
            across, up = _part(x, low_x, high_x, self.log), _part(y, low_y, high_y, self.log)
            return (
                _LEFT + across * (_WIDTH - _LEFT - 12),
                _HEIGHT - _FOOT - up * (_HEIGHT - _FOOT - _TOP),
            )

        foot, right = _HEIGHT - _FOOT, _WIDTH - 12
        parts = [
            f'<text class="head" x="{_LEFT}" y="14">{escape(self.title)}</text>',
            f'<path class="axis" d="M{_LEFT} {_TOP}V{foot}H{right}"/>',
            f'<text x="{_LEFT}" y="{foot + 13}">{_number(low_x)}</text>',
            f'<text x="{right}" y="{foot + 13}" text-anchor="end">{_number(high_x)}</text>',
            f'<text x="{(_LEFT + right) / 2}" y="{foot + 26}" text-anchor="middle">'
            f"{escape(self.x)}</text>",
            f'<text x="{_LEFT - 4}" y="{foot}" text-anchor="end">{_number(low_y)}</text>',
            f'<text x="{_LEFT - 4}" y="{_TOP + 8}" text-anchor="end">{_number(high_y)}</text>',
            f'<text text-anchor="middle" transform="translate(10 {(_TOP + foot) / 2}) '
            f'rotate(-90)">{escape(self.y)}</text>',
        ]
        for colour, xs, ys in self.lines:
            points = "L".join(
                "{:.1f} {:.1f}".format(*at(x, y)) for x, y in zip(xs, ys, strict=True)
            )
            stroke = _COLOURS[colour % len(_COLOURS)]
            parts.append(f'<path class="line" stroke="{stroke}" d="M{points}"/>')
        for colour, xs, ys in self.dots:
            fill = _COLOURS[colour % len(_COLOURS)]
            places = [at(x, y) for x, y in zip(xs, ys, strict=True)]
            circles = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.9"/>' for x, y in places)
            parts.append(f'<g fill="{fill}" fill-opacity=".65">{circles}</g>')
        for k, text in enumerate(self.legend):
            fill = _COLOURS[k % len(_COLOURS)]
            parts.append(
                f'<text x="{right}" y="{_TOP + 4 + 12 * k}" text-anchor="end" '
                f'style="fill:{fill}">{escape(text)}</text>'
            )
        return f'<g transform="translate({left} {top})">{"".join(parts)}</g>'


def _number(value: float) -> str:
    if value >= 1e4:
        return f"{value / 1e3:.3g}k" if value < 1e6 else f"{value / 1e6:.3g}M"
    return f"{value:.0f}" if value >= 1e3 else f"{value:.3g}"


def _ends(values: Sequence[float], log: bool) -> tuple[float, float]:
    low, high = min(values), max(values)
    if log:
        return low / 1.1, high * 1.1
    return (0.0 if low < 0.5 * high else low * 0.97), high * 1.05


def _part(value: float, low: float, high: float, log: bool) -> float:
    if log:
        value, low, high = (math.log(v) for v in (value, low, high))
    return (value - low) / (high - low)


def save(path: Path, about: str, panels: Sequence[Panel], columns: int = 4) -> None:
    """Write panels as one picture, `columns` in a row."""
    rows = -(-len(panels) // columns)
    columns = min(columns, len(panels))
    width, height = columns * _WIDTH, rows * (_HEIGHT + 8)
    drawn = "".join(
        panel.draw(k % columns * _WIDTH, k // columns * (_HEIGHT + 8))
        for k, panel in enumerate(panels)
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'role="img"><title>{escape(about)}</title><style>{_STYLE}</style>{drawn}</svg>\n',
        encoding="utf-8",
    )
