"""Who slows whom down, and what that makes of a placement: compiled, for look-ahead.

A `Room` is a small picture of the cluster that can be played forward: every node lists the jobs
on it (`job`, with `held` GPUs each) and what it leaves each of them of its speed (`here`); a job
runs at `alone` × the least of these, over its nodes. Speeds are relative to a job's reference,
so a job's `left` is in seconds at speed 1.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from rota.core.layout import SLACK
from rota.core.speed import LINKS, MACHINES, PAIRS
from rota.core.types import Floats, Ints, Records
from rota.jit import part

EXACT: Final = 8
"""Up to so many nodes, all sets of nodes are tried; beyond, a set grows node by node."""
TIE: Final = 1e-12
"""Scores as close as this are equal: the job that came first goes first."""


class Law(NamedTuple):
    """How jobs slow each other down; see `rota.core.speed.Contention`."""

    mode: int
    floor: float
    ratio: Floats  # (K, K)
    hurt: Floats  # (K,)
    harm: Floats  # (K,)
    traffic_gbps: Floats  # (K,)
    talk: Floats  # (K,)
    link_gbps: Floats  # (N,)


class Menu(NamedTuple):
    """What can be placed: waiting jobs by type, and the spreads that each type may take."""

    jobs: Records  # (J,) JOB
    weight: Floats  # (J,) what a job's speed counts for
    size: Floats  # (J,) GPUs, or workers where they need none
    sign: Ints  # (J,) random numbers: a node's jobs are known by their sum
    queue: Ints  # (W,) waiting jobs, one type after the other
    end: Ints  # (Q,) where the jobs of a type end in `queue`
    type: Ints  # (P,) of a spread
    span: Ints  # (P,) over how many nodes it goes
    kind: Ints  # (P,) its sort of traffic
    speed: Floats  # (P, T) alone, by GPU type, relative to the job's reference


class Room(NamedTuple):
    """The cluster at one moment; changes as jobs come and go."""

    head: Ints  # (Q,) who is next of a type, as a place in `Menu.queue`
    gpus: Ints  # (N,)
    type: Ints  # (N,)
    free: Ints  # (N,) GPUs; −1 while a node is down
    cpus: Floats  # (N,) free
    memory_gb: Floats  # (N,) free
    load: Floats  # (N,) Gb/s that jobs there want of its link
    sign: Ints  # (N,) the sum of its jobs' signs: equal where the same jobs hold the same
    guests: Ints  # (N,) how many jobs are there
    job: Ints  # (N, S)
    held: Ints  # (N, S) GPUs
    here: Floats  # (N, S) what the node leaves the job of its speed
    kind: Ints  # (J,)
    alone: Floats  # (J,)
    low: Floats  # (J,) the least of `here` over the job's nodes
    left: Floats  # (J,)
    span: Ints  # (J,)
    node: Ints  # (J, M) the nodes of a running job
    run: Ints  # (J + 1,) the running jobs; the last entry says how many


class Desk(NamedTuple):
    """Scratch space."""

    hit: Floats  # (J,) `low` as it would be
    seen: Ints  # (J + 1,) when `hit` was written; the last entry is the clock
    able: Ints  # (N,)
    pick: Ints  # (N,)
    order: Ints  # (N,)
    twin: Ints  # (N,) the next lower node with the same content, −1: none


class Taste(NamedTuple):
    """What the greedy rule likes."""

    threshold: float
    min_ratio: float
    size: float


class Found(NamedTuple):
    """The best placements, best first."""

    score: Floats  # (K + 1,)
    option: Ints  # (K + 1,) the last entry says how many there are
    job: Ints  # (K + 1,)
    node: Ints  # (K + 1, M)


@part
def on_link(law: Law, k: int, n: int, load_gbps: float) -> float:
    """What is left to kind k of its speed if all jobs share the node's link alike."""
    if load_gbps <= law.link_gbps[n]:
        return 1.0
    return 1.0 / (1.0 - law.talk[k] + law.talk[k] * load_gbps / law.link_gbps[n])


@part
def beside(law: Law, room: Room, k: int, o: int, held: int, n: int) -> float:
    """What kind k keeps of its speed beside kind o, which holds `held` GPUs of node n."""
    if k < 0 or o < 0:
        return 1.0
    if law.mode == PAIRS:
        return law.ratio[k, o]
    weight = held / room.gpus[n] if law.mode == MACHINES else 1.0
    return max(0.0, 1.0 - weight * law.hurt[k] * law.harm[o])


@part
def kept(law: Law, room: Room, k: int, n: int, but: int) -> float:
    """What node n leaves a job of kind k; `but` is its own slot there, −1 if it is to come."""
    if k < 0:
        return 1.0
    if law.mode == LINKS:
        return on_link(law, k, n, room.load[n] + (law.traffic_gbps[k] if but < 0 else 0.0))
    ratio = 1.0
    for s in range(room.guests[n]):
        if s != but:
            one = beside(law, room, k, room.kind[room.job[n, s]], room.held[n, s], n)
            ratio = min(ratio, one) if law.mode == PAIRS else ratio * one
    return ratio


@part
def after(law: Law, room: Room, n: int, s: int, k: int, held: int) -> float:
    """What node n leaves the job in slot s once kind k with `held` GPUs joins."""
    mine, now = room.kind[room.job[n, s]], room.here[n, s]
    if mine < 0 or k < 0:
        return now
    if law.mode == LINKS:
        return on_link(law, mine, n, room.load[n] + law.traffic_gbps[k])
    one = beside(law, room, mine, k, held, n)
    return min(now, one) if law.mode == PAIRS else now * one


@part
def loss_on(
    law: Law, menu: Menu, room: Room, desk: Desk, n: int, k: int, held: int, least: float,
    keep: bool,
) -> float:  # fmt: skip
    """What the jobs on node n lose by a newcomer, beyond what they lose by it elsewhere.

    Infinite if one falls below `least`. With `keep`, the losses are written down in the desk.
    """
    clock, loss = desk.seen[desk.hit.size], 0.0
    for s in range(room.guests[n]):
        o = room.job[n, s]
        now = desk.hit[o] if desk.seen[o] == clock else room.low[o]
        then = after(law, room, n, s, k, held)
        if then < now:
            above, below = max(law.floor, now), max(law.floor, then)
            if below < least and below < above:
                return np.inf
            loss += menu.weight[o] * room.alone[o] * (above - below)
            if keep:
                desk.hit[o], desk.seen[o] = then, clock
    return loss


@part
def workers_at(workers: int, span: int, i: int) -> int:
    """How many workers the i-th of `span` nodes gets: all the same, or the first one more."""
    return workers // span + (1 if i < workers % span else 0)


@part
def has_room(menu: Menu, room: Room, j: int, span: int, n: int) -> bool:
    """Whether the largest part of job j over `span` nodes fits on node n."""
    job = menu.jobs[j]
    if job["gpu_type"] != -1 and job["gpu_type"] != room.type[n]:
        return False
    workers, servers = workers_at(job["workers"], span, 0), workers_at(job["servers"], span, 0)
    cpus = workers * job["cpus_per_worker"] + servers * job["cpus_per_server"]
    memory_gb = workers * job["memory_gb_per_worker"] + servers * job["memory_gb_per_server"]
    return (
        workers * job["gpus_per_worker"] <= room.free[n]
        and cpus <= room.cpus[n] + SLACK
        and memory_gb <= room.memory_gb[n] + SLACK
    )


@part
def beats(found: Found, at: int, score: float, j: int) -> bool:
    """Whether a placement of job j comes before the one at `at`."""
    if score > found.score[at] + TIE:
        return True
    return score >= found.score[at] - TIE and j < found.job[at]


@part
def offer(found: Found, most: int, score: float, p: int, j: int, pick: Ints, span: int) -> None:
    """Put a placement where it belongs among the best `most`."""
    last = found.score.size - 1
    size = found.option[last]
    if size == most and not beats(found, most - 1, score, j):
        return
    at = min(size, most - 1)
    while at > 0 and beats(found, at - 1, score, j):
        found.score[at], found.job[at] = found.score[at - 1], found.job[at - 1]
        found.option[at] = found.option[at - 1]
        for i in range(found.node.shape[1]):
            found.node[at, i] = found.node[at - 1, i]
        at -= 1
    found.score[at], found.option[at], found.job[at] = score, p, j
    for i in range(span):
        found.node[at, i] = pick[i]
    found.option[last] = min(size + 1, most)


@part
def worth(
    law: Law, menu: Menu, room: Room, desk: Desk, taste: Taste, p: int, j: int, pick: Ints
) -> float:
    """The score of job j on the nodes of `pick`; −inf if it must not go there."""
    span, k, job = menu.span[p], menu.kind[p], menu.jobs[j]
    desk.seen[desk.hit.size] += 1
    own, alone, loss = 1.0, np.inf, 0.0
    for i in range(span):
        n = pick[i]
        held = workers_at(job["workers"], span, i) * job["gpus_per_worker"]
        alone = min(alone, menu.speed[p, room.type[n]])
        own = min(own, kept(law, room, k, n, -1))
        loss += loss_on(law, menu, room, desk, n, k, held, taste.min_ratio, True)
    own = max(own, law.floor)
    gain = menu.weight[j] * alone * own - loss
    if own < taste.min_ratio or alone <= 0.0 or not gain > taste.threshold * menu.weight[j]:
        return -np.inf
    return gain / menu.size[j] ** (1.0 + taste.size)


@part
def try_all(
    law: Law, menu: Menu, room: Room, desk: Desk, taste: Taste, p: int, j: int, able: int,
    found: Found, most: int,
) -> None:  # fmt: skip
    """Weigh every set of nodes out of desk.able[:able], in order."""
    span, order, pick = menu.span[p], desk.order, desk.pick
    for i in range(span):
        order[i] = i
    while True:
        chosen, fresh = 0, True
        for i in range(span):
            n = desk.able[order[i]]
            # Of nodes with the same content the lowest are taken; other sets are the same again.
            if desk.twin[n] >= 0 and not (chosen >> desk.twin[n]) & 1:
                fresh = False
                break
            chosen |= 1 << n
            pick[i] = n
        if fresh:
            score = worth(law, menu, room, desk, taste, p, j, pick)
            if score > -np.inf:
                offer(found, most, score, p, j, pick, span)
        at = span - 1
        while at >= 0 and order[at] == able - span + at:
            at -= 1
        if at < 0:
            return
        order[at] += 1
        for i in range(at + 1, span):
            order[i] = order[i - 1] + 1


@part
def climb(
    law: Law, menu: Menu, room: Room, desk: Desk, taste: Taste, p: int, j: int, able: int,
    found: Found, most: int,
) -> None:  # fmt: skip
    """Weigh one set of nodes: the best node first, then the best beside it, and so on."""
    span, k, job = menu.span[p], menu.kind[p], menu.jobs[j]
    desk.seen[desk.hit.size] += 1
    own, alone, loss = 1.0, np.inf, 0.0
    for i in range(span):
        held = workers_at(job["workers"], span, i) * job["gpus_per_worker"]
        at, top = -1, -np.inf
        for a in range(i, able):
            n = desk.able[a]
            speed = min(alone, menu.speed[p, room.type[n]])
            ratio = max(law.floor, min(own, kept(law, room, k, n, -1)))
            cost = loss + loss_on(law, menu, room, desk, n, k, held, taste.min_ratio, False)
            gain = menu.weight[j] * speed * ratio - cost
            better = at < 0 or gain > top + TIE
            # Between equals the fuller node, so that room stays for others.
            if better or (gain > top - TIE and room.free[n] < room.free[desk.able[at]]):
                at, top = a, gain
        n = desk.able[at]
        desk.able[at] = desk.able[i]
        desk.able[i] = desk.pick[i] = n
        own = min(own, kept(law, room, k, n, -1))
        alone = min(alone, menu.speed[p, room.type[n]])
        loss += loss_on(law, menu, room, desk, n, k, held, taste.min_ratio, True)
    for i in range(1, span):
        at, n = i, desk.pick[i]
        while at > 0 and desk.pick[at - 1] > n:
            desk.pick[at] = desk.pick[at - 1]
            at -= 1
        desk.pick[at] = n
    score = worth(law, menu, room, desk, taste, p, j, desk.pick)
    if score > -np.inf:
        offer(found, most, score, p, j, desk.pick, span)


@part
def mark_twins(room: Room, desk: Desk) -> None:
    """Find nodes that cannot be told apart."""
    for n in range(room.free.size):
        desk.twin[n] = -1
        for t in range(n - 1, -1, -1):
            if (
                room.sign[t] == room.sign[n]
                and room.guests[t] == room.guests[n]
                and room.free[t] == room.free[n]
                and room.gpus[t] == room.gpus[n]
                and room.type[t] == room.type[n]
                and room.cpus[t] == room.cpus[n]
                and room.memory_gb[t] == room.memory_gb[n]
            ):
                desk.twin[n] = t
                break


@part
def scan(
    law: Law, menu: Menu, room: Room, desk: Desk, taste: Taste, found: Found, most: int
) -> int:
    """The best `most` placements of the jobs that are next of their types; how many there are."""
    last = found.score.size - 1
    found.option[last] = 0
    exact = room.free.size <= EXACT
    if exact:
        mark_twins(room, desk)
    for p in range(menu.type.size):
        q, span = menu.type[p], menu.span[p]
        if room.head[q] == menu.end[q]:
            continue
        j, able = menu.queue[room.head[q]], 0
        for n in range(room.free.size):
            if has_room(menu, room, j, span, n):
                desk.able[able] = n
                able += 1
        if able >= span:
            if exact:
                try_all(law, menu, room, desk, taste, p, j, able, found, most)
            else:
                climb(law, menu, room, desk, taste, p, j, able, found, most)
    return found.option[last]
