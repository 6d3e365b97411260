"""How much slower a job is beside others: the laws of `rota.core.speed.Contention`, compiled.

A cluster's traffic is kept per node: `senders[n, :many[n]]` are the jobs that send from there,
`gpus` what each holds there, `kind` (J,) what sort of traffic each of them is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rota.core.speed import LINKS, MACHINES, PAIRS, Contention
from rota.core.types import Floats, Ints, Records
from rota.jit import inline, part

if TYPE_CHECKING:
    from rota.core.types import Bools

ROUNDING = 1e-9
MARGIN = 1e-6
"""A link counts as crowded from this many Gb/s below what it carries."""


class Traffic(NamedTuple):
    """Which jobs send from which nodes, and scratch arrays."""

    laws: Contention
    senders: Ints  # (N, K) jobs by number, so that sums do not depend on the order of arrival
    gpus: Ints  # (N, K)
    many: Ints  # (N,)
    kind: Ints  # (J,) −1: sends nothing
    rate: Floats  # (J,) Gb/s that max-min fairness gives it
    load: Floats  # (links,) Gb/s wanted of each: N NICs, the racks' uplinks, the spine
    left: Floats  # (links,) scratch: what is left of it
    busy: Floats  # (links,) scratch: jobs that still grow there


@part
def beside(t: Traffic, node_gpus: int, n: int, j: int) -> float:
    """What node n leaves job j of its speed."""
    laws, mine, ratio = t.laws, t.kind[j], 1.0
    for g in range(t.many[n]):
        o = t.senders[n, g]
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


@inline
def capacity(t: Traffic, link: int) -> float:
    """What a link carries, Gb/s: N NICs, the racks' uplinks, the spine."""
    N = t.load.size - t.laws.uplink_gbps.size - 1
    if link < N:
        return t.laws.link_gbps[link]
    return t.laws.spine_gbps if link == t.load.size - 1 else t.laws.uplink_gbps[link - N]


@inline
def is_crowded(t: Traffic, link: int) -> bool:
    """Whether the jobs on a link may want more than it carries; else it slows no job down."""
    return t.load[link] > capacity(t, link) - MARGIN


@part
def add_on_links(
    column: Floats, nodes: Records, shares: Records, first: int, count: int, much: float
) -> None:
    """Add to every link that these shares send over: NICs, uplinks, spine."""
    for k in range(first, first + count):
        column[shares[k]["node"]] += much
    if not crosses(nodes, shares, first, count):
        return
    column[column.size - 1] += much
    for k in range(first, first + count):
        rack, e = nodes[shares[k]["node"]]["rack"], k - 1
        while e >= first and nodes[shares[e]["node"]]["rack"] != rack:
            e -= 1  # mostly the share before is in the same rack
        if e < first:
            column[nodes.size + rack] += much


@part
def feels_racks(t: Traffic, nodes: Records, shares: Records, first: int, count: int) -> bool:
    """Whether these shares send over an uplink or a spine that is crowded."""
    if not crosses(nodes, shares, first, count):
        return False
    crowded = is_crowded(t, t.load.size - 1)
    for k in range(first, first + count):
        crowded |= is_crowded(t, nodes.size + nodes[shares[k]["node"]]["rack"])
    return crowded


@part
def feels_others(t: Traffic, nodes: Records, shares: Records, first: int, count: int) -> bool:
    """Whether these shares send over any link that is crowded."""
    for k in range(first, first + count):
        if is_crowded(t, shares[k]["node"]):
            return True
    return feels_racks(t, nodes, shares, first, count)


@part
def is_stuck(t: Traffic, nodes: Records, shares: Records, first: int, count: int) -> bool:
    """Whether some link these shares send over is full."""
    N, last = nodes.size, t.left.size - 1
    over = crosses(nodes, shares, first, count)
    if over and t.left[last] <= ROUNDING:
        return True
    for k in range(first, first + count):
        n = shares[k]["node"]
        if t.left[n] <= ROUNDING or (over and t.left[N + nodes[n]["rack"]] <= ROUNDING):
            return True
    return False


@part
def share_links(
    t: Traffic, jobs: Any, nodes: Records, shares: Records, group: Ints, size: int, grows: Bools
) -> None:
    """Max-min fair rates for jobs group[:size], which share crowded links with no other job.

    A job without a crowded link gets what it wants. The rates of the others rise together until
    a job has what it wants, or a link it uses is full.
    """
    laws, growing = t.laws, 0
    for i in range(size):
        j = group[i]
        grows[j] = False
        if t.kind[j] >= 0:
            at, length = jobs[j]["share_at"], jobs[j]["share_len"]
            grows[j] = feels_others(t, nodes, shares, at, length)
            growing += grows[j]
            t.rate[j] = 0.0 if grows[j] else laws.traffic_gbps[t.kind[j]]
    if growing == 0:
        return
    for link in range(t.left.size):
        t.left[link], t.busy[link] = capacity(t, link), 0.0
    for i in range(size):
        if grows[group[i]]:
            job = jobs[group[i]]
            add_on_links(t.busy, nodes, shares, job["share_at"], job["share_len"], 1.0)
    while growing > 0:
        step = np.inf
        for i in range(size):
            if grows[group[i]]:
                step = min(step, laws.traffic_gbps[t.kind[group[i]]] - t.rate[group[i]])
        for link in range(t.left.size):
            if t.busy[link] > 0.0:
                step = min(step, t.left[link] / t.busy[link])
        for link in range(t.left.size):
            t.left[link] -= t.busy[link] * step
        for i in range(size):
            if grows[group[i]]:
                t.rate[group[i]] += step
        for i in range(size):
            j = group[i]
            at, length = jobs[j]["share_at"], jobs[j]["share_len"]
            wanted = laws.traffic_gbps[t.kind[j]]
            if grows[j] and t.rate[j] >= wanted - ROUNDING:
                t.rate[j] = wanted
            elif not (grows[j] and is_stuck(t, nodes, shares, at, length)):
                continue
            grows[j] = False
            add_on_links(t.busy, nodes, shares, at, length, -1.0)
            growing -= 1
