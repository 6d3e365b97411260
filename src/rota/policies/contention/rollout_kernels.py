"""Jobs come and go in a `Room`: the greedy rule, and what becomes of all jobs under it.

Rates are constant between two completions, so a whole future without arrivals is a few dozen
steps: fill what is free, go to the next completion, and again.
"""

from __future__ import annotations

import numpy as np

from rota.core.speed import LINKS
from rota.core.types import Ints
from rota.jit import kernel, part
from rota.policies.contention.greedy_kernels import (
    TIE,
    Desk,
    Found,
    Law,
    Menu,
    Room,
    Taste,
    after,
    kept,
    scan,
    workers_at,
)


@part
def take(menu: Menu, room: Room, j: int, i: int, held: int, sign: int) -> None:
    """Take what job j needs beside `held` GPUs on its i-th node; with sign −1, give it back."""
    job, n, span = menu.jobs[j], room.node[j, i], room.span[j]
    each, servers = job["gpus_per_worker"], workers_at(job["servers"], span, i)
    workers = held // each if each > 0 else workers_at(job["workers"], span, i)
    room.free[n] -= sign * held
    room.cpus[n] -= sign * (workers * job["cpus_per_worker"] + servers * job["cpus_per_server"])
    room.memory_gb[n] -= sign * (
        workers * job["memory_gb_per_worker"] + servers * job["memory_gb_per_server"]
    )


@part
def join(law: Law, menu: Menu, room: Room, j: int, n: int, held: int) -> None:
    """Seat job j on node n beside those who are there."""
    k, size = room.kind[j], room.guests[n]
    mine = kept(law, room, k, n, -1)
    for s in range(size):
        o = room.job[n, s]
        room.here[n, s] = after(law, room, n, s, k, held)
        room.low[o] = min(room.low[o], room.here[n, s])
    room.job[n, size], room.held[n, size], room.here[n, size] = j, held, mine
    room.low[j] = min(room.low[j], mine)
    room.guests[n] = size + 1
    room.sign[n] += menu.sign[j] * (held + 1)
    if law.mode == LINKS and k >= 0:
        room.load[n] += law.traffic_gbps[k]


@part
def enter(law: Law, menu: Menu, room: Room, p: int, nodes: Ints) -> None:
    """Start the next job of an option's type on `nodes`."""
    q = menu.type[p]
    j = menu.queue[room.head[q]]
    room.head[q] += 1
    room.span[j], room.kind[j], room.low[j], room.alone[j] = menu.span[p], menu.kind[p], 1.0, np.inf
    for i in range(menu.span[p]):
        n = nodes[i]
        room.node[j, i] = n
        room.alone[j] = min(room.alone[j], menu.speed[p, room.type[n]])
        workers = workers_at(menu.jobs[j]["workers"], menu.span[p], i)
        held = workers * menu.jobs[j]["gpus_per_worker"]
        take(menu, room, j, i, held, 1)
        join(law, menu, room, j, n, held)
    last = room.run.size - 1
    room.run[room.run[last]] = j
    room.run[last] += 1


@part
def leave(law: Law, menu: Menu, room: Room, at: int) -> None:
    """Let the running job run[at] go; those it leaves behind speed up."""
    last = room.run.size - 1
    j = room.run[at]
    room.run[last] -= 1
    room.run[at] = room.run[room.run[last]]
    for i in range(room.span[j]):
        n, s = room.node[j, i], 0
        while room.job[n, s] != j:
            s += 1
        held, end = room.held[n, s], room.guests[n] - 1
        take(menu, room, j, i, held, -1)
        room.job[n, s], room.held[n, s] = room.job[n, end], room.held[n, end]
        room.guests[n] = end
        room.sign[n] -= menu.sign[j] * (held + 1)
        if law.mode == LINKS and room.kind[j] >= 0:
            room.load[n] -= law.traffic_gbps[room.kind[j]]
    for i in range(room.span[j]):
        settle(law, room, room.node[j, i])
    for i in range(room.span[j]):
        for s in range(room.guests[room.node[j, i]]):
            find_low(room, room.job[room.node[j, i], s])


@part
def settle(law: Law, room: Room, n: int) -> None:
    """Work out anew what node n leaves its jobs."""
    for s in range(room.guests[n]):
        room.here[n, s] = kept(law, room, room.kind[room.job[n, s]], n, s)


@part
def find_low(room: Room, o: int) -> None:
    """Work out anew what is left to job o on the worst of its nodes."""
    room.low[o] = 1.0
    for i in range(room.span[o]):
        n = room.node[o, i]
        for s in range(room.guests[n]):
            if room.job[n, s] == o:
                room.low[o] = min(room.low[o], room.here[n, s])


@part
def best(law: Law, menu: Menu, room: Room, desk: Desk, taste: Taste, found: Found) -> int:
    """The greedy rule's choice: 1 if there is one, then at found[0].

    An empty cluster takes the best there is, however little it gains: else it would wait for ever.
    """
    count = scan(law, menu, room, desk, taste, found, 1)
    if count == 0 and room.run[room.run.size - 1] == 0:
        return scan(law, menu, room, desk, Taste(-np.inf, 0.0, taste.size), found, 1)
    return count


@part
def fill(law: Law, menu: Menu, room: Room, desk: Desk, taste: Taste, found: Found) -> None:
    """Start the best placement while there is a good one."""
    while best(law, menu, room, desk, taste, found) > 0:
        enter(law, menu, room, found.option[0], found.node[0])


@part
def play(
    law: Law, menu: Menu, room: Room, desk: Desk, taste: Taste, found: Found, filled: bool,
    limit: float,
) -> float:  # fmt: skip
    """The sum of all completion times from here, under the greedy rule; inf once over `limit`."""
    last, total = room.run.size - 1, 0.0
    there = room.run[last]
    for q in range(room.head.size):
        there += menu.end[q] - room.head[q]
    while True:
        if not filled:
            fill(law, menu, room, desk, taste, found)
        filled = False
        if room.run[last] == 0:
            return total
        step = np.inf
        for i in range(room.run[last]):
            j = room.run[i]
            step = min(step, room.left[j] / (room.alone[j] * max(law.floor, room.low[j])))
        total += step * there
        if not total < limit:
            return np.inf
        # All are taken there at the rates of before; then those who are done go.
        for i in range(room.run[last]):
            j = room.run[i]
            rate = room.alone[j] * max(law.floor, room.low[j])
            ends = room.left[j] / rate <= step * (1.0 + TIE)
            room.left[j] = -1.0 if ends else room.left[j] - rate * step
        for i in range(room.run[last] - 1, -1, -1):
            if room.left[room.run[i]] < 0.0:
                leave(law, menu, room, i)
                there -= 1


@part
def restore(room: Room, saved: Room) -> None:
    """Make `room` what `saved` is."""
    for q in range(saved.head.size):
        room.head[q] = saved.head[q]
    for n in range(saved.free.size):
        room.free[n], room.cpus[n] = saved.free[n], saved.cpus[n]
        room.memory_gb[n], room.load[n] = saved.memory_gb[n], saved.load[n]
        room.sign[n], room.guests[n] = saved.sign[n], saved.guests[n]
        for s in range(saved.guests[n]):
            room.job[n, s], room.held[n, s] = saved.job[n, s], saved.held[n, s]
            room.here[n, s] = saved.here[n, s]
    for j in range(saved.left.size):
        room.left[j] = saved.left[j]
    last = saved.run.size - 1
    room.run[last] = saved.run[last]
    for i in range(saved.run[last]):
        j = saved.run[i]
        room.run[i], room.kind[j], room.alone[j] = j, saved.kind[j], saved.alone[j]
        room.low[j], room.span[j] = saved.low[j], saved.span[j]
        for e in range(saved.span[j]):
            room.node[j, e] = saved.node[j, e]


@kernel
def seat(law: Law, menu: Menu, room: Room) -> None:
    """Work out what the running jobs, all entered, leave each other."""
    for n in range(room.free.size):
        for s in range(room.guests[n]):
            room.sign[n] += menu.sign[room.job[n, s]] * (room.held[n, s] + 1)
            k = room.kind[room.job[n, s]]
            if law.mode == LINKS and k >= 0:
                room.load[n] += law.traffic_gbps[k]
        settle(law, room, n)
    for i in range(room.run[room.run.size - 1]):
        find_low(room, room.run[i])


@kernel
def greedy_round(law: Law, menu: Menu, room: Room, desk: Desk, taste: Taste, found: Found) -> None:
    """Start what the greedy rule starts now."""
    fill(law, menu, room, desk, taste, found)


@kernel
def rollout_round(
    law: Law, menu: Menu, near: Menu, room: Room, trial: Room, desk: Desk, taste: Taste,
    listed: Found, found: Found, most: int, quota: int, picks: int,
) -> None:  # fmt: skip
    """Start, one by one, the placement that ends best if the greedy rule goes on from there.

    `near` is the menu with an `end` of its own: the play knows the next `quota` jobs of a type.
    After so many picks the greedy rule fills the rest.
    """
    last = room.run.size - 1
    every = Taste(-np.inf, taste.min_ratio, taste.size)
    for _ in range(picks):
        for q in range(menu.end.size):
            near.end[q] = min(menu.end[q], room.head[q] + quota)
        count = scan(law, near, room, desk, every, listed, most)
        if count == 0:
            return
        choice, lowest = -1, np.inf
        for c in range(count):
            restore(trial, room)
            enter(law, near, trial, listed.option[c], listed.node[c])
            total = play(law, near, trial, desk, taste, found, False, lowest * (1.0 - TIE))
            if choice < 0 or total < lowest:
                choice, lowest = c, total
        if room.run[last] > 0:
            restore(trial, room)
            if play(law, near, trial, desk, taste, found, True, lowest * (1.0 - TIE)) < lowest:
                return
        enter(law, menu, room, listed.option[choice], listed.node[choice])
    fill(law, menu, room, desk, taste, found)
