"""Backfilling: later jobs start early where that delays no job that has a reservation.

Both kinds work on nodes, not on a count of GPUs, so that reservations can be kept. They use the
jobs' estimates; a job of unknown length counts as one that never ends. So no reservation relies on
its end, and it does not start before a job whose start is not known: where no lengths are known,
both kinds are first come, first served. Arguments: see `decide_kernels`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core.layout import RUNNING
from rota.jit import allocating_part, kernel, part
from rota.jit_reference import by_reference
from rota.ledger.draft_kernels import DraftArrays, give, write
from rota.ledger.work_kernels import remaining
from rota.policies.classic.claim_kernels import claim, claim_fewer, locate
from rota.policies.classic.forecast_kernels import Forecast, after, foresee, open_window, reserve
from rota.policies.classic.orderings import rank
from rota.policies.classic.room_kernels import MISSES, cannot_fit, measure, measured
from rota.policies.classic.rule import EASY, ELASTIC
from rota.policies.classic.sort_kernels import merge_sort

if TYPE_CHECKING:
    from rota.core.types import Floats, Ints, Records
    from rota.policies.classic.rule import Rule


OVERDUE_S: Final = 1.0
"""Seconds until a job that should have ended by now is expected to end."""


@part
def end_s(job: Any, now_s: float) -> float:
    """When a job that runs, or starts now, is expected to end; inf if that is unknown.

    An estimate that has run out, or is negative, means now; one that is NaN or infinite means
    never, and so does a job at pace 0.
    """
    begin_s, left_s, pace = now_s, remaining(job, now_s), 1.0
    if job["status"] == RUNNING:
        begin_s, pace = max(now_s, job["resume_s"]), job["pace"]
    elif job["started_s"] == job["started_s"]:  # not NaN: it ran before
        begin_s = now_s + job["restart_s"]
    if not left_s < np.inf or (left_s > 0.0 and not pace > 0.0):
        return np.inf
    return begin_s + left_s / pace if left_s > 0.0 else begin_s


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
        if d.length[j] > 0 or cannot_fit(room, rule, jobs[j]):
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


@allocating_part
def last_that_might_fit(
    rule: Rule, jobs: Records, order: Ints, n: int, head: int, d: DraftArrays
) -> int:
    """Of the first `rule.depth` waiting jobs, the last that might start now; −1 if none might."""
    room = measured(d.nodes, d.level)
    seen, last = 0, -1
    for i in range(head, n):
        if d.length[order[i]] > 0:
            continue
        seen += 1
        if seen > rule.depth:
            break
        if not cannot_fit(room, rule, jobs[order[i]]):
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
    """Each of the first `rule.depth` waiting jobs gets a reservation, in order; of GPUs only.

    A job of unknown length does not start before one without a reservation. Reservations are made
    anew in every round, so those behind the last job that might start now need not be made.
    """
    last = last_that_might_fit(rule, jobs, order, n, head, d)
    if last == -1:
        return used
    held, running = np.empty(n, np.int64), 0
    for i in range(n):
        if d.length[order[i]] > 0:
            held[running] = order[i]
            running += 1
    most = running + max(0, min(rule.depth, n)) + 2
    ends, ranks = np.empty(running), np.arange(running)
    p = Forecast(
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
    """Play one round; returns `used`, and inf: only events matter (see `decide_kernels`)."""
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
    return decide_with_backfill(
        by_reference(rule), jobs, order, n, now_s, key, by_reference(d), used
    )
