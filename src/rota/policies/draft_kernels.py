"""Edits of a draft by compiled code: take, give back, place one gang."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rota.core.layout import SLACK
from rota.core.types import Ints, Records
from rota.jit import inline, part
from rota.policies.place_kernels import FIRST_FIT, find, hold
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


@part
def locate_by(d: Desk, place: int, typical: Floats, job: Any) -> int:
    """Find places for the job as one rule has it, with room for the servers beside its workers."""
    size = job["gpus"] if job["gpus_per_worker"] > 0 else job["workers"]
    count = find(place, d.nodes, d.level, job, size, typical, d.node, d.part)
    servers = job["servers"]
    if servers > 0:
        for k in range(count):
            beside = servers // count + (k < servers % count)
            workers = d.part[k] // max(1, job["gpus_per_worker"])
            if not fits_on(job, d.nodes[d.node[k]], workers, beside):
                return 0
    return count


@inline
def locate(d: Desk, place: int, typical: Floats, job: Any) -> int:
    """Find places for the job at its requested size, servers included; 0 if it does not fit.

    Where a rule puts the workers there may be no room for servers. Then they go where first-fit
    puts them, so that every rule can hold what an empty cluster can.
    """
    count = locate_by(d, place, typical, job)
    if count == 0 and job["servers"] > 0 and place != FIRST_FIT:
        count = locate_by(d, FIRST_FIT, typical, job)
    return count


@part
def claim(d: Desk, place: int, typical: Floats, job: Any, j: int, used: int) -> int:
    """Place job j at its requested size if it fits; returns `used`, unchanged if it does not."""
    count = locate(d, place, typical, job)
    return write(d, job, j, count, used) if count > 0 else used


@part
def claim_fewer(d: Desk, place: int, typical: Floats, job: Any, j: int, used: int) -> int:
    """Place job j with the most workers, fewer than it asks for, that fit; returns `used`."""
    each, workers = max(1, job["gpus_per_worker"]), job["workers"] - 1
    if job["gpus_per_worker"] > 0:
        free = 0
        for k in range(d.nodes.size):
            free += d.nodes[k]["free"]
        workers = min(workers, free // each)
    while workers >= max(1, job["min_workers"]):
        count = find(place, d.nodes, d.level, job, workers * each, typical, d.node, d.part)
        fits = count > 0
        for k in range(count):
            beside = job["servers"] // count + (k < job["servers"] % count)
            fits = fits and fits_on(job, d.nodes[d.node[k]], d.part[k] // each, beside)
        if fits:
            return write(d, job, j, count, used)
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
