"""A Gantt chart of jobs that grow and shrink: a row per job, in groups."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

from rota.dash import units
from rota.dash.svg import COLOURS, ROW_LABEL, frame, percent, shortened, time_marks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rota.dash.axes import Axis

_ROW, _GROUP, _BAR, _WAIT = 34, 24, 24.0, 5.0
"""Pixels: of a row, of a group's heading, of a bar with all workers, of a bar that waits."""
_LEAST_SHARE: Final = 0.002
"""Bars that together are narrower than this share of the chart are drawn as one."""
_MARK_SHARE: Final = 0.01
"""Marks of a kind that are closer than this share of the chart are drawn as one."""
_COUNT_SHARE, _COUNT_HIGH = 0.022, 12.0
"""Least share of the width, and least height, of a bar in which its number of workers stands."""
MARKS: Final = {"preempted": "▾", "moved": "◆", "failed or killed": "×", "gave up": "⊗"}
_BAD: Final = ("failed or killed", "gave up")


@dataclass(frozen=True)
class Bar:
    """A time in which a job held the same number of workers."""

    begin_s: float
    end_s: float
    workers: float


@dataclass(frozen=True)
class Course:
    """One job's course: when it was submitted, what it held, what happened to it, when it ended."""

    label: str
    colour: int
    submit_s: float
    end_s: float
    most_workers: int
    bars: Sequence[Bar]
    elastic: bool = True
    """Whether the number of workers is written into its bars."""
    marks: Sequence[tuple[float, str]] = ()
    """Time and kind, one of MARKS."""


def gantt(name: str, title: str, about: str, rows: Sequence[Course | str], x: Axis) -> str:
    """Time from left to right, a row per job; the more workers, the taller its bar.

    A text among the rows is the heading of those below it.
    """
    foot = sum(_GROUP if isinstance(row, str) else _ROW for row in rows) + 4
    parts, base = time_marks(x, 0, foot), 4.0
    for row in rows:
        if isinstance(row, str):
            base += _GROUP
            parts.append(f'<text class="group" x="0" y="{base - 7:g}">{escape(row)}</text>')
        else:
            base += _ROW
            parts += _drawn(row, x, base - 4)
    return frame(name, title, about, foot + 44, parts, "rows")


def _drawn(row: Course, x: Axis, base: float) -> Iterator[str]:
    colour = f"c{row.colour % COLOURS}"
    label = escape(row.label)
    yield (
        f'<text class="end label" x="-10" y="{base - 7:g}"><title>{label}</title>'
        f"{escape(shortened(row.label, ROW_LABEL))}</text>"
    )
    bars = list(_merged(row.bars, _LEAST_SHARE * (x.high - x.low)))
    for begin_s, end_s in _pauses(row, bars):
        words = f"{row.label}: waits, {units.time(end_s - begin_s)}"
        yield _box(x, begin_s, end_s, base, _WAIT, f"wait {colour}", words)
    for bar in bars:
        height = max(2.0, _BAR * bar.workers / max(row.most_workers, 1))
        workers = f"{bar.workers:.1f}".removesuffix(".0")
        words = (
            f"{row.label}: {workers} {'worker' if workers == '1' else 'workers'}, "
            f"{units.time(bar.end_s - bar.begin_s)}"
        )
        thin = " thin" * (x.at(bar.end_s) - x.at(bar.begin_s) < 3 * _LEAST_SHARE)
        yield _box(x, bar.begin_s, bar.end_s, base, height, f"held {colour}{thin}", words)
        if row.elastic:
            yield from _count(x, bar, workers, base, height)
    last: dict[str, float] = {}
    for time_s, kind in row.marks:
        if x.at(time_s) - last.get(kind, -1.0) < _MARK_SHARE:
            continue
        last[kind] = x.at(time_s)
        yield (
            f'<text class="mark{" bad" * (kind in _BAD)}" x="{percent(last[kind])}" '
            f'y="{base - (_BAR if kind in _BAD else _BAR + 1) + 6:g}">'
            f"<title>{escape(f'{row.label}: {kind}')}</title>{MARKS[kind]}</text>"
        )


def _count(x: Axis, bar: Bar, workers: str, base: float, height: float) -> Iterator[str]:
    """The number of workers, in the bar or, if that is low, above it."""
    share = x.at(bar.end_s) - x.at(bar.begin_s)
    if share >= _COUNT_SHARE * (1 + len(workers)) / 2:
        inside = height >= _COUNT_HIGH
        kind = f"count{'' if inside else ' above'}{' odd' * (share < 3 * _COUNT_SHARE)}"
        middle = percent((x.at(bar.begin_s) + x.at(bar.end_s)) / 2)
        y = base - height / 2 + 4 if inside else base - height - 2
        yield f'<text class="{kind}" x="{middle}" y="{y:.1f}">{workers}</text>'


def _box(
    x: Axis, begin_s: float, end_s: float, base: float, height: float, kind: str, words: str
) -> str:
    left = x.at(begin_s)
    width = max(x.at(end_s) - left, _LEAST_SHARE)
    return (
        f'<rect class="{kind}" x="{percent(left)}" y="{base - height:.1f}" '
        f'width="{percent(width)}" height="{height:.1f}"><title>{escape(words)}</title></rect>'
    )


def _pauses(row: Course, bars: Sequence[Bar]) -> list[tuple[float, float]]:
    """When the job waited, from its submission to its end."""
    edges = [row.submit_s, *(t for bar in bars for t in (bar.begin_s, bar.end_s)), row.end_s]
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return [(begin_s, end_s) for begin_s, end_s in pairs if end_s > begin_s]


def _merged(bars: Sequence[Bar], least_s: float) -> Iterator[Bar]:
    """The bars; equal neighbours become one, and those too narrow to be seen, with their mean."""
    joined: list[Bar] = []
    for bar in bars:
        if joined and (joined[-1].workers, joined[-1].end_s) == (bar.workers, bar.begin_s):
            joined[-1] = Bar(joined[-1].begin_s, bar.end_s, bar.workers)
        else:
            joined.append(bar)
    group: list[Bar] = []
    for bar in joined:
        if group and bar.end_s - group[0].begin_s > least_s:
            yield _mean(group)
            group = []
        group.append(bar)
    if group:
        yield _mean(group)


def _mean(group: Sequence[Bar]) -> Bar:
    if len(group) == 1:
        return group[0]
    spent = sum(bar.workers * (bar.end_s - bar.begin_s) for bar in group)
    span_s = group[-1].end_s - group[0].begin_s
    workers = spent / span_s if span_s > 0 else max(bar.workers for bar in group)
    return Bar(group[0].begin_s, group[-1].end_s, workers)
