"""How much time jobs lose by where they run, and the place in which all together lose least.

A job that needs R more seconds in its best place and runs at pace p (1 there) ends R / p − R later.
Over a horizon H it loses no more than H (1 − p): after that it may have been moved. The lesser of
the two counts. A newcomer also costs what the jobs beside it lose.

Where fees count, a second in which a job holds GPUs costs what they cost per second, in seconds
that this is worth. Where somebody advises, a place also costs its toll.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from rota.core.types import Floats, Ints
from rota.jit import part
from rota.policies.contention.greedy_kernels import EXACT, has_room
from rota.policies.contention.grow_kernels import sort_nodes
from rota.policies.contention.neighbour_kernels import (
    Law,
    Occupancy,
    Options,
    Scratch,
    after,
    kept,
    workers_at,
)
from rota.policies.contention.uplink_kernels import (
    crosses,
    is_crowded,
    kept_across,
    on_uplink,
    opens_rack,
)

MOST_COST_S: Final = 1e300
"""No place costs more, unless a job cannot run there."""


class LossMemory(NamedTuple):
    """What losses are worked out from and in."""

    need: Floats  # (J,) seconds that a job still needs in its best place
    best: Floats  # (J,) its speed there, relative to its reference
    factor: Floats  # (N,) speed expected of a node, as a part of what tables say
    slow: Floats  # (J,) the least factor of a running job's nodes
    first: Ints  # (Q + 1,) the first spread of each type
    node: Ints  # (N,) nodes that have room
    cost: Floats  # (N,) what each costs the job to come
    pick: Ints  # (N,) a set of nodes
    place: Ints  # (N,) the best set so far
    chosen: Ints  # (1,) its spread
    price: Floats  # (N,) what a GPU there costs per second, in seconds that this is worth
    dear: Floats  # (J,) what a running job's GPUs cost per second, in the same unit
    toll: Floats  # (J, T) seconds that a place on a GPU type costs beside, for each job
    charge: Floats  # (J,) the toll of a running job: that of its dearest node


@part
def lost_s(need_s: float, pace: float, horizon_s: float) -> float:
    """The time that a job loses at this pace."""
    if pace <= 0.0:
        return horizon_s
    return min(need_s / pace - need_s, horizon_s * (1.0 - pace))


@part
def cost_s(need_s: float, pace: float, dear: float, horizon_s: float) -> float:
    """The same with its fee, for as long as that counts; finite, as the job can run there."""
    lost = lost_s(need_s, pace, horizon_s)
    return min(MOST_COST_S, lost * (1.0 + dear) + dear * min(need_s, horizon_s))


@part
def pace_of(law: Law, room: Occupancy, m: LossMemory, j: int, low: float) -> float:
    """The pace of running job j if `low` is left to it of its speed; 1 is its best place."""
    return float(room.alone[j] * max(law.floor, low) * m.slow[j] / m.best[j])


@part
def loss_of(law: Law, room: Occupancy, m: LossMemory, j: int, horizon_s: float) -> float:
    """The time that running job j loses where it is, with fee and toll."""
    pace = pace_of(law, room, m, j, room.low[j])
    return float(cost_s(m.need[j], pace, m.dear[j], horizon_s) + m.charge[j])


@part
def total_loss(law: Law, room: Occupancy, m: LossMemory, horizon_s: float) -> float:
    """The time that all running jobs lose."""
    total = 0.0
    for i in range(room.run[room.run.size - 1]):
        total += loss_of(law, room, m, room.run[i], horizon_s)
    return total


@part
def lowered(
    law: Law, room: Occupancy, scratch: Scratch, m: LossMemory, o: int, then: float,
    horizon_s: float, keep: bool,
) -> float:  # fmt: skip
    """The time that job o loses if `then` is left to it, beyond what it loses by the same newcomer
    elsewhere; noted with `keep`."""
    clock = scratch.seen[scratch.hit.size]
    now = scratch.hit[o] if scratch.seen[o] == clock else room.low[o]
    if not then < now:
        return 0.0
    if keep:
        scratch.hit[o], scratch.seen[o] = then, clock
    slower = lost_s(m.need[o], pace_of(law, room, m, o, then), horizon_s)
    before = lost_s(m.need[o], pace_of(law, room, m, o, now), horizon_s)
    return float((slower - before) * (1.0 + m.dear[o]))


@part
def others_lose(
    law: Law, room: Occupancy, scratch: Scratch, m: LossMemory, n: int, k: int, held: int,
    horizon_s: float, keep: bool,
) -> float:  # fmt: skip
    """The time that the jobs on node n lose by a newcomer of kind k."""
    loss = 0.0
    for s in range(room.jobs_on[n]):
        then = after(law, room, n, s, k, held)
        loss += lowered(law, room, scratch, m, room.job[n, s], then, horizon_s, keep)
    return loss


@part
def riders_lose(
    law: Law, room: Occupancy, scratch: Scratch, m: LossMemory, u: int, k: int, horizon_s: float
) -> float:
    """The time that the jobs on uplink u lose by a newcomer of kind k."""
    loss, more_gbps = 0.0, law.traffic_gbps[k]
    if is_crowded(law, room, u, more_gbps):
        for s in range(room.riders[u]):
            o = room.rider[u, s]
            then = on_uplink(law, room, room.kind[o], u, more_gbps)
            loss += lowered(law, room, scratch, m, o, then, horizon_s, True)
    return loss


@part
def place_cost(
    law: Law, o: Options, room: Occupancy, scratch: Scratch, m: LossMemory, p: int, j: int,
    pick: Ints, horizon_s: float,
) -> float:  # fmt: skip
    """The time that all lose if job j goes to `pick` with spread p; infinite if it cannot run."""
    span, k, job = o.span[p], o.kind[p], o.jobs[j]
    scratch.seen[scratch.hit.size] += 1
    own, alone, slow, loss = 1.0, np.inf, np.inf, 0.0
    dear, charge = 0.0, -np.inf
    for i in range(span):
        n = pick[i]
        held = workers_at(job["workers"], span, i) * job["gpus_per_worker"]
        alone = min(alone, o.speed[p, room.type[n]])
        own, slow = min(own, kept(law, room, k, n, -1)), min(slow, m.factor[n])
        dear, charge = dear + held * m.price[n], max(charge, m.toll[j, room.type[n]])
        loss += others_lose(law, room, scratch, m, n, k, held, horizon_s, True)
    if k >= 0 and room.up_load.size > 0 and crosses(room, pick, span):
        own = min(own, kept_across(law, room, k, pick, span, law.traffic_gbps[k]))
        loss += riders_lose(law, room, scratch, m, room.up_load.size - 1, k, horizon_s)
        for i in range(span):
            if opens_rack(room, pick, i):
                loss += riders_lose(law, room, scratch, m, room.rack[pick[i]], k, horizon_s)
    if alone <= 0.0:
        return np.inf
    pace = alone * max(law.floor, own) * slow / m.best[j]
    return float(loss + cost_s(m.need[j], pace, dear, horizon_s) + charge)


@part
def keep_best(
    law: Law, o: Options, room: Occupancy, scratch: Scratch, m: LossMemory, p: int, j: int,
    horizon_s: float, least: float,
) -> float:  # fmt: skip
    """Weigh the set m.pick, and keep it if it costs less than `least`; returns the lesser."""
    cost = place_cost(law, o, room, scratch, m, p, j, m.pick, horizon_s)
    if not cost < least:
        return least
    m.chosen[0] = p
    for i in range(o.span[p]):
        m.place[i] = m.pick[i]
    return cost


@part
def try_sets(
    law: Law, o: Options, room: Occupancy, scratch: Scratch, m: LossMemory, p: int, j: int,
    able: int, horizon_s: float, least: float,
) -> float:  # fmt: skip
    """Weigh every set out of m.node[:able]."""
    for sets in range(1, 1 << able):
        count = 0
        for a in range(able):
            if (sets >> a) & 1:
                if count < o.span[p]:
                    m.pick[count] = m.node[a]
                count += 1
        if count == o.span[p]:
            least = keep_best(law, o, room, scratch, m, p, j, horizon_s, least)
    return least


@part
def cheapest_nodes(
    law: Law, o: Options, room: Occupancy, scratch: Scratch, m: LossMemory, p: int, j: int,
    able: int, slowest: float, horizon_s: float,
) -> bool:  # fmt: skip
    """Pick the nodes that cost least by themselves, no slower than `slowest`; False: too few."""
    span, k, count = o.span[p], o.kind[p], 0
    held = workers_at(o.jobs[j]["workers"], span, 0) * o.jobs[j]["gpus_per_worker"]
    gpus = o.jobs[j]["workers"] * o.jobs[j]["gpus_per_worker"]
    scratch.seen[scratch.hit.size] += 1
    for a in range(able):
        n = m.node[a]
        if o.speed[p, room.type[n]] < slowest:
            continue
        pace = slowest * max(law.floor, kept(law, room, k, n, -1)) * m.factor[n] / m.best[j]
        cost = cost_s(m.need[j], pace, gpus * m.price[n], horizon_s) + m.toll[j, room.type[n]]
        cost += others_lose(law, room, scratch, m, n, k, held, horizon_s, False)
        at = min(count, span)  # the best so far are sorted; the fuller of two equals comes first
        while at > 0 and (
            cost < m.cost[at - 1]
            or (cost == m.cost[at - 1] and room.free[n] < room.free[m.pick[at - 1]])
        ):
            if at < span:
                m.cost[at], m.pick[at] = m.cost[at - 1], m.pick[at - 1]
            at -= 1
        if at < span:
            m.cost[at], m.pick[at] = cost, n
        count += 1
    if count < span:
        return False
    sort_nodes(m.pick, span)
    return True


@part
def find_place(
    law: Law, o: Options, room: Occupancy, scratch: Scratch, m: LossMemory, q: int, j: int,
    horizon_s: float,
) -> float:  # fmt: skip
    """The least cost of a place for job j of type q; then in m.place, its spread in m.chosen.

    Infinite if there is none. On a few nodes all sets are tried; on more, for each GPU type, the
    nodes no slower than it that cost least by themselves.
    """
    least = np.inf
    for p in range(m.first[q], m.first[q + 1]):
        span, able = o.span[p], 0
        for n in range(room.free.size):
            if has_room(o, room, j, span, n):
                m.node[able] = n
                able += 1
        if able < span:
            continue
        if room.free.size <= EXACT:
            least = try_sets(law, o, room, scratch, m, p, j, able, horizon_s, least)
            continue
        for gpu in range(o.speed.shape[1]):
            slowest = o.speed[p, gpu]
            if slowest > 0.0 and cheapest_nodes(
                law, o, room, scratch, m, p, j, able, slowest, horizon_s
            ):
                least = keep_best(law, o, room, scratch, m, p, j, horizon_s, least)
    return least
