"""Who comes first: one compiled score per ordering; the lowest score is served first.

Equal scores are served in order of submission, which is the order of the job records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rota.core.layout import RUNNING
from rota.jit import allocating_part, inline, part
from rota.policies.rule import (
    ATTAINED,
    DOMINANT,
    FIFO,
    FINISH_FAIR,
    GITTINS,
    MAX_MIN,
    PACKING,
    QUEUES,
    REMAINING,
    SHORTEST,
)

if TYPE_CHECKING:
    from rota.core.types import Floats, Ints, Records
    from rota.policies.rule import Rule

TICK_S = 1e-6
"""Attained service this close to a limit (in GPU-seconds) counts as having reached it."""


@inline
def ran_s(job: Any, now_s: float) -> float:
    """Seconds of progress time since the job was last settled; a restart's pause is left out."""
    if job["status"] != RUNNING:
        return 0.0
    return max(0.0, now_s - max(job["settled_s"], job["resume_s"]))


@inline
def remaining(job: Any, now_s: float) -> float:
    """What is believed to be left, in seconds at the requested size; never negative."""
    left_s = job["remaining_s"] - job["pace"] * ran_s(job, now_s)
    return 0.0 if left_s < 0.0 else left_s  # not max(): unknown must stay unknown


@inline
def service(job: Any, now_s: float) -> float:
    """GPU-seconds of progress so far."""
    return job["gpus"] * (job["progress_s"] + job["pace"] * ran_s(job, now_s))


@inline
def class_of(limits: Floats, attained: float) -> int:
    """How many limits have been reached."""
    low, high = 0, limits.size
    while low < high:
        k = (low + high) >> 1
        if attained + TICK_S >= limits[k]:
            low = k + 1
        else:
            high = k
    return low


@part
def score(rule: Rule, job: Any, now_s: float, live: int, total_gpus: int, demand: float) -> float:
    """How late the job's turn is; `demand` is the share it asks for of what there is."""
    kind = rule.order
    if kind == FIFO or kind == DOMINANT:
        return 0.0
    if kind == SHORTEST:
        return job["estimate_s"]
    if kind == REMAINING:
        left = remaining(job, now_s)
        if rule.exponent == 0.0:
            return left
        if rule.exponent == 1.0:
            return left * job["gpus"]
        return left * job["gpus"] ** rule.exponent
    if kind == ATTAINED or kind == MAX_MIN:
        return service(job, now_s)
    if kind == QUEUES:
        return class_of(rule.limits, service(job, now_s))
    if kind == GITTINS:
        return -rule.worth[class_of(rule.limits, service(job, now_s))]
    if kind == FINISH_FAIR:
        # Time shared so far and to come, over the time with a 1/live share of the cluster.
        alone_s = job["estimate_s"] * max(1.0, job["gpus"] * live / total_gpus)
        return -(now_s - job["submit_s"] + remaining(job, now_s)) / alone_s
    # PACKING: demand along what is free, less a tenth for each order of magnitude of work.
    return 0.1 * np.log10(1.0 + remaining(job, now_s) * job["gpus"]) - demand


@part
def next_turn_s(rule: Rule, job: Any, now_s: float) -> float:
    """When the score of a job that runs, or starts now, jumps by itself: at its next limit."""
    if rule.order != QUEUES and rule.order != GITTINS:
        return np.inf
    attained = service(job, now_s)
    k = class_of(rule.limits, attained)
    if k == rule.limits.size:
        return np.inf
    if job["status"] == RUNNING:
        begin_s, pace = max(now_s, job["resume_s"]), job["pace"]
    else:
        again = job["started_s"] == job["started_s"]  # not NaN: it ran before
        begin_s, pace = now_s + (job["restart_s"] if again else 0.0), 1.0
    turn_s = begin_s + max((rule.limits[k] - attained) / (job["gpus"] * pace), TICK_S)
    return max(turn_s, np.nextafter(now_s, np.inf))  # a tick may be less than time can tell


@inline
def before(key: Floats, a: int, b: int) -> bool:
    """Whether job a is served before job b."""
    return key[a] < key[b] or (key[a] == key[b] and a < b)


@part
def sort(order: Ints, n: int, key: Floats) -> None:
    """Sort `order[:n]` (job indices) by (key[job], job), fast where it is nearly sorted already."""
    budget = 16 * n + 64
    for i in range(1, n):
        job, k = order[i], i
        while k > 0 and before(key, job, order[k - 1]):
            order[k] = order[k - 1]
            k -= 1
        order[k] = job
        budget -= i - k
        if budget < 0:  # not nearly sorted: do it properly, once
            merge_sort(order, n, key)
            return


@allocating_part
def merge_sort(order: Ints, n: int, key: Floats) -> None:
    """Sort `order[:n]` whatever state it is in."""
    spare, width = np.empty(n, np.int64), 1
    while width < n:
        for low in range(0, n, 2 * width):
            a, mid, high = low, min(low + width, n), min(low + 2 * width, n)
            b = mid
            for k in range(low, high):
                if a < mid and (b == high or not before(key, order[b], order[a])):
                    spare[k] = order[a]
                    a += 1
                else:
                    spare[k] = order[b]
                    b += 1
        for k in range(n):
            order[k] = spare[k]
        width *= 2


@part
def rank(
    rule: Rule, jobs: Records, order: Ints, n: int, now_s: float, nodes: Records, key: Floats
) -> None:
    """Sort `order[:n]` by the policy's score."""
    if rule.order == FIFO or rule.order == DOMINANT:  # no scores: by submission
        k = 1
        while k < n and order[k - 1] < order[k]:
            k += 1
        if k >= n:
            return
    gpus, cpus, memory_gb, free, free_cpus, free_gb = 0, 0.0, 0.0, 0, 0.0, 0.0
    shared = rule.order == FINISH_FAIR or rule.order == PACKING  # only these look at the cluster
    for k in range(nodes.size if shared else 0):
        if nodes[k]["up"]:
            gpus, free = gpus + nodes[k]["gpus"], free + nodes[k]["free"]
            cpus, free_cpus = cpus + nodes[k]["cpus"], free_cpus + nodes[k]["free_cpus"]
            memory_gb, free_gb = (
                memory_gb + nodes[k]["memory_gb"],
                free_gb + nodes[k]["free_memory_gb"],
            )
    for i in range(n):
        job = jobs[order[i]]
        demand = 0.0
        if rule.order == PACKING:
            demand = job["gpus"] / gpus * (free / gpus) if gpus > 0 else 0.0
            if cpus < np.inf and cpus > 0.0:
                demand += job["workers"] * job["cpus_per_worker"] / cpus * (free_cpus / cpus)
            if memory_gb < np.inf and memory_gb > 0.0:
                demand += (
                    job["workers"] * job["memory_gb_per_worker"] / memory_gb * (free_gb / memory_gb)
                )
        turn = score(rule, job, now_s, n, max(1, gpus), demand)
        key[order[i]] = turn if turn == turn else np.inf  # of unknown length: after all others
    sort(order, n, key)
