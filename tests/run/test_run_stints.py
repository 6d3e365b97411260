"""Which job held what from when to when."""

from __future__ import annotations

from typing import Any

import numpy as np
from hand_journals import event_arrays
from hypothesis import given
from hypothesis import strategies as st

from rota.core.layout import (
    ARRIVE,
    FINISH,
    KILL,
    MOVE,
    NODE_DOWN,
    NODE_UP,
    RESIZE,
    START,
    STOP,
)
from rota.run.reader import Events
from rota.run.stints import OPEN, Stints, down_times, mean_level

Row = tuple[float, int, int, tuple[tuple[int, int, int], ...]]


def told(rows: list[Row]) -> Events:
    """Events from time, job, kind and share."""
    events, shares = event_arrays(rows)
    return Events(events, shares, np.concatenate(([0], events["entries"].cumsum(dtype=np.int64))))


def test_a_stint_lasts_until_the_next_event_of_its_job() -> None:
    found = Stints.of(
        told([
            (0, 0, ARRIVE, ()), (1, 0, START, ((0, 2, 1),)), (2, 1, ARRIVE, ()),
            (2, 1, START, ((1, 1, 0),)), (3, 0, RESIZE, ((0, 1, 0), (1, 3, 0))),
            (4, 1, STOP, ()), (5, 0, MOVE, ((2, 4, 0),)), (6, 1, START, ((0, 1, 0),)),
            (7, 0, KILL, ()),
        ]), 9.0,
    )  # fmt: skip
    rows = zip(found.job, found.begin_s, found.end_s, found.workers, found.ended_by, strict=True)
    assert list(rows) == [
        (0, 1, 3, 2, RESIZE), (0, 3, 5, 4, MOVE), (0, 5, 7, 4, KILL),
        (1, 2, 4, 1, STOP), (1, 6, 9, 1, OPEN),
    ]  # fmt: skip
    assert found.begun_by.tolist() == [START, RESIZE, MOVE, START, START]
    assert found.stint.tolist() == [0, 1, 1, 2, 3, 4]
    assert found.shares["node"].tolist() == [0, 0, 1, 2, 1, 0]
    assert (found.of_job(0), found.of_job(1), found.of_job(7)) == (
        slice(0, 3), slice(3, 5), slice(5, 5),
    )  # fmt: skip


def test_without_events_there_are_no_stints() -> None:
    found = Stints.of(told([]), 0.0)
    assert len(found.job) == len(found.stint) == 0
    assert found.of_job(0) == slice(0, 0)


def one_by_one(rows: list[Row], end_s: float) -> list[Any]:
    """The slow twin: a stint per start, move and resize, closed by the job's next event."""
    held: dict[int, tuple[float, tuple[Any, ...]]] = {}
    found = []
    for time_s, job, kind, share in rows:
        if kind == ARRIVE:
            continue
        if job in held:
            found.append((job, held[job][0], time_s, held.pop(job)[1]))
        if kind in (START, MOVE, RESIZE):
            held[job] = (time_s, share)
    found += [(job, begin_s, max(end_s, begin_s), share) for job, (begin_s, share) in held.items()]
    return sorted(found, key=lambda one: one[0])


SHARES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 2)), max_size=3)
HAPPENINGS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([ARRIVE, START, STOP, MOVE, RESIZE, FINISH]),
              SHARES.map(tuple)),
    max_size=30,
)  # fmt: skip


@given(HAPPENINGS)
def test_all_at_once_gives_what_one_by_one_does(happened: list[Any]) -> None:
    rows = [
        (float(k), job, kind, share if kind in (START, MOVE, RESIZE) else ())
        for k, (job, kind, share) in enumerate(happened)
    ]
    found = Stints.of(told(rows), 40.0)
    shares = [tuple(found.shares[found.stint == s].tolist()) for s in range(len(found.job))]
    got = zip(found.job, found.begin_s, found.end_s, shares, strict=True)
    assert list(got) == one_by_one(rows, 40.0)


def test_nodes_are_down_until_they_are_up_or_the_journal_ends() -> None:
    rows: list[Row] = [
        (1, 0, NODE_DOWN, ()), (2, 1, NODE_DOWN, ()), (3, 0, NODE_UP, ()), (4, 0, NODE_DOWN, ()),
        (5, 2, NODE_UP, ()),
    ]  # fmt: skip
    assert down_times(told(rows).events, 9.0) == [(0, 1, 3), (1, 2, 9), (0, 4, 9)]


def test_levels_are_averages_over_bins() -> None:
    # Group 0 holds 2 from 1 to 3 and 4 from 2 to 4, of which the first bin sees 2 s × 1/2 of 2.
    begin_s, end_s = np.array([1.0, 2.0, 0.0]), np.array([3.0, 4.0, 8.0])
    got = mean_level(np.array([0.0, 2, 4]), begin_s, end_s, [2, 4, 1], np.array([0, 0, 1]), 2)
    assert got.tolist() == [[1, 5], [1, 1]]


INTERVALS = st.lists(
    st.tuples(st.floats(-5, 15), st.floats(0, 9), st.integers(0, 5), st.integers(0, 2)), max_size=12
)


@given(INTERVALS)
def test_levels_are_the_overlap_with_each_bin(intervals: list[Any]) -> None:
    edges_s = np.linspace(0.0, 10.0, 8)
    begin_s, length_s, weight, group = np.array(intervals or np.empty((0, 4)), float).T
    got = mean_level(edges_s, begin_s, begin_s + length_s, weight, group.astype(int), 3)
    want = np.zeros((3, 7))
    for b, e, w, g in zip(begin_s, begin_s + length_s, weight, group.astype(int), strict=True):
        overlap = np.minimum(e, edges_s[1:]) - np.maximum(b, edges_s[:-1])
        want[g] += w * np.maximum(overlap, 0) / (10 / 7)
    np.testing.assert_allclose(got, want, atol=1e-9)
