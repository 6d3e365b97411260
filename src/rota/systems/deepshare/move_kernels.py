"""Which running jobs would gain somewhere else, what their neighbours gain or lose counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from rota.core.types import Ints
from rota.jit import part
from rota.jit_reference import by_reference
from rota.ledger.work_kernels import pinned
from rota.policies.contention.climb_kernels import scan
from rota.policies.contention.greedy_kernels import offer, worth
from rota.policies.contention.neighbour_kernels import (
    Found,
    GreedySettings,
    Law,
    Occupancy,
    Options,
    Scratch,
)
from rota.policies.contention.rollout_kernels import begin, enter, leave, restore

if TYPE_CHECKING:
    from rota.envs.book import Book
    from rota.envs.view import View

MOST_MOVERS: Final = 8
"""Running jobs for which other places are looked for: those that others slow down most."""
LEAST_GAIN: Final = 0.02
"""Moves that gain less of a job's speed are not shown."""


class MoveMemory(NamedTuple):
    """What moves are looked for in; every array has B in front."""

    trial: Occupancy  # the cluster without the job that may move
    scratch: Scratch  # what `trial` was weighed with
    moves: Found  # the best moves
    one: Found  # the best place of a job
    end: Ints  # (1,) of a queue that holds the job alone
    queue: Ints  # (1,)
    type: Ints  # (MOST_SPREADS,) 0


@part
def where_it_runs(room: Occupancy, j: int) -> int:
    """The place of running job j in `run`."""
    i = 0
    while room.run[i] != j:
        i += 1
    return i


@part
def without(law: Law, o: Options, trial: Occupancy, room: Occupancy, j: int) -> None:
    """Make `trial` what `room` is without running job j."""
    restore(trial, room)
    leave(law, o, trial, where_it_runs(trial, j))


@part
def move(law: Law, o: Options, room: Occupancy, p: int, j: int, nodes: Ints) -> None:
    """Let a job that has left run with spread p on `nodes`; it first loses the time of a move."""
    begin(law, o, room, p, j, nodes)
    room.left[j] += o.jobs[j]["resize_s"] * room.alone[j] * max(law.floor, room.low[j])


@part
def take_candidate(law: Law, o: Options, room: Occupancy, found: Found, c: int) -> None:
    """Start or move the job of candidate c; `o` are the spreads of all jobs."""
    p, j = found.option[c], found.job[c]
    if o.jobs[j]["share_len"] > 0:
        leave(law, o, room, where_it_runs(room, j))
        move(law, o, room, p, j, found.node[c])
    else:
        enter(law, o, room, p, found.node[c])


@part
def may_move(view: View, book: Book, b: int, j: int) -> bool:
    """Whether job j may be stopped, and was neither started nor moved in this round."""
    job = view.jobs[b, j]
    return bool(
        job["share_len"] > 0
        and not pinned(job, view.now_s[b])
        and book.drafts.at[b, j] == job["share_at"]
    )


@part
def next_mover(view: View, book: Book, room: Occupancy, b: int, low: float, after: int) -> int:
    """The running job that suffers most of those that come after (low, job `after`); −1: none."""
    found, least = -1, np.inf
    for i in range(room.run[room.run.size - 1]):
        j = room.run[i]
        later = room.low[j] > low or (room.low[j] == low and j > after)
        first = room.low[j] < least or (room.low[j] == least and j < found)
        if later and first and may_move(view, book, b, j):
            found, least = j, room.low[j]
    return found


@part
def best_place(law: Law, o: Options, room: Occupancy, m: MoveMemory, q: int, j: int) -> float:
    """What job j of type q, which has left `m.trial`, gains by its best other place.

    The place is then in m.one. 0 if there is none that is better.
    """
    first, has = 0, -np.inf
    while first < o.type.size and o.type[first] != q:
        first += 1
    end = first
    while end < o.type.size and o.type[end] == q:
        if o.span[end] == room.span[j]:
            every = GreedySettings(-np.inf, 0.0, 0.0)
            has = worth(law, o, m.trial, m.scratch, every, end, j, room.node[j])
        end += 1
    if has == -np.inf:
        return 0.0
    m.trial.head[0], m.end[0], m.queue[0] = 0, 1, j
    alone = by_reference(Options(
        o.jobs, o.weight, o.size, o.sign, m.queue, m.end, m.type[: end - first],
        o.span[first:end], o.kind[first:end], o.speed[first:end],
    ))  # fmt: skip
    better = GreedySettings(has * o.size[j] / o.weight[j] + LEAST_GAIN, 0.0, 0.0)
    if scan(law, alone, m.trial, m.scratch, better, m.one, 1) == 0:
        return 0.0
    m.one.option[0] += first
    return float(m.one.score[0] - has)


@part
def find_moves(
    view: View, book: Book, o: Options, types: Ints, room: Occupancy, m: MoveMemory, b: int
) -> int:
    """List the best moves, best first; returns their number.

    o      the spreads of all jobs
    types  (J,) the type of each job
    """
    law, most = view.laws.law, m.moves.score.size - 1
    m.moves.option[most] = 0
    low, j = -np.inf, -1
    for _ in range(MOST_MOVERS):
        j = next_mover(view, book, room, b, low, j)
        if j < 0:
            break
        low = room.low[j]
        without(law, o, m.trial, room, j)
        gain = best_place(law, o, room, m, types[j], j)
        if gain > 0.0:
            p = m.one.option[0]
            offer(m.moves, most, gain, p, j, m.one.node[0], o.span[p])
    return int(m.moves.option[most])
