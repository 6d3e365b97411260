"""Grow a set of nodes for a spread, node by node: the best one first, then the best beside it.

While a set grows, only nodes whose jobs are hit are weighed anew. A set only loses by growing, so
one that is not good enough is given up at once.
"""

from __future__ import annotations

import numpy as np

from rota.core.speed import MACHINES
from rota.core.types import Ints
from rota.jit import part
from rota.policies.contention.greedy_kernels import TIE, worth
from rota.policies.contention.loss_kernels import loss_on, loss_over
from rota.policies.contention.neighbour_kernels import (
    GreedySettings,
    Law,
    Occupancy,
    Options,
    Scratch,
    workers_at,
)
from rota.policies.contention.uplink_kernels import on_uplink


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
            scratch.gain[n] = np.nan


@part
def weigh_links(
    law: Law, options: Options, room: Occupancy, scratch: Scratch, least: float, k: int, row: int
) -> None:
    """Work out what uplinks and spine leave a newcomer, and what others would lose there.

    As with nodes (`part_kernels`), only those are weighed again that have changed.
    """
    rows = scratch.up_weighed.size
    scratch.seen[scratch.hit.size] += 1  # nothing is placed yet
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

    Returns what others lose there. What nodes add is to be worked out anew where that changes it.
    """
    clock, spine, rack = scratch.seen[scratch.hit.size], room.up_load.size - 1, room.rack[n]
    if scratch.opened[rack] == clock:
        return 0.0
    scratch.opened[rack] = clock
    if rack == home:  # no node has been weighed over uplinks yet
        weigh_racks(scratch, row, home)
        return 0.0
    loss = open_link(law, options, room, scratch, least, k, held, row, rack)
    if scratch.opened[spine] != clock:
        scratch.opened[spine] = clock
        loss += open_link(law, options, room, scratch, least, k, held, row, home)
        loss += open_link(law, options, room, scratch, least, k, held, row, spine)
        weigh_racks(scratch, row, home)
        scratch.gain[:] = np.nan
    else:
        scratch.rack_ratio[rack], scratch.rack_loss[rack] = 1.0, 0.0
        for a in range(scratch.ends[rack - 1] if rack > 0 else 0, scratch.ends[rack]):
            scratch.gain[scratch.by_rack[a]] = np.nan
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
def gain_of(
    law: Law, options: Options, room: Occupancy, scratch: Scratch, p: int, j: int, row: int,
    n: int, own: float, alone: float, away: bool,
) -> float:  # fmt: skip
    """What node n adds to a set to which `own` and `alone` are left; `away`: over uplinks.

    Jobs that lose on both a node and an uplink count twice.
    """
    speed = min(alone, options.speed[p, room.type[n]])
    ratio, lost = min(own, scratch.part_ratio[row, n]), scratch.loss[n]
    if away:
        ratio = min(ratio, scratch.rack_ratio[room.rack[n]])
        lost += scratch.rack_loss[room.rack[n]]
    return float(options.weight[j] * speed * max(law.floor, ratio) - lost)


@part
def best_node(
    law: Law, options: Options, room: Occupancy, scratch: Scratch, p: int, j: int, row: int,
    begin: int, able: int, own: float, alone: float, away: bool, again: bool,
) -> int:  # fmt: skip
    """The place in scratch.able[begin:able] of the node that adds most.

    scratch.gain has what each adds, NaN where that has changed; `again`: it has for all.
    """
    at, top = -1, -np.inf
    for a in range(begin, able):
        n = scratch.able[a]
        gain = scratch.gain[n]
        if again or np.isnan(gain):
            gain = gain_of(law, options, room, scratch, p, j, row, n, own, alone, away)
            scratch.gain[n] = gain
        if at >= 0 and gain <= top - TIE:
            continue
        # Between equals the fuller node, so that room stays for others.
        if at < 0 or gain > top + TIE or room.free[n] < room.free[scratch.able[at]]:
            at, top = a, gain
    return at


@part
def too_little(
    scratch: Scratch, room: Occupancy, at: int, begin: int, able: int, away: bool, limit: float
) -> bool:
    """Whether no node of scratch.able[begin:able] adds `limit`, losses on uplinks not counted."""
    if scratch.gain[scratch.able[at]] >= limit:
        return False
    if away:
        for a in range(begin, able):
            n = scratch.able[a]
            if scratch.gain[n] + scratch.rack_loss[room.rack[n]] >= limit:
                return False
    return True


@part
def grow(
    law: Law, options: Options, room: Occupancy, scratch: Scratch, settings: GreedySettings,
    p: int, j: int, row: int, able: int, limit: float, racks: bool,
) -> float:  # fmt: skip
    """The score of one set out of scratch.able[:able], then in scratch.pick.

    The best node first, then the best beside it, and so on. −inf once the gain is below `limit`.
    With `racks`, the nodes may be in several, between which are uplinks that have been weighed.
    """
    span, k, job, least = options.span[p], options.kind[p], options.jobs[j], settings.min_ratio
    scratch.seen[scratch.hit.size] += 1
    for a in range(able):
        scratch.loss[scratch.able[a]] = scratch.part_loss[row, scratch.able[a]]
    own, alone, loss, home, again = 1.0, np.inf, 0.0, 0, True
    last_held = workers_at(job["workers"], span, 0) * job["gpus_per_worker"]
    for i in range(span):
        held = workers_at(job["workers"], span, i) * job["gpus_per_worker"]
        if law.mode == MACHINES and held != last_held:
            for a in range(i, able):
                n = scratch.able[a]
                scratch.loss[n] = loss_on(law, options, room, scratch, n, k, held, least, False)
            again = True
        last_held, away = held, racks and i > 0
        at = best_node(
            law, options, room, scratch, p, j, row, i, able, own, alone, away, again
        )  # fmt: skip
        if too_little(scratch, room, at, i, able, away, limit + loss):
            return -np.inf
        n = scratch.able[at]
        if i == 0:
            home = room.rack[n]
        scratch.able[at] = scratch.able[i]
        scratch.able[i] = scratch.pick[i] = n
        own_then, alone_then = own, alone
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
        again = (racks and i == 0) or own != own_then or alone != alone_then
    sort_nodes(scratch.pick, span)
    return worth(law, options, room, scratch, settings, p, j, scratch.pick)
