"""Which job held what from when to when, read back from a journal's events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rota.core.layout import ARRIVE, MOVE, NODE_DOWN, NODE_UP, RESIZE, START

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from rota.core.types import Bools, Floats, Ints, Records
    from rota.run.reader import Events

OPEN = -1
"""Stands for the event that ended a stint, where there is none yet."""


@dataclass(frozen=True)
class Stints:
    """Stretches of time in which a job held the same, by job and then by time.

    Piece p says that stint `stint[p]` held `shares[p]`: one entry per node.
    """

    job: Ints  # (S,)
    begin_s: Floats  # (S,)
    end_s: Floats  # (S,)
    workers: Ints  # (S,)
    begun_by: Ints  # (S,) START, MOVE or RESIZE
    ended_by: Ints  # (S,) kind of the event that ended it, or OPEN
    stint: Ints  # (P,)
    shares: Records  # (P,) SHARE

    @classmethod
    def of(cls, found: Events, end_s: float) -> Stints:
        """All stints of a journal's events; those still open end at `end_s`."""
        events, shares, offsets = found
        kind, job = events["kind"].astype(np.int64), events["job"].astype(np.int64)
        at = np.flatnonzero((kind > ARRIVE) & (kind < NODE_DOWN))
        at = at[np.argsort(job[at], kind="stable")]
        job, kind, time_s = job[at], kind[at], events["time_s"][at]
        last = np.append(job[1:] != job[:-1], np.ones(min(1, len(at)), np.bool_))
        until_s = np.where(last, np.maximum(end_s, time_s), np.roll(time_s, -1))
        ended_by = np.where(last, OPEN, np.roll(kind, -1))
        holds = np.isin(kind, (START, MOVE, RESIZE))
        counts = np.diff(offsets)[at[holds]]
        stint = np.repeat(np.arange(len(counts)), counts)
        first = np.repeat(offsets[at[holds]] - (counts.cumsum() - counts), counts)
        own = shares[first + np.arange(len(stint))]
        return cls(
            job=job[holds], begin_s=time_s[holds], end_s=until_s[holds],
            workers=np.bincount(stint, own["workers"], len(counts)).astype(np.int64),
            begun_by=kind[holds], ended_by=ended_by[holds], stint=stint, shares=own,
        )  # fmt: skip

    def of_job(self, job: int) -> slice:
        """Where the stints of one job are."""
        first, end = np.searchsorted(self.job, (job, job + 1)).tolist()
        return slice(first, end)


def down_times(events: Records, end_s: float) -> list[tuple[int, float, float]]:
    """Node, begin and end of every time that a node was down, by time of begin."""
    found, since = [], dict[int, float]()
    for e in np.flatnonzero(events["kind"] >= NODE_DOWN).tolist():
        time_s, node = float(events["time_s"][e]), int(events["job"][e])
        if events["kind"][e] == NODE_UP and node in since:
            found.append((node, since.pop(node), time_s))
        elif events["kind"][e] == NODE_DOWN:
            since.setdefault(node, time_s)
    found += [(node, begin_s, max(begin_s, end_s)) for node, begin_s in since.items()]
    return sorted(found, key=lambda one: one[1])


def mean_level(
    edges_s: Floats, begin_s: Floats, end_s: Floats, weight: ArrayLike, group: Ints, groups: int
) -> Floats:
    """What each group holds on average in each time bin (groups, bins).

    Interval k lasts from `begin_s[k]` to `end_s[k]` and counts `weight[k]` in `group[k]`; `edges_s`
    are the equally wide bins' (bins+1,). What lies outside of them is left out.
    """
    bins, width_s = len(edges_s) - 1, (edges_s[-1] - edges_s[0]) / (len(edges_s) - 1)
    weight = np.broadcast_to(np.asarray(weight, np.float64), begin_s.shape)
    area = np.zeros(groups * bins)
    level = np.zeros(groups * (bins + 1))
    for time_s, sign in ((begin_s, 1.0), (end_s, -1.0)):
        place = (np.clip(time_s, edges_s[0], edges_s[-1]) - edges_s[0]) / width_s
        number = np.minimum(place.astype(np.int64), bins - 1)
        rest = 1.0 - (place - number)  # of its own bin, the part after it
        area += np.bincount(group * bins + number, sign * weight * rest, len(area))
        level += np.bincount(group * (bins + 1) + number + 1, sign * weight, len(level))
    steady = level.reshape(groups, bins + 1).cumsum(1)[:, :bins]
    held: Floats = np.maximum(area.reshape(groups, bins) + steady, 0.0)
    return held


def valid(begin_s: Floats, end_s: Floats) -> Bools:
    """Which intervals are some: known, and not ended before they began."""
    known: Bools = np.isfinite(begin_s) & np.isfinite(end_s) & (end_s >= begin_s)
    return known
