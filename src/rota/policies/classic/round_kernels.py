"""One round of a compiled policy: who holds what from now on.

Jobs are indices into `jobs`; `order[:n]` are the live ones. `d` is the draft that is edited: on
entry it says what every job holds, on return what it shall hold. `used` is how many shares of
the draft are in use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rota.core.layout import RUNNING
from rota.jit import allocating_part, inline, kernel, part
from rota.ledger.draft_kernels import DraftArrays, give, held_gpus, same, same_size, still_free
from rota.ledger.node_kernels import build, hold, largest_node
from rota.ledger.work_kernels import pinned
from rota.policies.classic.claim_kernels import claim, claim_fewer, take
from rota.policies.classic.fair_kernels import fill_fairly
from rota.policies.classic.orderings import DOMINANT, MAX_MIN, next_turn_s, rank
from rota.policies.classic.room_kernels import MISSES, is_hopeless, measure, measured
from rota.policies.classic.rule import ELASTIC, SKIP

if TYPE_CHECKING:
    from rota.core.types import Floats, Ints, Records
    from rota.policies.classic.rule import Rule


@inline
def stays(rule: Rule, job: Any, now_s: float) -> bool:
    """Whether the job is pinned, or would do little but start if it gave way every quantum.

    Who takes a quantum or more to start runs for as long first.
    """
    slow = job["status"] == RUNNING and job["restart_s"] >= rule.quantum_s
    return pinned(job, now_s) or (slow and now_s < job["resume_s"] + job["restart_s"])


@part
def fill(rule: Rule, jobs: Records, order: Ints, n: int, d: DraftArrays, used: int) -> int:
    """Give what is free to jobs that hold nothing, in order."""
    if rule.order == MAX_MIN or rule.order == DOMINANT:
        return fill_fairly(rule, jobs, order, n, d, used)
    free, misses, counted = 0, 0, False
    for k in range(d.nodes.size):
        free += d.nodes[k]["free"]
        counted |= d.nodes[k]["cpus"] < np.inf  # then some may need CPUs only
    if rule.sizing == ELASTIC:
        return fill_smaller(rule, jobs, order, n, d, used, free, counted)
    for i in range(n):
        if free == 0 and not counted:
            break
        j = order[i]
        if d.length[j] > 0:
            continue
        if jobs[j]["gpus"] <= free:
            used = claim(d, rule.place, rule.typical, jobs[j], j, used)
            misses += 1
        if d.length[j] > 0:
            free -= jobs[j]["gpus"]
            misses -= 1
        elif rule.passing != SKIP:
            break
        if misses == MISSES:
            return fill_on(rule, jobs, order, i + 1, n, d, used, free, counted)
    return used


@part
def fill_smaller(
    rule: Rule,
    jobs: Records,
    order: Ints,
    n: int,
    d: DraftArrays,
    used: int,
    free: int,
    counted: bool,
) -> int:
    """The same where a job may be placed smaller than it asks for."""
    for i in range(n):
        if free == 0 and not counted:
            break
        j = order[i]
        if d.length[j] > 0:
            continue
        used = take(d, rule, jobs[j], j, used)
        if d.length[j] > 0:
            free -= held_gpus(d, jobs[j], j)
        elif rule.passing != SKIP:
            break
    return used


@allocating_part
def fill_on(
    rule: Rule,
    jobs: Records,
    order: Ints,
    first: int,
    n: int,
    d: DraftArrays,
    used: int,
    free: int,
    counted: bool,
) -> int:
    """The same from `order[first]` on where many wait in vain; `free` GPUs are free in all."""
    room = measured(d.nodes, d.level)
    stale, misses = False, 0
    for i in range(first, n):
        if free == 0 and not counted:
            break
        j = order[i]
        if d.length[j] > 0 or jobs[j]["gpus"] > free or is_hopeless(room, rule, jobs[j]):
            continue
        used = claim(d, rule.place, rule.typical, jobs[j], j, used)
        if d.length[j] > 0:
            free, stale = free - jobs[j]["gpus"], True
        else:
            misses += 1
        if stale and misses >= MISSES:
            measure(room, d.nodes)
            stale, misses = False, 0
    return used


@allocating_part
def shortlist(rule: Rule, jobs: Records, order: Ints, n: int, d: DraftArrays) -> int:
    """Bring to the front of `order[:n]` those who wait and might fit; returns how many."""
    room = measured(d.nodes, d.level)
    kept = 0
    for i in range(n):
        j = order[i]
        if d.length[j] == 0 and not is_hopeless(room, rule, jobs[j]):
            order[i], order[kept] = order[kept], j
            kept += 1
    return kept


@part
def clear(jobs: Records, order: Ints, n: int, now_s: float, d: DraftArrays) -> None:
    """Moving is free: take everything from everybody who may be touched."""
    for k in range(d.nodes.size):
        here = d.nodes[k]
        here["free"] = here["gpus"] if here["up"] else 0
        here["free_cpus"], here["free_memory_gb"] = here["cpus"], here["memory_gb"]
    build(d.nodes, d.level)
    for i in range(n):
        j = order[i]
        if d.length[j] > 0 and pinned(jobs[j], now_s):
            give(d, jobs[j], j, -1)
        else:
            d.length[j] = 0


@inline
def select(
    rule: Rule, jobs: Records, order: Ints, n: int, now_s: float, nodes: Records, chosen: Any
) -> None:
    """Mark who would run, in order, if GPUs were not tied to nodes but only to their type."""
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
    """The smallest job with GPUs of this node alone that may be touched, −1 if there is none."""
    least = -1
    for i in range(n):
        j = order[i]
        if jobs[j]["gpus"] == 0:  # in nobody's way, and a node without free GPUs may take it back
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
    """Moving costs: who runs and stays selected keeps its nodes; others give way to who is."""
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
    # Whoever gave way for nothing goes on where it was, if that is still free.
    for i in range(n):
        j = order[i]
        if left[i] > 0 and still_free(d, jobs[j], d.at[j], left[i]):
            d.length[j] = left[i]
            give(d, jobs[j], j, -1)
    return used


@inline
def begins_anew(job: Any, j: int, d: DraftArrays) -> bool:
    """Whether the draft changes running job j so that its minimum run time starts again.

    A resize does, and a move that costs; a free move does not. The same shares written at another
    place of the draft are no change.
    """
    if same(job, d.shares, d.at[j], d.length[j]):
        return False
    return job["resize_s"] > 0.0 or not same_size(job, d.shares, d.at[j], d.length[j])


@part
def ask_again_s(
    rule: Rule, jobs: Records, order: Ints, n: int, now_s: float, d: DraftArrays, waiting: bool
) -> float:
    """When the policy wants to be asked again, after a round, if nothing happens before.

    `waiting` is whether anybody waits who is not in `order[:n]`.
    """
    wake_s = np.inf
    for i in range(n):
        j = order[i]
        if d.length[j] > 0:
            wake_s = min(wake_s, next_turn_s(rule, jobs[j], now_s))
            goes_on = jobs[j]["status"] == RUNNING and not begins_anew(jobs[j], j, d)
            since_s = jobs[j]["since_s"] if goes_on else now_s
            # Where leases end anyway, jobs that are alike would swap whenever they may.
            if rule.quantum_s == np.inf and now_s < since_s + jobs[j]["min_run_s"]:
                wake_s = min(wake_s, since_s + jobs[j]["min_run_s"])
        else:
            waiting = True
    return min(wake_s, now_s + rule.quantum_s) if waiting and rule.preempt else np.inf


@part
def decide_free(
    rule: Rule,
    jobs: Records,
    order: Ints,
    n: int,
    now_s: float,
    key: Floats,
    d: DraftArrays,
    used: int,
) -> tuple[int, float]:
    """Play one round where no change costs; returns `used` and when to be asked again."""
    rank(rule, jobs, order, n, now_s, d.nodes, key)
    if rule.preempt:
        clear(jobs, order, n, now_s, d)
    used = fill(rule, jobs, order, n, d, used)
    pins = False
    if rule.preempt:
        for i in range(n):
            if d.length[order[i]] > 0:
                pins |= jobs[order[i]]["min_run_s"] > 0.0
    if not (pins or rule.limits.size > 0 or rule.quantum_s < np.inf):
        return used, np.inf
    return used, ask_again_s(rule, jobs, order, n, now_s, d, False)


@part
def decide(
    rule: Rule,
    jobs: Records,
    order: Ints,
    n: int,
    now_s: float,
    key: Floats,
    d: DraftArrays,
    used: int,
) -> tuple[int, float]:
    """Play one round; returns `used` and when the policy wants to be asked again."""
    costly = False
    for i in range(n):
        job = jobs[order[i]]
        costly |= job["restart_s"] > 0.0 or job["resize_s"] > 0.0
    if not (rule.preempt and costly):
        return decide_free(rule, jobs, order, n, now_s, key, d, used)
    rank(rule, jobs, order, n, now_s, d.nodes, key)
    used = keep(rule, jobs, order, n, now_s, d, used)
    used = fill(rule, jobs, order, n, d, used)
    return used, ask_again_s(rule, jobs, order, n, now_s, d, False)


@kernel
def decide_once(
    rule: Rule,
    jobs: Records,
    order: Ints,
    n: int,
    now_s: float,
    key: Floats,
    d: DraftArrays,
    used: int,
) -> tuple[int, float]:
    """The same, called from Python."""
    return decide(rule, jobs, order, n, now_s, key, d, used)


@kernel
def wake_once(
    rule: Rule, jobs: Records, order: Ints, n: int, now_s: float, d: DraftArrays
) -> float:
    """`ask_again_s`, called from Python, after a draft of all live jobs has been edited further."""
    return ask_again_s(rule, jobs, order, n, now_s, d, False)
