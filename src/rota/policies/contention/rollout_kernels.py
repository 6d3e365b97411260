"""Jobs come and go in an `Occupancy`: the greedy rule, and how all jobs end under it.

Rates are constant between two completions, so a whole future without arrivals is a few dozen
steps: fill what is free, go to the next completion, and again.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rota.core.speed import LINKS
from rota.core.types import Ints
from rota.jit import part
from rota.policies.contention.climb_kernels import scan
from rota.policies.contention.greedy_kernels import TIE
from rota.policies.contention.neighbour_kernels import (
    Found,
    GreedySettings,
    Law,
    Occupancy,
    Options,
    Scratch,
    after,
    kept,
    rate_of,
    workers_at,
)
from rota.policies.contention.uplink_kernels import (
    cross_racks,
    find_low,
    lower,
    relieve_racks,
    stop_crossing,
)

MOST_PICKS: Final = 32
"""Placements of a round that are compared by look-ahead; the greedy rule makes the others."""


@part
def take(options: Options, room: Occupancy, j: int, i: int, held: int, sign: int) -> None:
    """Take what job j needs beside `held` GPUs on its i-th node; with sign −1, give it back."""
    job, n, span = options.jobs[j], room.node[j, i], room.span[j]
    each, servers = job["gpus_per_worker"], workers_at(job["servers"], span, i)
    workers = held // each if each > 0 else workers_at(job["workers"], span, i)
    room.free[n] -= sign * held
    room.cpus[n] -= sign * (workers * job["cpus_per_worker"] + servers * job["cpus_per_server"])
    room.memory_gb[n] -= sign * (
        workers * job["memory_gb_per_worker"] + servers * job["memory_gb_per_server"]
    )


@part
def join(law: Law, options: Options, room: Occupancy, j: int, n: int, held: int) -> None:
    """Put job j on node n beside the jobs there."""
    k, size = room.kind[j], room.jobs_on[n]
    mine = kept(law, room, k, n, -1)
    for s in range(size):
        o = room.job[n, s]
        room.here[n, s] = after(law, room, n, s, k, held)
        lower(room, o, room.here[n, s])
    room.job[n, size], room.held[n, size], room.here[n, size] = j, held, mine
    room.low[j] = min(room.low[j], mine)
    room.jobs_on[n] = size + 1
    room.changed[n] = room.changed[room.changed.size - 1]
    room.sign[n] += options.sign[j] * (held + 1)
    if law.mode == LINKS and k >= 0:
        room.load[n] += law.traffic_gbps[k]


@part
def begin(law: Law, options: Options, room: Occupancy, p: int, j: int, nodes: Ints) -> None:
    """Let job j run with spread p on `nodes`."""
    room.span[j], room.kind[j], room.low[j], room.alone[j] = (
        options.span[p],
        options.kind[p],
        1.0,
        np.inf,
    )
    for i in range(options.span[p]):
        n = nodes[i]
        room.node[j, i] = n
        room.alone[j] = min(room.alone[j], options.speed[p, room.type[n]])
        workers = workers_at(options.jobs[j]["workers"], options.span[p], i)
        held = workers * options.jobs[j]["gpus_per_worker"]
        take(options, room, j, i, held, 1)
        join(law, options, room, j, n, held)
    cross_racks(law, room, j)
    last = room.run.size - 1
    room.run[room.run[last]] = j
    room.run[last] += 1


@part
def enter(law: Law, options: Options, room: Occupancy, p: int, nodes: Ints) -> None:
    """Start the next job of an option's type on `nodes`."""
    q = options.type[p]
    room.head[q] += 1
    begin(law, options, room, p, options.queue[room.head[q] - 1], nodes)


@part
def leave(law: Law, options: Options, room: Occupancy, at: int) -> None:
    """Let the running job run[at] go; those it leaves behind speed up."""
    last = room.run.size - 1
    j = room.run[at]
    room.run[last] -= 1
    room.run[at] = room.run[room.run[last]]
    for i in range(room.span[j]):
        n, s = room.node[j, i], 0
        while room.job[n, s] != j:
            s += 1
        held, end = room.held[n, s], room.jobs_on[n] - 1
        take(options, room, j, i, held, -1)
        room.job[n, s], room.held[n, s] = room.job[n, end], room.held[n, end]
        room.jobs_on[n] = end
        room.changed[n] = room.changed[room.changed.size - 1]
        room.sign[n] -= options.sign[j] * (held + 1)
        if law.mode == LINKS and room.kind[j] >= 0:
            room.load[n] -= law.traffic_gbps[room.kind[j]]
    stop_crossing(law, room, j)
    for i in range(room.span[j]):
        settle(law, room, room.node[j, i])
    for i in range(room.span[j]):
        for s in range(room.jobs_on[room.node[j, i]]):
            find_low(law, room, room.job[room.node[j, i], s])
    relieve_racks(law, room, j)


@part
def settle(law: Law, room: Occupancy, n: int) -> None:
    """Work out anew what node n leaves its jobs."""
    for s in range(room.jobs_on[n]):
        room.here[n, s] = kept(law, room, room.kind[room.job[n, s]], n, s)


@part
def best(
    law: Law, options: Options, room: Occupancy, scratch: Scratch, settings: GreedySettings,
    found: Found,
) -> int:  # fmt: skip
    """The greedy rule's choice: 1 if there is one, then at found[0].

    An empty cluster takes the best there is even if it gains little: else jobs would wait for ever.
    """
    count = scan(law, options, room, scratch, settings, found, 1)
    if count == 0 and room.run[room.run.size - 1] == 0:
        return scan(
            law, options, room, scratch, GreedySettings(-np.inf, 0.0, settings.size), found, 1
        )
    return count


@part
def fill(
    law: Law, options: Options, room: Occupancy, scratch: Scratch, settings: GreedySettings,
    found: Found,
) -> None:  # fmt: skip
    """Start the best placement while there is a good one."""
    while best(law, options, room, scratch, settings, found) > 0:
        enter(law, options, room, found.option[0], found.node[0])


@part
def next_end_s(law: Law, room: Occupancy) -> float:
    """In how many seconds the first of the running jobs ends, at their present rates."""
    step_s = np.inf
    for i in range(room.run[room.run.size - 1]):
        j = room.run[i]
        step_s = min(step_s, room.left[j] / rate_of(law, room, j))
    return step_s


@part
def run_for(law: Law, options: Options, room: Occupancy, step_s: float) -> int:
    """Let all jobs advance at their present rates; those that are done leave. Returns how many."""
    last, done = room.run.size - 1, 0
    for i in range(room.run[last]):
        j = room.run[i]
        rate = rate_of(law, room, j)
        ends = room.left[j] / rate <= step_s * (1.0 + TIE)
        room.left[j] = -1.0 if ends else room.left[j] - rate * step_s
    for i in range(room.run[last] - 1, -1, -1):
        if room.left[room.run[i]] < 0.0:
            leave(law, options, room, i)
            done += 1
    return done


@part
def play(
    law: Law, options: Options, room: Occupancy, scratch: Scratch, settings: GreedySettings,
    found: Found, filled: bool, limit: float,
) -> float:  # fmt: skip
    """The sum of all completion times from here, under the greedy rule; inf once over `limit`."""
    last, total = room.run.size - 1, 0.0
    there = room.run[last]
    for q in range(options.end.size):
        there += options.end[q] - room.head[q]
    while True:
        if not filled:
            fill(law, options, room, scratch, settings, found)
        filled = False
        if room.run[last] == 0:
            return total
        step_s = next_end_s(law, room)
        total += step_s * there
        if not total < limit:
            return np.inf
        there -= run_for(law, options, room, step_s)


@part
def copy_fixed(room: Occupancy, other: Occupancy) -> None:
    """Copy to `room` what no play changes, so `restore` need not."""
    for n in range(other.gpus.size):
        room.gpus[n], room.type[n], room.rack[n] = other.gpus[n], other.type[n], other.rack[n]


@part
def forget_play(room: Occupancy, other: Occupancy) -> None:
    """Have all nodes of `room` weighed anew: what is remembered of them may be of `other`."""
    clock = room.changed.size - 1
    room.changed[:] = max(room.changed[clock], other.changed[clock]) + 1
    room.up_changed[:] = room.changed[clock]


@part
def restore(room: Occupancy, saved: Occupancy) -> None:
    """Make `room` what `saved` is."""
    queues = saved.head.size - 1
    room.head[queues] = saved.head[queues]
    for q in range(saved.head[queues]):
        room.head[q] = saved.head[q]
    for n in range(saved.free.size):
        room.free[n], room.cpus[n] = saved.free[n], saved.cpus[n]
        room.memory_gb[n], room.load[n] = saved.memory_gb[n], saved.load[n]
        room.sign[n], room.jobs_on[n] = saved.sign[n], saved.jobs_on[n]
        for s in range(saved.jobs_on[n]):
            room.job[n, s], room.held[n, s] = saved.job[n, s], saved.held[n, s]
            room.here[n, s] = saved.here[n, s]
    for j in range(saved.left.size):
        room.left[j] = saved.left[j]
    for u in range(saved.riders.size):
        room.up_load[u], room.riders[u] = saved.up_load[u], saved.riders[u]
        for s in range(saved.riders[u]):
            room.rider[u, s] = saved.rider[u, s]
    forget_play(room, saved)
    last = saved.run.size - 1
    room.run[last] = saved.run[last]
    for i in range(saved.run[last]):
        j = saved.run[i]
        room.run[i], room.kind[j], room.alone[j] = j, saved.kind[j], saved.alone[j]
        room.low[j], room.span[j] = saved.low[j], saved.span[j]
        for e in range(saved.span[j]):
            room.node[j, e] = saved.node[j, e]


@part
def rate_running(law: Law, options: Options, room: Occupancy) -> None:
    """Work out what the running jobs, all entered, leave each other of their speed."""
    for n in range(room.free.size):
        for s in range(room.jobs_on[n]):
            room.sign[n] += options.sign[room.job[n, s]] * (room.held[n, s] + 1)
            k = room.kind[room.job[n, s]]
            if law.mode == LINKS and k >= 0:
                room.load[n] += law.traffic_gbps[k]
        settle(law, room, n)
    for i in range(room.run[room.run.size - 1]):
        cross_racks(law, room, room.run[i])
    for i in range(room.run[room.run.size - 1]):
        find_low(law, room, room.run[i])


@part
def look_ahead(
    law: Law, options: Options, near: Options, room: Occupancy, trial: Occupancy, scratch: Scratch,
    settings: GreedySettings, listed: Found, found: Found, quota: int,
) -> None:  # fmt: skip
    """Start, one by one, the placement that ends best if the greedy rule goes on from there.

    `near` are the options with an `end` of their own: the play knows the next `quota` jobs of a
    type. After MOST_PICKS placements the greedy rule fills the rest.
    """
    last = room.run.size - 1
    every = GreedySettings(-np.inf, settings.min_ratio, settings.size)
    most = listed.score.size - 1
    for _ in range(MOST_PICKS):
        for q in range(options.end.size):
            near.end[q] = min(options.end[q], room.head[q] + quota)
        forget_play(room, trial)
        count = scan(law, near, room, scratch, every, listed, most)
        if count == 0:
            return
        choice, lowest = -1, np.inf
        for c in range(count):
            restore(trial, room)
            enter(law, near, trial, listed.option[c], listed.node[c])
            total = play(law, near, trial, scratch, settings, found, False, lowest * (1.0 - TIE))
            if choice < 0 or total < lowest:
                choice, lowest = c, total
        if room.run[last] > 0:
            restore(trial, room)
            if (
                play(law, near, trial, scratch, settings, found, True, lowest * (1.0 - TIE))
                < lowest
            ):
                return
        enter(law, options, room, listed.option[choice], listed.node[choice])
    forget_play(room, trial)
    fill(law, options, room, scratch, settings, found)
