"""Which jobs cannot fit, told without a search for a place: this keeps long queues cheap.

Within a round free room only shrinks, so a job that could not fit when room was last measured
cannot fit now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from rota.core.layout import SLACK
from rota.core.types import Floats, Ints
from rota.jit import allocating_part, part
from rota.policies.classic.place_kernels import CONSOLIDATE, SPREAD, TOPOLOGY
from rota.policies.classic.rule import ELASTIC

if TYPE_CHECKING:
    from rota.core.types import Records
    from rota.policies.classic.rule import Rule

MISSES: Final = 8
"""Jobs tried without success before room is measured (again), which takes as long as a few."""
_SURELY: Final = 1.0 - 1e-12  # demands are added and divided in more than one way


class MostFree(NamedTuple):
    """The most that any one node has free; row f is about nodes with f or more free GPUs."""

    cpus: Floats  # (G + 1,)
    memory_gb: Floats  # (G + 1,)
    largest: Ints  # (T + 1,) GPUs of the largest node of each type; last: of any type
    nodes: Ints  # (2,) the most free GPUs of a node; the number of wholly free nodes


@allocating_part
def measured(nodes: Records, level: Any) -> MostFree:
    """What is free now, measured into new arrays."""
    types = 1
    for n in range(nodes.size):
        types = max(types, nodes[n]["type"] + 1)
    most = level.shape[0] - 2
    room = MostFree(
        np.empty(most + 1), np.empty(most + 1), np.zeros(types + 1, np.int64), np.zeros(2, np.int64)
    )
    room.largest[types] = most
    for n in range(nodes.size):
        kind = nodes[n]["type"]
        room.largest[kind] = max(room.largest[kind], nodes[n]["gpus"])
    measure(room, nodes)
    return room


@part
def measure(room: MostFree, nodes: Records) -> None:
    """Measure again what is free."""
    most, whole = 0, 0
    for f in range(room.cpus.size):
        room.cpus[f], room.memory_gb[f] = -np.inf, -np.inf
    for n in range(nodes.size):
        here = nodes[n]
        if not here["up"]:
            continue
        f = min(max(here["free"], 0), room.cpus.size - 1)
        most, whole = max(most, f), whole + (1 if f == here["gpus"] else 0)
        room.cpus[f] = max(room.cpus[f], here["free_cpus"])
        room.memory_gb[f] = max(room.memory_gb[f], here["free_memory_gb"])
    for f in range(most - 1, -1, -1):
        room.cpus[f] = max(room.cpus[f], room.cpus[f + 1])
        room.memory_gb[f] = max(room.memory_gb[f], room.memory_gb[f + 1])
    room.nodes[0], room.nodes[1] = most, whole


@part
def cannot_fit(room: MostFree, rule: Rule, job: Any) -> bool:
    """Whether the job surely does not fit; if False, it may fit or not."""
    place = rule.place
    if rule.sizing == ELASTIC:  # it may be placed smaller than it asks for
        return False
    gpus, need = job["gpus"], job["gpus_per_worker"]  # some node must hold a worker at least
    workers, servers, top = 1, 0, room.cpus.size - 1
    if need > 0 and place != CONSOLIDATE and place != SPREAD and place != TOPOLOGY:
        kind, types = job["gpu_type"], room.largest.size - 1
        largest = room.largest[kind if 0 <= kind < types else types]
        if gpus > room.nodes[1] * top + room.nodes[0]:  # whole nodes, and the rest on one
            return True
        if gpus <= largest and kind < types:  # then on one node, all of it
            need, workers, servers = gpus, job["workers"], job["servers"]
    if need > top:
        return True
    cpus = workers * job["cpus_per_worker"] + servers * job["cpus_per_server"]
    memory_gb = workers * job["memory_gb_per_worker"] + servers * job["memory_gb_per_server"]
    return (
        need > room.nodes[0]
        or cpus * _SURELY > room.cpus[need] + SLACK
        or memory_gb * _SURELY > room.memory_gb[need] + SLACK
    )
