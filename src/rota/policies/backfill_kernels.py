"""Backfilling: later jobs start early where that delays nobody who has a reservation.

Both kinds work on nodes, not on a count of GPUs, so a reservation is one that can be kept.
They believe the jobs' estimates; a job of unknown length is believed never to end. So nobody's
reservation counts on its end, and it passes nobody whose start is not known: where nothing is
known of lengths, both are first come, first served. Arguments are those of `round_kernels`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core.layout import RUNNING
from rota.jit import allocating_part, kernel, part
from rota.policies.draft_kernels import Desk, claim, claim_fewer, give, locate, write
from rota.policies.order_kernels import merge_sort, rank, remaining
from rota.policies.place_kernels import build
from rota.policies.rule import EASY, ELASTIC

if TYPE_CHECKING:
    from rota.core.types import Floats, Ints, Records
    from rota.policies.rule import Rule


OVERDUE_S: Final = 1.0
"""How soon a job that should have ended by now is expected to."""


@part
def end_s(job: Any, now_s: float) -> float:
    """When a job that runs, or starts now, is believed to end; inf if nobody knows.

    An estimate that has run out, or is less than nothing, means now; one that is no number, or
    infinite, means never, and so does a job that stands still.
    """
    begin_s, left_s, pace = now_s, remaining(job, now_s), 1.0
    if job["status"] == RUNNING:
        begin_s, pace = max(now_s, job["resume_s"]), job["pace"]
    elif job["started_s"] == job["started_s"]:  # not NaN: it ran before
        begin_s = now_s + job["restart_s"]
    if not left_s < np.inf or (left_s > 0.0 and not pace > 0.0):
        return np.inf
    return begin_s + left_s / pace if left_s > 0.0 else begin_s


@part
def after(now_s: float, at_s: float, least_s: float) -> float:
    """`at_s`, but at least `least_s` after now, and after now however large the numbers are.

    Whoever holds something holds it for a while; else it would be given away again at once.
    """
    return max(at_s, now_s + least_s, np.nextafter(now_s, np.inf))


@allocating_part
def easy(
    rule: Rule, jobs: Records, order: Ints, n: int, head: int, now_s: float, d: Desk, used: int
) -> int:
    """EASY (Lifka, 1995): only the first that does not fit, `order[head]`, has a reservation.

    It begins at `shadow_s`; inf: it waits for a job of unknown length, or for a node to come back.
    """
    first = jobs[order[head]]
    later = Desk(d.nodes.copy(), d.level.copy(), d.at, d.length, d.shares, d.node, d.part)
    ends = np.full(n, np.inf)
    for i in range(n):
        if d.length[order[i]] > 0:
            ends[i] = end_s(jobs[order[i]], now_s)
    ranks = np.arange(n)
    merge_sort(ranks, n, ends)
    shadow_s = np.inf
    for r in range(n):
        i = ranks[r]
        if ends[i] == np.inf or ends[i] > shadow_s:  # all that end at the same moment count
            break
        give(later, jobs[order[i]], order[i], 1)
        if shadow_s == np.inf and fits(rule, first, later):
            shadow_s = ends[i]
    for i in range(head + 1, n):
        j = order[i]
        if d.length[j] > 0:
            continue
        if shadow_s == np.inf and end_s(jobs[j], now_s) == np.inf:
            continue
        used = claim(d, rule.place, rule.typical, jobs[j], j, used)
        if d.length[j] == 0 or end_s(jobs[j], now_s) <= shadow_s:
            continue
        # It runs into the reservation: fine if the head finds another place then.
        give(later, jobs[j], j, -1)
        if not fits(rule, first, later):
            give(later, jobs[j], j, 1)
            give(d, jobs[j], j, 1)
            used -= d.length[j]
            d.length[j] = 0
    return used


@part
def fits(rule: Rule, job: Any, d: Desk) -> bool:
    """Whether there is a place for the job."""
    return locate(d, rule.place, rule.typical, job) > 0


@allocating_part
def conservative(
    rule: Rule, jobs: Records, order: Ints, n: int, head: int, now_s: float, d: Desk, used: int
) -> int:
    """Everybody who waits (the first `rule.depth`) has a reservation, in order; of GPUs only.

    Nobody of unknown length passes one who has none.
    """
    running = 0
    for i in range(n):
        running += 1 if d.length[order[i]] > 0 else 0
    # What is free from times[s] on, for s < steps.
    times = np.empty(running + max(0, min(rule.depth, n)) + 2)
    free = np.zeros((times.size, d.nodes.size), np.int64)
    steps = profile(jobs, order, n, now_s, d, times, free)
    window = Desk(d.nodes.copy(), d.level.copy(), d.at, d.length, d.shares, d.node, d.part)
    seen, all_reserved = 0, True
    for i in range(head, n):
        j = order[i]
        if d.length[j] > 0:
            continue
        seen += 1
        if seen > rule.depth:
            break
        span_s, reserved = end_s(jobs[j], now_s) - now_s, False
        if span_s == np.inf and not all_reserved:
            continue
        for s in range(steps):
            if not open_window(jobs[j]["gpus"], d, window, times, free, steps, s, span_s):
                continue
            count = locate(window, rule.place, rule.typical, jobs[j])
            if count == 0:
                continue
            begin_s = times[s]
            ends_s = after(begin_s, begin_s + span_s, 0.0)
            if s == 0:
                used = write(d, jobs[j], j, count, used)
            steps = cut(times, free, steps, ends_s)
            if jobs[j]["gpus_per_worker"] > 0:  # else `part` counts workers, who take no GPUs
                for q in range(steps):
                    if begin_s <= times[q] < ends_s:
                        for k in range(count):
                            free[q, d.node[k]] -= d.part[k]
            reserved = True
            break
        all_reserved &= reserved
    return used


@part
def profile(
    jobs: Records, order: Ints, n: int, now_s: float, d: Desk, times: Floats, free: Any
) -> int:
    """Write down what is free now and after each known end; returns the number of steps."""
    times[0] = now_s
    for k in range(d.nodes.size):
        free[0, k] = d.nodes[k]["free"]
    steps = 1
    for i in range(n):
        j = order[i]
        if d.length[j] == 0:
            continue
        # A job that has outlived its estimate still holds what it holds now.
        ends = end_s(jobs[j], now_s)
        if ends == np.inf:
            continue
        if ends <= now_s:
            ends = after(now_s, now_s, OVERDUE_S)
        steps = cut(times, free, steps, ends)
        for s in range(steps):
            if times[s] >= ends:
                for k in range(d.at[j], d.at[j] + d.length[j]):
                    gpus = d.shares[k]["workers"] * jobs[j]["gpus_per_worker"]
                    free[s, d.shares[k]["node"]] += gpus
    return steps


@part
def cut(times: Floats, free: Any, steps: int, at_s: float) -> int:
    """Make `at_s` a step of the profile, if there is room; returns how many steps there are."""
    k = steps
    while k > 0 and times[k - 1] > at_s:
        k -= 1
    if k == 0 or times[k - 1] == at_s or at_s == np.inf or steps == times.size:
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
def open_window(
    gpus: int,
    d: Desk,
    window: Desk,
    times: Floats,
    free: Any,
    steps: int,
    first: int,
    span_s: float,
) -> bool:
    """Put into `window` what is free from step `first` on for `span_s`; False if too little.

    Of CPUs and memory only those free now are known; later ones count as free.
    """
    total = 0
    for k in range(window.nodes.size):
        total += free[first, k]
    if total < gpus:
        return False
    for k in range(window.nodes.size):
        here, now = window.nodes[k], d.nodes[k]
        here["free"] = free[first, k]
        here["free_cpus"] = now["free_cpus"] if first == 0 else now["cpus"]
        here["free_memory_gb"] = now["free_memory_gb"] if first == 0 else now["memory_gb"]
    for s in range(first + 1, steps):
        if times[s] >= times[first] + span_s:
            break
        total = 0
        for k in range(window.nodes.size):
            window.nodes[k]["free"] = min(window.nodes[k]["free"], free[s, k])
            total += window.nodes[k]["free"]
        if total < gpus:
            return False
    build(window.nodes, window.level)
    return True


@part
def decide_with_backfill(
    rule: Rule, jobs: Records, order: Ints, n: int, now_s: float, key: Floats, d: Desk, used: int
) -> tuple[int, float]:
    """Play one round; returns `used`, and inf: only events matter (see `round_kernels.decide`)."""
    rank(rule, jobs, order, n, now_s, d.nodes, key)
    for i in range(n):
        j = order[i]
        if d.length[j] > 0:
            continue
        used = claim(d, rule.place, rule.typical, jobs[j], j, used)
        if rule.sizing == ELASTIC and d.length[j] == 0:
            used = claim_fewer(d, rule.place, rule.typical, jobs[j], j, used)
        if d.length[j] > 0:
            continue
        if rule.passing == EASY:
            used = easy(rule, jobs, order, n, i, now_s, d, used)
        else:
            used = conservative(rule, jobs, order, n, i, now_s, d, used)
        break
    return used, np.inf


@kernel
def decide_once_with_backfill(
    rule: Rule, jobs: Records, order: Ints, n: int, now_s: float, key: Floats, d: Desk, used: int
) -> tuple[int, float]:
    """The same, called from Python."""
    return decide_with_backfill(rule, jobs, order, n, now_s, key, d, used)
