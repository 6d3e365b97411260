"""What is free on the nodes: an index of them, and taking and giving back.

The index is a bitset of nodes per number of free GPUs, so "the fewest free GPUs that fit,
lowest node first" is a matter of finding the first set bit. Row f of `level` (f = 0 … G) holds
the nodes with f GPUs free, row G + 1 the nodes that are wholly free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core.layout import SLACK
from rota.jit import inline, part

if TYPE_CHECKING:
    from rota.core.types import Ints, Records

_ONE: Final = np.uint64(1)
_M1: Final = np.uint64(0x5555555555555555)
_M2: Final = np.uint64(0x3333333333333333)
_M4: Final = np.uint64(0x0F0F0F0F0F0F0F0F)
_H01: Final = np.uint64(0x0101010101010101)


def new_index(nodes: Records) -> Any:
    """An index for `nodes` (N,), ready for use: what `build` makes, without compiling it."""
    n = np.arange(len(nodes))
    word, bit = n >> 6, _ONE << (n & 63).astype(np.uint64)
    level = np.zeros((int(nodes["gpus"].max()) + 2, word[-1] + 1), np.uint64)
    free = np.minimum(np.maximum(nodes["free"], 0), len(level) - 2)
    np.bitwise_or.at(level, (free, word), bit)
    whole = nodes["free"] == nodes["gpus"]
    np.bitwise_or.at(level[-1], word[whole], bit[whole])
    return level


@inline
def ones(x: Any) -> int:
    """The number of set bits of a word; the compiler turns this into one instruction."""
    x = x - ((x >> _ONE) & _M1)
    x = (x & _M2) + ((x >> np.uint64(2)) & _M2)
    x = (x + (x >> np.uint64(4))) & _M4
    return int((x * _H01) >> np.uint64(56))


@inline
def first_bit(word: Any) -> int:
    """The position of the lowest set bit of a word that is not 0: the number of bits below it."""
    return ones((word & (~word + _ONE)) - _ONE)


@inline
def row_of(level: Any, free: int) -> int:
    """The row of a node with `free` GPUs; inside the index even if `free` is wrong."""
    return min(max(free, 0), level.shape[0] - 2)


@part
def build(nodes: Records, level: Any) -> None:
    """Fill the index anew."""
    whole = level.shape[0] - 1
    for free in range(level.shape[0]):
        for w in range(level.shape[1]):
            level[free, w] = np.uint64(0)
    for n in range(nodes.size):
        bit = _ONE << np.uint64(n & 63)
        level[row_of(level, nodes[n]["free"]), n >> 6] |= bit
        if nodes[n]["free"] == nodes[n]["gpus"]:
            level[whole, n >> 6] |= bit


@part
def shift(nodes: Records, level: Any, n: int, gpus: int) -> None:
    """Add `gpus` (negative: take them) to what is free on node n, and keep the index right."""
    word, bit, whole = n >> 6, _ONE << np.uint64(n & 63), level.shape[0] - 1
    level[row_of(level, nodes[n]["free"]), word] &= ~bit
    nodes[n]["free"] += gpus
    level[row_of(level, nodes[n]["free"]), word] |= bit
    if nodes[n]["free"] == nodes[n]["gpus"]:
        level[whole, word] |= bit
    else:
        level[whole, word] &= ~bit


@part
def hold(
    nodes: Records, level: Any, job: Any, n: int, workers: int, servers: int, sign: int
) -> None:
    """Take (sign −1) or give back (sign 1) what these workers and servers use on node n."""
    gpus = workers * job["gpus_per_worker"]
    if gpus != 0 and nodes[n]["up"]:
        shift(nodes, level, n, sign * gpus)
    cpus = workers * job["cpus_per_worker"] + servers * job["cpus_per_server"]
    memory_gb = workers * job["memory_gb_per_worker"] + servers * job["memory_gb_per_server"]
    if cpus != 0.0:
        nodes[n]["free_cpus"] += sign * cpus
    if memory_gb != 0.0:
        nodes[n]["free_memory_gb"] += sign * memory_gb


@part
def suits(nodes: Records, n: int, job: Any, workers: int) -> bool:
    """Whether node n is of the job's GPU type and has CPUs and memory for that many workers.

    If these are all workers of the job, its servers must fit, too.
    """
    if job["gpu_type"] != -1 and job["gpu_type"] != nodes[n]["type"]:
        return False
    servers = job["servers"] if workers == job["workers"] else 0
    cpus = workers * job["cpus_per_worker"] + servers * job["cpus_per_server"]
    memory_gb = workers * job["memory_gb_per_worker"] + servers * job["memory_gb_per_server"]
    return cpus <= nodes[n]["free_cpus"] + SLACK and memory_gb <= nodes[n]["free_memory_gb"] + SLACK


@part
def fits_beside(nodes: Records, n: int, job: Any, workers: int, taken: Ints, count: int) -> bool:
    """Whether node n suits the job and is not among the `count` nodes it already takes."""
    for k in range(count):
        if taken[k] == n:
            return False
    return suits(nodes, n, job, workers)


@part
def room_on(nodes: Records, n: int, job: Any) -> int:
    """The number of workers of the job that node n has room for."""
    if job["gpu_type"] != -1 and job["gpu_type"] != nodes[n]["type"]:
        return 0
    workers = job["max_workers"]
    if job["gpus_per_worker"] > 0:
        workers = nodes[n]["free"] // job["gpus_per_worker"]
    elif not nodes[n]["up"]:
        return 0
    # Compared before they become whole: a tiny demand fits more often than an integer can say.
    if job["cpus_per_worker"] > 0.0:
        room = (nodes[n]["free_cpus"] + SLACK) / job["cpus_per_worker"]
        if room < workers:
            workers = int(room)
    if job["memory_gb_per_worker"] > 0.0:
        room = (nodes[n]["free_memory_gb"] + SLACK) / job["memory_gb_per_worker"]
        if room < workers:
            workers = int(room)
    return max(0, workers)


@part
def largest_node(nodes: Records, level: Any, job: Any) -> int:
    """GPUs of the largest node that the job may use."""
    if job["gpu_type"] == -1:
        return level.shape[0] - 2
    most = 0
    for n in range(nodes.size):
        if nodes[n]["type"] == job["gpu_type"]:
            most = max(most, nodes[n]["gpus"])
    return most
