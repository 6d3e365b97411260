"""Which nodes a spread takes where there are too many sets to try: one set, grown node by node.

What a node is worth to a spread is worked out once and again where it has changed
(`part_kernels`), and so is the best set within each rack. Spreads are tried in the order of what
they last scored, so those that are not good enough are given up soon.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rota.jit import part
from rota.policies.contention.greedy_kernels import (
    EXACT,
    TIE,
    has_room,
    mark_twins,
    offer,
    try_all,
)
from rota.policies.contention.grow_kernels import grow, weigh_links
from rota.policies.contention.neighbour_kernels import (
    Found,
    GreedySettings,
    Law,
    Occupancy,
    Options,
    Scratch,
    workers_at,
)
from rota.policies.contention.part_kernels import (
    count_free,
    list_able,
    note_changes,
    weigh_parts,
)
from rota.policies.contention.uplink_kernels import crosses

ROUNDING: Final = 1e-9
"""A gain that is short of a bound by this part may be rounding."""


@part
def list_racks(room: Occupancy, scratch: Scratch) -> None:
    """List the nodes rack by rack, and when one of each rack last changed."""
    racks = room.up_load.size - 1
    scratch.ends[:] = 0
    scratch.rack_changed[:] = 0
    for n in range(room.free.size):
        rack = room.rack[n]
        scratch.ends[rack] += 1
        scratch.rack_changed[rack] = max(scratch.rack_changed[rack], room.changed[n])
    begin = 0
    for rack in range(racks):
        begin, scratch.ends[rack] = begin + scratch.ends[rack], begin
    for n in range(room.free.size):
        scratch.by_rack[scratch.ends[room.rack[n]]] = n
        scratch.ends[room.rack[n]] += 1


@part
def grow_in_rack(
    law: Law, options: Options, room: Occupancy, scratch: Scratch, settings: GreedySettings,
    p: int, j: int, row: int, rack: int, limit: float,
) -> float:  # fmt: skip
    """The score of a set within this rack, which is in its part of scratch.home; −inf: none."""
    begin = scratch.ends[rack - 1] if rack > 0 else 0
    span, able, score = options.span[p], 0, -np.inf
    scratch.home_limit[row, rack] = -np.inf
    for a in range(begin, scratch.ends[rack]):
        n = scratch.by_rack[a]
        if scratch.part_ratio[row, n] >= 0.0:
            scratch.able[able] = n
            able += 1
    if able >= span:
        score = grow(law, options, room, scratch, settings, p, j, row, able, limit, False)
        scratch.home_limit[row, rack] = limit
        for i in range(span):
            scratch.home[row, begin + i] = scratch.pick[i]
    scratch.home_score[row, rack] = score
    return score


@part
def grow_at_home(
    law: Law, options: Options, room: Occupancy, scratch: Scratch, settings: GreedySettings,
    p: int, j: int, row: int, limit: float,
) -> float:  # fmt: skip
    """The score of the best set within one rack, then in scratch.pick; −inf if there is none.

    The sets of racks are remembered where they were good enough then, and grown again where a
    node has changed.
    """
    span, top, best, racks = options.span[p], -np.inf, 0, room.up_load.size - 1
    kept = row < scratch.home_when.size - 1 and scratch.home_weight[row] == options.weight[j]
    for rack in range(racks):
        score = scratch.home_score[row, rack]
        old = not kept or scratch.rack_changed[rack] > scratch.home_when[row]
        if old or (score == -np.inf and limit < scratch.home_limit[row, rack]):
            score = grow_in_rack(
                law, options, room, scratch, settings, p, j, row, rack, limit
            )  # fmt: skip
        if score > top + TIE:
            top, best = score, rack
            gain = score * options.size[j] ** (1.0 + settings.size)
            limit = max(limit, gain - abs(gain) * ROUNDING)
    scratch.home_when[row] = room.changed[room.free.size] - 1
    scratch.home_weight[row] = options.weight[j]
    begin = scratch.ends[best - 1] if best > 0 else 0
    for i in range(span):
        scratch.pick[i] = scratch.home[row, begin + i]
    return top


@part
def may_cross(
    law: Law, options: Options, room: Occupancy, scratch: Scratch, settings: GreedySettings,
    p: int, j: int, row: int, limit: float,
) -> bool:  # fmt: skip
    """Whether a set over several racks could gain `limit`, by what the spine leaves it alone."""
    weigh_links(law, options, room, scratch, settings.min_ratio, options.kind[p], row)
    spine = room.up_load.size - 1
    whole = scratch.bound[p] * options.size[j] ** (1.0 + settings.size)
    left = whole * max(law.floor, scratch.up_ratio[row, spine]) - scratch.up_loss[row, spine]
    return bool(left >= limit)


@part
def climb(
    law: Law, options: Options, room: Occupancy, scratch: Scratch, settings: GreedySettings,
    p: int, j: int, row: int, able: int, found: Found, most: int,
) -> None:  # fmt: skip
    """Weigh one set of nodes, and if it could cross racks, the best within one."""
    span = options.span[p]
    limit = least_gain(options, settings, found, most, j)
    if span > 1 and options.kind[p] >= 0 and room.up_load.size > 0:
        at_home = grow_at_home(law, options, room, scratch, settings, p, j, row, limit)
        scratch.last[p] = at_home
        if at_home > -np.inf:  # the first of two equals is preferred
            offer(found, most, at_home, p, j, scratch.pick, span)
            limit = least_gain(options, settings, found, most, j)
        if not may_cross(law, options, room, scratch, settings, p, j, row, limit):
            return
        able = list_able(room, scratch, row)
        score = grow(law, options, room, scratch, settings, p, j, row, able, limit, True)
        scratch.last[p] = max(scratch.last[p], score)
        if score > -np.inf and crosses(room, scratch.pick, span):
            offer(found, most, score, p, j, scratch.pick, span)
        return
    score = grow(law, options, room, scratch, settings, p, j, row, able, limit, False)
    scratch.last[p] = score
    if score > -np.inf:
        offer(found, most, score, p, j, scratch.pick, span)


@part
def least_gain(
    options: Options, settings: GreedySettings, found: Found, most: int, j: int
) -> float:
    """A placement of job j that gains less than this is not among the best `most`."""
    gain = settings.threshold * options.weight[j]
    if found.option[found.score.size - 1] == most:
        worst = found.score[most - 1] * options.size[j] ** (1.0 + settings.size)
        gain = max(gain, worst)
    return float(gain - abs(gain) * ROUNDING)


@part
def rank_options(
    options: Options, room: Occupancy, scratch: Scratch, settings: GreedySettings
) -> int:
    """Sort the spreads of which a job waits by what they last scored; returns their number.

    So those that are not among the best are given up soon: the best have been found by then.
    """
    count = 0
    for p in range(options.type.size):
        q = options.type[p]
        if room.head[q] == options.end[q]:
            continue
        j, fastest = options.queue[room.head[q]], 0.0
        for gpu in range(options.speed.shape[1]):
            fastest = max(fastest, options.speed[p, gpu])
        scratch.bound[p] = options.weight[j] * fastest / options.size[j] ** (1.0 + settings.size)
        at = count
        while at > 0 and scratch.last[scratch.rank[at - 1]] < scratch.last[p]:
            scratch.rank[at] = scratch.rank[at - 1]
            at -= 1
        scratch.rank[at] = p
        count += 1
    return count


@part
def climb_all(
    law: Law, options: Options, room: Occupancy, scratch: Scratch, settings: GreedySettings,
    found: Found, most: int,
) -> None:  # fmt: skip
    """Find the best placements where a set per spread is grown."""
    changes = note_changes(room, scratch)
    if room.up_load.size > 0:
        list_racks(room, scratch)
    count_free(room, scratch)
    for i in range(rank_options(options, room, scratch, settings)):
        p = scratch.rank[i]
        j = options.queue[room.head[options.type[p]]]
        scale = options.size[j] ** (1.0 + settings.size)
        scratch.last[p] = -np.inf
        if scratch.bound[p] * scale < least_gain(options, settings, found, most, j):
            continue
        job, span = options.jobs[j], options.span[p]
        held = workers_at(job["workers"], span, 0) * job["gpus_per_worker"]
        if scratch.with_free[min(held, scratch.with_free.size - 1)] < span:
            continue
        row = weigh_parts(law, options, room, scratch, settings.min_ratio, p, j, held, changes)
        able = list_able(room, scratch, row)
        if able >= span:
            climb(law, options, room, scratch, settings, p, j, row, able, found, most)
    scratch.weighed[scratch.part_ratio.shape[0]] = room.changed[room.free.size] - 1


@part
def scan(
    law: Law, options: Options, room: Occupancy, scratch: Scratch, settings: GreedySettings,
    found: Found, most: int,
) -> int:  # fmt: skip
    """Find the best `most` placements of the next job of each type; returns their number."""
    last = found.score.size - 1
    found.option[last] = 0
    if room.free.size > EXACT:
        climb_all(law, options, room, scratch, settings, found, most)
        return int(found.option[last])
    mark_twins(room, scratch)
    for p in range(options.type.size):
        q, span = options.type[p], options.span[p]
        if room.head[q] == options.end[q]:
            continue
        j, able = options.queue[room.head[q]], 0
        for n in range(room.free.size):
            if has_room(options, room, j, span, n):
                scratch.able[able] = n
                able += 1
        if able >= span:
            try_all(law, options, room, scratch, settings, p, j, able, found, most)
    return int(found.option[last])
