"""Rounds with free preemption where a job's rank changes only while it runs.

Waiting jobs are indexed as in `queue_kernels`, so the cost of a round grows with the running and
the new jobs, not with the waiting ones. `order[: clock["live"]]` has the running and the new jobs.
The schedule is that of `replay_free`, event by event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rota.core.layout import RUNNING
from rota.jit import allocating_part, part
from rota.policies.classic.claim_kernels import claim
from rota.policies.classic.decide_kernels import ask_again_s, clear
from rota.policies.classic.orderings import rank
from rota.policies.classic.room_kernels import MISSES, measured
from rota.sim.job_kernels import stop
from rota.sim.queue_kernels import FEW, earlier, leave_out, pop, push, set_aside, sink
from rota.sim.replay_kernels import draft_arrays, enact_draft, replay_with

if TYPE_CHECKING:
    from rota.policies.classic.rule import Rule
    from rota.sim.state import State


# Between rounds all of shapes[: clock["shapes"]] is a heap by the shapes' first jobs.


@part
def rise(s: State, k: int) -> None:
    """Restore the heap of shapes above place k."""
    shape = s.shapes[k]
    while k > 0:
        above = s.shapes[(k - 1) >> 1]
        if not earlier(s, s.queue[s.begins[shape]], s.queue[s.begins[above]]):
            break
        s.shapes[k] = above
        k = (k - 1) >> 1
    s.shapes[k] = shape


@part
def line_up(s: State, j: int) -> None:
    """Put job j, scored, into the queue."""
    clock, shape = s.clock[0], s.truth[j]["shape"]
    push(s, j, shape)
    if s.queue[s.begins[shape]] != j:
        return
    k = 0
    if s.waits[shape] == 1:
        k = clock["shapes"]
        s.shapes[k] = shape
        clock["shapes"] += 1
    while s.shapes[k] != shape:
        k += 1
    rise(s, k)


@allocating_part
def without_misfits(rule: Rule, s: State, high: int) -> int:
    """Move those of shapes[:high] that cannot fit any more to its end; the new end."""
    return set_aside(rule, s, measured(s.nodes, s.level), 0, high)


@part
def fill_ranked(rule: Rule, s: State, n: int) -> int:
    """Place jobs of order[:n] and of the queue on an empty cluster, by rank, as far as they fit.

    Within a round free room only shrinks, so once a job does not fit, no other job in the heap of
    its shape does. Jobs from the queue are written behind order[:n]; returns their number.
    """
    clock, arrays = s.clock[0], draft_arrays(s)
    bare = clock["bare"]
    used, free = clock["used"], clock["up"]
    high, i, started = clock["shapes"], 0, 0
    misses, stale = 0, True
    head = s.queue[s.begins[s.shapes[0]]] if high > 0 else -1
    while free > 0 or bare:
        queued = head != -1
        if i < n and queued:
            queued = earlier(s, head, s.order[i])
        elif i == n and not queued:
            break
        j, before = head if queued else s.order[i], used
        if s.jobs[j]["gpus"] <= free:
            used = claim(arrays, rule.place, rule.typical, s.jobs[j], j, used)
        if used > before:
            free -= s.jobs[j]["gpus"]
        if not queued:
            i += 1
            continue
        if used > before:
            stale = True
            s.order[n + started] = j
            started += 1
            pop(s, s.shapes[0])
        else:
            misses += 1
        if used == before or s.waits[s.shapes[0]] == 0:
            high = leave_out(s, 0, high)
        if stale and misses >= MISSES and high > FEW:
            high = without_misfits(rule, s, high)
            stale, misses = False, 0
        elif high > 0:
            sink(s, 0, high, 0)
        head = s.queue[s.begins[s.shapes[0]]] if high > 0 else -1
    clock["used"] = used
    for k in range(high, clock["shapes"]):
        rise(s, k)
    return started


@part
def merge(s: State, kept: int, n: int, started: int) -> int:
    """Merge order[n : n + started] into order[:kept], both ranked; returns the new length.

    The end of `running` is free for that: the jobs that start do not run yet.
    """
    spare = s.running.size - started
    for i in range(started):
        s.running[spare + i] = s.order[n + i]
    k, a, b = kept + started - 1, kept - 1, started - 1
    while b >= 0:
        if a >= 0 and earlier(s, s.running[spare + b], s.order[a]):
            s.order[k] = s.order[a]
            a -= 1
        else:
            s.order[k] = s.running[spare + b]
            b -= 1
        k -= 1
    return kept + started


@part
def carry_on(s: State, n: int, started: int) -> None:
    """Carry a round out, stops first; order[:live] becomes the running jobs, ranked."""
    clock, kept = s.clock[0], 0
    for i in range(n):
        j = s.order[i]
        if s.length[j] > 0:
            s.order[kept] = j
            kept += 1
            continue
        if s.jobs[j]["status"] == RUNNING:
            stop(s, j)  # which leaves its score as it is
        line_up(s, j)
    clock["live"] = merge(s, kept, n, started)
    enact_draft(s, False)


@part
def serve_ranked(rule: Rule, s: State) -> None:
    """A round in which all jobs that may be moved are placed anew, in order of rank."""
    clock, arrays = s.clock[0], draft_arrays(s)
    n, now_s = clock["live"], clock["now_s"]
    rank(rule, s.jobs, s.order, n, now_s, s.nodes, s.key)
    clear(s.jobs, s.order, n, now_s, arrays)
    started = fill_ranked(rule, s, n)
    if rule.limits.size > 0 or rule.quantum_s < np.inf:
        clock["wake_s"] = ask_again_s(
            rule, s.jobs, s.order, n + started, now_s, arrays, clock["shapes"] > 0
        )
    carry_on(s, n, started)


replay_ranked = replay_with("replay_ranked", serve_ranked)
"""For preemption that costs nothing, where a waiting job keeps its rank."""
