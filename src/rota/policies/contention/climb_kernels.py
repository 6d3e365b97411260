"""Which nodes a spread takes where there are too many sets to try: one set, grown node by node.

What a node is worth to a spread is worked out once and again where it has changed
(`part_kernels`). While a set grows, only nodes whose jobs are hit are weighed anew. A set only
loses by growing, so one that is not good enough is given up at once, and spreads are tried in the
order of what they gain at best.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rota.core.speed import MACHINES
from rota.core.types import Ints
from rota.jit import part
from rota.policies.contention.greedy_kernels import (
    EXACT,
    TIE,
    has_room,
    mark_twins,
    offer,
    try_all,
    worth,
)
from rota.policies.contention.loss_kernels import loss_on, loss_over
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
from rota.policies.contention.uplink_kernels import crosses, on_uplink

ROUNDING: Final = 1e-9
"""A gain that is short of a bound by this part may be rounding."""


@part
def weigh_again(
    law: Law, options: Options, room: Occupancy, scratch: Scratch, least: float, k: int, held: int,
    row: int, o: int,
) -> None:  # fmt: skip
    """Weigh the nodes of job o that have room anew, if it was hit."""
    if scratch.seen[o] == scratch.seen[scratch.hit.size]:
        for i in range(room.span[o]):
            n = room.node[o, i]
            if scratch.part_ratio[row, n] < 0.0:
                continue
            scratch.loss[n] = loss_on(law, options, room, scratch, n, k, held, least, False)


@part
def weigh_links(
    law: Law, options: Options, room: Occupancy, scratch: Scratch, least: float, k: int, row: int
) -> None:
    """Work out what uplinks and spine leave a newcomer, and what others would lose there.

    As with nodes (`part_kernels`), only those are weighed again that have changed.
    """
    rows = scratch.up_weighed.size
    for u in range(room.up_load.size):
        if row == rows - 1 or room.up_changed[u] > scratch.up_weighed[row]:
            scratch.up_ratio[row, u] = on_uplink(law, room, k, u, law.traffic_gbps[k])
            scratch.up_loss[row, u] = loss_over(law, options, room, scratch, u, k, least, False)
    scratch.up_weighed[row] = room.changed[room.free.size] - 1


@part
def weigh_racks(scratch: Scratch, row: int, home: int) -> None:
    """Work out what a further node in each rack means for uplinks; `home` is the first one's."""
    clock, spine = scratch.seen[scratch.hit.size], scratch.opened.size - 1
    up_ratio, up_loss = scratch.up_ratio[row], scratch.up_loss[row]
    ratio, loss = 1.0, 0.0
    if scratch.opened[spine] != clock:  # whichever other rack comes next, these two are used then
        ratio = min(up_ratio[home], up_ratio[spine])
        loss = up_loss[home] + up_loss[spine]
    for u in range(spine):
        scratch.rack_ratio[u], scratch.rack_loss[u] = 1.0, 0.0
        if scratch.opened[u] != clock:
            scratch.rack_ratio[u] = min(ratio, up_ratio[u])
            scratch.rack_loss[u] = loss + up_loss[u]


@part
def open_link(
    law: Law, options: Options, room: Occupancy, scratch: Scratch, least: float, k: int, held: int,
    row: int, u: int,
) -> float:  # fmt: skip
    """Let the newcomer use uplink u; returns what others lose there, which is noted."""
    loss = loss_over(law, options, room, scratch, u, k, least, True)
    if loss > 0.0:
        for s in range(room.riders[u]):
            weigh_again(law, options, room, scratch, least, k, held, row, room.rider[u, s])
    return loss


@part
def open_rack(
    law: Law, options: Options, room: Occupancy, scratch: Scratch, least: float, k: int, held: int,
    row: int, n: int, home: int,
) -> float:  # fmt: skip
    """Let the newcomer, whose first node is in rack `home`, use the uplinks that node n calls for.

    Returns what others lose there.
    """
    clock, spine, rack = scratch.seen[scratch.hit.size], room.up_load.size - 1, room.rack[n]
    if scratch.opened[rack] == clock:
        return 0.0
    scratch.opened[rack] = clock
    loss = 0.0
    if rack != home:
        loss = open_link(law, options, room, scratch, least, k, held, row, rack)
        if scratch.opened[spine] != clock:
            scratch.opened[spine] = clock
            loss += open_link(law, options, room, scratch, least, k, held, row, home)
            loss += open_link(law, options, room, scratch, least, k, held, row, spine)
    weigh_racks(scratch, row, home)
    return loss


@part
def sort_nodes(nodes: Ints, span: int) -> None:
    """Sort nodes[:span], which are nearly sorted or few."""
    for i in range(1, span):
        at, n = i, nodes[i]
        while at > 0 and nodes[at - 1] > n:
            nodes[at] = nodes[at - 1]
            at -= 1
        nodes[at] = n


@part
def grow(
    law: Law, options: Options, room: Occupancy, scratch: Scratch, settings: GreedySettings,
    p: int, j: int, row: int, able: int, limit: float, racks: bool,
) -> float:  # fmt: skip
    """The score of one set out of scratch.able[:able], then in scratch.pick.

    The best node first, then the best beside it, and so on. −inf once the gain is below `limit`.
    With `racks`, the nodes may be in several, between which are uplinks.
    """
    span, k, job, least = options.span[p], options.kind[p], options.jobs[j], settings.min_ratio
    scratch.seen[scratch.hit.size] += 1
    for a in range(able):
        scratch.loss[scratch.able[a]] = scratch.part_loss[row, scratch.able[a]]
    own, alone, loss, home = 1.0, np.inf, 0.0, 0
    last_held = workers_at(job["workers"], span, 0) * job["gpus_per_worker"]
    for i in range(span):
        held = workers_at(job["workers"], span, i) * job["gpus_per_worker"]
        if law.mode == MACHINES and held != last_held:
            for a in range(i, able):
                n = scratch.able[a]
                scratch.loss[n] = loss_on(law, options, room, scratch, n, k, held, least, False)
        last_held = held
        at, top, bound = -1, -np.inf, -np.inf
        for a in range(i, able):
            n = scratch.able[a]
            speed = min(alone, options.speed[p, room.type[n]])
            ratio, lost = min(own, scratch.part_ratio[row, n]), scratch.loss[n]
            if racks and i > 0:
                ratio = min(ratio, scratch.rack_ratio[room.rack[n]])
            gain = options.weight[j] * speed * max(law.floor, ratio) - (loss + lost)
            bound = max(bound, gain)
            if racks and i > 0:  # jobs that lose on both a node and an uplink count twice here
                gain -= scratch.rack_loss[room.rack[n]]
            better = at < 0 or gain > top + TIE
            # Between equals the fuller node, so that room stays for others.
            if better or (gain > top - TIE and room.free[n] < room.free[scratch.able[at]]):
                at, top = a, gain
        if bound < limit:
            return -np.inf
        n = scratch.able[at]
        if racks and i == 0:  # many sets are given up before it is needed
            weigh_links(law, options, room, scratch, least, k, row)
            home = room.rack[n]
        scratch.able[at] = scratch.able[i]
        scratch.able[i] = scratch.pick[i] = n
        own = min(own, scratch.part_ratio[row, n])
        alone = min(alone, options.speed[p, room.type[n]])
        loss += loss_on(law, options, room, scratch, n, k, held, least, True)
        if i == span - 1:
            break
        for s in range(room.jobs_on[n]):
            weigh_again(law, options, room, scratch, least, k, held, row, room.job[n, s])
        if racks:
            own = min(own, scratch.rack_ratio[room.rack[n]]) if i > 0 else own
            loss += open_rack(law, options, room, scratch, least, k, held, row, n, home)
    sort_nodes(scratch.pick, span)
    return worth(law, options, room, scratch, settings, p, j, scratch.pick)


@part
def grow_at_home(
    law: Law, options: Options, room: Occupancy, scratch: Scratch, settings: GreedySettings,
    p: int, j: int, row: int, able: int, limit: float,
) -> float:  # fmt: skip
    """The score of the best set within one rack, then in scratch.home; −inf if there is none."""
    span, top, racks = options.span[p], -np.inf, room.up_load.size - 1
    scratch.ends[:] = 0
    for a in range(able):
        scratch.ends[room.rack[scratch.able[a]]] += 1
    begin = 0
    for rack in range(racks):
        begin, scratch.ends[rack] = begin + scratch.ends[rack], begin
    for n in range(room.free.size):
        if scratch.part_ratio[row, n] >= 0.0:
            scratch.by_rack[scratch.ends[room.rack[n]]] = n
            scratch.ends[room.rack[n]] += 1
    begin = 0
    for rack in range(racks):
        count = scratch.ends[rack] - begin
        if count >= span:
            for a in range(count):
                scratch.able[a] = scratch.by_rack[begin + a]
            score = grow(law, options, room, scratch, settings, p, j, row, count, limit, False)
            if score > top + TIE:
                top = score
                gain = score * options.size[j] ** (1.0 + settings.size)
                limit = max(limit, gain - abs(gain) * ROUNDING)
                for i in range(span):
                    scratch.home[i] = scratch.pick[i]
        begin = scratch.ends[rack]
    return top


@part
def climb(
    law: Law, options: Options, room: Occupancy, scratch: Scratch, settings: GreedySettings,
    p: int, j: int, row: int, able: int, found: Found, most: int,
) -> None:  # fmt: skip
    """Weigh one set of nodes, and if it could cross racks, the best within one."""
    span = options.span[p]
    limit = least_gain(options, settings, found, most, j)
    if span > 1 and options.kind[p] >= 0 and room.up_load.size > 0:
        at_home = grow_at_home(law, options, room, scratch, settings, p, j, row, able, limit)
        scratch.last[p] = at_home
        if at_home > -np.inf:  # the first of two equals is preferred
            offer(found, most, at_home, p, j, scratch.home, span)
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
