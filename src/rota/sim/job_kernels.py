"""What a change does to a job: start, go on elsewhere, stop, fail, finish.

A job's progress is written down (settled) only when its pace changes, so a job whose pace never
changes ends at exactly start + duration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core.layout import (
    DONE,
    FAILED,
    FINISH,
    GIVE_UP,
    KILL,
    MOVE,
    RESIZE,
    RUNNING,
    START,
    STOP,
    WAITING,
)
from rota.jit import inline, part
from rota.ledger.draft_kernels import same, same_size
from rota.ledger.node_kernels import hold
from rota.ledger.work_kernels import ran_s
from rota.sim.log_kernels import log
from rota.sim.net_kernels import join, leave
from rota.sim.rate_kernels import close_bill, fee_rate, is_alike, lone_pace

if TYPE_CHECKING:
    from rota.core.types import Ints, Records
    from rota.sim.state import State

ROUNDING = 1e-5
"""CPUs or GB that rounding may take from a node, over many jobs that come and go."""


GONE: Final = -1
"""In `State.at`: the job has ended."""


@inline
def sooner(truth: Records, a: int, b: int) -> bool:
    """Whether job a's next event comes before job b's; the earlier submission wins a tie."""
    return truth[a]["event_s"] < truth[b]["event_s"] or (
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


@part
def settle(job: Any, true: Any, now_s: float) -> None:
    """Write down what a job has done and had up to now."""
    time_s = ran_s(job, now_s)
    done_s = job["pace"] * time_s
    job["progress_s"] += done_s
    left_s = job["remaining_s"] - done_s
    job["remaining_s"] = 0.0 if left_s < 0.0 else left_s  # not max(): unknown stays unknown
    true["work_s"] -= done_s
    true["fee"] += true["fee_rate"] * (now_s - job["settled_s"])
    true["fail_in_s"] -= time_s
    job["attained_gpu_s"] += (
        job["held_workers"] * job["gpus_per_worker"] * (now_s - job["settled_s"])
    )
    job["settled_s"] = now_s


@inline
def lasts_s(job: Any, true: Any) -> float:
    """Seconds of work left at the present pace; never negative, although numbers are rounded."""
    return true["work_s"] / job["pace"] if true["work_s"] > 0.0 else 0.0


@part
def schedule(job: Any, true: Any, clock: Any, running: Ints, truth: Records) -> None:
    """Note when a job, settled, will end or fail at its present pace.

    A job that has done its work does not fail any more, even if it holds its nodes to the end of a
    slot.
    """
    begin_s, left_s = max(clock["now_s"], job["resume_s"]), lasts_s(job, true)
    end_s = begin_s + left_s
    if true["fail_in_s"] < left_s:
        end_s = begin_s + true["fail_in_s"]
    elif clock["whole_slots"]:
        end_s = np.ceil(end_s / clock["slot_s"] - 1e-9) * clock["slot_s"]
    true["event_s"] = end_s
    sift(running, truth, clock["running"], true["heap"])


@inline
def is_overfull(node: Any) -> bool:
    """Whether a node was asked for more than it has."""
    return node["free"] < 0 or node["free_cpus"] < -ROUNDING or node["free_memory_gb"] < -ROUNDING


@part
def run_on(s: State, j: int, first: int, count: int, pause_s: float) -> None:
    """Let job j, settled, go on with shares[first : first + count] after `pause_s`."""
    job, true, clock = s.jobs[j], s.truth[j], s.clock[0]
    leave(s, j)
    workers, servers = 0, 0
    for k in range(first, first + count):
        workers += s.shares[k]["workers"]
        servers += s.shares[k]["servers"]
        if is_overfull(s.nodes[s.shares[k]["node"]]):
            clock["overfull"] += 1
    clock["held"] += (workers - job["held_workers"]) * job["gpus_per_worker"]
    job["held_workers"], job["held_servers"] = workers, servers
    job["share_at"], job["share_len"] = first, count
    true["alone"] = lone_pace(s, j, first, count, workers, servers)
    if clock["priced"]:
        true["fee_rate"] = fee_rate(job, clock, s.nodes, s.shares, first, count)
    job["pace"] = true["alone"]
    job["resume_s"] = clock["now_s"] + pause_s
    if true["heap"] == -1:
        true["heap"] = clock["running"]
        s.running[clock["running"]] = j
        clock["running"] += 1
    schedule(job, true, clock, s.running, s.truth)
    join(s, j)


@part
def release(s: State, j: int) -> None:
    """Job j, settled, holds nothing any more; the caller gives the nodes their room back."""
    job = s.jobs[j]
    leave(s, j)
    close_bill(s, j)
    s.clock[0]["held"] -= job["held_workers"] * job["gpus_per_worker"]
    job["held_workers"], job["held_servers"], job["share_len"], job["pace"] = 0, 0, 0, 0.0
    job["status"], job["since_s"] = WAITING, np.nan
    s.length[j] = 0
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


@inline
def goes_on(s: State, j: int, first: int, count: int) -> bool:
    """Whether running job j goes on as before on shares[first : first + count].

    It does if it holds them already, or if a move is free, which changes nothing but the place.
    """
    job = s.jobs[j]
    if same(job, s.shares, first, count):
        job["share_at"] = first
        return True
    if job["resize_s"] > 0.0 or not same_size(job, s.shares, first, count):
        return False
    if s.clock[0]["local"] and not is_alike(s, j, first, count):
        return False
    job["share_at"], job["share_len"] = first, count
    s.truth[j]["moves"] += 1
    s.clock[0]["moves"] += 1
    log(s, MOVE, j, first, count)
    return True


@part
def stop(s: State, j: int) -> None:
    """Running job j makes a checkpoint, so that it loses nothing, and waits."""
    settle(s.jobs[j], s.truth[j], s.clock[0]["now_s"])
    log(s, STOP, j, 0, 0)
    release(s, j)
    s.jobs[j]["preemptions"] += 1
    s.clock[0]["stops"] += 1


@part
def change(s: State, j: int, first: int, count: int) -> None:
    """Running job j moves to shares[first : first + count], or becomes another size there."""
    job, clock = s.jobs[j], s.clock[0]
    settle(s.jobs[j], s.truth[j], s.clock[0]["now_s"])
    close_bill(s, j)
    workers, servers = job["held_workers"], job["held_servers"]
    run_on(s, j, first, count, job["resize_s"])
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


@inline
def enact(s: State, j: int, first: int, count: int) -> None:
    """Bring job j from what it holds to shares[first : first + count].

    The nodes' free room has been updated already. A restart costs the job `restart_s` without
    progress, a move or a resize `resize_s`.
    """
    if s.jobs[j]["status"] != RUNNING:
        if count > 0:
            begin(s, j, first, count)
    elif count == 0:
        stop(s, j)
    elif not goes_on(s, j, first, count):
        change(s, j, first, count)


@part
def free_nodes(s: State, j: int) -> None:
    """Give the nodes back what job j holds."""
    at = s.jobs[j]["share_at"]
    for k in range(at, at + s.jobs[j]["share_len"]):
        hold(
            s.nodes,
            s.level,
            s.jobs[j],
            s.shares[k]["node"],
            s.shares[k]["workers"],
            s.shares[k]["servers"],
            1,
        )
    s.clock[0]["freed"] = True


@part
def kill(s: State, j: int) -> None:
    """Job j fails while it runs: back to its last checkpoint, and to the queue."""
    job, true, clock = s.jobs[j], s.truth[j], s.clock[0]
    settle(s.jobs[j], s.truth[j], s.clock[0]["now_s"])
    free_nodes(s, j)
    release(s, j)
    done_s = job["progress_s"] - true["stint_s"]
    every_s = true["checkpoint_s"]
    kept_s = np.floor(done_s / every_s) * every_s if every_s > 0.0 else done_s
    # The checkpoint may come out a rounding later than what was done.
    lost_s = max(0.0, done_s - kept_s) if every_s < np.inf else done_s
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
    true, clock, failures = s.truth[j], s.clock[0], s.breakdowns.failures
    true["failures"] += 1
    if true["failures"] < failures.shape[1]:
        true["fail_in_s"] = failures[j, true["failures"]]
        return
    s.jobs[j]["status"], true["done_s"], s.at[j] = FAILED, clock["now_s"], GONE
    clock["ended"] += 1
    log(s, GIVE_UP, j, 0, 0)


@part
def finish(s: State, j: int) -> None:
    """Job j, whose event is due, has done its work."""
    job, true, clock = s.jobs[j], s.truth[j], s.clock[0]
    settle(s.jobs[j], s.truth[j], s.clock[0]["now_s"])
    free_nodes(s, j)
    release(s, j)
    job["status"], true["work_s"], true["done_s"] = DONE, 0.0, clock["now_s"]
    job["remaining_s"], s.at[j] = 0.0, GONE
    clock["ended"] += 1
    log(s, FINISH, j, 0, 0)
