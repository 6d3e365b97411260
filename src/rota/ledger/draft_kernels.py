"""A draft as compiled code edits it: what each job shall hold, taken and given back."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rota.core.layout import SLACK
from rota.core.types import Ints, Records
from rota.jit import inline, part
from rota.ledger.node_kernels import hold


class DraftArrays(NamedTuple):
    """A draft (see `rota.core.Draft`) as compiled code edits it, with room to work in."""

    nodes: Records  # (N,) NODE: what is free, under the draft
    level: Any  # index of `nodes`
    at: Ints  # (J,) job j shall hold shares[at[j] : at[j] + length[j]]
    length: Ints  # (J,)
    shares: Records  # (S,) SHARE; new ones go behind those in use, while there is room
    node: Ints  # (N,) scratch
    part: Ints  # (N,) scratch


@part
def give(d: DraftArrays, job: Any, j: int, sign: int) -> None:
    """Give back (sign 1) or take again (sign −1) all that job j holds in the draft."""
    for k in range(d.at[j], d.at[j] + d.length[j]):
        share = d.shares[k]
        hold(d.nodes, d.level, job, share["node"], share["workers"], share["servers"], sign)


@inline
def fits_on(job: Any, here: Any, workers: int, servers: int) -> bool:
    """Whether a node has room for these numbers of workers and servers of the job."""
    cpus = workers * job["cpus_per_worker"] + servers * job["cpus_per_server"]
    memory_gb = workers * job["memory_gb_per_worker"] + servers * job["memory_gb_per_server"]
    return (
        workers * job["gpus_per_worker"] <= here["free"]
        and cpus <= here["free_cpus"] + SLACK
        and memory_gb <= here["free_memory_gb"] + SLACK
    )


@inline
def still_free(d: DraftArrays, job: Any, first: int, count: int) -> bool:
    """Whether shares that the job once held can be taken again."""
    for k in range(first, first + count):
        share = d.shares[k]
        if not fits_on(job, d.nodes[share["node"]], share["workers"], share["servers"]):
            return False
    return True


@part
def write(d: DraftArrays, job: Any, j: int, count: int, used: int) -> int:
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
    # An int64 like other sizes, or the code that places jobs would be compiled for two types.
    return np.int64(job["gpus"] if job["gpus_per_worker"] > 0 else job["workers"])


@part
def held_gpus(d: DraftArrays, job: Any, j: int) -> int:
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
    """Whether shares[first : first + count] have the numbers of workers and servers it holds."""
    workers, servers = 0, 0
    for k in range(first, first + count):
        workers += shares[k]["workers"]
        servers += shares[k]["servers"]
    return workers == job["held_workers"] and servers == job["held_servers"]
