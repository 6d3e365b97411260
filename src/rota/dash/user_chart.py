"""What each user's jobs held and waited for over time, a row per user."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

import numpy as np

from rota.dash import units
from rota.dash.gantt import MARKS
from rota.dash.past_run import MARKED
from rota.dash.svg import COLOURS, ROW_LABEL, frame, percent, shortened, stretched, time_marks
from rota.run.stints import mean_level, valid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.core.types import Floats, Ints
    from rota.dash.axes import Axis
    from rota.dash.past_run import PastRun

MOST_USERS: Final = 20
"""Further users share the last row."""
_BINS: Final = 300
_ROW, _HIGH = 52, 36
_MARK_BINS: Final = 40
"""At most one mark of a kind is drawn in each of this many stretches of time."""
_MOST_MARKS: Final = 16
"""A kind with more marks than this in a row is not drawn there: they would hide the rest."""


def user_rows(name: str, title: str, about: str, run: PastRun, x: Axis) -> str:
    """A row per user: GPUs that its jobs hold, and lighter on top, GPUs that they wait for."""
    users, rank = run.user
    rows = min(len(users), MOST_USERS)
    row = np.minimum(rank, rows - 1)
    held, waits = demand(run, row, rows, np.linspace(x.low, x.high, _BINS + 1))
    foot = _ROW * rows
    parts = time_marks(x, 0, foot)
    for k in range(rows):
        label, base = users[k], _ROW * (k + 1) - 2
        if k == rows - 1 and len(users) > rows:
            label = f"{len(users) - rows + 1} others"
        most = max(float((held[k] + waits[k]).max()), 1e-9)
        colour = f"c{min(k, COLOURS - 1)}"
        inside = (
            f'<path class="wait {colour}" d="{_steps((held[k] + waits[k]) / most)}"/>'
            f'<path class="held thin {colour}" d="{_steps(held[k] / most)}"/>'
        )
        parts += [
            f'<text class="end label" x="-10" y="{base - 20}"><title>{escape(label)}</title>'
            f"{escape(shortened(label, ROW_LABEL))}</text>"
            f'<text class="end" x="-10" y="{base - 5}">to {np.ceil(most):,.0f}</text>',
            f'<line class="grid" x1="0" x2="100%" y1="{base}" y2="{base}"/>',
            stretched(inside, _HIGH, y=base - _HIGH, width=_BINS),
            *_marks(run, row == k, x, base - _HIGH + 2),
        ]
    return frame(name, title, about, foot + 46, parts, "rows")


def demand(run: PastRun, row: Ints, rows: int, edges_s: Floats) -> tuple[Floats, Floats]:
    """GPUs that jobs hold, and those they wait for, by row and time bin (rows, bins).

    `row` (J,) gives the row of each job. A worker without GPUs counts as one where no job has any.
    """
    stints, jobs = run.stints, run.jobs
    bare = not (jobs.num_gpus > 0).any()
    held = mean_level(
        edges_s, stints.begin_s, stints.end_s, stints.workers if bare else run.gpus,
        row[stints.job], rows,
    )  # fmt: skip
    asked = np.ones(len(run)) if bare else jobs.num_gpus.astype(np.float64)
    lives = run.there & valid(jobs.submit_s, run.left_s)
    alive = mean_level(
        edges_s, jobs.submit_s[lives], run.left_s[lives], asked[lives], row[lives], rows
    )
    served = mean_level(
        edges_s, stints.begin_s, stints.end_s, asked[stints.job], row[stints.job], rows
    )
    return held, np.maximum(alive - served, 0.0)


def _steps(share: Floats) -> str:
    """A path around the area below a level per bin, from 0 to 1."""
    y = np.round(_HIGH * (1 - share), 1)
    change = np.flatnonzero(np.append(True, y[1:] != y[:-1]))
    walk = "".join(f"H{k}V{y[k]:g}" for k in change.tolist())
    return f"M0 {_HIGH}{walk}H{len(y)}V{_HIGH}Z"


def _marks(run: PastRun, own: Ints, x: Axis, y: float) -> Iterator[str]:
    """What happened to the user's jobs; several of a kind that are close together are one mark."""
    events = run.marks[own[run.marks["job"]]]
    for kind, words in MARKED.items():
        times_s = events["time_s"][events["kind"] == kind]
        place = np.array([x.at(t) for t in times_s.tolist()])
        bins, count = np.unique((place * _MARK_BINS).astype(np.int64), return_counts=True)
        if len(bins) > _MOST_MARKS:
            continue
        bad = " bad" * (words not in ("preempted", "moved"))
        for k, n in zip(bins.tolist(), count.tolist(), strict=True):
            yield (
                f'<text class="mark{bad}" x="{percent((k + 0.5) / (_MARK_BINS + 0.5))}" y="{y:g}">'
                f"<title>{units.plural(n, 'time')} {words}</title>{MARKS[words]}</text>"
            )
