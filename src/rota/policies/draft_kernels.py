"""Edits of a draft by compiled code: take, give back, place one gang.

The draft's arrays are those of `rota.core.Draft`; see `round_kernels` for what each one is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.core.layout import SLACK
from rota.jit import inline, part
from rota.policies.place_kernels import find, hold

if TYPE_CHECKING:
    from rota.core.types import Ints, Records
    from rota.policies.rule import Rule


@part
def give(job: Any, j: int, nodes: Records, level: Any, at: Ints, length: Ints, shares: Records, sign: int) -> None:
    """Give back (sign 1) or take again (sign −1) all that job j holds in the draft."""
    for k in range(at[j], at[j] + length[j]):
        hold(nodes, level, job, shares[k]["node"], shares[k]["workers"], shares[k]["servers"], sign)


@inline
def fits_on(job: Any, here: Any, workers: int, servers: int) -> bool:
    """Whether a node has room for so many workers and servers of the job."""
    cpus = workers * job["cpus_per_worker"] + servers * job["cpus_per_server"]
    memory_gb = workers * job["memory_gb_per_worker"] + servers * job["memory_gb_per_server"]
    return (  # type: ignore[no-any-return]
        workers * job["gpus_per_worker"] <= here["free"]
        and cpus <= here["free_cpus"] + SLACK
        and memory_gb <= here["free_memory_gb"] + SLACK
    )


@inline
def still_free(job: Any, nodes: Records, shares: Records, first: int, count: int) -> bool:
    """Whether shares that the job once held can be taken again."""
    for k in range(first, first + count):
        if not fits_on(job, nodes[shares[k]["node"]], shares[k]["workers"], shares[k]["servers"]):
            return False
    return True


@part
def write(job: Any, j: int, count: int, nodes: Records, level: Any, at: Ints, length: Ints, shares: Records,
          used: int, node: Ints, part: Ints) -> int:  # fmt: skip
    """Give job j the `count` places found; its servers go beside the workers, evenly."""
    servers = job["servers"]
    for k in range(count):
        workers, beside = part[k] // job["gpus_per_worker"], servers // count + (k < servers % count)
        shares[used + k]["node"], shares[used + k]["workers"] = node[k], workers
        shares[used + k]["servers"] = beside
        hold(nodes, level, job, node[k], workers, beside, -1)
    at[j], length[j] = used, count
    return used + count


@part
def claim(rule: Rule, job: Any, j: int, nodes: Records, level: Any, at: Ints, length: Ints, shares: Records,
          used: int, node: Ints, part: Ints) -> int:  # fmt: skip
    """Place job j at its requested size if it fits; returns `used`, unchanged if it does not."""
    count = find(rule.place, nodes, level, job, job["gpus"], rule.typical, node, part)
    if count == 0:
        return used
    servers = job["servers"]
    if servers > 0:
        for k in range(count):
            beside = servers // count + (k < servers % count)
            if not fits_on(job, nodes[node[k]], part[k] // job["gpus_per_worker"], beside):
                return used
    return write(job, j, count, nodes, level, at, length, shares, used, node, part)
