"""Simulated time: what happens by itself, and when.

Rates are constant between events, so there is no step size: the clock jumps from event to event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rota.core.layout import ARRIVE, NODE_DOWN, NODE_UP, WAITING
from rota.jit import inline, kernel, part, pasted_part
from rota.jit_only import only_with
from rota.jit_reference import by_reference
from rota.ledger.node_kernels import build, first_bit, ones
from rota.sim.job_kernels import GONE, fail, finish, kill, lasts_s
from rota.sim.log_kernels import copy_share, log
from rota.sim.pace_kernels import drift_now, drift_s, next_multiple, rerate

if TYPE_CHECKING:
    from rota.core.types import Records
    from rota.sim.state import State


MOST_IDLE = 1000
"""Slots for which a policy may let jobs sit at speed 0 while nothing else is to come."""


@only_with("breakdowns", otherwise=0)
@part
def fault_count(s: State) -> int:
    """Failures and repairs of nodes, in all."""
    return s.breakdowns.faults.size


@part
def fault(s: State, node: int, up: bool) -> None:
    """A node goes down, which kills all jobs on it; or it comes back empty."""
    clock = s.clock[0]
    log(s, NODE_UP if up else NODE_DOWN, node, 0, 0)
    if s.nodes[node]["up"] == up:
        return
    if not up:
        k = 0
        while k < clock["running"]:
            j, hit = s.running[k], False
            at = s.jobs[j]["share_at"]
            for e in range(at, at + s.jobs[j]["share_len"]):
                hit |= s.shares[e]["node"] == node
            if hit:
                kill(s, j)
                k = 0  # the heap has been rearranged
            else:
                k += 1
    clock["up"] += s.nodes[node]["gpus"] if up else -s.nodes[node]["gpus"]
    s.nodes[node]["up"] = up
    s.nodes[node]["free"] = s.nodes[node]["gpus"] if up else 0
    build(s.nodes, s.level)
    clock["freed"] = True


@only_with("breakdowns", otherwise=np.inf)
@part
def next_fault_s(s: State) -> float:
    """When a node goes down or comes back next; inf if that does not matter any more."""
    clock, faults = s.clock[0], s.breakdowns.faults
    if clock["fault"] < faults.size and clock["ended"] < clock["jobs"]:
        return faults[clock["fault"]]["time_s"]
    return np.inf


@only_with("breakdowns")
@part
def let_nodes_fail(s: State) -> None:
    """Let nodes go down and come back that are due now."""
    clock, faults = s.clock[0], s.breakdowns.faults
    while clock["fault"] < faults.size and faults[clock["fault"]]["time_s"] <= clock["now_s"]:
        fault(s, faults[clock["fault"]]["node"], faults[clock["fault"]]["up"])
        clock["fault"] += 1


@only_with("breakdowns", otherwise=False)
@part
def fails(s: State, j: int) -> bool:
    """Let job j, whose event is due, fail if it does not end; whether it has failed."""
    # At a tie the work is done before the failure strikes.
    if s.truth[j]["fail_in_s"] < lasts_s(s.jobs[j], s.truth[j]):
        fail(s, j)
        return True
    return False


@part
def stray(level: Any, nodes: Records, clock: Any) -> int:
    """GPUs that are free on partly used nodes."""
    whole, last = 0, level.shape[0] - 1
    for w in range(level.shape[1]):
        word = level[last, w]
        if clock["even"] > 0:
            whole += clock["even"] * ones(word)
            continue
        while word:
            whole += nodes[(w << 6) + first_bit(word)]["gpus"]
            word &= word - np.uint64(1)
    return clock["up"] - clock["held"] - whole


@part
def pass_time(s: State, to_s: float) -> None:
    """Move the clock, and the integrals with it."""
    clock = s.clock[0]
    to_s = max(to_s, clock["now_s"])  # rounding may put an event a little before now
    span_s = to_s - clock["since_s"]
    if span_s > 0.0:
        clock["held_gpu_s"] += clock["held"] * span_s
        clock["up_gpu_s"] += clock["up"] * span_s
        clock["stray_gpu_s"] += stray(s.level, s.nodes, clock) * span_s
        clock["since_s"] = to_s
    clock["now_s"] = to_s


@part
def next_event_s(s: State) -> float:
    """When something happens next by itself; inf if nothing ever does."""
    clock, soon_s = s.clock[0], np.inf
    if clock["running"] > 0:
        soon_s = s.truth[s.running[0]]["event_s"]
    if clock["arrived"] < clock["jobs"]:
        soon_s = min(soon_s, s.jobs[clock["arrived"]]["submit_s"])
    return min(soon_s, next_fault_s(s))


@part
def happen(s: State) -> None:
    """Let everything happen that is due now: endings first, then faults, then arrivals."""
    clock = s.clock[0]
    now_s, gone = clock["now_s"], False
    while clock["running"] > 0 and s.truth[s.running[0]]["event_s"] <= now_s:
        j = s.running[0]
        if not fails(s, j):
            finish(s, j)
        gone = True
    let_nodes_fail(s)
    if gone and not clock["indexed"]:
        kept = 0
        for i in range(clock["live"]):
            if s.at[s.order[i]] != GONE:
                s.order[kept] = s.order[i]
                kept += 1
        clock["live"] = kept
    while clock["arrived"] < clock["jobs"] and s.jobs[clock["arrived"]]["submit_s"] <= now_s:
        j = clock["arrived"]
        s.jobs[j]["status"], s.at[j], s.length[j] = WAITING, 0, 0
        log(s, ARRIVE, j, 0, 0)
        if not clock["indexed"]:
            s.order[clock["live"]] = j
            clock["live"] += 1
        clock["arrived"] += 1
    rerate(s)


@part
def drift_until(s: State, limit_s: float) -> None:
    """Let the machines' speed drift until the next event, or `limit_s`."""
    # If no event is to come, all jobs stand still, and other speeds will not change that.
    while drift_s(s) < min(next_event_s(s), limit_s) < np.inf:
        pass_time(s, drift_s(s))
        drift_now(s)


@only_with("net")
@pasted_part
def drift(s: State, limit_s: float) -> None:
    """The same, if there is drift."""
    if s.clock[0]["drift_step_s"] < np.inf:
        drift_until(s, limit_s)


@inline
def slot_from(time_s: float, slot_s: float) -> float:
    """The first end of a slot that is not before `time_s`."""
    slot = np.ceil(time_s / slot_s)
    if slot * slot_s < time_s:  # rounding
        slot += 1.0
    return max(slot * slot_s, time_s)


@part
def to_next_slot(s: State) -> bool:
    """Let everything happen up to the next slot with live jobs; False if there is none."""
    clock, moved = s.clock[0], False
    slot_s, now_s = clock["slot_s"], clock["now_s"]
    end_s = slot_from(next_event_s(s), slot_s) if now_s == -np.inf else next_multiple(now_s, slot_s)
    while True:
        drift(s, end_s)
        soon_s = next_event_s(s)
        if soon_s > end_s:
            # With no job running and no event to come, the next decision would be the same,
            # unless the policy asks for another round.
            if clock["arrived"] > clock["ended"] and (
                clock["running"] > 0 or soon_s < np.inf or moved or clock["wake_s"] < np.inf
            ):
                clock["idle"] = clock["idle"] + 1 if soon_s == np.inf else 0
                if clock["idle"] > MOST_IDLE:
                    return False
                break
            if soon_s == np.inf:
                return False
            end_s = slot_from(soon_s, slot_s)
        pass_time(s, soon_s)
        happen(s)
        moved = True
    pass_time(s, end_s)
    return True


@part
def advance(s: State) -> bool:
    """Go to the next moment at which a decision is due; False if there is none.

    With slots, everything between two slots happens at its exact time, and the decision waits
    for the slot.
    """
    clock = s.clock[0]
    if clock["ended"] == clock["jobs"]:
        return False
    if clock["slot_s"] == 0.0:
        drift(s, max(clock["wake_s"], clock["now_s"]))
        soon_s = min(next_event_s(s), max(clock["wake_s"], clock["now_s"]))
        if soon_s == np.inf:
            return False
        pass_time(s, soon_s)
        happen(s)
    elif not to_next_slot(s):
        return False
    clock["wake_s"] = np.inf
    return clock["ended"] < clock["jobs"]


@part
def tidy(s: State, room: int) -> bool:
    """Make room for that many further shares by dropping unused ones; False if there is none."""
    clock = s.clock[0]
    if clock["used"] + room <= s.shares.size:
        return True
    used = 0
    for k in range(clock["running"]):
        job = s.jobs[s.running[k]]
        for e in range(job["share_len"]):
            copy_share(s.spare, used + e, s.shares, job["share_at"] + e)
        job["share_at"] = used
        used += job["share_len"]
    for e in range(used):
        copy_share(s.shares, e, s.spare, e)
    clock["used"] = used
    return used + room <= s.shares.size


@kernel
def advance_once(s: State) -> bool:
    """`advance`, called from Python."""
    return advance(by_reference(s))
