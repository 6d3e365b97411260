"""One round of a compiled policy: who holds what from now on.

All functions here share their last arguments, the draft that they edit (see `rota.core.Draft`):

nodes   (N,)  what is free; on return, under the new allocation
level         index of `nodes` (place_kernels)
at      (J,)  job j holds shares[at[j] : at[j] + length[j]]; on entry what it holds now
length  (J,)
shares  (S,)  new shares go behind `used`; the caller makes sure that there is room
node, part    scratch, as long as the cluster has nodes

Jobs are indices into `jobs`; `order[:n]` are the live ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rota.core.layout import RUNNING
from rota.jit import allocating_part, inline, kernel, part
from rota.policies.draft_kernels import claim, give, still_free
from rota.policies.order_kernels import next_turn_s, rank
from rota.policies.place_kernels import build, hold
from rota.policies.rule import DOMINANT, MAX_MIN, SKIP

if TYPE_CHECKING:
    from rota.core.types import Floats, Ints, Records
    from rota.policies.rule import Rule


@inline
def pinned(job: Any, now_s: float) -> bool:
    """Whether the job runs and may not be touched yet."""
    return job["status"] == RUNNING and now_s < job["since_s"] + job["min_run_s"]  # type: ignore[no-any-return]


@part
def dominant(rule: Rule, job: Any, nodes: Records) -> float:
    """The largest share of any resource that the job asks for; of GPUs alone for max-min."""
    gpus, cpus, memory_gb = 0, 0.0, 0.0
    for k in range(nodes.size):
        gpus, cpus = gpus + nodes[k]["gpus"], cpus + nodes[k]["cpus"]
        memory_gb += nodes[k]["memory_gb"]
    most = job["gpus"] / gpus
    if rule.order == DOMINANT:
        most = max(most, job["workers"] * job["cpus_per_worker"] / cpus if cpus > 0.0 else 0.0)
        most = max(most, job["workers"] * job["memory_gb_per_worker"] / memory_gb if memory_gb > 0.0 else 0.0)
    return most  # type: ignore[no-any-return]


@allocating_part
def fill_fairly(rule: Rule, jobs: Records, order: Ints, n: int, nodes: Records, level: Any,
                at: Ints, length: Ints, shares: Records, used: int, node: Ints, part: Ints) -> int:  # fmt: skip
    """Progressive filling: the next job comes from the user who has least; jobs without user are alone."""
    users = 0
    for i in range(n):
        users = max(users, jobs[order[i]]["user"] + 1)
    # Owner of the i-th job: its user, or one of its own beyond all users.
    has = np.zeros(users + n)
    for i in range(n):
        j = order[i]
        owner = jobs[j]["user"] if jobs[j]["user"] >= 0 else users + i
        if length[j] > 0:
            has[owner] += dominant(rule, jobs[j], nodes)
    tried = np.zeros(n, np.bool_)
    seen = np.zeros(users + n, np.int64)
    for turn in range(1, n + 1):
        best, least = -1, np.inf
        for i in range(n):
            j = order[i]
            if tried[i] or length[j] > 0:
                continue
            owner = jobs[j]["user"] if jobs[j]["user"] >= 0 else users + i
            if seen[owner] == turn:  # only a user's first job in line is a candidate
                continue
            seen[owner] = turn
            if has[owner] < least:
                best, least = i, has[owner]
        if best == -1:
            break
        j = order[best]
        tried[best] = True
        used = claim(rule, jobs[j], j, nodes, level, at, length, shares, used, node, part)
        if length[j] > 0:
            has[jobs[j]["user"] if jobs[j]["user"] >= 0 else users + best] += dominant(rule, jobs[j], nodes)
    return used


@part
def fill(rule: Rule, jobs: Records, order: Ints, n: int, nodes: Records, level: Any,
         at: Ints, length: Ints, shares: Records, used: int, node: Ints, part: Ints) -> int:  # fmt: skip
    """Give what is free to jobs that hold nothing, in order."""
    if rule.order == MAX_MIN or rule.order == DOMINANT:
        return fill_fairly(rule, jobs, order, n, nodes, level, at, length, shares, used, node, part)
    free = 0
    for k in range(nodes.size):
        free += nodes[k]["free"]
    for i in range(n):
        if free == 0:
            break
        j = order[i]
        if length[j] > 0:
            continue
        if jobs[j]["gpus"] <= free:
            used = claim(rule, jobs[j], j, nodes, level, at, length, shares, used, node, part)
        if length[j] > 0:
            free -= jobs[j]["gpus"]
        elif rule.passing != SKIP:
            break
    return used


@part
def clear(jobs: Records, order: Ints, n: int, now_s: float, nodes: Records, level: Any,
          at: Ints, length: Ints, shares: Records) -> None:  # fmt: skip
    """Moving is free: take everything from everybody who may be touched."""
    for k in range(nodes.size):
        nodes[k]["free"] = nodes[k]["gpus"] if nodes[k]["up"] else 0
        nodes[k]["free_cpus"], nodes[k]["free_memory_gb"] = nodes[k]["cpus"], nodes[k]["memory_gb"]
    build(nodes, level)
    for i in range(n):
        j = order[i]
        if length[j] > 0 and pinned(jobs[j], now_s):
            give(jobs[j], j, nodes, level, at, length, shares, -1)
        else:
            length[j] = 0


@inline
def select(jobs: Records, order: Ints, n: int, now_s: float, nodes: Records, chosen: Any) -> None:
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
            if pinned(job, now_s) != first:
                continue
            kind = job["gpu_type"]
            chosen[i] = gpus <= total and (kind == -1 or (0 <= kind < types and gpus <= room[kind]))
            if chosen[i]:
                total -= gpus
                if kind != -1:
                    room[kind] -= gpus


@allocating_part
def clear_a_node(rule: Rule, jobs: Records, j: int, order: Ints, n: int, now_s: float, nodes: Records,
                 level: Any, at: Ints, length: Ints, shares: Records, used: int, node: Ints, part: Ints) -> int:  # fmt: skip
    """Defragment: move the smallest jobs off the emptiest node so that job j fits there.

    Only jobs that sit on that node alone and may be touched are moved, each to another node
    with room. Nothing is changed unless job j fits in the end.
    """
    need, target = jobs[j]["gpus"], -1
    for k in range(nodes.size):
        right = jobs[j]["gpu_type"] == -1 or jobs[j]["gpu_type"] == nodes[k]["type"]
        if nodes[k]["up"] and right and nodes[k]["gpus"] >= need and (
            target == -1 or nodes[k]["free"] > nodes[target]["free"]
        ):
            target = k
    if target == -1 or used + nodes.size + nodes[target]["gpus"] > shares.size:
        return used
    first, moved = used, 0
    movers = np.empty(n, np.int64)
    came_from = np.empty(n, np.int64)
    while nodes[target]["free"] < need:
        least = -1
        for i in range(n):
            other = order[i]
            if (length[other] == 1 and shares[at[other]]["node"] == target and not pinned(jobs[other], now_s)
                    and (least == -1 or jobs[other]["gpus"] < jobs[least]["gpus"])):  # fmt: skip
                least = other
        if least == -1:
            break
        movers[moved], came_from[moved] = least, at[least]
        moved += 1
        # It must not be offered the node it leaves: hide what is free there.
        hidden = nodes[target]["free"]
        nodes[target]["free"] = 0
        build(nodes, level)
        before = used
        length[least] = 0
        used = claim(rule, jobs[least], least, nodes, level, at, length, shares, used, node, part)
        nodes[target]["free"] = hidden
        build(nodes, level)
        if used == before:
            length[least], at[least] = 1, came_from[moved - 1]
            moved -= 1
            break
        entry = shares[came_from[moved - 1]]
        hold(nodes, level, jobs[least], target, entry["workers"], entry["servers"], 1)
    if nodes[target]["free"] >= need:
        before = used
        used = claim(rule, jobs[j], j, nodes, level, at, length, shares, used, node, part)
        if used > before:
            return used
    for m in range(moved - 1, -1, -1):
        mover = movers[m]
        give(jobs[mover], mover, nodes, level, at, length, shares, 1)
        at[mover], length[mover] = came_from[m], 1
        give(jobs[mover], mover, nodes, level, at, length, shares, -1)
    return first


@allocating_part
def keep(rule: Rule, jobs: Records, order: Ints, n: int, now_s: float, nodes: Records, level: Any,
         at: Ints, length: Ints, shares: Records, used: int, node: Ints, part: Ints) -> int:  # fmt: skip
    """Moving costs: who runs and stays selected keeps its nodes; others give way to who is selected."""
    chosen = np.zeros(n, np.bool_)
    select(jobs, order, n, now_s, nodes, chosen)
    left = np.zeros(n, np.int64)  # what a job that gave way held
    for i in range(n):
        j = order[i]
        if length[j] > 0 and not chosen[i]:
            give(jobs[j], j, nodes, level, at, length, shares, 1)
            left[i], length[j] = length[j], 0
    for i in range(n):
        j = order[i]
        if chosen[i] and length[j] == 0:
            used = claim(rule, jobs[j], j, nodes, level, at, length, shares, used, node, part)
            if length[j] == 0 and jobs[j]["gpus"] <= level.shape[0] - 2:
                used = clear_a_node(rule, jobs, j, order, n, now_s, nodes, level, at, length, shares,
                                    used, node, part)  # fmt: skip
    # Whoever gave way for nothing goes on where it was, if that is still free.
    for i in range(n):
        j = order[i]
        if left[i] > 0 and still_free(jobs[j], nodes, shares, at[j], left[i]):
            length[j] = left[i]
            give(jobs[j], j, nodes, level, at, length, shares, -1)
    return used


@kernel
def decide(rule: Rule, jobs: Records, order: Ints, n: int, now_s: float, key: Floats, nodes: Records,
           level: Any, at: Ints, length: Ints, shares: Records, used: int, node: Ints, part: Ints) -> tuple[int, float]:  # fmt: skip
    """Play one round; returns `used` and when the policy wants to be asked again."""
    rank(rule, jobs, order, n, now_s, nodes, key)
    if rule.preempt:
        costly = False
        for i in range(n):
            costly |= jobs[order[i]]["restart_s"] > 0.0
        if costly:
            used = keep(rule, jobs, order, n, now_s, nodes, level, at, length, shares, used, node, part)
        else:
            clear(jobs, order, n, now_s, nodes, level, at, length, shares)
    used = fill(rule, jobs, order, n, nodes, level, at, length, shares, used, node, part)
    wake_s, waiting = np.inf, False
    for i in range(n):
        j = order[i]
        if length[j] > 0:
            wake_s = min(wake_s, next_turn_s(rule, jobs[j], now_s))
            if pinned(jobs[j], now_s):
                wake_s = min(wake_s, jobs[j]["since_s"] + jobs[j]["min_run_s"])
        else:
            waiting = True
    if not waiting or not rule.preempt:
        return used, np.inf
    return used, min(wake_s, now_s + rule.quantum_s)
