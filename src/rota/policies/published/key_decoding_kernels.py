"""Random keys become a schedule: the decoder and the two objectives that `malo` and `mosa` share.

A candidate is a vector of 2J numbers in [0, 1): the first J say in which order the jobs are
served, the others at which node the search for room begins for each of them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rota.core.layout import SLACK
from rota.core.types import Bools, Floats, Ints
from rota.jit import kernel, part
from rota.policies.classic.sort_kernels import sort

ANY_TYPE: Final = -1
HOUR_S: Final = 3600.0


class KeyedQueue(NamedTuple):
    """The waiting jobs that are searched and the room there is for them; only read."""

    workers: Ints  # (J,)
    most: Ints  # (J,) of them on one node: less than all if it has no speed on one node
    servers: Ints  # (J,)
    gpus: Ints  # (J,) per worker
    cpus: Floats  # (J, 2) per worker, per server
    memory_gb: Floats  # (J, 2)
    bound: Ints  # (J,) the only GPU type it runs on, −1: any
    left_s: Floats  # (J,) at pace 1
    pace: Floats  # (J, T, A) on type t over a nodes, the last for more; 0: it cannot run there
    later_fee: Floats  # (J,) what a job that does not start now is expected to cost
    free: Ints  # (N,) GPUs
    free_cpus: Floats  # (N,)
    free_memory_gb: Floats  # (N,)
    up: Bools  # (N,)
    type: Ints  # (N,)
    price: Floats  # (N,) per GPU and hour
    busy_gpu_s: float  # what the running jobs still need
    total_gpus: int  # of nodes that are up


class Decoded(NamedTuple):
    """The schedule that a candidate stands for, and memory for making it; all written."""

    order: Ints  # (J,) the jobs as they are served
    at: Ints  # (J,) job j starts on node[at[j] : at[j] + span[j]]
    span: Ints  # (J,) 0: it waits
    node: Ints  # (S,)
    part: Ints  # (S,) workers there
    free: Ints  # (N,) what is left
    free_cpus: Floats  # (N,)
    free_memory_gb: Floats  # (N,)


@part
def workers_fit(q: KeyedQueue, d: Decoded, j: int, n: int, t: int) -> int:
    """How many workers of job j there is room for on node n, if it is of type t."""
    if not q.up[n] or (t != ANY_TYPE and q.type[n] != t):
        return 0
    if q.bound[j] != ANY_TYPE and q.type[n] != q.bound[j]:
        return 0
    room: int = q.most[j]
    if q.gpus[j] > 0:
        room = min(room, d.free[n] // q.gpus[j])
    if q.cpus[j, 0] > 0.0:
        room = min(room, int(min(1e10, (d.free_cpus[n] + SLACK) / q.cpus[j, 0])))
    if q.memory_gb[j, 0] > 0.0:
        room = min(room, int(min(1e10, (d.free_memory_gb[n] + SLACK) / q.memory_gb[j, 0])))
    return max(0, room)


@part
def servers_at(q: KeyedQueue, j: int, k: int, span: int) -> int:
    """How many servers go to the k-th of `span` nodes."""
    each: int = q.servers[j] // span
    return each + 1 if k < q.servers[j] % span else each


@part
def servers_fit(q: KeyedQueue, d: Decoded, j: int, at: int, span: int) -> bool:
    """Whether the servers of job j fit beside its workers."""
    for k in range(span):
        n, workers, servers = d.node[at + k], d.part[at + k], servers_at(q, j, k, span)
        if workers * q.cpus[j, 0] + servers * q.cpus[j, 1] > d.free_cpus[n] + SLACK:
            return False
        if workers * q.memory_gb[j, 0] + servers * q.memory_gb[j, 1] > d.free_memory_gb[n] + SLACK:
            return False
    return True


@part
def pace_over(q: KeyedQueue, d: Decoded, j: int, at: int, span: int) -> float:
    """The pace of job j there: that of its slowest GPU type."""
    a = min(span, q.pace.shape[2] - 1)
    pace: float = q.pace[j, q.type[d.node[at]], a]
    for k in range(1, span):
        pace = min(pace, q.pace[j, q.type[d.node[at + k]], a])
    return pace


@part
def gather(q: KeyedQueue, d: Decoded, j: int, first: int, t: int, whole: bool, at: int) -> int:
    """Write a place for job j, from node `first` on; returns the number of its nodes, 0: none.

    t      the GPU type, or any
    whole  only nodes that hold all of it
    """
    N, left, span = q.free.size, q.workers[j], 0
    for i in range(N):
        n = first + i if first + i < N else first + i - N
        room = workers_fit(q, d, j, n, t)
        if room == 0 or (whole and room < left):
            continue
        d.node[at + span], d.part[at + span] = n, min(room, left)
        left -= d.part[at + span]
        span += 1
        if left == 0:
            if pace_over(q, d, j, at, span) > 0.0 and servers_fit(q, d, j, at, span):
                return span
            if not whole:
                return 0
            left, span = q.workers[j], 0  # the next node may do
    return 0


@part
def find_place(q: KeyedQueue, d: Decoded, j: int, first: int, at: int) -> int:
    """One node; else nodes of one type, that of `first` before others; else any nodes."""
    types, span = q.pace.shape[1], 0
    if q.most[j] >= q.workers[j]:
        span = gather(q, d, j, first, ANY_TYPE, True, at)
    if span > 0 or q.workers[j] == 1:
        return span
    for k in range(types):
        span = gather(q, d, j, first, (q.type[first] + k) % types, False, at)
        if span > 0:
            return span
    return gather(q, d, j, first, ANY_TYPE, False, at) if types > 1 else 0


@part
def occupy(q: KeyedQueue, d: Decoded, j: int, at: int, span: int) -> float:
    """Take the room of job j from its nodes; returns what they cost per hour."""
    price = 0.0
    for k in range(span):
        n, workers, servers = d.node[at + k], d.part[at + k], servers_at(q, j, k, span)
        d.free[n] -= workers * q.gpus[j]
        d.free_cpus[n] -= workers * q.cpus[j, 0] + servers * q.cpus[j, 1]
        d.free_memory_gb[n] -= workers * q.memory_gb[j, 0] + servers * q.memory_gb[j, 1]
        price += workers * q.gpus[j] * q.price[n]
    return price


@part
def reset_room(q: KeyedQueue, d: Decoded) -> int:
    """Begin with the room that there is now; returns the number of free GPUs."""
    gpus = 0
    for n in range(q.free.size):
        gpus += q.free[n]
        d.free[n] = q.free[n]
        d.free_cpus[n], d.free_memory_gb[n] = q.free_cpus[n], q.free_memory_gb[n]
    return gpus


@part
def decode(q: KeyedQueue, d: Decoded, x: Floats) -> tuple[float, float]:
    """Serve the jobs as the candidate says; returns their mean time until done and mean fee.

    A job that finds no room is expected to start when all GPUs together have done the GPU-seconds
    of the running jobs and of those before it, and to run at pace 1.
    """
    J, N = q.workers.size, q.free.size
    free = reset_room(q, d)
    for j in range(J):
        d.order[j] = j
    sort(d.order, J, x)
    time_s, fee, used, before_gpu_s = 0.0, 0.0, 0, q.busy_gpu_s
    for i in range(J):
        j, span = d.order[i], 0
        gpus, run_s = q.workers[j] * q.gpus[j], q.left_s[j]
        if gpus <= free:  # else no node need be looked at
            span = find_place(q, d, j, min(N - 1, int(x[J + j] * N)), used)
        d.at[j], d.span[j] = used, span
        if span > 0:
            free -= gpus
            run_s /= pace_over(q, d, j, used, span)
            time_s += run_s
            fee += occupy(q, d, j, used, span) * run_s / HOUR_S
            used += span
        else:
            time_s += before_gpu_s / max(1, q.total_gpus) + run_s
            fee += q.later_fee[j]
        if gpus <= q.total_gpus:  # others are in nobody's way: they never start
            before_gpu_s += gpus * run_s
    return time_s / J, fee / J


@kernel
def decode_one(q: KeyedQueue, d: Decoded, x: Floats, value: Floats) -> None:
    """Decode candidate x; value (2,) becomes its mean time and mean fee."""
    value[0], value[1] = decode(q, d, x)


@kernel
def place_one(q: KeyedQueue, d: Decoded, j: int, first: int, used: int) -> int:
    """Start job j where there is room from node `first` on; returns the number of its nodes.

    used  the number of places taken in d.node; 0 begins anew
    """
    if used == 0:
        reset_room(q, d)
    span = find_place(q, d, j, first, used)
    if span > 0:
        occupy(q, d, j, used, span)
    d.at[j], d.span[j] = used, span
    return span
