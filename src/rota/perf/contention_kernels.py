"""How much slower a job is beside others: the laws of `rota.core.speed.Contention`, compiled.

A cluster's traffic is kept per node: `guests[n, :many[n]]` are the jobs that send from there,
`gpus` what each holds there, `kind` (J,) what sort of traffic each of them is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rota.core.speed import LINKS, MACHINES, PAIRS, Contention
from rota.core.types import Floats, Ints, Records
from rota.jit import part

if TYPE_CHECKING:
    from rota.core.types import Bools

ROUNDING = 1e-9


class Traffic(NamedTuple):
    """Who sends where, with room to work in."""

    laws: Contention
    guests: Ints  # (N, K)
    gpus: Ints  # (N, K)
    many: Ints  # (N,)
    kind: Ints  # (J,) −1: sends nothing
    rate: Floats  # (J,) Gb/s that max-min fairness gives it
    left: Floats  # (links,) scratch: N NICs, the racks' uplinks, the spine
    busy: Ints  # (links,) scratch: jobs that still grow there


@part
def beside(t: Traffic, node_gpus: int, n: int, j: int) -> float:
    """What node n leaves job j of its speed."""
    laws, mine, ratio = t.laws, t.kind[j], 1.0
    for g in range(t.many[n]):
        o = t.guests[n, g]
        if o == j:
            continue
        if laws.mode == PAIRS:
            ratio = min(ratio, laws.ratio[mine, t.kind[o]])
        else:
            weight = t.gpus[n, g] / node_gpus if laws.mode == MACHINES else 1.0
            ratio *= max(0.0, 1.0 - weight * laws.hurt[mine] * laws.harm[t.kind[o]])
    return ratio


@part
def slowdown(t: Traffic, nodes: Records, shares: Records, first: int, count: int, j: int) -> float:
    """The part of its speed that job j keeps on shares[first : first + count]: the worst node."""
    laws = t.laws
    if t.kind[j] < 0:
        return 1.0
    if laws.mode == LINKS:
        wanted, talk = laws.traffic_gbps[t.kind[j]], laws.talk[t.kind[j]]
        if t.rate[j] >= wanted:
            return 1.0
        return max(laws.floor, 1.0 / (1.0 - talk + talk * wanted / t.rate[j]))
    ratio = 1.0
    for k in range(first, first + count):
        n = shares[k]["node"]
        ratio = min(ratio, beside(t, nodes[n]["gpus"], n, j))
    return max(laws.floor, ratio)


@part
def crosses(nodes: Records, shares: Records, first: int, count: int) -> bool:
    """Whether these shares lie in more than one rack."""
    for k in range(first + 1, first + count):
        if nodes[shares[k]["node"]]["rack"] != nodes[shares[first]["node"]]["rack"]:
            return True
    return False


@part
def count_on_links(
    t: Traffic, nodes: Records, shares: Records, first: int, count: int, busy: int
) -> None:
    """Add to `busy` of every link these shares send over: NICs, uplinks, spine."""
    N, racks = nodes.size, t.laws.uplink_gbps.size
    over = crosses(nodes, shares, first, count)
    for k in range(first, first + count):
        n = shares[k]["node"]
        t.busy[n] += busy
        rack = nodes[n]["rack"]
        seen = False
        for e in range(first, k):
            seen |= nodes[shares[e]["node"]]["rack"] == rack
        if over and not seen:
            t.busy[N + rack] += busy
    if over:
        t.busy[N + racks] += busy


@part
def is_stuck(t: Traffic, nodes: Records, shares: Records, first: int, count: int) -> bool:
    """Whether some link these shares send over is full."""
    N, racks = nodes.size, t.laws.uplink_gbps.size
    over = crosses(nodes, shares, first, count)
    if over and t.left[N + racks] <= ROUNDING:
        return True
    for k in range(first, first + count):
        n = shares[k]["node"]
        if t.left[n] <= ROUNDING or (over and t.left[N + nodes[n]["rack"]] <= ROUNDING):
            return True
    return False


@part
def share_links(
    t: Traffic, jobs: Any, nodes: Records, shares: Records, who: Ints, size: int, grows: Bools
) -> None:
    """Max-min fair rates for jobs who[:size], which share links with nobody else.

    All grow alike until they have what they want or a link they use is full.
    """
    N, laws = nodes.size, t.laws
    for link in range(t.left.size):
        t.busy[link] = 0
        if link < N:
            t.left[link] = laws.link_gbps[link]
        else:
            spine = link == t.left.size - 1
            t.left[link] = laws.spine_gbps if spine else laws.uplink_gbps[link - N]
    growing = 0
    for i in range(size):
        j = who[i]
        t.rate[j], grows[j] = 0.0, t.kind[j] >= 0
        if grows[j]:
            count_on_links(t, nodes, shares, jobs[j]["share_at"], jobs[j]["share_len"], 1)
            growing += 1
    while growing > 0:
        step = np.inf
        for i in range(size):
            if grows[who[i]]:
                step = min(step, laws.traffic_gbps[t.kind[who[i]]] - t.rate[who[i]])
        for link in range(t.left.size):
            if t.busy[link] > 0:
                step = min(step, t.left[link] / t.busy[link])
        for link in range(t.left.size):
            t.left[link] -= t.busy[link] * step
        for i in range(size):
            if grows[who[i]]:
                t.rate[who[i]] += step
        for i in range(size):
            j = who[i]
            at, length = jobs[j]["share_at"], jobs[j]["share_len"]
            wanted = laws.traffic_gbps[t.kind[j]]
            if grows[j] and (
                t.rate[j] >= wanted - ROUNDING or is_stuck(t, nodes, shares, at, length)
            ):
                grows[j] = False
                count_on_links(t, nodes, shares, at, length, -1)
                growing -= 1
