"""What every candidate leads to if the greedy rule goes on from there.

The jobs that arrive next in the trace arrive in this play too. No policy knows them, so this is for
learning only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rota.core.layout import FUTURE
from rota.core.types import Floats, Ints
from rota.jit import kernel, part
from rota.jit_reference import by_reference, entry_of
from rota.policies.contention.greedy_kernels import TIE
from rota.policies.contention.neighbour_kernels import (
    Found,
    GreedySettings,
    Law,
    Occupancy,
    Options,
    Scratch,
)
from rota.policies.contention.occupy_kernels import (
    HOUR_S,
    Rooms,
    sized,
)
from rota.policies.contention.rollout_kernels import (
    copy_fixed,
    fill,
    next_end_s,
    restore,
    run_for,
)
from rota.policies.contention.spread_kernels import (
    add_type,
    largest_of,
    size_of,
    type_of,
)
from rota.systems.deepshare.move_kernels import take_candidate

if TYPE_CHECKING:
    from rota.envs.book import Book
    from rota.envs.view import View


class PlayMemory(NamedTuple):
    """What a play works in, for one cluster at a time."""

    options: Options  # with queues that have room for the jobs to come
    base: Occupancy  # the cluster as it is, with heads in these queues
    trial: Occupancy
    scratch: Scratch
    found: Found
    end: Ints  # (Q,) where the queues end before a play
    near: Ints  # (Q,) the queue of a type, −1: none
    want: Ints  # (Q,) jobs to come, of each queue
    job: Ints  # (F,) jobs to come
    queue: Ints  # (F,) their queues
    at_s: Floats  # (F,) when they arrive
    many: Ints  # (3,) queues, options, jobs to come
    part: Floats  # (J,) what speeds count for if they count by the part of a job that they do


@part
def find_coming(view: View, m: Rooms, t: PlayMemory, b: int) -> None:
    """The jobs to come, and their types; those of new types get queues and options."""
    rows, nodes, o = view.jobs[b], view.nodes[b], t.options
    queues, met, options = m.counts.known[0], m.counts.met[0], m.counts.spreads[0]
    largest, coming = largest_of(nodes), 0
    for p in range(options):
        o.type[p], o.span[p], o.kind[p] = m.options.type[p], m.options.span[p], m.options.kind[p]
        for gpu in range(o.speed.shape[1]):
            o.speed[p, gpu] = m.options.speed[p, gpu]
    t.near[:] = -1
    t.want[:] = 0
    for q in range(queues):
        t.near[q] = q
    j = 0
    while j < rows.size and coming < t.job.size:
        if rows[j]["status"] == FUTURE and rows[j]["workers"] > 0:
            q = type_of(m.types, rows, j, met)
            met += q == met
            if t.near[q] < 0:
                first = options
                options = add_type(view.laws, o, m.types, nodes, largest, rows[j], q, first)
                for p in range(first, options):
                    o.type[p] = queues
                t.near[q] = queues
                queues += 1
            if m.types.spreads[q] > 0:
                t.job[coming], t.queue[coming] = j, t.near[q]
                t.at_s[coming] = rows[j]["submit_s"] - view.now_s[b]
                o.size[j] = o.weight[j] = size_of(rows[j])
                length_s = rows[j]["estimate_s"]
                t.base.left[j] = m.types.best[q] * (length_s if np.isfinite(length_s) else HOUR_S)
                t.want[t.near[q]] += 1
                coming += 1
        j += 1
    m.counts.met[0] = met
    t.many[0], t.many[1], t.many[2] = queues, options, coming


@part
def lay_out(view: View, m: Rooms, t: PlayMemory, room: Occupancy, live: int, b: int) -> None:
    """Copy the queues, with room behind each for jobs to come."""
    for i in range(live):
        j = view.order[b, i]
        t.options.size[j], t.options.weight[j] = m.options.size[j], m.options.weight[j]
        t.base.left[j] = room.left[j]
        if view.jobs[b, j]["share_len"] == 0:  # lengths are at the best speed
            t.base.left[j] *= m.types.best[m.types.of[j]]
    begin = 0
    for q in range(t.many[0]):
        t.base.head[q] = begin
        if q < m.counts.types[0]:
            for i in range(room.head[q], m.options.end[q]):
                t.options.queue[begin] = m.options.queue[i]
                begin += 1
        t.end[q] = begin
        begin += t.want[q]
    t.base.head[t.base.head.size - 1] = t.many[0]


@part
def play_on(
    law: Law, o: Options, room: Occupancy, scratch: Scratch, settings: GreedySettings,
    t: PlayMemory, waits: bool,
) -> float:  # fmt: skip
    """The sum of all completion times from here under the greedy rule."""
    last, total, now_s, k = room.run.size - 1, 0.0, 0.0, 0
    there, coming = room.run[last], t.many[2]
    for q in range(o.end.size):
        there += o.end[q] - room.head[q]
    while True:
        if not waits:
            fill(law, o, room, scratch, settings, t.found)
        waits = False
        if room.run[last] == 0 and k == coming:
            return total
        step_s = next_end_s(law, room)
        if k < coming:
            step_s = min(step_s, t.at_s[k] - now_s)
        total += step_s * there
        now_s += step_s
        there -= run_for(law, o, room, step_s)
        while k < coming and t.at_s[k] <= now_s * (1.0 + TIE):
            q = t.queue[k]
            o.queue[o.end[q]] = t.job[k]
            o.end[q] += 1
            there += 1
            k += 1


@part
def whole_s(job: Any) -> float:
    """How long a job is, as policies see it; NaN or infinite if they do not."""
    if job["status"] == FUTURE:
        return float(job["estimate_s"])
    return float(job["remaining_s"] + job["progress_s"])


@part
def weigh_by_part(view: View, t: PlayMemory, b: int) -> None:
    """Let every job's speed count by the part of the job that it does per second.

    A job of unknown length counts as an average one.
    """
    rows, live, weight, total_s, known = view.jobs[b], view.live[b], t.part, 0.0, 0
    for i in range(live + t.many[2]):
        j = view.order[b, i] if i < live else t.job[i - live]
        length_s = whole_s(rows[j])
        weight[j] = max(1.0, length_s) if np.isfinite(length_s) else 0.0
        total_s += weight[j]
        known += weight[j] > 0.0
    mean_s = total_s / known if known else HOUR_S
    for i in range(live + t.many[2]):
        j = view.order[b, i] if i < live else t.job[i - live]
        weight[j] = mean_s / weight[j] if weight[j] > 0.0 else 1.0


@part
def play_candidate(
    law: Law, o: Options, t: PlayMemory, found: Found, c: int, rule: Floats
) -> float:
    """What candidate c, or to wait for 0, leads to if this rule goes on from there."""
    for q in range(t.many[0]):
        o.end[q] = t.end[q]
    restore(t.trial, t.base)
    if c > 0:
        take_candidate(law, o, t.trial, found, c - 1)
    by = o
    if rule[3] > 0.0:
        by = by_reference(Options(
            o.jobs, t.part, o.size, o.sign, o.queue, o.end, o.type, o.span, o.kind, o.speed
        ))  # fmt: skip
    settings = GreedySettings(rule[0], rule[1], rule[2])
    return play_on(law, by, t.trial, t.scratch, settings, t, c == 0)


@kernel
def foresee(view: View, book: Book, rules: Floats, t: PlayMemory, out: Floats) -> None:
    """Fill out (B, K + 1) with what waiting and every candidate lead to; inf: not allowed.

    It is the mean time that jobs are still there, over those that are and those that come. `rules`
    (R, 4) are settings of the greedy rule, the last 1 if speeds count by the part of a job that
    they do. Of each candidate, the rule counts that makes most of it.
    """
    law = view.laws.law
    for b in range(len(out)):
        m, found = entry_of(book.own.rooms, b), entry_of(book.own.found, b)
        room = m.room
        count, running = found.option[found.score.size - 1], room.run[room.run.size - 1]
        out[b, :] = np.inf
        if count == 0:
            out[b, 0] = 0.0
            continue
        restore(t.base, room)
        find_coming(view, m, t, b)
        lay_out(view, m, t, room, view.live[b], b)
        weigh_by_part(view, t, b)
        o = sized(t.options, view.jobs[b], t.many[0], t.many[1])
        copy_fixed(t.trial, room)
        jobs = running + t.many[2]
        for q in range(t.many[0]):
            jobs += t.end[q] - t.base.head[q]
        for c in range(count + 1):
            if c > 0 or running > 0:
                for r in range(len(rules)):
                    total = play_candidate(law, o, t, found, c, rules[r])
                    out[b, c] = min(out[b, c], total / jobs)
