"""Edits of a draft by compiled code: take, give back, place one gang."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rota.core.layout import SLACK
from rota.core.types import Ints, Records
from rota.jit import inline, part
from rota.policies.gang_kernels import find
from rota.policies.place_kernels import FIRST_FIT, hold
from rota.policies.rule import ELASTIC

if TYPE_CHECKING:
    from rota.core.types import Floats
    from rota.policies.rule import Rule


class Desk(NamedTuple):
    """A draft (see `rota.core.Draft`) as compiled code edits it, with room to work in."""

    nodes: Records  # (N,) NODE: what is free, under the draft
    level: Any  # index of `nodes`
    at: Ints  # (J,) job j shall hold shares[at[j] : at[j] + length[j]]
    length: Ints  # (J,)
    shares: Records  # (S,) SHARE; new ones go behind those in use, while there is room
    node: Ints  # (N,) scratch
    part: Ints  # (N,) scratch


@part
def give(d: Desk, job: Any, j: int, sign: int) -> None:
    """Give back (sign 1) or take again (sign −1) all that job j holds in the draft."""
    for k in range(d.at[j], d.at[j] + d.length[j]):
        share = d.shares[k]
        hold(d.nodes, d.level, job, share["node"], share["workers"], share["servers"], sign)


@inline
def fits_on(job: Any, here: Any, workers: int, servers: int) -> bool:
    """Whether a node has room for so many workers and servers of the job."""
    cpus = workers * job["cpus_per_worker"] + servers * job["cpus_per_server"]
    memory_gb = workers * job["memory_gb_per_worker"] + servers * job["memory_gb_per_server"]
    return (
        workers * job["gpus_per_worker"] <= here["free"]
        and cpus <= here["free_cpus"] + SLACK
        and memory_gb <= here["free_memory_gb"] + SLACK
    )


@inline
def still_free(d: Desk, job: Any, first: int, count: int) -> bool:
    """Whether shares that the job once held can be taken again."""
    for k in range(first, first + count):
        share = d.shares[k]
        if not fits_on(job, d.nodes[share["node"]], share["workers"], share["servers"]):
            return False
    return True


@part
def write(d: Desk, job: Any, j: int, count: int, used: int) -> int:
    """Give job j the `count` places found; its servers go beside the workers, evenly.

    Returns `used`, unchanged if there is no room left to write them down.
    """
    if used + count > d.shares.size:
        return used
    servers = job["servers"]
    for k in range(count):
        share, workers = d.shares[used + k], d.part[k] // max(1, job["gpus_per_worker"])
        beside = servers // count + (k < servers % count)
        share["node"], share["workers"], share["servers"] = d.node[k], workers, beside
        hold(d.nodes, d.level, job, d.node[k], workers, beside, -1)
    d.at[j], d.length[j] = used, count
    return used + count


@inline
def full_size(job: Any) -> Any:
    """What the job asks for, as `find` counts it: GPUs, or workers if those need none."""
    # As wide as other sizes, or a kernel would have all that places jobs twice.
    return np.int64(job["gpus"] if job["gpus_per_worker"] > 0 else job["workers"])


@part
def locate_size(d: Desk, place: int, typical: Floats, job: Any, size: int) -> int:
    """Find places for so many GPUs of the job, and for its servers; 0 if they do not fit."""
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
def claim_size(d: Desk, place: int, typical: Floats, job: Any, j: int, size: int, used: int) -> int:
    """Place so many GPUs of job j if they fit; returns `used`, unchanged if they do not.

    Whoever places jobs does it here, so that a kernel has this code once: LLVM then makes one
    function of it and all that it calls, which takes a fifth less time.
    """
    count = locate_size(d, place, typical, job, size)
    return write(d, job, j, count, used) if count > 0 else used


# Where a rule puts the workers there may be no room for servers. Then a job of its requested size
# goes where first-fit puts it, so that every rule can hold what an empty cluster can.


@inline
def locate(d: Desk, place: int, typical: Floats, job: Any) -> int:
    """Find places for the job at its requested size, servers included; 0 if it does not fit."""
    count = locate_size(d, place, typical, job, full_size(job))
    if count == 0 and job["servers"] > 0 and place != FIRST_FIT:
        count = locate_size(d, FIRST_FIT, typical, job, full_size(job))
    return count


@inline
def claim(d: Desk, place: int, typical: Floats, job: Any, j: int, used: int) -> int:
    """Place job j at its requested size if it fits; returns `used`, unchanged if it does not."""
    after = claim_size(d, place, typical, job, j, full_size(job), used)
    if after == used and job["servers"] > 0 and place != FIRST_FIT:
        after = claim_size(d, FIRST_FIT, typical, job, j, full_size(job), used)
    return after


@part
def claim_fewer(d: Desk, place: int, typical: Floats, job: Any, j: int, used: int) -> int:
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
def take(d: Desk, rule: Rule, job: Any, j: int, used: int) -> int:
    """Place job j, smaller than it asks for if it must and the policy may; returns `used`."""
    used = claim(d, rule.place, rule.typical, job, j, used)
    if rule.sizing == ELASTIC and d.length[j] == 0:
        used = claim_fewer(d, rule.place, rule.typical, job, j, used)
    return used


@part
def held_gpus(d: Desk, job: Any, j: int) -> int:
    """GPUs that job j holds in the draft."""
    gpus = 0
    for k in range(d.at[j], d.at[j] + d.length[j]):
        gpus += d.shares[k]["workers"] * job["gpus_per_worker"]
    return gpus


@part
def same(job: Any, shares: Records, first: int, count: int) -> bool:
    """Whether the job holds exactly shares[first : first + count]."""
    at = job["share_at"]
    if job["share_len"] != count:
        return False
    if at == first:
        return True
    for k in range(count):
        a, b = shares[at + k], shares[first + k]
        if a["node"] != b["node"] or a["workers"] != b["workers"] or a["servers"] != b["servers"]:
            return False
    return True


@part
def same_size(job: Any, shares: Records, first: int, count: int) -> bool:
    """Whether shares[first : first + count] are as many workers and servers as the job holds."""
    workers, servers = 0, 0
    for k in range(first, first + count):
        workers += shares[k]["workers"]
        servers += shares[k]["servers"]
    return workers == job["held_workers"] and servers == job["held_servers"]
