"""A forecast of the free GPUs of every node over time, from which reservations are taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rota.core.types import Floats, Ints
from rota.jit import part
from rota.ledger.draft_kernels import DraftArrays
from rota.ledger.node_kernels import build

if TYPE_CHECKING:
    from rota.core.types import Records


@part
def after(now_s: float, at_s: float, least_s: float) -> float:
    """`at_s`, but at least `least_s` after now, and later than now even after rounding.

    A job holds what it holds for some time; else that would be given away again at once.
    """
    return max(at_s, now_s + least_s, np.nextafter(now_s, np.inf))


class Forecast(NamedTuple):
    """What will be free: from times[s] on the GPUs free[row[s]] (N,), total[s] in all."""

    times: Floats
    total: Ints
    row: Ints
    free: Any


@part
def foresee(
    jobs: Records, held: Ints, ends: Floats, ranks: Ints, now_s: float, d: DraftArrays, p: Forecast
) -> int:
    """Write down what is free now and after each known end; returns the number of steps."""
    p.times[0], p.total[0], p.row[0] = now_s, 0, 0
    for k in range(d.nodes.size):
        p.free[0, k] = d.nodes[k]["free"]
        p.total[0] += p.free[0, k]
    steps = 1
    for r in range(ranks.size):
        gone_s, j = ends[ranks[r]], held[ranks[r]]
        if gone_s == np.inf:
            break
        if gone_s != p.times[steps - 1]:
            p.times[steps], p.total[steps], p.row[steps] = gone_s, p.total[steps - 1], steps
            for k in range(d.nodes.size):
                p.free[steps, k] = p.free[steps - 1, k]
            steps += 1
        for k in range(d.at[j], d.at[j] + d.length[j]):
            gpus = d.shares[k]["workers"] * jobs[j]["gpus_per_worker"]
            p.free[steps - 1, d.shares[k]["node"]] += gpus
            p.total[steps - 1] += gpus
    return steps


@part
def reserve(
    job: Any, d: DraftArrays, p: Forecast, steps: int, begin_s: float, span_s: float, count: int
) -> int:
    """Take the `count` places found for the job out of the forecast; returns the new steps."""
    ends_s = after(begin_s, begin_s + span_s, 0.0)
    steps = cut(p, steps, ends_s)
    if job["gpus_per_worker"] == 0:  # then `part` counts workers, which take no GPUs
        return steps
    for q in range(steps):
        if begin_s <= p.times[q] < ends_s:
            for k in range(count):
                p.free[p.row[q], d.node[k]] -= d.part[k]
                p.total[q] -= d.part[k]
    return steps


@part
def cut(p: Forecast, steps: int, at_s: float) -> int:
    """Make `at_s` a step of the forecast, if there is room; returns the number of steps."""
    k = steps
    while k > 0 and p.times[k - 1] > at_s:
        k -= 1
    if k == 0 or p.times[k - 1] == at_s or at_s == np.inf or steps == p.times.size:
        return steps
    for s in range(steps, k, -1):
        p.times[s], p.total[s], p.row[s] = p.times[s - 1], p.total[s - 1], p.row[s - 1]
    p.times[k], p.total[k], p.row[k] = at_s, p.total[k - 1], steps
    for node in range(p.free.shape[1]):
        p.free[steps, node] = p.free[p.row[k - 1], node]
    return steps + 1


@part
def open_window(
    gpus: int,
    d: DraftArrays,
    window: DraftArrays,
    p: Forecast,
    steps: int,
    first: int,
    span_s: float,
) -> bool:
    """Put into `window` what is free from step `first` on for `span_s`; False if too little.

    Of CPUs and memory only those free now are known; later ones count as free.
    """
    end = first
    while end < steps and (end == first or p.times[end] < p.times[first] + span_s):
        if p.total[end] < gpus:
            return False
        end += 1
    for k in range(window.nodes.size):
        here, now = window.nodes[k], d.nodes[k]
        here["free"] = p.free[p.row[first], k]
        here["free_cpus"] = now["free_cpus"] if first == 0 else now["cpus"]
        here["free_memory_gb"] = now["free_memory_gb"] if first == 0 else now["memory_gb"]
    for s in range(first + 1, end):
        total, row = 0, p.row[s]
        for k in range(window.nodes.size):
            window.nodes[k]["free"] = min(window.nodes[k]["free"], p.free[row, k])
            total += window.nodes[k]["free"]
        if total < gpus:
            return False
    build(window.nodes, window.level)
    return True
