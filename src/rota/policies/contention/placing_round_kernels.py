"""Whole rounds of the contention-aware policies."""

from __future__ import annotations

from rota.core.types import Ints, Records
from rota.jit import kernel
from rota.jit_reference import by_reference
from rota.policies.contention.neighbour_kernels import Found, GreedySettings, Occupancy, Options
from rota.policies.contention.occupy_kernels import Rooms, occupy, trimmed
from rota.policies.contention.rollout_kernels import copy_fixed, fill, look_ahead
from rota.policies.contention.spread_kernels import PlacementTables


@kernel
def greedy_round(
    t: PlacementTables, rooms: Rooms, rows: Records, order: Ints, nodes: Records, shares: Records,
    now_s: float, settings: GreedySettings, found: Found,
) -> bool:  # fmt: skip
    """Start what the greedy rule starts now; False if the memory is too small."""
    tables, m = by_reference(t), by_reference(rooms)
    if not occupy(tables, m, rows, order, order.size, nodes, shares, now_s):
        return False
    options = trimmed(m.options, rows, m.counts)
    fill(tables.law, options, m.room, m.scratch, settings, by_reference(found))
    return True


@kernel
def rollout_round(
    t: PlacementTables, rooms: Rooms, rows: Records, order: Ints, nodes: Records, shares: Records,
    now_s: float, settings: GreedySettings, found: Found, listed: Found, trial: Occupancy,
    near_end: Ints, window: int,
) -> bool:  # fmt: skip
    """Start what looking ahead chooses; False if the memory is too small.

    trial     memory for an occupancy that is played to its end
    near_end  memory like `Options.end`
    window    waiting jobs in the play, as many of each type
    """
    tables, m, future = by_reference(t), by_reference(rooms), by_reference(trial)
    if not occupy(tables, m, rows, order, order.size, nodes, shares, now_s):
        return False
    o, room = trimmed(m.options, rows, m.counts), m.room
    near = by_reference(Options(
        rows, o.weight, o.size, o.sign, o.queue, near_end[: o.end.size], o.type, o.span, o.kind,
        o.speed,
    ))  # fmt: skip
    copy_fixed(future, room)
    quota = max(1, -(-window // max(1, m.counts.placed[0])))
    look_ahead(
        tables.law, o, near, room, future, m.scratch, settings, by_reference(listed),
        by_reference(found), quota,
    )  # fmt: skip
    return True
