"""Replay without preemption, in order of submission or of length, over an indexed queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rota.jit import inline, kernel, part
from rota.policies.draft_kernels import claim
from rota.policies.rule import SHORTEST, STRICT
from rota.sim.job_kernels import begin
from rota.sim.replay_kernels import MORE, desk_of, note_round, one_of, to_next_round

if TYPE_CHECKING:
    from rota.core.types import Ints
    from rota.policies.rule import Rule
    from rota.sim.state import State


@inline
def earlier(s: State, a: int, b: int) -> bool:
    """Whether waiting job a is served before b."""
    return s.key[a] < s.key[b] or (s.key[a] == s.key[b] and a < b)


@part
def push(s: State, j: int) -> None:
    """Put job j into its shape's heap."""
    shape = s.truth[j]["shape"]
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
def serve(rule: Rule, s: State) -> None:
    """A round without preemption over the indexed queue: same choices as trying all in order.

    Within a round room only shrinks, so once a shape does not fit no other job of that shape
    does, and none will until something is given back. So only the head of each shape's heap
    is ever looked at, however many wait.
    """
    clock = s.clock[0]
    while clock["queued"] < clock["arrived"]:
        j = clock["queued"]
        length_s = s.jobs[j]["estimate_s"] if rule.order == SHORTEST else 0.0
        s.key[j] = length_s if length_s == length_s else np.inf  # unknown: after all others
        push(s, j)
        clock["queued"] += 1
    if clock["freed"]:
        for shape in range(s.full.size):
            s.full[shape] = False
        clock["freed"] = False
    while True:
        best = -1
        for shape in range(s.waits.size):
            if s.waits[shape] == 0 or (s.full[shape] and rule.passing != STRICT):
                continue
            if best == -1 or earlier(s, s.queue[s.begins[shape]], s.queue[s.begins[best]]):
                best = shape
        if best == -1 or s.full[best]:
            return
        j = s.queue[s.begins[best]]
        used = clock["used"]
        clock["used"] = claim(desk_of(s), rule.place, rule.typical, s.jobs[j], j, used)
        if clock["used"] == used:
            s.full[best] = True
            continue
        pop(s, best)
        begin(s, j, s.at[j], s.length[j])


@kernel
def replay_queue(rule: Rule, s: State, rounds: int, status: Ints) -> None:
    """Up to `rounds` rounds of each cluster b; status[b] becomes MORE, OVER or FLUSH."""
    for b in range(status.size):
        one = one_of(s, b)
        for _ in range(rounds):
            status[b] = to_next_round(one)
            if status[b] != MORE:
                break
            serve(rule, one)
            note_round(one)
