"""Who starts in a round of `least-loss`, and who makes room.

Waiting jobs go by key, the GPU-seconds that they still need; advice may change it. One that finds
no room takes that of running jobs with larger keys.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from rota.core.types import Floats, Ints, Records
from rota.jit import part
from rota.ledger.work_kernels import pinned, ran_s, remaining
from rota.policies.contention.greedy_kernels import has_room
from rota.policies.contention.loss_advice_kernels import LossAdvice
from rota.policies.contention.neighbour_kernels import Law, Occupancy, Options, Scratch
from rota.policies.contention.occupy_kernels import HOUR_S, Rooms
from rota.policies.contention.rollout_kernels import begin, join, leave, restore, take
from rota.policies.contention.spread_kernels import size_of
from rota.policies.contention.time_loss_kernels import LossMemory, find_place
from rota.policies.contention.uplink_kernels import cross_racks

SHORTEST_S: Final = 60.0
"""Less work left than this counts as this: below it estimates tell nothing."""

DEAREST: Final = 1e9
"""Prices beyond are not believed."""


class LossSettings(NamedTuple):
    """Settings of the rule; see `LeastLoss`."""

    horizon_s: float
    margin: float
    stops: bool
    moves: bool
    displaces: bool
    lengths: bool
    gain_s: float
    drift: float
    unknown_s: float
    again: float
    fee: float


class LossRound(NamedTuple):
    """What a round works in beside the occupancies."""

    loss: LossMemory
    key: Floats  # (J,) GPU-seconds that a job still needs
    fixed: Ints  # (J,) whether it may not be touched
    touched: Ints  # (J,) whether it holds something else than before
    spread: Ints  # (J,) the spread of a job that was placed in this round
    queue: Ints  # (J + 1,) waiting jobs by key; the last entry is their number
    victim: Ints  # (J,)
    mover: Ints  # (J,) running jobs, those first that lose most
    moved: Ints  # (J,) the spreads of jobs that would be placed anew
    advice: LossAdvice


@part
def look_at_jobs(
    rooms: Rooms, r: LossRound, rows: Records, order: Ints, nodes: Records, now_s: float,
    settings: LossSettings,
) -> None:  # fmt: skip
    """Find out what every job still needs, and which may be touched."""
    m, room, types = r.loss, rooms.room, rooms.types
    for i in range(order.size):
        j = order[i]
        job = rows[j]
        left_s = remaining(job, now_s)
        if not settings.lengths or not np.isfinite(left_s):
            done_s = job["progress_s"] + job["pace"] * ran_s(job, now_s)
            left_s = settings.unknown_s + settings.again * done_s
        m.need[j] = max(SHORTEST_S, left_s)
        m.best[j] = max(1e-9, types.best[types.of[j]])
        r.key[j] = m.need[j] * size_of(job)
        r.fixed[j] = pinned(job, now_s)
        r.touched[j], r.spread[j] = 0, -1
    for n in range(room.free.size):
        m.factor[n] = room.drift[n] ** settings.drift
        m.price[n] = settings.fee * min(nodes[n]["price_per_gpu_h"], DEAREST) / HOUR_S
    last = rooms.counts.spreads[0]
    for q in range(rooms.counts.known[0] + 1):
        m.first[q] = last
    for p in range(last - 1, -1, -1):
        m.first[rooms.options.type[p]] = p
    for q in range(rooms.counts.known[0] - 1, -1, -1):  # types without a spread
        m.first[q] = min(m.first[q], m.first[q + 1])


@part
def note_nodes(room: Occupancy, m: LossMemory, j: int) -> None:
    """Note how fast the slowest node of running job j is, and what its nodes cost."""
    m.slow[j], m.dear[j], m.charge[j] = np.inf, 0.0, -np.inf
    for i in range(room.span[j]):
        n = room.node[j, i]
        m.slow[j] = min(m.slow[j], m.factor[n])
        m.charge[j] = max(m.charge[j], m.toll[j, room.type[n]])
        if m.price[n] > 0.0:
            m.dear[j] += held_on(room, j, n) * m.price[n]


@part
def line_up(r: LossRound, j: int) -> None:
    """Let job j wait behind those with smaller keys."""
    last = r.queue.size - 1
    at = r.queue[last]
    while at > 0 and r.key[r.queue[at - 1]] > r.key[j]:
        r.queue[at] = r.queue[at - 1]
        at -= 1
    r.queue[at] = j
    r.queue[last] += 1


@part
def put(law: Law, o: Options, room: Occupancy, r: LossRound, p: int, j: int, nodes: Ints) -> None:
    """Let job j run with spread p on `nodes`."""
    begin(law, o, room, p, j, nodes)
    note_nodes(room, r.loss, j)
    r.spread[j], r.touched[j] = p, 1


@part
def where_in(room: Occupancy, j: int) -> int:
    """The place of running job j in `run`."""
    i = 0
    while room.run[i] != j:
        i += 1
    return i


@part
def held_on(room: Occupancy, j: int, n: int) -> int:
    """The GPUs that running job j holds on node n."""
    s = 0
    while room.job[n, s] != j:
        s += 1
    return int(room.held[n, s])


@part
def put_back(law: Law, o: Options, room: Occupancy, saved: Occupancy, j: int) -> bool:
    """Let job j run again where it does in `saved`, if there is room; False if not."""
    span = saved.span[j]
    for i in range(span):
        n = saved.node[j, i]
        if room.free[n] < held_on(saved, j, n) or not has_room(o, room, j, span, n):
            return False
    room.span[j], room.kind[j], room.alone[j] = span, saved.kind[j], saved.alone[j]
    room.low[j] = 1.0
    for i in range(span):
        n = saved.node[j, i]
        room.node[j, i] = n
        held = held_on(saved, j, n)
        take(o, room, j, i, held, 1)
        join(law, o, room, j, n, held)
    cross_racks(law, room, j)
    last = room.run.size - 1
    room.run[room.run[last]] = j
    room.run[last] += 1
    return True


@part
def next_victim(room: Occupancy, r: LossRound, above: float) -> int:
    """The running job with the largest key above this that may be stopped; −1: none."""
    found, most = -1, above
    for i in range(room.run[room.run.size - 1]):
        j = room.run[i]
        if r.fixed[j] == 0 and r.key[j] > most:
            found, most = j, r.key[j]
    return found


@part
def make_room(
    law: Law, o: Options, room: Occupancy, saved: Occupancy, scratch: Scratch, r: LossRound,
    q: int, j: int, settings: LossSettings,
) -> bool:  # fmt: skip
    """Start job j in place of running jobs with larger keys; False if that is impossible.

    Those with the largest keys go until there is room; of them, those that still fit go back.
    """
    restore(saved, room)
    gone = 0
    while True:
        v = next_victim(room, r, r.key[j] * settings.margin)
        if v < 0:
            restore(room, saved)
            return False
        leave(law, o, room, where_in(room, v))
        r.victim[gone] = v
        gone += 1
        if find_place(law, o, room, scratch, r.loss, q, j, settings.horizon_s) < np.inf:
            break
    put(law, o, room, r, r.loss.chosen[0], j, r.loss.place)
    for i in range(gone - 1, -1, -1):
        v = r.victim[i]
        if not put_back(law, o, room, saved, v):
            r.touched[v], r.spread[v] = 1, -1
            line_up(r, v)
    return True


@part
def start_waiting(
    law: Law, o: Options, room: Occupancy, saved: Occupancy, scratch: Scratch, types: Ints,
    r: LossRound, settings: LossSettings,
) -> None:  # fmt: skip
    """Start waiting jobs by key; those that were stopped for others wait among them."""
    i, last = 0, r.queue.size - 1
    while i < r.queue[last]:
        j = r.queue[i]
        i += 1
        q = types[j]
        cost = find_place(law, o, room, scratch, r.loss, q, j, settings.horizon_s)
        if cost < np.inf:
            put(law, o, room, r, r.loss.chosen[0], j, r.loss.place)
        elif settings.stops and r.loss.first[q] < r.loss.first[q + 1]:
            make_room(law, o, room, saved, scratch, r, q, j, settings)
