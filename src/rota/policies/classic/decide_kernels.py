"""One round of a compiled policy: what each job holds from now on.

Jobs are indices into `jobs`; `order[:n]` are the live ones. `d` is the draft that is edited: on
entry it says what every job holds, on return what it shall hold. `used` is the number of shares of
the draft that are in use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rota.core.layout import RUNNING
from rota.jit import inline, kernel, part
from rota.jit_reference import by_reference
from rota.ledger.draft_kernels import DraftArrays, give, same, same_size
from rota.ledger.node_kernels import build
from rota.ledger.work_kernels import pinned
from rota.policies.classic.fill_kernels import fill
from rota.policies.classic.keep_kernels import keep
from rota.policies.classic.orderings import next_turn_s, rank

if TYPE_CHECKING:
    from rota.core.types import Floats, Ints, Records
    from rota.policies.classic.rule import Rule


@part
def clear(jobs: Records, order: Ints, n: int, now_s: float, d: DraftArrays) -> None:
    """Moving is free: take everything from all jobs that may be moved."""
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
def begins_anew(job: Any, j: int, d: DraftArrays) -> bool:
    """Whether the draft changes running job j so that its minimum run time starts again.

    A resize does so, and a move that costs; a free move does not. The same shares at another
    place in the draft's list are no change.
    """
    if same(job, d.shares, d.at[j], d.length[j]):
        return False
    return job["resize_s"] > 0.0 or not same_size(job, d.shares, d.at[j], d.length[j])


@part
def ask_again_s(
    rule: Rule, jobs: Records, order: Ints, n: int, now_s: float, d: DraftArrays, waiting: bool
) -> float:
    """When the policy wants to be asked again, after a round, if nothing happens before.

    `waiting` is whether jobs wait that are not in `order[:n]`.
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
    return decide(by_reference(rule), jobs, order, n, now_s, key, by_reference(d), used)


@kernel
def wake_once(
    rule: Rule, jobs: Records, order: Ints, n: int, now_s: float, d: DraftArrays
) -> float:
    """`ask_again_s`, called from Python, after a draft of all live jobs has been edited further."""
    return ask_again_s(by_reference(rule), jobs, order, n, now_s, by_reference(d), False)
