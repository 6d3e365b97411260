"""The greedy rule: which placement of a waiting job gains most, its neighbours' losses counted."""

from __future__ import annotations

from typing import Final

import numpy as np

from rota.core.layout import SLACK
from rota.core.types import Ints
from rota.jit import part
from rota.policies.contention.loss_kernels import loss_across, loss_on
from rota.policies.contention.neighbour_kernels import (
    Found,
    GreedySettings,
    Law,
    Occupancy,
    Options,
    Scratch,
    kept,
    workers_at,
)
from rota.policies.contention.uplink_kernels import kept_across

EXACT: Final = 8
"""Up to this number of nodes, all sets of nodes are tried; beyond, a set grows node by node."""
TIE: Final = 1e-12
"""Scores as close as this are equal: the job that came first goes first."""


@part
def has_room(options: Options, room: Occupancy, j: int, span: int, n: int) -> bool:
    """Whether the largest part of job j over `span` nodes fits on node n, and on its list."""
    job = options.jobs[j]
    if job["gpu_type"] != -1 and job["gpu_type"] != room.type[n]:
        return False
    if room.jobs_on[n] >= room.job.shape[1]:
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
def beats(found: Found, at: int, score: float, p: int, j: int) -> bool:
    """Whether a placement of job j comes before the one at `at`."""
    if score > found.score[at] + TIE:
        return True
    if score < found.score[at] - TIE or j > found.job[at]:
        return False
    return j < found.job[at] or p < found.option[at]


@part
def offer(found: Found, most: int, score: float, p: int, j: int, pick: Ints, span: int) -> None:
    """Put a placement where it belongs among the best `most`."""
    last = found.score.size - 1
    size = found.option[last]
    if size == most and not beats(found, most - 1, score, p, j):
        return
    at = min(size, most - 1)
    while at > 0 and beats(found, at - 1, score, p, j):
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
    law: Law, options: Options, room: Occupancy, scratch: Scratch, settings: GreedySettings,
    p: int, j: int, pick: Ints,
) -> float:  # fmt: skip
    """The score of job j on the nodes of `pick`; −inf if it must not go there."""
    span, k, job = options.span[p], options.kind[p], options.jobs[j]
    scratch.seen[scratch.hit.size] += 1
    own, alone, loss = 1.0, np.inf, 0.0
    for i in range(span):
        n = pick[i]
        held = workers_at(job["workers"], span, i) * job["gpus_per_worker"]
        alone = min(alone, options.speed[p, room.type[n]])
        own = min(own, kept(law, room, k, n, -1))
        loss += loss_on(law, options, room, scratch, n, k, held, settings.min_ratio, True)
    if k >= 0 and room.up_load.size > 0:  # else nothing is known of its traffic
        own = min(own, kept_across(law, room, k, pick, span, law.traffic_gbps[k]))
        loss += loss_across(law, options, room, scratch, k, pick, span, settings.min_ratio)
    own = max(own, law.floor)
    gain = options.weight[j] * alone * own - loss
    if (
        own < settings.min_ratio
        or alone <= 0.0
        or not gain > settings.threshold * options.weight[j]
    ):
        return -np.inf
    return gain / options.size[j] ** (1.0 + settings.size)


@part
def try_all(
    law: Law, options: Options, room: Occupancy, scratch: Scratch, settings: GreedySettings,
    p: int, j: int, able: int, found: Found, most: int,
) -> None:  # fmt: skip
    """Weigh every set of nodes out of scratch.able[:able], in order."""
    span, order, pick = options.span[p], scratch.order, scratch.pick
    for i in range(span):
        order[i] = i
    while True:
        chosen, fresh = 0, True
        for i in range(span):
            n = scratch.able[order[i]]
            # Of nodes with the same content the lowest are taken; other sets are the same again.
            if scratch.twin[n] >= 0 and not (chosen >> scratch.twin[n]) & 1:
                fresh = False
                break
            chosen |= 1 << n
            pick[i] = n
        if fresh:
            score = worth(law, options, room, scratch, settings, p, j, pick)
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
def mark_twins(room: Occupancy, scratch: Scratch) -> None:
    """Find nodes that cannot be told apart."""
    for n in range(room.free.size):
        scratch.twin[n] = -1
        for t in range(n - 1, -1, -1):
            if (
                room.sign[t] == room.sign[n]
                and room.jobs_on[t] == room.jobs_on[n]
                and room.free[t] == room.free[n]
                and room.gpus[t] == room.gpus[n]
                and room.type[t] == room.type[n]
                and room.rack[t] == room.rack[n]
                and room.cpus[t] == room.cpus[n]
                and room.memory_gb[t] == room.memory_gb[n]
            ):
                scratch.twin[n] = t
                break
