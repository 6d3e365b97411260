"""Which node: one compiled rule per placement on one node, over the index of free nodes.

Gangs that need several nodes are in `gang_kernels`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core.layout import SLACK
from rota.jit import part, pasted_part
from rota.ledger.node_kernels import first_bit, fits_beside

if TYPE_CHECKING:
    from rota.core.types import Floats, Ints, Records

FIRST_FIT: Final = 0
BEST_FIT: Final = 1
WORST_FIT: Final = 2
CONSOLIDATE: Final = 3
SPREAD: Final = 4
TOPOLOGY: Final = 5
FGD: Final = 6

NOWHERE: Final = -1
_ONE: Final = np.uint64(1)


@pasted_part
def tightest(
    nodes: Records, level: Any, job: Any, gpus: int, step: int, taken: Ints, count: int
) -> int:
    """The node with the fewest (step 1) or most (step −1) free GPUs that fit; lowest on ties."""
    most = level.shape[0] - 2
    workers = gpus // job["gpus_per_worker"]
    free = gpus if step > 0 else most
    while gpus <= free <= most:
        for w in range(level.shape[1]):
            word = level[free, w]
            while word:
                n = (w << 6) + first_bit(word)
                if fits_beside(nodes, n, job, workers, taken, count):
                    return n
                word &= word - _ONE
        free += step
    return NOWHERE


@part
def lowest(nodes: Records, level: Any, job: Any, gpus: int, taken: Ints, count: int) -> int:
    """The first node, by index, with enough free GPUs."""
    workers = gpus // job["gpus_per_worker"]
    for w in range(level.shape[1]):
        word = np.uint64(0)
        for free in range(gpus, level.shape[0] - 1):
            word |= level[free, w]
        while word:
            n = (w << 6) + first_bit(word)
            if fits_beside(nodes, n, job, workers, taken, count):
                return n
            word &= word - _ONE
    return NOWHERE


@part
def least_fragmenting(
    nodes: Records, job: Any, gpus: int, typical: Floats, taken: Ints, count: int
) -> int:
    """The node on which the job strands the fewest GPUs for typical jobs to come.

    A free GPU is stranded for a job of g GPUs if its node has fewer than g free; the expected
    number over the `typical` sizes is the fragmentation whose growth is least.
    """
    best, least = NOWHERE, np.inf
    workers = gpus // job["gpus_per_worker"]
    for n in range(nodes.size):
        free = nodes[n]["free"]
        if free >= gpus and fits_beside(nodes, n, job, workers, taken, count):
            growth = stranded(free - gpus, typical) - stranded(free, typical)
            if growth < least - SLACK:
                best, least = n, growth
    return best


@part
def stranded(free: int, typical: Floats) -> float:
    """GPUs, of `free` ones on a node, that a typical job cannot use."""
    share = 0.0
    for size in range(free + 1, typical.size):
        share += typical[size]
    return share * free


@pasted_part
def one_node(
    rule: int,
    nodes: Records,
    level: Any,
    job: Any,
    gpus: int,
    typical: Floats,
    taken: Ints,
    count: int,
) -> int:
    """The node that holds all `gpus`, other than those already taken, or NOWHERE."""
    if gpus > level.shape[0] - 2:
        return NOWHERE
    if rule == FIRST_FIT:
        return lowest(nodes, level, job, gpus, taken, count)
    if rule == FGD:
        return least_fragmenting(nodes, job, gpus, typical, taken, count)
    step = -1 if rule == WORST_FIT or rule == SPREAD else 1
    return tightest(nodes, level, job, gpus, step, taken, count)
