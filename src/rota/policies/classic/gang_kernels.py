"""Where a gang goes: one compiled rule per placement.

A job of at most one node's GPUs sits on one node. A larger one takes whole free nodes, lowest
first, and the rest on one further node. `consolidate`, `spread` and `topology` may split it
otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.jit import allocating_part, part
from rota.ledger.node_kernels import first_bit, fits_beside, largest_node, room_on, suits
from rota.policies.classic.place_kernels import (
    CONSOLIDATE,
    NOWHERE,
    SPREAD,
    TOPOLOGY,
    one_node,
    tightest,
)

if TYPE_CHECKING:
    from rota.core.types import Floats, Ints, Records

_ONE: Final = np.uint64(1)


@part
def whole_nodes(
    rule: int,
    nodes: Records,
    level: Any,
    job: Any,
    gpus: int,
    typical: Floats,
    node: Ints,
    part: Ints,
) -> int:
    """A gang larger than a node: whole free nodes, lowest first, the rest on one further."""
    count, left, whole, each = 0, gpus, level.shape[0] - 1, job["gpus_per_worker"]
    for w in range(level.shape[1]):
        word = level[whole, w]
        while word and left > 0:
            n = (w << 6) + first_bit(word)
            word &= word - _ONE
            use = nodes[n]["gpus"] // each * each
            if 0 < use <= left and suits(nodes, n, job, use // each):
                node[count], part[count] = n, use
                count, left = count + 1, left - use
    if left > 0:
        n = one_node(rule, nodes, level, job, left, typical, node, count)
        if n == NOWHERE:
            return 0
        node[count], part[count] = n, left
        count += 1
    return count


@part
def fewest_nodes(nodes: Records, job: Any, gpus: int, rack: int, node: Ints, part: Ints) -> int:
    """As few nodes as possible, of one rack unless `rack` is −1; the rest where it is tight."""
    each = job["gpus_per_worker"]
    count, left = 0, gpus // each
    while left > 0:
        best, most = NOWHERE, 0
        for n in range(nodes.size):
            if rack != -1 and nodes[n]["rack"] != rack:
                continue
            room = room_on(nodes, n, job)
            if room == 0 or not fits_beside(nodes, n, job, min(room, left), node, count):
                continue
            # A node that holds all the rest beats one that does not; among the former the one
            # with least room is best, among the latter the one with most.
            if best == NOWHERE or (most < left and room > most) or left <= room < most:
                best, most = n, room
        if best == NOWHERE:
            return 0
        node[count], part[count] = best, min(most, left) * each
        count, left = count + 1, left - min(most, left)
    return count


@part
def widest(nodes: Records, level: Any, job: Any, gpus: int, node: Ints, part: Ints) -> int:
    """One worker after the other on the node that then has most free GPUs, so over many nodes."""
    count, left, each = 0, gpus, job["gpus_per_worker"]
    while left > 0:
        best, most, place = tightest(nodes, level, job, each, -1, node, count), 0, count
        if best != NOWHERE:
            most = nodes[best]["free"]
        for k in range(count):
            n, free = node[k], nodes[node[k]]["free"] - part[k]
            if free < each or free < most or (free == most and best != NOWHERE and n > best):
                continue
            if suits(nodes, n, job, part[k] // each + 1):
                best, most, place = n, free, k
        if best == NOWHERE:
            return 0
        if place == count:
            node[count], part[count] = best, 0
            count += 1
        part[place] += each
        left -= each
    return count


@allocating_part
def within_a_rack(nodes: Records, job: Any, gpus: int, node: Ints, part: Ints) -> int:
    """The rack with the least room that holds the job; over racks, as few nodes as possible."""
    racks = 0
    for n in range(nodes.size):
        racks = max(racks, nodes[n]["rack"] + 1)
    room = np.zeros(racks, np.int64)
    for n in range(nodes.size):
        room[nodes[n]["rack"]] += nodes[n]["free"]
    for _ in range(racks):
        best = -1
        for r in range(racks):
            if room[r] >= gpus and (best == -1 or room[r] < room[best]):
                best = r
        if best == -1:
            break
        count = fewest_nodes(nodes, job, gpus, best, node, part)
        if count > 0:
            return count
        room[best] = 0
    return fewest_nodes(nodes, job, gpus, -1, node, part)


@part
def on_cpus(nodes: Records, job: Any, workers: int, node: Ints, part: Ints) -> int:
    """Where workers without GPUs go: the first nodes with room; `part` counts workers here.

    A job with servers goes to the first node with room for all of them together, if there is one.
    """
    count, left = 0, workers
    if job["servers"] > 0:
        for n in range(nodes.size):
            if room_on(nodes, n, job) >= workers and suits(nodes, n, job, workers):
                node[0], part[0] = n, workers
                return 1
    for n in range(nodes.size):
        use = min(left, room_on(nodes, n, job))
        if use > 0:
            node[count], part[count] = n, use
            count += 1
            left -= use
            if left == 0:
                return count
    return 0


@part
def find(
    rule: int,
    nodes: Records,
    level: Any,
    job: Any,
    gpus: int,
    typical: Floats,
    node: Ints,
    part: Ints,
) -> int:
    """Where `gpus` GPUs of `job` go: fills `node` and `part` (GPUs there), ordered by node.

    For a job whose workers need no GPUs, `gpus` and `part` count the workers.

    Returns the number of nodes, 0 if it does not fit. Changes nothing else.
    """
    if job["gpus_per_worker"] == 0:
        return on_cpus(nodes, job, gpus, node, part)
    if rule == SPREAD:
        count = widest(nodes, level, job, gpus, node, part)
    elif rule == TOPOLOGY:
        count = within_a_rack(nodes, job, gpus, node, part)
    elif gpus <= largest_node(nodes, level, job):
        n = one_node(rule, nodes, level, job, gpus, typical, node, 0)
        if n != NOWHERE:
            node[0], part[0] = n, gpus
            return 1
        if rule != CONSOLIDATE:
            return 0
        count = fewest_nodes(nodes, job, gpus, -1, node, part)
    elif rule == CONSOLIDATE:
        count = fewest_nodes(nodes, job, gpus, -1, node, part)
    else:
        count = whole_nodes(rule, nodes, level, job, gpus, typical, node, part)
    for i in range(1, count):
        n, p, k = node[i], part[i], i
        while k > 0 and node[k - 1] > n:
            node[k], part[k] = node[k - 1], part[k - 1]
            k -= 1
        node[k], part[k] = n, p
    return count
