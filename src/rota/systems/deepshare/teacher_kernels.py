"""What every candidate leads to if the greedy rule goes on from there: the look-ahead teacher.

It plays several futures. In each of them, jobs like those of the trace arrive at random times, the
same ones for every candidate, so that the differences between candidates are not chance.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rota.core.layout import RUNNING
from rota.core.types import Floats, Ints
from rota.jit import kernel, part
from rota.policies.contention.greedy_kernels import TIE
from rota.policies.contention.neighbour_kernels import (
    Found,
    GreedySettings,
    Law,
    Occupancy,
    Options,
    Scratch,
)
from rota.policies.contention.occupy_kernels import HOUR_S, Rooms, trimmed, with_heads
from rota.policies.contention.rollout_kernels import enter, fill, leave, restore
from rota.policies.contention.spread_kernels import add_type, type_of
from rota.systems.deepshare.candidate_kernels import found_at, rooms_at

if TYPE_CHECKING:
    from rota.envs.book import Book
    from rota.envs.view import View


class TeacherMemory(NamedTuple):
    """What the teacher works in, for one cluster at a time."""

    options: Options  # with queues that have room for the jobs to come
    base: Occupancy  # the cluster as it is, with heads in these queues
    trial: Occupancy
    found: Found
    end: Ints  # (Q,) where the queues end before a play
    near: Ints  # (Q,) the type here of a type of the cluster, −1: none yet
    want: Ints  # (Q,) jobs to come, of each type
    job: Ints  # (S, F) jobs to come in each future, −1: none
    type: Ints  # (S, F)
    at_s: Floats  # (S, F) when they arrive
    used: Ints  # (J + 1,) the future that a job was last drawn for; the last entry counts them


@part
def draw_job(rows: Any, jobs: int, luck: float, used: Ints, mark: int) -> int:
    """A job that neither waits nor runs nor was drawn for this future yet; −1 if there is none."""
    first = int(luck * jobs)
    for i in range(jobs):
        j = (first + i) % jobs
        if rows[j]["status"] > RUNNING and used[j] != mark and rows[j]["workers"] > 0:
            used[j] = mark
            return j
    return -1


@part
def draw_futures(view: View, m: Rooms, t: TeacherMemory, b: int, gap_s: float, luck: Any) -> None:
    """Draw the jobs to come, and their types; those of new types get options."""
    rows, nodes, o = view.jobs[b], view.nodes[b], t.options
    types, known, options = m.counts.types[0], m.counts.known[0], m.counts.options[0]
    largest = 0
    for n in range(nodes.size):
        largest = max(largest, nodes[n]["gpus"])
    for p in range(options):
        o.type[p], o.span[p], o.kind[p] = m.options.type[p], m.options.span[p], m.options.kind[p]
        for gpu in range(o.speed.shape[1]):
            o.speed[p, gpu] = m.options.speed[p, gpu]
    t.near[:] = -1
    t.want[:] = 0
    for q in range(types):
        t.near[q] = q
    last = t.used.size - 1
    for s in range(t.job.shape[0]):
        t.used[last] += 1
        now_s = 0.0
        for f in range(t.job.shape[1]):
            now_s -= gap_s * log(1.0 - luck[s, f, 0])
            j = draw_job(rows, last, luck[s, f, 1], t.used, t.used[last])
            t.job[s, f], t.at_s[s, f] = j, now_s
            if j < 0:
                continue
            q = type_of(m.types, rows, j, known)
            known += q == known
            if t.near[q] < 0:
                begin = options
                options = add_type(
                    view.laws, o, m.types, nodes, largest, rows[j], q, begin, True
                )
                for p in range(begin, options):
                    o.type[p] = types
                t.near[q] = types
                types += 1
            if m.types.spreads[q] == 0:
                t.job[s, f] = -1
                continue
            t.type[s, f] = t.near[q]
            size = max(1.0, rows[j]["gpus"] if rows[j]["gpus"] > 0 else rows[j]["workers"])
            o.size[j] = o.weight[j] = size
            length_s = rows[j]["estimate_s"]
            t.base.left[j] = length_s if np.isfinite(length_s) else HOUR_S
            t.want[t.near[q]] += 1
    t.used[last - 0] = t.used[last]
    m.counts.known[0] = known
    t.near[t.near.size - 1] = types
    t.want[t.want.size - 1] = options


@part
def lay_out(view: View, m: Rooms, t: TeacherMemory, room: Occupancy, live: int, b: int) -> None:
    """Copy the cluster and its queues, with room behind each for jobs to come."""
    types = t.near[t.near.size - 1]
    for i in range(live):
        j = view.order[b, i]
        t.options.size[j], t.options.weight[j] = m.options.size[j], m.options.weight[j]
        t.base.left[j] = room.left[j]
    begin = 0
    for q in range(types):
        t.base.head[q] = begin
        if q < room.head.size:
            for i in range(room.head[q], m.options.end[q]):
                t.options.queue[begin] = m.options.queue[i]
                begin += 1
        t.end[q] = begin
        begin += t.want[q]


@part
def play_futures(
    law: Law, o: Options, room: Occupancy, scratch: Scratch, settings: GreedySettings, t: Any,
    s: int, waits: bool,
) -> float:  # fmt: skip
    """The sum of all completion times from here under the greedy rule, in future s."""
    last, total, now_s, k = room.run.size - 1, 0.0, 0.0, 0
    there, coming = room.run[last], t.job.shape[1]
    for q in range(room.head.size):
        there += o.end[q] - room.head[q]
    while True:
        if not waits:
            fill(law, o, room, scratch, settings, t.found)
        waits = False
        while k < coming and t.job[s, k] < 0:
            k += 1
        if room.run[last] == 0 and k == coming:
            return total
        step_s = t.at_s[s, k] - now_s if k < coming else np.inf
        for i in range(room.run[last]):
            j = room.run[i]
            step_s = min(step_s, room.left[j] / (room.alone[j] * max(law.floor, room.low[j])))
        total += step_s * there
        now_s += step_s
        for i in range(room.run[last]):
            j = room.run[i]
            rate = room.alone[j] * max(law.floor, room.low[j])
            ends = room.left[j] / rate <= step_s * (1.0 + TIE)
            room.left[j] = -1.0 if ends else room.left[j] - rate * step_s
        for i in range(room.run[last] - 1, -1, -1):
            if room.left[room.run[i]] < 0.0:
                leave(law, o, room, i)
                there -= 1
        if k < coming and t.at_s[s, k] <= now_s * (1.0 + TIE):
            q = t.type[s, k]
            o.queue[o.end[q]] = t.job[s, k]
            o.end[q] += 1
            there += 1
            k += 1


@part
def sized(o: Options, rows: Any, types: int, options: int) -> Options:
    return Options(
        rows, o.weight, o.size, o.sign, o.queue, o.end[:types], o.type[:options],
        o.span[:options], o.kind[:options], o.speed[:options],
    )  # fmt: skip


@part
def headed(room: Occupancy, types: int) -> Occupancy:
    return Occupancy(
        room.head[:types], room.gpus, room.type, room.free, room.cpus, room.memory_gb,
        room.load, room.sign, room.jobs_on, room.job, room.held, room.here, room.kind, room.alone,
        room.low, room.left, room.span, room.node, room.run,
    )  # fmt: skip


@part
def copy_room(to: Occupancy, room: Occupancy) -> None:
    """The nodes, the running jobs and what they hold; not the heads nor what is left of jobs."""
    for n in range(room.free.size):
        to.gpus[n], to.type[n] = room.gpus[n], room.type[n]
        to.free[n], to.cpus[n] = room.free[n], room.cpus[n]
        to.memory_gb[n], to.load[n] = room.memory_gb[n], room.load[n]
        to.sign[n], to.jobs_on[n] = room.sign[n], room.jobs_on[n]
        for s in range(room.jobs_on[n]):
            to.job[n, s], to.held[n, s] = room.job[n, s], room.held[n, s]
            to.here[n, s] = room.here[n, s]
    last = room.run.size - 1
    to.run[last] = room.run[last]
    for i in range(room.run[last]):
        j = room.run[i]
        to.run[i], to.kind[j], to.alone[j] = j, room.kind[j], room.alone[j]
        to.low[j], to.span[j] = room.low[j], room.span[j]
        for e in range(room.span[j]):
            to.node[j, e] = room.node[j, e]


@kernel
def judge(
    view: View, book: Book, settings: GreedySettings, t: TeacherMemory, luck: Floats, out: Floats
) -> None:
    """Fill out (B, K + 1) with what waiting and every candidate lead to; inf: not allowed.

    luck  (B, S, F, 2) random numbers; with F = 0 nothing arrives
    """
    law = view.laws.law
    for b in range(len(out)):
        m, found = rooms_at(book.own.rooms, b), found_at(book.own.found, b)
        room = with_heads(m.room, m.counts)
        count = found.option[found.score.size - 1]
        out[b, :] = np.inf
        if count == 0:
            out[b, 0] = 0.0
            continue
        rows = view.jobs[b]
        first_s, last_s, jobs = np.inf, -np.inf, 0
        for j in range(rows.size):
            if rows[j]["workers"] > 0:
                first_s, last_s = min(first_s, rows[j]["submit_s"]), max(last_s, rows[j]["submit_s"])
                jobs += 1
        draw_futures(view, m, t, b, (last_s - first_s) / max(1, jobs - 1), luck[b])
        lay_out(view, m, t, room, view.live[b], b)
        copy_room(t.base, room)
        types, options = t.near[t.near.size - 1], t.want[t.want.size - 1]
        o = sized(t.options, rows, types, options)
        base, trial = headed(t.base, types), headed(t.trial, types)
        for n in range(room.free.size):
            trial.gpus[n], trial.type[n] = room.gpus[n], room.type[n]
        futures = t.job.shape[0]
        for c in range(count + 1):
            if c == 0 and room.run[room.run.size - 1] == 0:
                continue
            out[b, c] = 0.0
            for s in range(futures):
                for q in range(types):
                    o.end[q] = t.end[q]
                restore(trial, base)
                if c > 0:
                    enter(law, o, trial, found.option[c - 1], found.node[c - 1])
                out[b, c] += play_futures(law, o, trial, m.scratch, settings, t, s, c == 0) / futures
