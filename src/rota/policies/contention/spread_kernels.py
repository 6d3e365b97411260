"""Types of jobs: which are alike to a placement, and over how many nodes each may be spread."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from rota.core.types import Floats, Ints, Records
from rota.jit import part
from rota.policies.contention.neighbour_kernels import Law, Options

MOST_SPREADS: Final = 4
"""Of a job: over as few nodes as it fits on, and twice, four times, … as many."""


class PlacementTables(NamedTuple):
    """What is known of speed and contention in a cluster; see `rota.core.speed`."""

    law: Law
    by_nodes: bool
    speed: Floats  # (C, T, A, W)
    kind: Ints  # (C + 1, A, W)


class JobTypes(NamedTuple):
    """Jobs that are alike to a placement."""

    of: Ints  # (J,) the type of each job
    first: Ints  # (J,) the first job of each type
    spreads: Ints  # (J,) the number of spreads of each type
    reference: Floats  # (J,) the mean speed of its spreads, on the best GPUs
    best: Floats  # (J,) the best of these speeds, relative to the reference
    slot: Ints  # (H,) types by hash, −1: none; H is a power of two above J
    here: Ints  # (T,) whether the cluster has GPUs of a type


@part
def size_of(job: Any) -> float:
    """The GPUs that a job asks for, or its workers where they need none."""
    return max(1.0, float(job["gpus"] if job["gpus"] > 0 else job["workers"]))


@part
def largest_of(nodes: Records) -> int:
    """The most GPUs that a node has."""
    largest = 0
    for n in range(nodes.size):
        largest = max(largest, nodes[n]["gpus"])
    return largest


@part
def kind_of(t: PlacementTables, curve: int, span: int, workers: int) -> int:
    """The kind of traffic of a job over `span` nodes; beyond the table, that of its edge."""
    C, A, W = t.kind.shape
    row = curve if 0 <= curve < C else C - 1
    return int(t.kind[row, min(span, A - 1), min(workers, W - 1)])


@part
def speed_of(
    t: PlacementTables, curve: int, span: int, servers: int, workers: int, gpu: int
) -> float:
    """Work per second alone on a GPU type; 0 where it does not run or no curve says."""
    C, _, A, W = t.speed.shape
    if curve < 0 or curve >= C:
        return 0.0
    a = span if t.by_nodes else servers
    return float(t.speed[curve, gpu, min(a, A - 1), min(workers, W - 1)])


@part
def alike(one: Any, other: Any) -> bool:
    """Whether two jobs are of one type."""
    return bool(
        one["curve"] == other["curve"]
        and one["workers"] == other["workers"]
        and one["servers"] == other["servers"]
        and one["gpus_per_worker"] == other["gpus_per_worker"]
        and one["gpu_type"] == other["gpu_type"]
        and one["cpus_per_worker"] == other["cpus_per_worker"]
        and one["memory_gb_per_worker"] == other["memory_gb_per_worker"]
        and one["cpus_per_server"] == other["cpus_per_server"]
        and one["memory_gb_per_server"] == other["memory_gb_per_server"]
    )


@part
def hash_of(job: Any) -> int:
    """A number that jobs of one type share."""
    number = job["curve"] + 1
    number = number * 1000003 + job["workers"]
    number = number * 1000003 + job["servers"]
    number = number * 1000003 + job["gpus_per_worker"]
    number = number * 1000003 + job["gpu_type"] + 1
    number = number * 1000003 + int(16.0 * min(job["cpus_per_worker"], 1e9))
    number = number * 1000003 + int(16.0 * min(job["memory_gb_per_worker"], 1e9))
    return int(number ^ (number >> 17))


@part
def fits_empty(nodes: Records, job: Any, span: int) -> bool:
    """Whether an empty cluster has `span` nodes with room for equal parts of a job."""
    workers, servers = -(-job["workers"] // span), -(-job["servers"] // span)
    cpus = workers * job["cpus_per_worker"] + servers * job["cpus_per_server"]
    memory_gb = workers * job["memory_gb_per_worker"] + servers * job["memory_gb_per_server"]
    able = 0
    for n in range(nodes.size):
        node = nodes[n]
        if (
            node["gpus"] >= workers * job["gpus_per_worker"]
            and node["cpus"] >= cpus
            and node["memory_gb"] >= memory_gb
            and (job["gpu_type"] == -1 or job["gpu_type"] == node["type"])
        ):
            able += 1
            if able == span:
                return True
    return False


@part
def best_speed(t: PlacementTables, types: JobTypes, job: Any, span: int) -> float:
    """The speed of a job over `span` nodes alone, on the best GPUs that it may run on."""
    best = 0.0
    for gpu in range(types.here.size):
        if job["gpu_type"] == gpu or (job["gpu_type"] == -1 and types.here[gpu] == 1):
            one = speed_of(t, job["curve"], span, job["servers"], job["workers"], gpu)
            best = max(best, one)
    return best


@part
def add_type(
    t: PlacementTables, o: Options, types: JobTypes, nodes: Records, largest: int, job: Any,
    q: int, at: int,
) -> int:  # fmt: skip
    """Find the spreads of a new type and list them from `at` on. Returns where they end.

    Without a curve, or where it knows no spread that fits, all are as fast.
    """
    each, most = job["gpus_per_worker"], min(nodes.size, job["workers"])
    fewest = 1
    if 0 < each <= largest:
        per_node = largest // each
        fewest = max(1, -(-job["workers"] // per_node))
    total, top = 0.0, 0.0
    for blind in range(2):
        count, total, top, span = 0, 0.0, 0.0, fewest
        while span <= most and count < MOST_SPREADS:
            best = 1.0 if blind else best_speed(t, types, job, span)
            if best > 0.0 and fits_empty(nodes, job, span):
                total += best
                top = max(top, best)
                p = at + count
                o.type[p], o.span[p] = q, span
                o.kind[p] = kind_of(t, job["curve"], span, job["workers"])
                for gpu in range(types.here.size):
                    o.speed[p, gpu] = 1.0
                    if not blind:
                        o.speed[p, gpu] = speed_of(
                            t, job["curve"], span, job["servers"], job["workers"], gpu
                        )
                count += 1
            span = next_span(span)
        types.spreads[q] = count
        if count:
            break
    reference = total / types.spreads[q] if types.spreads[q] else 1.0
    types.reference[q] = reference
    types.best[q] = top / reference if types.spreads[q] else 1.0
    for p in range(at, at + types.spreads[q]):
        for gpu in range(types.here.size):
            o.speed[p, gpu] /= reference
    return int(at + types.spreads[q])


@part
def next_span(span: int) -> int:
    """The next power of two."""
    power = 1
    while power <= span:
        power *= 2
    return power


@part
def type_of(types: JobTypes, rows: Records, j: int, known: int) -> int:
    """The type of job j: one of the `known` ones, or else that number, which it then is."""
    size = types.slot.size
    at = hash_of(rows[j]) & (size - 1)
    while types.slot[at] >= 0:
        q = types.slot[at]
        if alike(rows[types.first[q]], rows[j]):
            return int(q)
        at = (at + 1) & (size - 1)
    types.slot[at] = known
    types.first[known] = j
    return known
