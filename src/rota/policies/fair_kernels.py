"""Max-min fairness and dominant resource fairness: the next job is of the user who has least."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rota.jit import allocating_part, inline, part
from rota.policies.draft_kernels import Desk, held_gpus, take
from rota.policies.room_kernels import MISSES, Room, is_hopeless, measure, measured
from rota.policies.rule import DOMINANT, ELASTIC

if TYPE_CHECKING:
    from rota.core.types import Floats, Ints, Records
    from rota.policies.rule import Rule


@inline
def dominant(rule: Rule, job: Any, gpus: int, cpus: float, memory_gb: float) -> float:
    """The largest share, of what the cluster has of anything, that the job asks for.

    For max-min fairness the share of GPUs alone.
    """
    most = job["gpus"] / gpus if gpus > 0 else 0.0
    if rule.order == DOMINANT and cpus > 0.0:
        most = max(most, job["workers"] * job["cpus_per_worker"] / cpus)
    if rule.order == DOMINANT and memory_gb > 0.0:
        most = max(most, job["workers"] * job["memory_gb_per_worker"] / memory_gb)
    return most


@inline
def is_next(has: Floats, head: Ints, a: int, b: int) -> bool:
    """Whether user a's first job in line comes before user b's."""
    return has[a] < has[b] or (has[a] == has[b] and head[a] < head[b])


@inline
def is_vain(room: Room, rule: Rule, free: int, job: Any) -> bool:
    """Whether there is no use in trying: more GPUs than are free at all, or no node has room."""
    return (job["gpus"] > free and rule.sizing != ELASTIC) or is_hopeless(room, rule, job)


@part
def sink(heap: Ints, size: int, k: int, has: Floats, head: Ints) -> None:
    """Restore the heap of users below place k."""
    user = heap[k]
    while True:
        child = 2 * k + 1
        if child >= size:
            break
        if child + 1 < size and is_next(has, head, heap[child + 1], heap[child]):
            child += 1
        if not is_next(has, head, heap[child], user):
            break
        heap[k] = heap[child]
        k = child
    heap[k] = user


@allocating_part
def fill_fairly(rule: Rule, jobs: Records, order: Ints, n: int, d: Desk, used: int) -> int:
    """Progressive filling: the next job comes from the user who has least.

    Between users who have the same, whose first job is first in `order`. A job of nobody in
    particular counts for itself. First come those who have nothing, which is a walk along
    `order`; few users have something, and a heap says which of these is next.
    """
    gpus, cpus, memory_gb, free, counted = 0, 0.0, 0.0, 0, False
    for k in range(d.nodes.size):
        here = d.nodes[k]
        gpus, cpus, free = gpus + here["gpus"], cpus + here["cpus"], free + here["free"]
        memory_gb += here["memory_gb"]
        counted |= here["cpus"] < np.inf  # then some may need CPUs only
    if free == 0 and not counted:
        return used
    users = 0
    for i in range(n):
        users = max(users, jobs[order[i]]["user"] + 1)
    has = np.zeros(users)
    for i in range(n):
        job = jobs[order[i]]
        if d.length[order[i]] > 0 and job["user"] >= 0:
            has[job["user"]] += dominant(rule, job, gpus, cpus, memory_gb)
    room = measured(d.nodes, d.level)
    stale, misses = False, 0
    head, last = np.full(users, -1, np.int64), np.empty(users, np.int64)
    behind = np.empty(n, np.int64)  # the same user's next job in line
    heap, size = np.empty(min(n, users), np.int64), 0
    for i in range(n):
        if free == 0 and not counted:
            return used
        j = order[i]
        if d.length[j] > 0:
            continue
        user = jobs[j]["user"]
        if user >= 0 and has[user] > 0.0:  # its turn is later
            behind[i] = -1
            if head[user] == -1:
                head[user], heap[size] = i, user
                size += 1
            else:
                behind[last[user]] = i
            last[user] = i
            continue
        if is_vain(room, rule, free, jobs[j]):
            continue
        used = take(d, rule, jobs[j], j, used)
        if d.length[j] > 0:
            free, stale = free - held_gpus(d, jobs[j], j), True
            if user >= 0:
                has[user] += dominant(rule, jobs[j], gpus, cpus, memory_gb)
        else:
            misses += 1
        if stale and misses >= MISSES:
            measure(room, d.nodes)
            stale, misses = False, 0
    for k in range(size // 2 - 1, -1, -1):
        sink(heap, size, k, has, head)
    while size > 0 and (free > 0 or counted):
        user = heap[0]
        i, first = head[user], head[user]
        while i != -1 and is_vain(room, rule, free, jobs[order[i]]):
            i = behind[i]
        head[user] = i
        if i != -1 and i == first:
            j = order[i]
            used = take(d, rule, jobs[j], j, used)
            if d.length[j] > 0:
                free, stale = free - held_gpus(d, jobs[j], j), True
                has[user] += dominant(rule, jobs[j], gpus, cpus, memory_gb)
            else:
                misses += 1
            if stale and misses >= MISSES:
                measure(room, d.nodes)
                stale, misses = False, 0
            head[user] = behind[i]
        if head[user] == -1:
            size -= 1
            heap[0] = heap[size]
        if size > 0:
            sink(heap, size, 0, has, head)
    return used
