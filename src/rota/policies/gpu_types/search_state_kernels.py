"""What the search of `pollux` reads and edits: the shares of all jobs, and what they are worth."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rota.core.layout import SLACK
from rota.core.types import Bools, Floats, Ints
from rota.jit import inline, part

ANY_TYPE = -1


class SearchState(NamedTuple):
    """Jobs, nodes and what each job holds: what a search reads and edits."""

    each: Ints  # (J,) GPUs per worker
    cpus: Floats  # (J,) per worker
    memory_gb: Floats  # (J,) per worker
    least: Ints  # (J,) workers
    most: Ints  # (J,)
    bound: Ints  # (J,) the only GPU type it runs on, −1: any, but one at a time
    mixed: Bools  # (J,) whether it may span types, since none holds it
    fixed: Bools  # (J,) whether it must be left alone
    curve: Ints  # (J,) −1: speed is the number of workers
    servers: Ints  # (J,)
    unit: Floats  # (J,) the speed that counts as 1
    idle: Floats  # (J,) what waiting counts as
    change_factor: Floats  # (J,) factor on the speedup of a job that is changed
    speed: Floats  # (C, T, A, W) as in `rota.core.speed.Curves`
    by_nodes: bool
    power: float  # of the mean that is maximised
    type: Ints  # (N,)
    free: Ints  # (N,) GPUs; updated in place, like all below
    free_cpus: Floats  # (N,)
    free_memory_gb: Floats  # (N,)
    before: Ints  # (J, N) workers that the jobs hold now; not changed
    share: Ints  # (J, N) workers that they shall hold
    held: Ints  # (J,) workers of each job
    worth: Floats  # (J,) what the share is worth
    kept: Ints  # (J, N) scratch: shares to return to
    touched: Ints  # (J,) scratch: jobs whose share a move has changed
    is_touched: Bools  # (J,) scratch


@part
def speed_on(b: SearchState, j: int, t: int, span: int) -> float:
    """Speed of job j with the workers it has, on nodes of type t."""
    if b.curve[j] < 0:
        return float(b.held[j])
    a = min(span if b.by_nodes else b.servers[j], b.speed.shape[2] - 1)
    return b.speed[b.curve[j], t, a, min(b.held[j], b.speed.shape[3] - 1)]


@part
def value(b: SearchState, j: int) -> float:
    """What the share of job j is worth: a term of the power mean."""
    span, same = 0, True
    for n in range(b.free.size):
        span += b.share[j, n] > 0
        same = same and b.share[j, n] == b.before[j, n]
    gain = b.idle[j]
    if span > 0:
        gain = np.inf
        for n in range(b.free.size):
            if b.share[j, n] > 0:
                gain = min(gain, speed_on(b, j, b.type[n], span) / b.unit[j])
    if not same:
        gain *= b.change_factor[j]
    gain = max(gain, 1e-6)
    if b.power == 0.0:
        return np.log(gain)
    if b.power == -1.0:
        return -1.0 / gain
    return gain**b.power if b.power > 0.0 else -(gain**b.power)


@inline
def give(b: SearchState, j: int, n: int, workers: int) -> None:
    """Let job j hold that many more workers (fewer, if negative) on node n."""
    b.share[j, n] += workers
    b.held[j] += workers
    b.free[n] -= workers * b.each[j]
    b.free_cpus[n] -= workers * b.cpus[j]
    b.free_memory_gb[n] -= workers * b.memory_gb[j]


@part
def clear(b: SearchState, j: int) -> None:
    """Let job j hold nothing."""
    for n in range(b.free.size):
        give(b, j, n, -b.share[j, n])


@part
def room(b: SearchState, j: int, n: int, t: int) -> int:
    """The number of further workers of job j that fit on node n, if it is of type t."""
    if t != ANY_TYPE and b.type[n] != t:
        return 0
    workers = b.most[j]
    if b.each[j] > 0:
        workers = min(workers, b.free[n] // b.each[j])
    if b.cpus[j] > 0.0:
        workers = min(workers, int(min(1e9, (b.free_cpus[n] + SLACK) / b.cpus[j])))
    if b.memory_gb[j] > 0.0:
        workers = min(workers, int(min(1e9, (b.free_memory_gb[n] + SLACK) / b.memory_gb[j])))
    return max(0, workers)


@part
def keep(b: SearchState, j: int, count: int) -> int:
    """Note the share of job j before it is changed; returns the number of jobs noted by now."""
    if b.is_touched[j]:
        return count
    for n in range(b.free.size):
        b.kept[j, n] = b.share[j, n]
    b.touched[count], b.is_touched[j] = j, True
    return count + 1


@part
def fill(b: SearchState, j: int, need: int, t: int) -> int:
    """Give job j workers where there is room, on few nodes; returns the number still missing."""
    while need > 0:
        best, most, mine = -1, 0, False
        for n in range(b.free.size):
            here = room(b, j, n, t)
            if here == 0:
                continue
            # Nodes it is on come first; then one that holds all the rest, as tightly as
            # possible; then the roomiest.
            held = b.share[j, n] > 0
            tighter = (most < need and here > most) or need <= here < most
            if best == -1 or (held and not mine) or (held == mine and tighter):
                best, most, mine = n, here, held
        if best == -1:
            return need
        give(b, j, best, min(most, need))
        need -= min(most, need)
    return 0
