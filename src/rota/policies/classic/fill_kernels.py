"""What is free goes to jobs that hold nothing, in order. Arguments: see `decide_kernels`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rota.jit import allocating_part, part
from rota.ledger.draft_kernels import DraftArrays, held_gpus
from rota.policies.classic.claim_kernels import claim, take
from rota.policies.classic.fair_kernels import fill_fairly
from rota.policies.classic.orderings import DOMINANT, MAX_MIN
from rota.policies.classic.room_kernels import MISSES, cannot_fit, measure, measured
from rota.policies.classic.rule import ELASTIC, SKIP

if TYPE_CHECKING:
    from rota.core.types import Ints, Records
    from rota.policies.classic.rule import Rule


@part
def fill(rule: Rule, jobs: Records, order: Ints, n: int, d: DraftArrays, used: int) -> int:
    """Give what is free to jobs that hold nothing, in order."""
    if rule.order == MAX_MIN or rule.order == DOMINANT:
        return fill_fairly(rule, jobs, order, n, d, used)
    free, misses, counted = 0, 0, False
    for k in range(d.nodes.size):
        free += d.nodes[k]["free"]
        counted |= d.nodes[k]["cpus"] < np.inf  # then some may need CPUs only
    if rule.sizing == ELASTIC:
        return fill_smaller(rule, jobs, order, n, d, used, free, counted)
    for i in range(n):
        if free == 0 and not counted:
            break
        j = order[i]
        if d.length[j] > 0:
            continue
        if jobs[j]["gpus"] <= free:
            used = claim(d, rule.place, rule.typical, jobs[j], j, used)
            misses += 1
        if d.length[j] > 0:
            free -= jobs[j]["gpus"]
            misses -= 1
        elif rule.passing != SKIP:
            break
        if misses == MISSES:
            return fill_on(rule, jobs, order, i + 1, n, d, used, free, counted)
    return used


@part
def fill_smaller(
    rule: Rule,
    jobs: Records,
    order: Ints,
    n: int,
    d: DraftArrays,
    used: int,
    free: int,
    counted: bool,
) -> int:
    """The same where a job may be placed smaller than it asks for."""
    for i in range(n):
        if free == 0 and not counted:
            break
        j = order[i]
        if d.length[j] > 0:
            continue
        used = take(d, rule, jobs[j], j, used)
        if d.length[j] > 0:
            free -= held_gpus(d, jobs[j], j)
        elif rule.passing != SKIP:
            break
    return used


@allocating_part
def fill_on(
    rule: Rule,
    jobs: Records,
    order: Ints,
    first: int,
    n: int,
    d: DraftArrays,
    used: int,
    free: int,
    counted: bool,
) -> int:
    """The same from `order[first]` on where many jobs do not fit; `free` GPUs are free in all.

    Jobs that cannot fit are recognised without a search for a place.
    """
    room = measured(d.nodes, d.level)
    stale, misses = False, 0
    for i in range(first, n):
        if free == 0 and not counted:
            break
        j = order[i]
        if d.length[j] > 0 or jobs[j]["gpus"] > free or cannot_fit(room, rule, jobs[j]):
            continue
        used = claim(d, rule.place, rule.typical, jobs[j], j, used)
        if d.length[j] > 0:
            free, stale = free - jobs[j]["gpus"], True
        else:
            misses += 1
        if stale and misses >= MISSES:
            measure(room, d.nodes)
            stale, misses = False, 0
    return used
