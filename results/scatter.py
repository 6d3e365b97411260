"""Scatter plots side by side, with one legend below, as SVG that stands on its own."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _FOOT = 390, 290, 50, 14, 30, 44
_COLOURS = ("#2f6fb2", "#c8551b", "#2e8b57", "#8a4fa3", "#8c7a13", "#b03060")
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#444}.head{font-weight:600}"
    ".axis{stroke:#999;fill:none}.grid{stroke:#9994;fill:none}.line{fill:none;stroke-opacity:.5}"
    "@media(prefers-color-scheme:dark){text{fill:#ccc}.axis{stroke:#777}}"
)


@dataclass(frozen=True)
class Group:
    """Points of one colour; `linked` ones are joined in their order."""

    name: str
    labels: Sequence[str]
    linked: bool = False


@dataclass(frozen=True)
class Scatter:
    """One plot: for every group its points, and where the axes begin, end and are marked."""

    title: str
    x: str
    y: str
    points: Sequence[Sequence[tuple[float, float]]]
    x_ticks: Sequence[float]
    y_ticks: Sequence[float]

    def draw(self, groups: Sequence[Group], left: float) -> str:
        """The plot as SVG, that far to the right."""
        right, foot = _WIDTH - _RIGHT, _HEIGHT - _FOOT

        def across(x: float) -> float:
            low, high = self.x_ticks[0], self.x_ticks[-1]
            return _LEFT + (x - low) / (high - low) * (right - _LEFT)

        def down(y: float) -> float:
            low, high = self.y_ticks[0], self.y_ticks[-1]
            return foot - (y - low) / (high - low) * (foot - _TOP)

        parts = [
            f'<text class="head" x="{_LEFT}" y="16">{escape(self.title)}</text>',
            f'<path class="axis" d="M{_LEFT} {_TOP}V{foot}H{right}"/>',
            f'<text x="{(_LEFT + right) / 2}" y="{foot + 34}" text-anchor="middle">'
            f"{escape(self.x)}</text>",
            f'<text text-anchor="middle" transform="translate(12 {(_TOP + foot) / 2}) '
            f'rotate(-90)">{escape(self.y)}</text>',
        ]
        for x in self.x_ticks:
            parts.append(f'<path class="grid" d="M{across(x):.1f} {_TOP}V{foot}"/>')
            parts.append(
                f'<text x="{across(x):.1f}" y="{foot + 16}" text-anchor="middle">{x:g}</text>'
            )
        for y in self.y_ticks:
            parts.append(f'<path class="grid" d="M{_LEFT} {down(y):.1f}H{right}"/>')
            parts.append(
                f'<text x="{_LEFT - 6}" y="{down(y) + 4:.1f}" text-anchor="end">{y:g}</text>'
            )
        for group, points, colour in zip(groups, self.points, _COLOURS[: len(groups)], strict=True):
            places = [(across(x), down(y)) for x, y in points]
            if group.linked:
                path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
                parts.append(f'<path class="line" stroke="{colour}" d="M{path}"/>')
            for (x, y), label in zip(places, group.labels, strict=True):
                parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>')
                parts.append(
                    f'<text x="{x + 5:.1f}" y="{y + 14:.1f}" style="fill:{colour};font-size:10px">'
                    f"{escape(label)}</text>"
                )
        return f'<g transform="translate({left} 0)">{"".join(parts)}</g>'


def save(path: Path, about: str, groups: Sequence[Group], plots: Sequence[Scatter]) -> None:
    """Write the plots as one picture."""
    drawn = "".join(plot.draw(groups, k * _WIDTH) for k, plot in enumerate(plots))
    width, height, each = len(plots) * _WIDTH, _HEIGHT + 24, len(plots) * _WIDTH / len(groups)
    for k, (group, colour) in enumerate(zip(groups, _COLOURS[: len(groups)], strict=True)):
        drawn += (
            f'<circle cx="{14 + k * each:.0f}" cy="{_HEIGHT + 10}" r="4" fill="{colour}"/>'
            f'<text x="{22 + k * each:.0f}" y="{_HEIGHT + 14}">{escape(group.name)}</text>'
        )
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'role="img"><title>{escape(about)}</title><style>{_STYLE}</style>{drawn}</svg>\n',
        encoding="utf-8",
    )
