"""Max-min and dominant resource fairness: the next job is one of the user who has least."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from rota.core.types import Floats, Ints
from rota.jit import allocating_part, inline, part, pasted_part
from rota.ledger.draft_kernels import DraftArrays, held_gpus
from rota.policies.classic.claim_kernels import take
from rota.policies.classic.orderings import DOMINANT
from rota.policies.classic.room_kernels import MISSES, MostFree, cannot_fit, measure, measured
from rota.policies.classic.rule import ELASTIC

if TYPE_CHECKING:
    from rota.core.types import Records
    from rota.policies.classic.rule import Rule


Tally: TypeAlias = tuple[int, int, int, int]
"""Shares in use; free GPUs; whether a job was placed since room was measured; misses since."""


class Filling(NamedTuple):
    """What users have, and their jobs in line, while a round is filled."""

    gpus: int
    cpus: float
    memory_gb: float
    """Of the cluster, all three."""
    has: Floats  # (U,) the share of it that each user has
    head: Ints  # (U,) each user's first job in line, by its place in the order; −1: none
    last: Ints  # (U,) and the last
    behind: Ints  # (J,) by place in the order: the same user's next job in line
    heap: Ints  # users with jobs in line


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
def cannot_fit_now(room: MostFree, rule: Rule, free: int, job: Any) -> bool:
    """Whether the job cannot fit: it asks for more GPUs than are free, or no node has room."""
    return (job["gpus"] > free and rule.sizing != ELASTIC) or cannot_fit(room, rule, job)


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


@pasted_part
def settle(
    rule: Rule, jobs: Records, j: int, d: DraftArrays, room: MostFree, f: Filling, tally: Tally
) -> Tally:
    """Try to place job j; if it fits, its user has more. Returns the tally, brought up to date."""
    used, free, stale, missed = tally
    used = take(d, rule, jobs[j], j, used)
    if d.length[j] > 0:
        free, stale = free - held_gpus(d, jobs[j], j), 1
        if jobs[j]["user"] >= 0:
            f.has[jobs[j]["user"]] += dominant(rule, jobs[j], f.gpus, f.cpus, f.memory_gb)
    else:
        missed += 1
    if stale and missed >= MISSES:
        measure(room, d.nodes)
        stale, missed = 0, 0
    return used, free, stale, missed


@pasted_part
def serve_users_without(
    rule: Rule, jobs: Records, order: Ints, n: int, d: DraftArrays, room: MostFree, f: Filling,
    counted: bool, tally: Tally,
) -> tuple[int, Tally]:  # fmt: skip
    """Place jobs of users who have nothing, in order; other jobs are put in line.

    Returns the number of users with jobs in line.
    """
    size = 0
    for i in range(n):
        if tally[1] == 0 and not counted:
            break
        j = order[i]
        if d.length[j] > 0:
            continue
        user = jobs[j]["user"]
        if user >= 0 and f.has[user] > 0.0:  # its turn is later
            f.behind[i] = -1
            if f.head[user] == -1:
                f.head[user], f.heap[size] = i, user
                size += 1
            else:
                f.behind[f.last[user]] = i
            f.last[user] = i
        elif not cannot_fit_now(room, rule, tally[1], jobs[j]):
            tally = settle(rule, jobs, j, d, room, f, tally)
    return size, tally


@pasted_part
def serve_users_by_share(
    rule: Rule, jobs: Records, order: Ints, size: int, d: DraftArrays, room: MostFree, f: Filling,
    counted: bool, tally: Tally,
) -> int:  # fmt: skip
    """Place the jobs in line, the next always of the user who has least by then.

    Returns the number of shares in use.
    """
    for k in range(size // 2 - 1, -1, -1):
        sink(f.heap, size, k, f.has, f.head)
    while size > 0 and (tally[1] > 0 or counted):
        user = f.heap[0]
        i, first = f.head[user], f.head[user]
        while i != -1 and cannot_fit_now(room, rule, tally[1], jobs[order[i]]):
            i = f.behind[i]
        f.head[user] = i
        if i != -1 and i == first:
            tally = settle(rule, jobs, order[i], d, room, f, tally)
            f.head[user] = f.behind[i]
        if f.head[user] == -1:
            size -= 1
            f.heap[0] = f.heap[size]
        if size > 0:
            sink(f.heap, size, 0, f.has, f.head)
    return tally[0]


@allocating_part
def fill_fairly(rule: Rule, jobs: Records, order: Ints, n: int, d: DraftArrays, used: int) -> int:
    """Progressive filling: the next job comes from the user who has least.

    Between users who have the same, the one whose first job is first in `order` is next. A job of
    an unknown user counts for itself. Users who have nothing come first, which is a walk along
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
    f = Filling(
        gpus, cpus, memory_gb, np.zeros(users), np.full(users, -1, np.int64),
        np.empty(users, np.int64), np.empty(n, np.int64), np.empty(min(n, users), np.int64),
    )  # fmt: skip
    for i in range(n):
        job = jobs[order[i]]
        if d.length[order[i]] > 0 and job["user"] >= 0:
            f.has[job["user"]] += dominant(rule, job, gpus, cpus, memory_gb)
    room = measured(d.nodes, d.level)
    tally = (used, free, 0, 0)
    size, tally = serve_users_without(rule, jobs, order, n, d, room, f, counted, tally)
    return serve_users_by_share(rule, jobs, order, size, d, room, f, counted, tally)
