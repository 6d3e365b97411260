"""Time that we own: arrivals, completions, failures, and what a change does to a job.

Rates are constant between events, so no step size enters. A job's progress is written down
(settled) only when its rate changes, so a job that nobody disturbs ends at exactly
start + duration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rota.core.layout import (
    ARRIVE,
    DONE,
    FAILED,
    FINISH,
    GIVE_UP,
    KILL,
    MOVE,
    NODE_DOWN,
    NODE_UP,
    RESIZE,
    RUNNING,
    START,
    STOP,
    WAITING,
)
from rota.jit import inline, kernel, part
from rota.policies.order_kernels import ran_s
from rota.policies.place_kernels import build, hold
if TYPE_CHECKING:
    from rota.core.types import Ints, Records
    from rota.sim.state import State


@inline
def sooner(truth: Records, a: int, b: int) -> bool:
    """Whether job a's next event comes before job b's; the earlier submission wins a tie."""
    return truth[a]["event_s"] < truth[b]["event_s"] or (  # type: ignore[no-any-return]
        truth[a]["event_s"] == truth[b]["event_s"] and a < b
    )


@part
def sift(running: Ints, truth: Records, size: int, k: int) -> None:
    """Restore the heap around place k, whose job's event has changed."""
    j = running[k]
    while k > 0 and sooner(truth, j, running[(k - 1) >> 1]):
        running[k] = running[(k - 1) >> 1]
        truth[running[k]]["heap"] = k
        k = (k - 1) >> 1
    while True:
        child = 2 * k + 1
        if child >= size:
            break
        if child + 1 < size and sooner(truth, running[child + 1], running[child]):
            child += 1
        if not sooner(truth, running[child], j):
            break
        running[k] = running[child]
        truth[running[k]]["heap"] = k
        k = child
    running[k] = j
    truth[j]["heap"] = k


@part
def drop(s: State, j: int) -> None:
    """Take job j out of the heap of the running."""
    clock, k = s.clock[0], s.truth[j]["heap"]
    clock["running"] -= 1
    last = s.running[clock["running"]]
    s.truth[j]["heap"] = -1
    if last != j:
        s.running[k] = last
        sift(s.running, s.truth, clock["running"], k)


@inline
def copy_share(to: Records, k: int, source: Records, e: int) -> None:
    """to[k] = source[e], field by field, which compiles far faster."""
    to[k]["node"], to[k]["workers"] = source[e]["node"], source[e]["workers"]
    to[k]["servers"] = source[e]["servers"]


@part
def log(s: State, kind: int, j: int, first: int, count: int) -> None:
    """Write an event down, with shares[first : first + count], if somebody keeps a log."""
    if s.events.size == 0:
        return
    clock = s.clock[0]
    e = clock["events"]
    s.events[e]["time_s"], s.events[e]["job"] = clock["now_s"], j
    s.events[e]["kind"], s.events[e]["entries"] = kind, count
    for k in range(count):
        copy_share(s.entries, clock["entries"] + k, s.shares, first + k)
    clock["events"] += 1
    clock["entries"] += count


@part
def settle(s: State, j: int) -> None:
    """Write down what job j has done and had up to now."""
    job, true, now_s = s.jobs[j], s.truth[j], s.clock[0]["now_s"]
    time_s = ran_s(job, now_s)
    done_s = job["pace"] * time_s
    job["progress_s"] += done_s
    job["remaining_s"] = max(0.0, job["remaining_s"] - done_s)
    true["work_s"] -= done_s
    true["fail_in_s"] -= time_s
    job["attained_gpu_s"] += job["held_workers"] * job["gpus_per_worker"] * (now_s - job["settled_s"])
    job["settled_s"] = now_s


@part
def run_on(s: State, j: int, first: int, count: int, pause_s: float) -> None:
    """Let job j, settled, go on with shares[first : first + count] after `pause_s`."""
    job, true, clock = s.jobs[j], s.truth[j], s.clock[0]
    workers, servers = 0, 0
    for k in range(first, first + count):
        workers += s.shares[k]["workers"]
        servers += s.shares[k]["servers"]
    clock["held"] += (workers - job["held_workers"]) * job["gpus_per_worker"]
    job["held_workers"], job["held_servers"] = workers, servers
    job["share_at"], job["share_len"] = first, count
    # Until a speed model says otherwise, progress is in proportion to the workers.
    job["pace"] = workers / job["workers"]
    job["resume_s"] = clock["now_s"] + pause_s
    end_s = job["resume_s"] + true["work_s"] / job["pace"]
    true["event_s"] = min(end_s, job["resume_s"] + true["fail_in_s"])
    if true["heap"] == -1:
        true["heap"] = clock["running"]
        s.running[clock["running"]] = j
        clock["running"] += 1
    sift(s.running, s.truth, clock["running"], true["heap"])


@part
def release(s: State, j: int) -> None:
    """Job j, settled, holds nothing any more; its nodes' room is the caller's business."""
    job = s.jobs[j]
    s.clock[0]["held"] -= job["held_workers"] * job["gpus_per_worker"]
    job["held_workers"], job["held_servers"], job["share_len"], job["pace"] = 0, 0, 0, 0.0
    job["status"], job["since_s"] = WAITING, np.nan
    drop(s, j)


@part
def begin(s: State, j: int, first: int, count: int) -> None:
    """Job j, which waits, starts on shares[first : first + count]."""
    job, clock = s.jobs[j], s.clock[0]
    log(s, START, j, first, count)
    again = job["started_s"] == job["started_s"]  # not NaN: it ran before
    job["settled_s"], job["since_s"], job["status"] = clock["now_s"], clock["now_s"], RUNNING
    s.truth[j]["stint_s"] = job["progress_s"]
    if not again:
        job["started_s"] = clock["now_s"]
    clock["starts"] += 1
    run_on(s, j, first, count, job["restart_s"] if again else 0.0)


@part
def same(s: State, j: int, first: int, count: int) -> bool:
    """Whether job j holds exactly shares[first : first + count]."""
    at = s.jobs[j]["share_at"]
    if s.jobs[j]["share_len"] != count:
        return False
    if at == first:
        return True
    for k in range(count):
        a, b = s.shares[at + k], s.shares[first + k]
        if a["node"] != b["node"] or a["workers"] != b["workers"] or a["servers"] != b["servers"]:
            return False
    return True


@part
def same_size(s: State, j: int, first: int, count: int) -> bool:
    """Whether shares[first : first + count] are as many workers and servers as job j holds."""
    workers, servers = 0, 0
    for k in range(first, first + count):
        workers += s.shares[k]["workers"]
        servers += s.shares[k]["servers"]
    return workers == s.jobs[j]["held_workers"] and servers == s.jobs[j]["held_servers"]  # type: ignore[no-any-return]


@part
def enact(s: State, j: int, first: int, count: int) -> None:
    """Bring job j from what it holds to shares[first : first + count].

    The nodes' free room has been updated already. A planned stop makes a checkpoint, so it
    loses nothing; every restart, move and resize costs the job `restart_s` without progress.
    """
    job, clock = s.jobs[j], s.clock[0]
    if job["status"] != RUNNING:
        if count > 0:
            begin(s, j, first, count)
        return
    if count == 0:
        settle(s, j)
        log(s, STOP, j, 0, 0)
        release(s, j)
        job["preemptions"] += 1
        clock["stops"] += 1
        return
    if same(s, j, first, count):
        job["share_at"] = first
        return
    if job["restart_s"] == 0.0 and same_size(s, j, first, count):
        # A free move changes nothing but the place.
        job["share_at"], job["share_len"] = first, count
        s.truth[j]["moves"] += 1
        clock["moves"] += 1
        log(s, MOVE, j, first, count)
        return
    settle(s, j)
    workers, servers = job["held_workers"], job["held_servers"]
    run_on(s, j, first, count, job["restart_s"])
    if job["held_workers"] == workers and job["held_servers"] == servers:
        s.truth[j]["moves"] += 1
        clock["moves"] += 1
        log(s, MOVE, j, first, count)
    else:
        s.truth[j]["resizes"] += 1
        clock["resizes"] += 1
        log(s, RESIZE, j, first, count)
    s.truth[j]["stint_s"] = job["progress_s"]  # a change goes through a checkpoint
    job["since_s"] = clock["now_s"]


@part
def free_nodes(s: State, j: int) -> None:
    """Give the nodes back what job j holds."""
    at = s.jobs[j]["share_at"]
    for k in range(at, at + s.jobs[j]["share_len"]):
        hold(s.nodes, s.level, s.jobs[j], s.shares[k]["node"], s.shares[k]["workers"], s.shares[k]["servers"], 1)
    s.clock[0]["freed"] = True


@part
def kill(s: State, j: int) -> None:
    """Job j fails while it runs: back to its last checkpoint, and to the queue unless it gives up."""
    job, true, clock = s.jobs[j], s.truth[j], s.clock[0]
    settle(s, j)
    free_nodes(s, j)
    release(s, j)
    done_s = job["progress_s"] - true["stint_s"]
    every_s = true["checkpoint_s"]
    kept_s = np.floor(done_s / every_s) * every_s if every_s > 0.0 else done_s
    lost_s = done_s - kept_s if every_s < np.inf else done_s
    job["progress_s"] -= lost_s
    job["remaining_s"] += lost_s
    true["work_s"] += lost_s
    true["lost_s"] += lost_s
    clock["kills"] += 1
    log(s, KILL, j, 0, 0)


@part
def fail(s: State, j: int) -> None:
    """Job j fails by its own fault; after its last retry it gives up."""
    kill(s, j)
    true, clock = s.truth[j], s.clock[0]
    true["failures"] += 1
    if true["failures"] < s.failures.shape[1]:
        true["fail_in_s"] = s.failures[j, true["failures"]]
        return
    s.jobs[j]["status"], true["done_s"] = FAILED, clock["now_s"]
    clock["ended"] += 1
    log(s, GIVE_UP, j, 0, 0)


@part
def finish(s: State, j: int) -> None:
    """Job j, whose event is due, has done its work."""
    job, true, clock = s.jobs[j], s.truth[j], s.clock[0]
    settle(s, j)
    free_nodes(s, j)
    release(s, j)
    job["status"], true["work_s"], true["done_s"] = DONE, 0.0, clock["now_s"]
    job["remaining_s"] = 0.0
    clock["ended"] += 1
    log(s, FINISH, j, 0, 0)


@part
def fault(s: State, node: int, up: bool) -> None:
    """A node goes down, and with it everybody who sits there; or it comes back empty."""
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


@part
def stray(s: State) -> int:
    """GPUs that are free on partly used nodes."""
    free, whole = s.clock[0]["up"] - s.clock[0]["held"], 0
    last = s.level.shape[0] - 1
    for w in range(s.level.shape[1]):
        word = s.level[last, w]
        if word == np.uint64(0):
            continue
        for bit in range(64):
            if (word >> np.uint64(bit)) & np.uint64(1):
                whole += s.nodes[(w << 6) + bit]["gpus"]
    return free - whole


@part
def pass_time(s: State, to_s: float) -> None:
    """Move the clock, and the integrals with it."""
    clock = s.clock[0]
    span_s = to_s - clock["since_s"]
    if span_s > 0.0:
        clock["held_gpu_s"] += clock["held"] * span_s
        clock["up_gpu_s"] += clock["up"] * span_s
        clock["stray_gpu_s"] += stray(s) * span_s
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
    if clock["fault"] < s.faults.size and clock["ended"] < clock["jobs"]:
        soon_s = min(soon_s, s.faults[clock["fault"]]["time_s"])
    return soon_s


@part
def happen(s: State) -> None:
    """Let everything happen that is due now: endings first, then faults, then arrivals."""
    clock = s.clock[0]
    now_s, gone = clock["now_s"], False
    while clock["running"] > 0 and s.truth[s.running[0]]["event_s"] <= now_s:
        j = s.running[0]
        job, true = s.jobs[j], s.truth[j]
        # At a tie the work is done before the failure strikes.
        if true["fail_in_s"] < true["work_s"] / job["pace"]:
            fail(s, j)
        else:
            finish(s, j)
        gone = True
    while clock["fault"] < s.faults.size and s.faults[clock["fault"]]["time_s"] <= now_s:
        fault(s, s.faults[clock["fault"]]["node"], s.faults[clock["fault"]]["up"])
        clock["fault"] += 1
    if gone and not clock["indexed"]:
        kept = 0
        for i in range(clock["live"]):
            if s.jobs[s.order[i]]["status"] <= RUNNING:
                s.order[kept] = s.order[i]
                kept += 1
        clock["live"] = kept
    while clock["arrived"] < clock["jobs"] and s.jobs[clock["arrived"]]["submit_s"] <= now_s:
        j = clock["arrived"]
        s.jobs[j]["status"] = WAITING
        log(s, ARRIVE, j, 0, 0)
        if not clock["indexed"]:
            s.order[clock["live"]] = j
            clock["live"] += 1
        clock["arrived"] += 1


@part
def to_next_slot(s: State) -> bool:
    """Let everything happen up to the next slot with somebody to decide about; False if there is none."""
    clock, moved = s.clock[0], False
    slot_s, soon_s = clock["slot_s"], next_event_s(s)
    slot = np.ceil(soon_s / slot_s) if clock["now_s"] == -np.inf else np.floor(clock["now_s"] / slot_s) + 1.0
    while True:
        soon_s = next_event_s(s)
        if soon_s > slot * slot_s:
            # With nobody running and nothing to come, a decision can only differ if something is new.
            if clock["arrived"] > clock["ended"] and (clock["running"] > 0 or soon_s < np.inf or moved):
                break
            if soon_s == np.inf:
                return False
            slot = np.ceil(soon_s / slot_s)
        pass_time(s, soon_s)
        happen(s)
        moved = True
    pass_time(s, slot * slot_s)
    return True


@kernel
def advance(s: State) -> bool:
    """Go to the next moment at which a decision is due; False if there is none.

    With slots, everything between two slots happens at its exact time, and the decision waits
    for the slot.
    """
    clock = s.clock[0]
    if clock["ended"] == clock["jobs"]:
        return False
    if clock["slot_s"] == 0.0:
        soon_s = min(next_event_s(s), max(clock["wake_s"], clock["now_s"]))
        if soon_s == np.inf:
            return False
        pass_time(s, soon_s)
        happen(s)
    elif not to_next_slot(s):
        return False
    clock["wake_s"] = np.inf
    return clock["ended"] < clock["jobs"]  # type: ignore[no-any-return]


@kernel
def tidy(s: State, room: int) -> bool:
    """Make room for so many further shares by forgetting dead ones; False if there is too little."""
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
    return used + room <= s.shares.size  # type: ignore[no-any-return]
