"""Preemption where changes cost: selected jobs that run keep their nodes, others are placed.

Arguments: see `decide_kernels`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rota.core.layout import RUNNING
from rota.jit import allocating_part, inline, part
from rota.ledger.draft_kernels import DraftArrays, give, still_free
from rota.ledger.node_kernels import build, hold, largest_node
from rota.ledger.work_kernels import pinned
from rota.policies.classic.claim_kernels import claim, claim_fewer
from rota.policies.classic.rule import ELASTIC

if TYPE_CHECKING:
    from rota.core.types import Ints, Records
    from rota.policies.classic.rule import Rule


@inline
def stays(rule: Rule, job: Any, now_s: float) -> bool:
    """Whether the job is pinned, or would do little but start if it were stopped every quantum.

    A job whose restart takes a quantum or more runs at least as long as that takes.
    """
    slow = job["status"] == RUNNING and job["restart_s"] >= rule.quantum_s
    return pinned(job, now_s) or (slow and now_s < job["resume_s"] + job["restart_s"])


@inline
def select(
    rule: Rule, jobs: Records, order: Ints, n: int, now_s: float, nodes: Records, chosen: Any
) -> None:
    """Mark the jobs that would run, in order, if GPUs had a type but belonged to no node."""
    total, types = 0, 1
    for k in range(nodes.size):
        types = max(types, nodes[k]["type"] + 1)
    room = np.zeros(types, np.int64)
    for k in range(nodes.size):
        if nodes[k]["up"]:
            room[nodes[k]["type"]] += nodes[k]["gpus"]
            total += nodes[k]["gpus"]
    for first in (True, False):
        for i in range(n):
            job, gpus = jobs[order[i]], jobs[order[i]]["gpus"]
            if stays(rule, job, now_s) != first:
                continue
            if job["status"] == RUNNING:  # an elastic job may hold another number than it asked for
                gpus = job["held_workers"] * job["gpus_per_worker"]
            kind = job["gpu_type"]
            if rule.sizing == ELASTIC and job["status"] != RUNNING:  # less will do
                left = total if kind == -1 else room[max(0, min(kind, types - 1))]
                gpus = min(gpus, max(left, job["min_workers"] * job["gpus_per_worker"]))
            fits = kind == -1 or (0 <= kind < types and gpus <= room[kind])
            chosen[i] = first or (gpus <= total and fits)
            if chosen[i]:
                total -= gpus
                if kind != -1:
                    room[kind] -= gpus


@part
def emptiest(nodes: Records, job: Any) -> int:
    """The node with the most free GPUs of those that could hold the job, −1 if none could."""
    target = -1
    for k in range(nodes.size):
        suitable = job["gpu_type"] == -1 or job["gpu_type"] == nodes[k]["type"]
        if nodes[k]["up"] and suitable and nodes[k]["gpus"] >= job["gpus"]:
            if target == -1 or nodes[k]["free"] > nodes[target]["free"]:
                target = k
    return target


@part
def smallest_on(
    rule: Rule, target: int, jobs: Records, order: Ints, n: int, now_s: float, d: DraftArrays
) -> int:
    """The smallest job with GPUs of this node alone that may be moved, −1 if there is none."""
    least = -1
    for i in range(n):
        j = order[i]
        if jobs[j]["gpus"] == 0:  # it takes no GPUs here, and nodes without free GPUs may hold it
            continue
        if d.length[j] != 1 or d.shares[d.at[j]]["node"] != target or stays(rule, jobs[j], now_s):
            continue
        if least == -1 or jobs[j]["gpus"] < jobs[least]["gpus"]:
            least = j
    return least


@part
def move_off(rule: Rule, target: int, jobs: Records, j: int, d: DraftArrays, used: int) -> int:
    """Move job j from `target` to another node; returns `used`, unchanged if it fits nowhere."""
    before, hidden = d.at[j], d.nodes[target]["free"]
    d.nodes[target]["free"] = 0  # it must not be offered the node it leaves
    build(d.nodes, d.level)
    d.length[j] = 0
    moved = claim(d, rule.place, rule.typical, jobs[j], j, used)
    d.nodes[target]["free"] = hidden
    build(d.nodes, d.level)
    if moved == used:
        d.at[j], d.length[j] = before, 1
    else:
        old = d.shares[before]
        hold(d.nodes, d.level, jobs[j], target, old["workers"], old["servers"], 1)
    return moved


@allocating_part
def make_room(
    rule: Rule, jobs: Records, j: int, order: Ints, n: int, now_s: float, d: DraftArrays, used: int
) -> int:
    """Defragment: move the smallest jobs off the emptiest node so that job j fits there.

    Nothing is changed unless job j fits in the end.
    """
    target = emptiest(d.nodes, jobs[j])
    if target == -1 or used + d.nodes.size + d.nodes[target]["gpus"] > d.shares.size:
        return used
    first, moved = used, 0
    movers = np.empty(n, np.int64)
    came_from = np.empty(n, np.int64)
    while d.nodes[target]["free"] < jobs[j]["gpus"]:
        least = smallest_on(rule, target, jobs, order, n, now_s, d)
        if least == -1:
            break
        movers[moved], came_from[moved] = least, d.at[least]
        before = used
        used = move_off(rule, target, jobs, least, d, used)
        if used == before:
            break
        moved += 1
    if d.nodes[target]["free"] >= jobs[j]["gpus"]:
        before = used
        used = claim(d, rule.place, rule.typical, jobs[j], j, used)
        if used > before:
            return used
    for m in range(moved - 1, -1, -1):
        mover = movers[m]
        give(d, jobs[mover], mover, 1)
        d.at[mover], d.length[mover] = came_from[m], 1
        give(d, jobs[mover], mover, -1)
    return first


@allocating_part
def keep(
    rule: Rule, jobs: Records, order: Ints, n: int, now_s: float, d: DraftArrays, used: int
) -> int:
    """Selected jobs that run keep their nodes; running jobs that are not selected give way."""
    chosen = np.zeros(n, np.bool_)
    select(rule, jobs, order, n, now_s, d.nodes, chosen)
    left = np.zeros(n, np.int64)  # what a job that gave way held
    for i in range(n):
        j = order[i]
        if d.length[j] > 0 and not chosen[i]:
            give(d, jobs[j], j, 1)
            left[i], d.length[j] = d.length[j], 0
    for i in range(n):
        j = order[i]
        if chosen[i] and d.length[j] == 0:
            used = claim(d, rule.place, rule.typical, jobs[j], j, used)
            if d.length[j] == 0 and jobs[j]["gpus"] <= largest_node(d.nodes, d.level, jobs[j]):
                used = make_room(rule, jobs, j, order, n, now_s, d, used)
            if rule.sizing == ELASTIC and d.length[j] == 0:
                used = claim_fewer(d, rule.place, rule.typical, jobs[j], j, used)
    # A job that gave way for nothing goes on where it was, if that is still free.
    for i in range(n):
        j = order[i]
        if left[i] > 0 and still_free(d, jobs[j], d.at[j], left[i]):
            d.length[j] = left[i]
            give(d, jobs[j], j, -1)
    return used
