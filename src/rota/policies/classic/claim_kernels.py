"""Places for whole jobs: find them by a placement, and write them into the draft."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.jit import inline, part
from rota.ledger.draft_kernels import DraftArrays, fits_on, full_size, write
from rota.policies.classic.gang_kernels import find
from rota.policies.classic.place_kernels import FIRST_FIT
from rota.policies.classic.rule import ELASTIC

if TYPE_CHECKING:
    from rota.core.types import Floats
    from rota.policies.classic.rule import Rule


@part
def locate_size(d: DraftArrays, place: int, typical: Floats, job: Any, size: int) -> int:
    """Find places for `size` GPUs of the job, and for its servers; 0 if they do not fit."""
    count = find(place, d.nodes, d.level, job, size, typical, d.node, d.part)
    servers = job["servers"]
    if servers > 0:
        for k in range(count):
            beside = servers // count + (k < servers % count)
            workers = d.part[k] // max(1, job["gpus_per_worker"])
            if not fits_on(job, d.nodes[d.node[k]], workers, beside):
                return 0
    return count


@part
def claim_size(
    d: DraftArrays, place: int, typical: Floats, job: Any, j: int, size: int, used: int
) -> int:
    """Place `size` GPUs of job j if they fit; returns `used`, unchanged if they do not.

    All code that places jobs calls this, so that a kernel has it once: LLVM then makes one
    function of it and all that it calls, which runs in a fifth less time.
    """
    count = locate_size(d, place, typical, job, size)
    return write(d, job, j, count, used) if count > 0 else used


# Where a rule puts the workers there may be no room for servers. Then a job of its requested size
# goes where first-fit puts it, so that every rule can hold what an empty cluster can.


@inline
def locate(d: DraftArrays, place: int, typical: Floats, job: Any) -> int:
    """Find places for the job at its requested size, servers included; 0 if it does not fit."""
    count = locate_size(d, place, typical, job, full_size(job))
    if count == 0 and job["servers"] > 0 and place != FIRST_FIT:
        count = locate_size(d, FIRST_FIT, typical, job, full_size(job))
    return count


@inline
def claim(d: DraftArrays, place: int, typical: Floats, job: Any, j: int, used: int) -> int:
    """Place job j at its requested size if it fits; returns `used`, unchanged if it does not."""
    after = claim_size(d, place, typical, job, j, full_size(job), used)
    if after == used and job["servers"] > 0 and place != FIRST_FIT:
        after = claim_size(d, FIRST_FIT, typical, job, j, full_size(job), used)
    return after


@part
def claim_fewer(d: DraftArrays, place: int, typical: Floats, job: Any, j: int, used: int) -> int:
    """Place job j with the most workers, fewer than it asks for, that fit; returns `used`."""
    each, workers = max(1, job["gpus_per_worker"]), job["workers"] - 1
    if job["gpus_per_worker"] > 0:
        free = 0
        for k in range(d.nodes.size):
            free += d.nodes[k]["free"]
        workers = min(workers, free // each)
    before = used
    while used == before and workers >= max(1, job["min_workers"]):
        used = claim_size(d, place, typical, job, j, workers * each, used)
        workers -= 1
    return used


@part
def take(d: DraftArrays, rule: Rule, job: Any, j: int, used: int) -> int:
    """Place job j, smaller than it asks for if it must and the policy may; returns `used`."""
    used = claim(d, rule.place, rule.typical, job, j, used)
    if rule.sizing == ELASTIC and d.length[j] == 0:
        used = claim_fewer(d, rule.place, rule.typical, job, j, used)
    return used
