"""Whole rounds of the contention-aware policies."""

from __future__ import annotations

from rota.core.types import Ints, Records
from rota.jit import kernel
from rota.policies.contention.neighbour_kernels import Found, GreedySettings, Occupancy, Options
from rota.policies.contention.occupy_kernels import Rooms, occupy, trimmed, with_heads
from rota.policies.contention.rollout_kernels import fill, look_ahead
from rota.policies.contention.spread_kernels import PlacementTables


@kernel
def greedy_round(
    t: PlacementTables, m: Rooms, rows: Records, order: Ints, nodes: Records, shares: Records,
    now_s: float, settings: GreedySettings, found: Found,
) -> bool:  # fmt: skip
    """Start what the greedy rule starts now; False if the memory is too small."""
    if not occupy(t, m, rows, order, order.size, nodes, shares, now_s):
        return False
    options, room = trimmed(m.options, rows, m.counts), with_heads(m.room, m.counts)
    fill(t.law, options, room, m.scratch, settings, found)
    return True


@kernel
def rollout_round(
    t: PlacementTables, m: Rooms, rows: Records, order: Ints, nodes: Records, shares: Records,
    now_s: float, settings: GreedySettings, found: Found, listed: Found, trial: Occupancy,
    near_end: Ints, window: int,
) -> bool:  # fmt: skip
    """Start what looking ahead chooses; False if the memory is too small.

    trial     memory for an occupancy that is played to its end
    near_end  memory like `Options.end`
    window    waiting jobs in the play, as many of each type
    """
    if not occupy(t, m, rows, order, order.size, nodes, shares, now_s):
        return False
    o, room = trimmed(m.options, rows, m.counts), with_heads(m.room, m.counts)
    near = Options(
        rows, o.weight, o.size, o.sign, o.queue, near_end[: o.end.size], o.type, o.span, o.kind,
        o.speed,
    )  # fmt: skip
    for n in range(nodes.size):  # what no play changes
        trial.gpus[n], trial.type[n], trial.rack[n] = room.gpus[n], room.type[n], room.rack[n]
    quota = max(1, -(-window // max(1, m.counts.placed[0])))
    look_ahead(
        t.law, o, near, room, with_heads(trial, m.counts), m.scratch, settings, listed, found, quota
    )
    return True
