"""Backfilling: later jobs start early where that delays nobody who has a reservation.

Both kinds work on nodes, not on a count of GPUs, so a reservation is one that can be kept.
They believe the jobs' estimates; a job of unknown length is believed never to end. So nobody's
reservation counts on its end, and it passes nobody whose start is not known: where nothing is
known of lengths, both are first come, first served. Arguments are those of `round_kernels`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from rota.core.layout import RUNNING
from rota.core.types import Floats, Ints
from rota.jit import allocating_part, kernel, part
from rota.ledger.draft_kernels import DraftArrays, give, write
from rota.ledger.node_kernels import build
from rota.ledger.work_kernels import remaining
from rota.policies.classic.claim_kernels import claim, claim_fewer, locate
from rota.policies.classic.orderings import rank
from rota.policies.classic.room_kernels import MISSES, is_hopeless, measure, measured
from rota.policies.classic.rule import EASY, ELASTIC
from rota.policies.classic.sort_kernels import merge_sort

if TYPE_CHECKING:
    from rota.core.types import Records
    from rota.policies.classic.rule import Rule


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
    rule: Rule,
    jobs: Records,
    order: Ints,
    n: int,
    head: int,
    now_s: float,
    d: DraftArrays,
    used: int,
) -> int:
    """EASY (Lifka, 1995): only the first that does not fit, `order[head]`, has a reservation.

    It begins at `shadow_s`; inf: it waits for a job of unknown length, or for a node to come back.
    """
    first = jobs[order[head]]
    later = DraftArrays(d.nodes.copy(), d.level.copy(), d.at, d.length, d.shares, d.node, d.part)
    held, running = np.empty(n, np.int64), 0
    for i in range(n):
        if d.length[order[i]] > 0:
            held[running] = order[i]
            running += 1
    ends, ranks = np.empty(running), np.arange(running)
    for r in range(running):
        ends[r] = end_s(jobs[held[r]], now_s)
    merge_sort(ranks, running, ends)
    shadow_s = np.inf
    for r in range(running):
        gone_s, j = ends[ranks[r]], held[ranks[r]]
        if gone_s == np.inf or gone_s > shadow_s:  # all that end at the same moment count
            break
        give(later, jobs[j], j, 1)
        if shadow_s == np.inf and fits(rule, first, later):
            shadow_s = gone_s
    room = measured(d.nodes, d.level)
    stale, misses = False, 0
    for i in range(head + 1, n):
        j = order[i]
        if d.length[j] > 0 or is_hopeless(room, rule, jobs[j]):
            continue
        if shadow_s == np.inf and end_s(jobs[j], now_s) == np.inf:
            continue
        used = claim(d, rule.place, rule.typical, jobs[j], j, used)
        if d.length[j] == 0:
            misses += 1
            if stale and misses >= MISSES:
                measure(room, d.nodes)
                stale, misses = False, 0
            continue
        stale = True
        if end_s(jobs[j], now_s) <= shadow_s:
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
def fits(rule: Rule, job: Any, d: DraftArrays) -> bool:
    """Whether there is a place for the job."""
    return locate(d, rule.place, rule.typical, job) > 0


class Profile(NamedTuple):
    """What will be free: from times[s] on the GPUs free[row[s]] (N,), total[s] in all."""

    times: Floats
    total: Ints
    row: Ints
    free: Any


@allocating_part
def last_hope(rule: Rule, jobs: Records, order: Ints, n: int, head: int, d: DraftArrays) -> int:
    """The last in line of the first `rule.depth` who might start now; −1 if nobody might."""
    room = measured(d.nodes, d.level)
    seen, last = 0, -1
    for i in range(head, n):
        if d.length[order[i]] > 0:
            continue
        seen += 1
        if seen > rule.depth:
            break
        if not is_hopeless(room, rule, jobs[order[i]]):
            last = i
    return last


@allocating_part
def conservative(
    rule: Rule,
    jobs: Records,
    order: Ints,
    n: int,
    head: int,
    now_s: float,
    d: DraftArrays,
    used: int,
) -> int:
    """Everybody who waits (the first `rule.depth`) has a reservation, in order; of GPUs only.

    Nobody of unknown length passes one who has none. Reservations are made anew in every round,
    so those behind the last who might start now are of no consequence.
    """
    last = last_hope(rule, jobs, order, n, head, d)
    if last == -1:
        return used
    held, running = np.empty(n, np.int64), 0
    for i in range(n):
        if d.length[order[i]] > 0:
            held[running] = order[i]
            running += 1
    most = running + max(0, min(rule.depth, n)) + 2
    ends, ranks = np.empty(running), np.arange(running)
    p = Profile(
        np.empty(most),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty((most, d.nodes.size), np.int64),
    )
    for r in range(running):
        ends[r] = end_s(jobs[held[r]], now_s)
        if ends[r] <= now_s:  # it has outlived its estimate and still holds what it holds
            ends[r] = after(now_s, now_s, OVERDUE_S)
    merge_sort(ranks, running, ends)
    steps = foresee(jobs, held, ends, ranks, now_s, d, p)
    window = DraftArrays(d.nodes.copy(), d.level.copy(), d.at, d.length, d.shares, d.node, d.part)
    all_reserved = True
    for i in range(head, last + 1):
        j = order[i]
        if d.length[j] > 0:
            continue
        span_s, reserved = end_s(jobs[j], now_s) - now_s, False
        if span_s == np.inf and not all_reserved:
            continue
        for s in range(steps):
            if not open_window(jobs[j]["gpus"], d, window, p, steps, s, span_s):
                continue
            count = locate(window, rule.place, rule.typical, jobs[j])
            if count == 0:
                continue
            if s == 0:
                used = write(d, jobs[j], j, count, used)
            steps = reserve(jobs[j], d, p, steps, p.times[s], span_s, count)
            reserved = True
            break
        all_reserved &= reserved
    return used


@part
def foresee(
    jobs: Records, held: Ints, ends: Floats, ranks: Ints, now_s: float, d: DraftArrays, p: Profile
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
    job: Any, d: DraftArrays, p: Profile, steps: int, begin_s: float, span_s: float, count: int
) -> int:
    """Book the `count` places found for the job; returns how many steps there are then."""
    ends_s = after(begin_s, begin_s + span_s, 0.0)
    steps = cut(p, steps, ends_s)
    if job["gpus_per_worker"] == 0:  # then `part` counts workers, who take no GPUs
        return steps
    for q in range(steps):
        if begin_s <= p.times[q] < ends_s:
            for k in range(count):
                p.free[p.row[q], d.node[k]] -= d.part[k]
                p.total[q] -= d.part[k]
    return steps


@part
def cut(p: Profile, steps: int, at_s: float) -> int:
    """Make `at_s` a step of the profile, if there is room; returns how many steps there are."""
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
    p: Profile,
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


@part
def decide_with_backfill(
    rule: Rule,
    jobs: Records,
    order: Ints,
    n: int,
    now_s: float,
    key: Floats,
    d: DraftArrays,
    used: int,
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
    rule: Rule,
    jobs: Records,
    order: Ints,
    n: int,
    now_s: float,
    key: Floats,
    d: DraftArrays,
    used: int,
) -> tuple[int, float]:
    """The same, called from Python."""
    return decide_with_backfill(rule, jobs, order, n, now_s, key, d, used)
