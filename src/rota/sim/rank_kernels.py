"""Replay with free preemption where a job's rank changes only while it runs.

Who waits is indexed as in `queue_kernels`, so a round costs what the running and the new cost,
however many wait. `order[: clock["live"]]` has those who run and those who have just come.
The schedule is that of `replay_free`, event by event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rota.core.layout import RUNNING
from rota.jit import allocating_part, kernel, part
from rota.policies.classic.claim_kernels import claim
from rota.policies.classic.orderings import rank
from rota.policies.classic.room_kernels import MISSES, measured
from rota.policies.classic.round_kernels import ask_again_s, clear
from rota.sim.job_kernels import stop
from rota.sim.queue_kernels import FEW, earlier, leave_out, pop, push, set_aside, sink
from rota.sim.replay_kernels import (
    MORE,
    draft_arrays,
    enact_draft,
    note_round,
    one_of,
    to_next_round,
)

if TYPE_CHECKING:
    from rota.core.types import Ints
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
def without_hopeless(rule: Rule, s: State, high: int) -> int:
    """Set those of shapes[:high] aside that surely do not fit any more; the new end."""
    return set_aside(rule, s, measured(s.nodes, s.level), 0, high)


@part
def deal(rule: Rule, s: State, n: int, bare: bool) -> int:
    """Give an empty cluster to the first of order[:n] and of the queue, in order, who fit.

    Within a round room only shrinks, so once a shape does not fit no other that waits in its heap
    does. Who comes from the queue is written down behind order[:n]; returns how many. `bare` is
    whether there are jobs without GPUs.
    """
    clock, arrays = s.clock[0], draft_arrays(s)
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
            high = without_hopeless(rule, s, high)
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
    """Merge order[n : n + started] into order[:kept], both ranked; returns how many they are.

    The end of `running` is free for that: who starts does not run yet.
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
    """Carry a round out, stops first; order[:live] becomes those who run, ranked."""
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
def serve_ranked(rule: Rule, s: State, bare: bool) -> None:
    """A round in which everything is dealt out anew, in order of rank."""
    clock, arrays = s.clock[0], draft_arrays(s)
    n, now_s = clock["live"], clock["now_s"]
    rank(rule, s.jobs, s.order, n, now_s, s.nodes, s.key)
    clear(s.jobs, s.order, n, now_s, arrays)
    started = deal(rule, s, n, bare)
    if rule.limits.size > 0 or rule.quantum_s < np.inf:
        clock["wake_s"] = ask_again_s(
            rule, s.jobs, s.order, n + started, now_s, arrays, clock["shapes"] > 0
        )
    carry_on(s, n, started)


@kernel
def replay_ranked(rule: Rule, s: State, rounds: int, status: Ints) -> None:
    """Up to `rounds` rounds of each cluster b; status[b] becomes MORE, OVER or FLUSH."""
    for b in range(status.size):
        one, bare = one_of(s, b), False
        for shape in range(one.asks.size):
            asked = one.begins[shape + 1] > one.begins[shape]
            bare |= asked and one.asks[shape]["gpus"] == 0
        for _ in range(rounds):
            status[b] = to_next_round(one)
            if status[b] != MORE:
                break
            serve_ranked(rule, one, bare)
            note_round(one)
