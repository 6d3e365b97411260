"""Where jobs ran: a row per node, every job on its GPUs, or how full the node was over time."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Final

import numpy as np

from rota.dash import units
from rota.dash.svg import COLOURS, ROW_LABEL, frame, percent, shortened, stretched, time_marks
from rota.run.stints import mean_level

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rota.core.types import Bools, Floats, Ints
    from rota.dash.axes import Axis
    from rota.dash.past_run import PastRun

MOST_PIECES: Final = 2500
"""More pieces of jobs on nodes than this are not drawn one by one."""
MOST_LANES: Final = 512
MOST_ROWS: Final = 48
"""More nodes than this share rows."""
_BINS: Final = 250
_ROW: Final = 15
_SHADES: Final = (0.001, 0.25, 0.5, 0.75)
"""Least shares of GPUs in use for the four shades."""


def is_detailed(run: PastRun) -> bool:
    """Whether there are few enough jobs and GPUs to draw each job on its own GPUs."""
    names, gpus = run.nodes
    return (
        len(run.stints.stint) <= MOST_PIECES
        and len(names) <= MOST_ROWS
        and _lane_counts(run, gpus).sum() <= MOST_LANES
    )


def job_lanes(name: str, title: str, about: str, run: PastRun, colour: Ints, x: Axis) -> str:
    """Each job as boxes on the GPUs of its nodes; `colour` (J,) gives each job's."""
    names, gpus = run.nodes
    lanes, pieces = _lane_counts(run, gpus), _pieces_by_node(run, len(names))
    parts, marks, top = [], [], 4.0
    for node, label in enumerate(names):
        high = min(14.0, max(2.0, 48.0 / max(1, int(lanes[node]))))
        height = high * int(lanes[node])
        parts.append(
            f'<rect class="lane" x="0" y="{top:g}" width="100%" height="{height:g}"/>'
            f'<text class="end label" x="-10" y="{top + height / 2 + 4:g}">'
            f"<title>{escape(label)}</title>{escape(shortened(label, ROW_LABEL))}</text>"
        )
        for piece, first, count in _on_lanes(pieces[node]):
            length = units.time(piece.end_s - piece.begin_s)
            workers = units.plural(piece.workers, "worker")
            words = f"{run.label(piece.job)}: {workers} on {label}, {length}"
            kind = f"held c{int(colour[piece.job]) % COLOURS}"
            span = (piece.begin_s, piece.end_s)
            parts.append(_box(x, span, top + high * first, high * count, kind, words))
        marks += [
            _box(x, (begin_s, end_s), top, height, "down", f"{label} is down")
            for down, begin_s, end_s in run.down
            if down == node
        ]
        top += height + 6
    return frame(name, title, about, top + 44, [*time_marks(x, 0, top), *parts, *marks], "rows")


def _lane_counts(run: PastRun, gpus: Ints) -> Ints:
    """How many boxes fit side by side on each node (N,): its GPUs, or what jobs hold there."""
    most = np.maximum(gpus, 1)
    if len(run.stints.stint) <= MOST_PIECES:
        for node, pieces in enumerate(_pieces_by_node(run, len(gpus))):
            if gpus[node] == 0:  # a node without GPUs, or one that the journal does not describe
                ends = [first + count for _, first, count in _on_lanes(pieces)]
                most[node] = max(ends, default=1)
    return most


@dataclass(frozen=True)
class _Piece:
    """What a job held on one node for a time, and how many lanes that takes."""

    job: int
    begin_s: float
    end_s: float
    workers: int
    lanes: int


def _pieces_by_node(run: PastRun, nodes: int) -> list[list[_Piece]]:
    """The pieces on each node by begin; what goes on unchanged is one piece."""
    stints, (_, gpus) = run.stints, run.nodes
    found: list[list[_Piece]] = [[] for _ in range(nodes)]
    latest: dict[tuple[int, int], int] = {}
    rows = zip(stints.stint.tolist(), stints.shares.tolist(), strict=True)
    for s, (node, workers, _) in rows:  # by job, then by time
        job, begin_s, end_s = int(stints.job[s]), float(stints.begin_s[s]), float(stints.end_s[s])
        # A worker without GPUs takes a lane where the node has none either.
        lanes = workers * (1 if gpus[node] == 0 else int(run.gpus_each[job]))
        own, k = found[node], latest.get((node, job), -1)
        if k >= 0 and own[k].end_s == begin_s and own[k].workers == workers:
            own[k] = replace(own[k], end_s=end_s)
        else:
            latest[node, job] = len(own)
            own.append(_Piece(job, begin_s, end_s, workers, min(lanes, MOST_LANES)))
    return [sorted(own, key=lambda piece: piece.begin_s) for own in found]


def _on_lanes(pieces: Sequence[_Piece]) -> Iterator[tuple[_Piece, int, int]]:
    """Piece, first lane and number of lanes: the lowest that are free when it begins."""
    free: list[int] = []
    ends: list[tuple[float, tuple[int, ...]]] = []
    used = 0
    for piece in pieces:
        while ends and ends[0][0] <= piece.begin_s:
            for lane in heapq.heappop(ends)[1]:
                heapq.heappush(free, lane)
        own = []
        for _ in range(piece.lanes):
            if not free:
                free.append(used)
                used += 1
            own.append(heapq.heappop(free))
        if own:
            heapq.heappush(ends, (piece.end_s, tuple(own)))
        yield from ((piece, first, count) for first, count in _runs(own))


def _runs(lanes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Neighbouring lanes, taken together: first and count."""
    first = 0
    for k in range(1, len(lanes) + 1):
        if k == len(lanes) or lanes[k] != lanes[k - 1] + 1:
            yield lanes[first], k - first
            first = k


def _box(
    x: Axis, span: tuple[float, float], top: float, height: float, kind: str, words: str
) -> str:
    left, right = (x.at(float(t)) for t in span)
    return (
        f'<rect class="{kind}" x="{percent(left)}" y="{top:g}" '
        f'width="{percent(max(right - left, 0.0005))}" height="{height:g}">'
        f"<title>{escape(words)}</title></rect>"
    )


def fill_levels(name: str, title: str, about: str, run: PastRun, x: Axis) -> str:
    """How many GPUs of a row jobs hold, in four shades; many nodes share rows."""
    names, gpus = run.nodes
    per = -(-len(names) // MOST_ROWS)
    rows = -(-len(names) // per)
    edges_s = np.linspace(x.low, x.high, _BINS + 1)
    stints, node = run.stints, run.stints.shares["node"].astype(np.int64)
    s = stints.stint
    held = mean_level(
        edges_s, stints.begin_s[s], stints.end_s[s],
        stints.shares["workers"] * run.gpus_each[stints.job[s]], node // per, rows,
    )  # fmt: skip
    has = np.bincount(np.arange(len(names)) // per, gpus, rows)
    share = held / np.maximum(np.where(has > 0, has, held.max(1)), 1e-9)[:, None]
    shade = np.searchsorted(_SHADES, share, side="right")  # 0: empty
    inside = (
        [f'<path class="lane" d="{_cells(np.ones_like(shade, np.bool_))}"/>']
        + [f'<path class="held thin c0 s{k}" d="{_cells(shade == k)}"/>' for k in range(1, 5)]
        + [f'<path class="down" d="{_cells(_down_bins(run, edges_s, per, rows))}"/>']
    )
    parts = [
        f'<text class="end label" x="-10" y="{_ROW * k + 12}">'
        f"{escape(shortened(label, ROW_LABEL))}</text>"
        for k, label in enumerate(names[::per])
    ]
    foot = _ROW * rows
    body = [*time_marks(x, 0, foot), stretched("".join(inside), foot, width=_BINS), *parts]
    return frame(name, title, about, foot + 44, body, "rows")


def _down_bins(run: PastRun, edges_s: Floats, per: int, rows: int) -> Bools:
    """Where all nodes of a row are down (rows, bins), for more than half of a bin."""
    if not run.down:
        return np.zeros((rows, len(edges_s) - 1), np.bool_)
    node, begin_s, end_s = (np.array(column) for column in zip(*run.down, strict=True))
    down = mean_level(edges_s, begin_s, end_s, 1.0, node // per, rows)
    mostly: Bools = down > per - 0.5
    return mostly


def _cells(which: Bools) -> str:
    """A path over the cells (rows, bins) that are true; neighbours in a row are one."""
    edge = np.diff(np.pad(which.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    rows, begins = np.nonzero(edge == 1)
    ends = np.nonzero(edge == -1)[1]
    high = _ROW - 2
    return "".join(
        f"M{b} {_ROW * r + 1}h{e - b}v{high}h{b - e}z"
        for r, b, e in zip(rows.tolist(), begins.tolist(), ends.tolist(), strict=True)
    )
