"""Racks' uplinks and the spine: jobs that cross racks share them, and slow each other down there.

Links are numbered as racks, the spine last. Where the law has none, every node is in rack 0 and no
job crosses racks.
"""

from __future__ import annotations

from rota.core.types import Ints
from rota.jit import part
from rota.policies.contention.neighbour_kernels import Law, Occupancy, left_by


@part
def crosses(room: Occupancy, nodes: Ints, span: int) -> bool:
    """Whether nodes[:span] lie in more than one rack."""
    for i in range(1, span):
        if room.rack[nodes[i]] != room.rack[nodes[0]]:
            return True
    return False


@part
def opens_rack(room: Occupancy, nodes: Ints, i: int) -> bool:
    """Whether none of nodes[:i] is in the rack of nodes[i]."""
    e = i - 1
    while e >= 0 and room.rack[nodes[e]] != room.rack[nodes[i]]:
        e -= 1  # mostly the node before is in the same rack
    return e < 0


@part
def is_crowded(law: Law, room: Occupancy, u: int, more_gbps: float) -> bool:
    """Whether jobs want more of uplink u than it carries, with `more_gbps` on top."""
    return bool(room.up_load[u] + more_gbps > law.uplink_gbps[u])


@part
def on_uplink(law: Law, room: Occupancy, k: int, u: int, more_gbps: float) -> float:
    """What uplink u leaves kind k of its speed, with `more_gbps` on top."""
    return left_by(law.talk[k], room.up_load[u] + more_gbps, law.uplink_gbps[u])


@part
def kept_across(
    law: Law, room: Occupancy, k: int, nodes: Ints, span: int, more_gbps: float
) -> float:
    """What uplinks and spine leave a job of kind k on nodes[:span], with `more_gbps` on top."""
    if k < 0 or not crosses(room, nodes, span):
        return 1.0
    ratio = on_uplink(law, room, k, room.up_load.size - 1, more_gbps)
    for i in range(span):
        ratio = min(ratio, on_uplink(law, room, k, room.rack[nodes[i]], more_gbps))
    return ratio


@part
def touch(room: Occupancy, o: int) -> None:
    """Note that what nodes and uplinks of job o are worth to others may have changed."""
    clock, uplinks = room.changed[room.changed.size - 1], room.up_load.size
    for i in range(room.span[o]):
        room.changed[room.node[o, i]] = clock
        if uplinks > 0:
            room.up_changed[room.rack[room.node[o, i]]] = clock
    if uplinks > 0:
        room.up_changed[uplinks - 1] = clock


@part
def lower(room: Occupancy, o: int, ratio: float) -> None:
    """Leave job o no more than `ratio` of its speed."""
    if ratio < room.low[o]:
        room.low[o] = ratio
        touch(room, o)


@part
def board(law: Law, room: Occupancy, j: int, u: int) -> None:
    """Let job j send over uplink u."""
    room.rider[u, room.riders[u]] = j
    room.riders[u] += 1
    room.up_load[u] += law.traffic_gbps[room.kind[j]]
    room.up_changed[u] = room.changed[room.changed.size - 1]
    if is_crowded(law, room, u, 0.0):
        for s in range(room.riders[u]):
            o = room.rider[u, s]
            lower(room, o, on_uplink(law, room, room.kind[o], u, 0.0))


@part
def cross_racks(law: Law, room: Occupancy, j: int) -> None:
    """Let job j, which has its nodes, send over the uplinks between them."""
    if room.kind[j] < 0 or not crosses(room, room.node[j], room.span[j]):
        return
    board(law, room, j, room.up_load.size - 1)
    for i in range(room.span[j]):
        if opens_rack(room, room.node[j], i):
            board(law, room, j, room.rack[room.node[j, i]])


@part
def alight(law: Law, room: Occupancy, j: int, u: int) -> None:
    """Take the traffic of job j from uplink u."""
    s = 0
    while room.rider[u, s] != j:
        s += 1
    room.riders[u] -= 1
    room.rider[u, s] = room.rider[u, room.riders[u]]
    room.up_load[u] -= law.traffic_gbps[room.kind[j]]
    room.up_changed[u] = room.changed[room.changed.size - 1]


@part
def stop_crossing(law: Law, room: Occupancy, j: int) -> None:
    """Take the traffic of job j from all uplinks."""
    if room.kind[j] < 0 or not crosses(room, room.node[j], room.span[j]):
        return
    alight(law, room, j, room.up_load.size - 1)
    for i in range(room.span[j]):
        if opens_rack(room, room.node[j], i):
            alight(law, room, j, room.rack[room.node[j, i]])


@part
def find_low(law: Law, room: Occupancy, o: int) -> None:
    """Work out anew what is left to job o on the worst of its nodes and uplinks."""
    before, room.low[o] = room.low[o], 1.0
    for i in range(room.span[o]):
        n = room.node[o, i]
        for s in range(room.jobs_on[n]):
            if room.job[n, s] == o:
                room.low[o] = min(room.low[o], room.here[n, s])
    across = kept_across(law, room, room.kind[o], room.node[o], room.span[o], 0.0)
    room.low[o] = min(room.low[o], across)
    if room.low[o] != before:
        touch(room, o)


@part
def relieve(law: Law, room: Occupancy, j: int, u: int) -> None:
    """Work out anew what is left to the jobs on uplink u, which job j has left."""
    if is_crowded(law, room, u, law.traffic_gbps[room.kind[j]]):
        for s in range(room.riders[u]):
            find_low(law, room, room.rider[u, s])


@part
def relieve_racks(law: Law, room: Occupancy, j: int) -> None:
    """Work out anew what is left to the jobs that shared uplinks with job j."""
    if room.kind[j] < 0 or not crosses(room, room.node[j], room.span[j]):
        return
    relieve(law, room, j, room.up_load.size - 1)
    for i in range(room.span[j]):
        if opens_rack(room, room.node[j], i):
            relieve(law, room, j, room.rack[room.node[j, i]])
