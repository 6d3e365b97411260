"""What running jobs lose by a newcomer, on nodes and on uplinks."""

from __future__ import annotations

import numpy as np

from rota.core.types import Ints
from rota.jit import part
from rota.policies.contention.neighbour_kernels import Law, Occupancy, Options, Scratch, after
from rota.policies.contention.uplink_kernels import crosses, is_crowded, on_uplink, opens_rack


@part
def lose(
    law: Law, options: Options, room: Occupancy, scratch: Scratch, o: int, then: float,
    least: float, keep: bool,
) -> float:  # fmt: skip
    """What job o loses if `then` is left to it; infinite if that is below `least`."""
    clock = scratch.seen[scratch.hit.size]
    now = scratch.hit[o] if scratch.seen[o] == clock else room.low[o]
    if not then < now:
        return 0.0
    above, below = max(law.floor, now), max(law.floor, then)
    if below < least and below < above:
        return np.inf
    if keep:
        scratch.hit[o], scratch.seen[o] = then, clock
    return float(options.weight[o] * room.alone[o] * (above - below))


@part
def loss_on(
    law: Law, options: Options, room: Occupancy, scratch: Scratch, n: int, k: int, held: int,
    least: float, keep: bool,
) -> float:  # fmt: skip
    """What the jobs on node n lose by a newcomer, beyond what they lose by it elsewhere.

    Infinite if one falls below `least`. With `keep`, the losses are noted in `scratch`.
    """
    loss = 0.0
    for s in range(room.jobs_on[n]):
        then = after(law, room, n, s, k, held)
        loss += lose(law, options, room, scratch, room.job[n, s], then, least, keep)
    return loss


@part
def loss_over(
    law: Law, options: Options, room: Occupancy, scratch: Scratch, u: int, k: int, least: float,
    keep: bool,
) -> float:  # fmt: skip
    """What the jobs on uplink u lose by a newcomer, beyond what they lose by it elsewhere."""
    loss, more_gbps = 0.0, law.traffic_gbps[k]
    if is_crowded(law, room, u, more_gbps):
        for s in range(room.riders[u]):
            o = room.rider[u, s]
            then = on_uplink(law, room, room.kind[o], u, more_gbps)
            loss += lose(law, options, room, scratch, o, then, least, keep)
    return loss


@part
def loss_across(
    law: Law, options: Options, room: Occupancy, scratch: Scratch, k: int, nodes: Ints, span: int,
    least: float,
) -> float:  # fmt: skip
    """What jobs lose on the uplinks and the spine that a newcomer on nodes[:span] uses; noted."""
    if k < 0 or not crosses(room, nodes, span):
        return 0.0
    loss = loss_over(law, options, room, scratch, room.up_load.size - 1, k, least, True)
    for i in range(span):
        if opens_rack(room, nodes, i):
            u = room.rack[nodes[i]]
            loss += loss_over(law, options, room, scratch, u, k, least, True)
    return loss
