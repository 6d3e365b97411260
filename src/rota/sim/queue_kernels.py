"""Rounds without preemption where a job's score never changes: waiting jobs are indexed by shape.

The schedule is that of `replay_free`, event by event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from rota.jit import allocating_part, inline, part
from rota.policies.classic.claim_kernels import claim
from rota.policies.classic.orderings import score
from rota.policies.classic.room_kernels import MISSES, MostFree, cannot_fit, measure, measured
from rota.policies.classic.rule import STRICT
from rota.sim.job_kernels import begin
from rota.sim.replay_kernels import draft_arrays, replay_with

if TYPE_CHECKING:
    from rota.policies.classic.rule import Rule
    from rota.sim.state import State


FEW: Final = 64
"""Up to this number of shapes, `replay_queue` looks at all of them, one by one."""


@inline
def earlier(s: State, a: int, b: int) -> bool:
    """Whether waiting job a is served before b."""
    return s.key[a] < s.key[b] or (s.key[a] == s.key[b] and a < b)


@part
def push(s: State, j: int, shape: int) -> None:
    """Put job j into a shape's heap."""
    base, k = s.begins[shape], s.waits[shape]
    s.waits[shape] += 1
    while k > 0 and earlier(s, j, s.queue[base + ((k - 1) >> 1)]):
        s.queue[base + k] = s.queue[base + ((k - 1) >> 1)]
        k = (k - 1) >> 1
    s.queue[base + k] = j


@part
def pop(s: State, shape: int) -> None:
    """Take the first job out of a shape's heap."""
    base = s.begins[shape]
    s.waits[shape] -= 1
    size, k = s.waits[shape], 0
    j = s.queue[base + size]
    while True:
        child = 2 * k + 1
        if child >= size:
            break
        if child + 1 < size and earlier(s, s.queue[base + child + 1], s.queue[base + child]):
            child += 1
        if not earlier(s, s.queue[base + child], j):
            break
        s.queue[base + k] = s.queue[base + child]
        k = child
    s.queue[base + k] = j


@part
def arrival(rule: Rule, s: State) -> int:
    """The next job that has arrived and is not queued yet, scored; −1 if there is none."""
    clock = s.clock[0]
    if clock["queued"] == clock["arrived"]:
        return -1
    j = clock["queued"]
    clock["queued"] += 1
    turn = score(rule, s.jobs[j], clock["now_s"], 1, 1, 0.0)
    s.key[j] = turn if turn == turn else np.inf  # of unknown length: after all others
    return j


@part
def starts(rule: Rule, s: State, j: int) -> bool:
    """Start job j if it fits."""
    clock = s.clock[0]
    used = clock["used"]
    clock["used"] = claim(draft_arrays(s), rule.place, rule.typical, s.jobs[j], j, used)
    if clock["used"] == used:
        return False
    begin(s, j, s.at[j], s.length[j])
    return True


@part
def serve(rule: Rule, s: State) -> None:
    """A round without preemption over the indexed queue: same choices as trying all in order.

    Within a round free room only shrinks. Once a job does not fit, no other job of its shape does,
    until something is given back. So a round looks at the first job of each shape's heap only. With
    a rule under which the first job of all blocks, there is one heap for all.
    """
    strict = rule.passing == STRICT
    heaps = 1 if strict else s.waits.size
    while True:
        j = arrival(rule, s)
        if j == -1:
            break
        shape = 0 if strict else s.truth[j]["shape"]
        push(s, j, shape)
        if strict and s.queue[0] == j:  # another head, which may fit
            s.full[0] = False
    if s.clock[0]["freed"]:
        for shape in range(heaps):
            s.full[shape] = False
        s.clock[0]["freed"] = False
    while True:
        best = -1
        for shape in range(heaps):
            if s.waits[shape] == 0 or s.full[shape]:
                continue
            if best == -1 or earlier(s, s.queue[s.begins[shape]], s.queue[s.begins[best]]):
                best = shape
        if best == -1:
            return
        if starts(rule, s, s.queue[s.begins[best]]):
            pop(s, best)
        else:
            s.full[best] = True


# Many shapes: `shapes[: clock["shapes"]]` lists the shapes of waiting jobs. Those that may fit,
# shapes[low:high], are a heap by their first job.


@part
def sink(s: State, low: int, high: int, k: int) -> None:
    """Restore the heap shapes[low:high] below place low + k."""
    shape, size = s.shapes[low + k], high - low
    while True:
        child = 2 * k + 1
        if child >= size:
            break
        one, other = s.shapes[low + child], s.shapes[min(low + child + 1, high - 1)]
        if earlier(s, s.queue[s.begins[other]], s.queue[s.begins[one]]):
            child, one = child + 1, other
        if not earlier(s, s.queue[s.begins[one]], s.queue[s.begins[shape]]):
            break
        s.shapes[low + k] = one
        k = child
    s.shapes[low + k] = shape


@part
def set_aside(rule: Rule, s: State, room: MostFree, low: int, high: int) -> int:
    """Move shapes that cannot fit to the end of shapes[low:high], heapify the rest; its new end."""
    k = low
    while k < high:
        shape = s.shapes[k]
        if cannot_fit(room, rule, s.asks[shape]):
            high -= 1
            s.shapes[k], s.shapes[high] = s.shapes[high], shape
        else:
            k += 1
    for k in range((high - low) // 2 - 1, -1, -1):
        sink(s, low, high, k)
    return high


@part
def leave_out(s: State, low: int, high: int) -> int:
    """Take the first of shapes[low:high] out, off the list if no job of it waits; the new end."""
    clock, shape = s.clock[0], s.shapes[low]
    high -= 1
    s.shapes[low], s.shapes[high] = s.shapes[high], shape
    if s.waits[shape] == 0:
        clock["shapes"] -= 1
        s.shapes[high] = s.shapes[clock["shapes"]]
    return high


@allocating_part
def serve_many(rule: Rule, s: State) -> None:
    """`serve` at a cost that hardly grows with the number of shapes."""
    clock = s.clock[0]
    low = clock["shapes"]  # earlier ones did not fit, and will not unless something was given back
    while True:
        j = arrival(rule, s)
        if j == -1:
            break
        shape = s.truth[j]["shape"]
        if s.waits[shape] == 0:
            s.shapes[clock["shapes"]] = shape
            clock["shapes"] += 1
        push(s, j, shape)
    if clock["freed"]:
        low, clock["freed"] = 0, False
    if low == clock["shapes"]:
        return
    room = measured(s.nodes, s.level)
    high = set_aside(rule, s, room, low, clock["shapes"])
    stale, misses = False, 0
    while low < high:
        shape = s.shapes[low]
        started = starts(rule, s, s.queue[s.begins[shape]])
        if started:
            stale = True
            pop(s, shape)
        else:
            misses += 1
        if not started or s.waits[shape] == 0:
            high = leave_out(s, low, high)
        if stale and misses >= MISSES:
            measure(room, s.nodes)
            high = set_aside(rule, s, room, low, high)
            stale, misses = False, 0
        elif low < high:
            sink(s, low, high, 0)


replay_queue = replay_with("replay_queue", serve)
"""Where the first job of all blocks, or jobs have few shapes."""
replay_shapes = replay_with("replay_shapes", serve_many)
"""Where jobs have many shapes and none blocks.

A kernel of its own: in one that tries jobs at two places, LLVM inlines the code that starts them at
neither.
"""
