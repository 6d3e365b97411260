"""A Gantt chart of jobs that grow and shrink."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

from rota.dash import units
from rota.dash.svg import frame, shortened, time_axis

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.run.stints import Stint

_LEFT, _RIGHT, _TOP, _ROW, _WIDTH = 150, 20, 34, 34, 860
_BAR: Final = 26.0
"""Height of a job that has all the workers it can have."""


@dataclass(frozen=True)
class Course:
    """One job's course: when it came, what it held, when it ended."""

    label: str
    colour: int
    submit_s: float
    end_s: float
    most_workers: int
    stints: Sequence[Stint]


def gantt(name: str, title: str, about: str, rows: Sequence[Course], end_s: float) -> str:
    """Time from left to right, a row per job; the more workers, the taller its bar."""
    axis, foot = time_axis("time", end_s), _TOP + _ROW * len(rows)

    def at(seconds: float) -> float:
        return _LEFT + axis.at(seconds) * (_WIDTH - _LEFT - _RIGHT)

    parts = []
    for value, text in axis.ticks:
        parts.append(f'<path class="grid" d="M{at(value):.1f} {_TOP - 4}V{foot}"/>')
        parts.append(f'<text class="mid" x="{at(value):.1f}" y="{foot + 15}">{text}</text>')
    for k, row in enumerate(rows):
        base = _TOP + _ROW * (k + 1) - 4
        parts.append(
            f'<text class="end label" x="{_LEFT - 12}" y="{base - 6}">'
            f"{escape(shortened(row.label, 20))}</text>"
            f'<path class="axis" d="M{at(row.submit_s):.1f} {base}H{at(row.end_s):.1f}"/>'
        )
        for stint in row.stints:
            height = _BAR * stint.workers / max(row.most_workers, 1)
            width = max(at(stint.end_s) - at(stint.begin_s), 0.5)
            words = (
                f"{row.label}: {units.plural(stint.workers, 'worker')}, "
                f"{stint.begin_s:.1f} s to {stint.end_s:.1f} s"
            )
            parts.append(
                f'<rect class="dot c{row.colour % 7}" x="{at(stint.begin_s):.1f}" '
                f'y="{base - height:.1f}" width="{width:.1f}" height="{height:.1f}">'
                f"<title>{escape(words)}</title></rect>"
            )
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text class="mid name" x="{middle}" y="{foot + 34}">{axis.label}</text>')
    return frame(name, title, about, _WIDTH, foot + 42, parts)
