"""Backfilling: later jobs start early where that delays nobody who has a reservation.

Both kinds work on nodes, not on a count of GPUs, so a reservation is one that can be kept.
They believe the jobs' estimates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rota.core.layout import RUNNING
from rota.jit import allocating_part, kernel, part
from rota.policies.draft_kernels import claim, give, write
from rota.policies.order_kernels import merge_sort, rank, remaining
from rota.policies.place_kernels import build, find
from rota.policies.rule import EASY

if TYPE_CHECKING:
    from rota.core.types import Floats, Ints, Records
    from rota.policies.rule import Rule


@part
def end_s(job: Any, now_s: float) -> float:
    """When a job that runs, or starts now, is believed to end."""
    if job["status"] == RUNNING:
        return max(now_s, job["resume_s"]) + remaining(job, now_s) / job["pace"]  # type: ignore[no-any-return]
    pause_s = job["restart_s"] if job["progress_s"] > 0.0 else 0.0
    return now_s + pause_s + job["remaining_s"]  # type: ignore[no-any-return]


@allocating_part
def easy(rule: Rule, jobs: Records, order: Ints, n: int, head: int, now_s: float, nodes: Records, level: Any,
         at: Ints, length: Ints, shares: Records, used: int, node: Ints, part: Ints) -> int:  # fmt: skip
    """EASY (Lifka, 1995): only the head has a reservation."""
    first = jobs[order[head]]
    later, later_level = nodes.copy(), level.copy()
    ends = np.full(n, np.inf)
    for i in range(n):
        if length[order[i]] > 0:
            ends[i] = end_s(jobs[order[i]], now_s)
    shadow_s = np.inf
    ranks = np.arange(n)
    merge_sort(ranks, n, ends)
    for r in range(n):
        i = ranks[r]
        if ends[i] == np.inf or ends[i] > shadow_s:  # all that end at the same moment count
            break
        j = order[i]
        give(jobs[j], j, later, later_level, at, length, shares, 1)
        if shadow_s == np.inf and find(rule.place, later, later_level, first, first["gpus"], rule.typical, node, part) > 0:
            shadow_s = ends[i]
    for i in range(head + 1, n):
        j = order[i]
        if length[j] > 0:
            continue
        job = jobs[j]
        used = claim(rule, job, j, nodes, level, at, length, shares, used, node, part)
        if length[j] == 0 or end_s(job, now_s) <= shadow_s:
            continue
        # It runs into the reservation: fine if the head finds another place then.
        give(job, j, later, later_level, at, length, shares, -1)
        if find(rule.place, later, later_level, first, first["gpus"], rule.typical, node, part) == 0:
            give(job, j, later, later_level, at, length, shares, 1)
            give(job, j, nodes, level, at, length, shares, 1)
            used -= length[j]
            length[j] = 0
    return used


@allocating_part
def conservative(rule: Rule, jobs: Records, order: Ints, n: int, head: int, now_s: float, nodes: Records,
                 level: Any, at: Ints, length: Ints, shares: Records, used: int, node: Ints, part: Ints) -> int:  # fmt: skip
    """Everybody who waits (the first `rule.depth`) has a reservation, in order; GPUs only are reserved."""
    spots = 0
    for i in range(n):
        spots += 1 if length[order[i]] > 0 else 0
    spots += 2 * rule.depth + 2
    times = np.empty(spots)
    free = np.zeros((spots, nodes.size), np.int64)
    times[0] = now_s
    for k in range(nodes.size):
        free[0, k] = nodes[k]["free"]
    steps = 1
    for i in range(n):
        j = order[i]
        if length[j] > 0:
            steps = cut(times, free, steps, end_s(jobs[j], now_s))
            for s in range(steps):
                if times[s] >= end_s(jobs[j], now_s):
                    for k in range(at[j], at[j] + length[j]):
                        free[s, shares[k]["node"]] += shares[k]["workers"] * jobs[j]["gpus_per_worker"]
    window, window_level = nodes.copy(), level.copy()
    seen = 0
    for i in range(head, n):
        j = order[i]
        if length[j] > 0:
            continue
        seen += 1
        if seen > rule.depth:
            break
        job = jobs[j]
        span_s = end_s(job, now_s) - now_s
        for s in range(steps):
            if not fits_through(job, window, window_level, times, free, steps, s, span_s):
                continue
            count = find(rule.place, window, window_level, job, job["gpus"], rule.typical, node, part)
            if count == 0:
                continue
            begin_s = times[s]
            if s == 0:
                used = write(job, j, count, nodes, level, at, length, shares, used, node, part)
            steps = cut(times, free, steps, begin_s + span_s)
            for q in range(steps):
                if begin_s <= times[q] < begin_s + span_s:
                    for k in range(count):
                        free[q, node[k]] -= part[k]
            break
    return used


@part
def cut(times: Floats, free: Any, steps: int, at_s: float) -> int:
    """Make `at_s` a step of the profile; returns how many steps there are."""
    k = steps
    while k > 0 and times[k - 1] > at_s:
        k -= 1
    if k > 0 and times[k - 1] == at_s:
        return steps
    for s in range(steps, k, -1):
        times[s] = times[s - 1]
        for node in range(free.shape[1]):
            free[s, node] = free[s - 1, node]
    times[k] = at_s
    for node in range(free.shape[1]):
        free[k, node] = free[k - 1, node]
    return steps + 1


@part
def fits_through(job: Any, window: Records, window_level: Any, times: Floats, free: Any, steps: int,
                 first: int, span_s: float) -> bool:  # fmt: skip
    """Put into `window` what is free all the way from step `first` on for `span_s`; False if too little."""
    total = 0
    for k in range(window.size):
        total += free[first, k]
    if total < job["gpus"]:
        return False
    for k in range(window.size):
        window[k]["free"] = free[first, k]
    for s in range(first + 1, steps):
        if times[s] >= times[first] + span_s:
            break
        total = 0
        for k in range(window.size):
            window[k]["free"] = min(window[k]["free"], free[s, k])
            total += window[k]["free"]
        if total < job["gpus"]:
            return False
    build(window, window_level)
    return True


@kernel
def decide_with_backfill(rule: Rule, jobs: Records, order: Ints, n: int, now_s: float, key: Floats, nodes: Records,
                         level: Any, at: Ints, length: Ints, shares: Records, used: int, node: Ints,
                         part: Ints) -> tuple[int, float]:  # fmt: skip
    """Play one round; returns `used`, and inf: only events matter (see `round_kernels.decide`)."""
    rank(rule, jobs, order, n, now_s, nodes, key)
    for i in range(n):
        j = order[i]
        if length[j] > 0:
            continue
        used = claim(rule, jobs[j], j, nodes, level, at, length, shares, used, node, part)
        if length[j] > 0:
            continue
        if rule.passing == EASY:
            used = easy(rule, jobs, order, n, i, now_s, nodes, level, at, length, shares, used, node, part)
        else:
            used = conservative(rule, jobs, order, n, i, now_s, nodes, level, at, length, shares, used, node, part)
        break
    return used, np.inf
