"""A round of `least-loss`: short jobs first, in the place where all together lose least time.

Once waiting jobs have started, jobs move, and others away from their new nodes if need be, if that
saves more time than it costs.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rota.core.types import Ints, Records
from rota.jit import kernel, part
from rota.jit_reference import by_reference
from rota.policies.contention.greedy_kernels import has_room
from rota.policies.contention.grow_kernels import sort_nodes
from rota.policies.contention.loss_advice_kernels import advise
from rota.policies.contention.loss_round_kernels import (
    LossRound,
    LossSettings,
    line_up,
    look_at_jobs,
    note_nodes,
    put,
    start_waiting,
    where_in,
)
from rota.policies.contention.neighbour_kernels import (
    Law,
    Occupancy,
    Options,
    Scratch,
    workers_at,
)
from rota.policies.contention.occupy_kernels import Rooms, all_spreads, occupy
from rota.policies.contention.rollout_kernels import begin, copy_fixed, leave, restore
from rota.policies.contention.spread_kernels import PlacementTables
from rota.policies.contention.time_loss_kernels import (
    find_place,
    loss_of,
    total_loss,
)

MOST_MOVERS: Final = 16
"""Running jobs of a round, those that lose most, for which other places are looked for."""


@part
def may_move(r: LossRound, rows: Records, j: int, now_s: float) -> bool:
    """Whether job j may be moved: it has gone on since it last was, or is placed anew now."""
    return bool(r.fixed[j] == 0 and (r.touched[j] == 1 or now_s >= rows[j]["resume_s"]))


@part
def move_cost(r: LossRound, rows: Records, j: int) -> float:
    """What a move of job j costs; nothing if it is placed anew in this round anyway."""
    return 0.0 if r.touched[j] == 1 else float(rows[j]["resize_s"])


@part
def list_movers(
    law: Law, room: Occupancy, r: LossRound, rows: Records, now_s: float, settings: LossSettings
) -> int:
    """List the running jobs that may move and lose most; returns their number."""
    count = 0
    for i in range(room.run[room.run.size - 1]):
        j = room.run[i]
        if not may_move(r, rows, j, now_s):
            continue
        loss = loss_of(law, room, r.loss, j, settings.horizon_s)
        if loss <= move_cost(r, rows, j):
            continue
        at = min(count, MOST_MOVERS)
        while at > 0 and loss > loss_of(law, room, r.loss, r.mover[at - 1], settings.horizon_s):
            if at < MOST_MOVERS:
                r.mover[at] = r.mover[at - 1]
            at -= 1
        if at < MOST_MOVERS:
            r.mover[at] = j
        count += 1
    return min(count, MOST_MOVERS)


@part
def move_one(
    law: Law, o: Options, room: Occupancy, trial: Occupancy, scratch: Scratch, types: Ints,
    r: LossRound, j: int, settings: LossSettings,
) -> bool:  # fmt: skip
    """Move job j if all together lose less then, the move counted."""
    m, horizon_s = r.loss, settings.horizon_s
    before = total_loss(law, room, m, horizon_s)
    restore(trial, room)
    leave(law, o, trial, where_in(trial, j))
    after = find_place(law, o, trial, scratch, m, types[j], j, horizon_s)
    after += total_loss(law, trial, m, horizon_s) + move_cost(r, o.jobs, j)
    if not after < before - settings.gain_s:
        return False
    leave(law, o, room, where_in(room, j))
    put(law, o, room, r, m.chosen[0], j, m.place)
    return True


@part
def may_clear(room: Occupancy, r: LossRound, rows: Records, j: int, n: int, now_s: float) -> int:
    """The GPUs that jobs other than j hold on node n; −1 if one of them may not be moved."""
    held = 0
    for s in range(room.jobs_on[n]):
        other = room.job[n, s]
        if other != j:
            if not may_move(r, rows, other, now_s):
                return -1
            held += room.held[n, s]
    return held


@part
def pick_emptiest(
    o: Options, room: Occupancy, r: LossRound, p: int, j: int, gpu: int, now_s: float
) -> bool:
    """Pick nodes of this GPU type from which fewest GPUs must be cleared for job j; False: none."""
    m, span, count = r.loss, o.span[p], 0
    need = workers_at(o.jobs[j]["workers"], span, 0) * o.jobs[j]["gpus_per_worker"]
    for n in range(room.free.size):
        if room.type[n] != gpu or room.free[n] < 0 or room.gpus[n] < need:
            continue
        held = may_clear(room, r, o.jobs, j, n, now_s)
        if held < 0:
            continue
        at = min(count, span)
        while at > 0 and held < m.cost[at - 1]:
            if at < span:
                m.cost[at], m.pick[at] = m.cost[at - 1], m.pick[at - 1]
            at -= 1
        if at < span:
            m.cost[at], m.pick[at] = held, n
        count += 1
    if count < span:
        return False
    sort_nodes(m.pick, span)
    return True


@part
def clear_nodes(law: Law, o: Options, trial: Occupancy, r: LossRound, p: int, j: int) -> int:
    """Let job j and all jobs on the picked nodes go; returns how many others, in r.victim."""
    gone = 0
    leave(law, o, trial, where_in(trial, j))
    for i in range(o.span[p]):
        n = r.loss.pick[i]
        while trial.jobs_on[n] > 0:
            other = trial.job[n, 0]
            leave(law, o, trial, where_in(trial, other))
            r.victim[gone] = other
            gone += 1
    return gone


@part
def settle_anew(
    law: Law, o: Options, trial: Occupancy, scratch: Scratch, types: Ints, r: LossRound, p: int,
    j: int, gone: int, horizon_s: float,
) -> bool:  # fmt: skip
    """Let job j run on the picked nodes and find places for the others; False: there are none."""
    m = r.loss
    for i in range(o.span[p]):
        if not has_room(o, trial, j, o.span[p], m.pick[i]):
            return False
    begin(law, o, trial, p, j, m.pick)
    note_nodes(trial, m, j)
    r.moved[j] = p
    for i in range(gone):
        v = r.victim[i]
        if find_place(law, o, trial, scratch, m, types[v], v, horizon_s) == np.inf:
            return False
        begin(law, o, trial, m.chosen[0], v, m.place)
        note_nodes(trial, m, v)
        r.moved[v] = m.chosen[0]
    return True


@part
def displace_one(
    law: Law, o: Options, room: Occupancy, trial: Occupancy, scratch: Scratch, types: Ints,
    r: LossRound, j: int, now_s: float, settings: LossSettings,
) -> bool:  # fmt: skip
    """Move job j to faster GPUs from which others move away, if all together gain by it."""
    m, q, horizon_s = r.loss, types[j], settings.horizon_s
    before = total_loss(law, room, m, horizon_s)
    for p in range(m.first[q], m.first[q + 1]):
        for gpu in range(o.speed.shape[1]):
            if o.speed[p, gpu] <= room.alone[j] * (1.0 + 1e-9):
                continue
            if not pick_emptiest(o, room, r, p, j, gpu, now_s):
                continue
            restore(trial, room)
            gone = clear_nodes(law, o, trial, r, p, j)
            settled = settle_anew(law, o, trial, scratch, types, r, p, j, gone, horizon_s)
            cost = move_cost(r, o.jobs, j)
            for i in range(gone):
                cost += move_cost(r, o.jobs, r.victim[i])
            gains = settled and (
                before - total_loss(law, trial, m, horizon_s) - cost > settings.gain_s
            )
            if gains:
                restore(room, trial)
                r.touched[j], r.spread[j] = 1, r.moved[j]
            else:
                note_nodes(room, m, j)
            for i in range(gone):
                v = r.victim[i]
                if gains:
                    r.touched[v], r.spread[v] = 1, r.moved[v]
                else:
                    note_nodes(room, m, v)
            if gains:
                return True
    return False


@part
def rearrange(
    law: Law, o: Options, room: Occupancy, trial: Occupancy, scratch: Scratch, types: Ints,
    r: LossRound, now_s: float, settings: LossSettings,
) -> None:  # fmt: skip
    """Move the jobs that lose most, and others away for them if need be."""
    for i in range(list_movers(law, room, r, o.jobs, now_s, settings)):
        j = r.mover[i]
        moved = move_one(law, o, room, trial, scratch, types, r, j, settings)
        if settings.displaces and not moved:
            displace_one(law, o, room, trial, scratch, types, r, j, now_s, settings)


@kernel
def least_loss_round(
    t: PlacementTables, rooms: Rooms, trial: Occupancy, rows: Records, order: Ints,
    nodes: Records, shares: Records, now_s: float, settings: LossSettings, memory: LossRound,
) -> bool:  # fmt: skip
    """Write a round into the occupancy and `memory`; False if a node lists too many jobs."""
    tables, m, r = by_reference(t), by_reference(rooms), by_reference(memory)
    other, law = by_reference(trial), tables.law
    if not occupy(tables, m, rows, order, order.size, nodes, shares, now_s):
        return False
    copy_fixed(other, m.room)
    look_at_jobs(m, r, rows, order, nodes, now_s, settings)
    advise(m, r.loss, r.key, r.advice, rows, order, now_s, settings.horizon_s)
    for i in range(m.room.run[m.room.run.size - 1]):
        note_nodes(m.room, r.loss, m.room.run[i])
    r.queue[r.queue.size - 1] = 0
    for i in range(order.size):
        if rows[order[i]]["share_len"] == 0 and m.types.spreads[m.types.of[order[i]]] > 0:
            line_up(r, order[i])
    o = all_spreads(m.options, rows, m.counts)
    start_waiting(law, o, m.room, other, m.scratch, m.types.of, r, settings)
    if settings.moves:
        rearrange(law, o, m.room, other, m.scratch, m.types.of, r, now_s, settings)
    return True
