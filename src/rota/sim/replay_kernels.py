"""Replay whole traces in compiled code: one loop, and the rounds that go over all live jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from rota.core.layout import RUNNING
from rota.jit import inline, kernel, part
from rota.jit_only import unless_none
from rota.jit_reference import by_reference
from rota.ledger.node_kernels import hold
from rota.policies.classic.backfill_kernels import decide_with_backfill
from rota.policies.classic.decide_kernels import decide, decide_free
from rota.sim.event_kernels import advance, fault_count, stray, tidy
from rota.sim.job_kernels import enact, stop
from rota.sim.log_kernels import copy_share
from rota.sim.net_kernels import net_of
from rota.sim.pace_kernels import rerate
from rota.sim.state import Breakdowns, State

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.core.types import Ints, Records
    from rota.policies.classic.rule import Rule

MORE: Final = 0
OVER: Final = 1
FLUSH: Final = 2
"""The log is full: empty it and go on."""

Replay: TypeAlias = "Callable[[Rule, State, int, Ints], None]"
"""A kernel that replays traces, made by `replay_with`."""


@part
def open_draft(s: State) -> None:
    """Begin a round over all live jobs: each shall hold what it holds."""
    for i in range(s.clock[0]["live"]):
        j = s.order[i]
        s.at[j], s.length[j] = s.jobs[j]["share_at"], s.jobs[j]["share_len"]


@part
def go_on(s: State) -> None:
    """The same after a round of the same policy: `length` of a waiting job is 0 already."""
    for r in range(s.clock[0]["running"]):
        j = s.running[r]
        s.at[j], s.length[j] = s.jobs[j]["share_at"], s.jobs[j]["share_len"]


@part
def enact_draft(s: State, stops: bool) -> None:
    """Carry a round out: stops first, if it can have any."""
    for i in range(s.clock[0]["live"] if stops else 0):
        j = s.order[i]
        if s.length[j] == 0 and s.jobs[j]["status"] == RUNNING:
            stop(s, j)
    for i in range(s.clock[0]["live"]):
        j = s.order[i]
        if s.length[j] > 0:
            enact(s, j, s.at[j], s.length[j])


@part
def note_round(s: State) -> None:
    """Count a round and log where things stand after it."""
    clock = s.clock[0]
    rerate(s)
    clock["rounds"] += 1
    if s.rounds.size == 0:
        return
    r = clock["logged"]
    if r >= s.rounds.size:
        clock["lost"] += 1
        return
    s.rounds[r]["time_s"] = clock["now_s"]
    s.rounds[r]["waiting"] = clock["arrived"] - clock["ended"] - clock["running"]
    s.rounds[r]["running"], s.rounds[r]["held_gpus"] = clock["running"], clock["held"]
    s.rounds[r]["up_gpus"], s.rounds[r]["stray_gpus"] = clock["up"], stray(s.level, s.nodes, clock)
    clock["logged"] += 1


@part
def log_is_full(s: State) -> bool:
    """Whether one more round might not fit into the log.

    Up to the next decision `burst` jobs may arrive, running jobs may end, nodes may fail; then
    every share may be taken from one job and given to another.
    """
    clock = s.clock[0]
    if s.events.size == 0:
        return False
    most = clock["burst"] + 4 * clock["shares"] + 2 * s.nodes.size + fault_count(s) + 64
    return (
        clock["logged"] >= s.rounds.size
        or clock["events"] + most > s.events.size
        or clock["entries"] + 2 * clock["shares"] + s.nodes.size > s.entries.size
    )


@inline
def draft_arrays(s: State) -> Any:
    """The state as the draft that policies edit: it has all fields of `DraftArrays`."""
    return s


@unless_none
def breakdowns_of(batch: Breakdowns, b: int) -> Breakdowns:
    """What breaks down in the b-th cluster of a batch, if anything does."""
    return Breakdowns(batch.faults[b], batch.failures[b])


@inline
def one_of(s: State, b: int) -> State:
    """The b-th cluster of a batch."""
    return by_reference(State(
        s.jobs[b], s.truth[b], s.clock[b], s.nodes[b], s.level[b], s.running[b], s.order[b],
        s.key[b], s.at[b], s.length[b], s.shares[b], s.spare[b], s.node[b], s.part[b],
        s.queue[b], s.begins[b], s.waits[b], s.shapes[b], s.asks[b], s.full[b],
        s.events[b], s.entries[b], s.rounds[b], s.speed, breakdowns_of(s.breakdowns, b),
        net_of(s.net, b),
    ))  # fmt: skip


@part
def to_next_round(s: State) -> int:
    """Go to the next decision, if there is one and the log has room for it."""
    if log_is_full(s):
        return FLUSH
    if not advance(s):
        return OVER
    tidy(s, s.shares.size // 2)
    return MORE


def replay_with(name: str, play_round: Callable[[Rule, State], None]) -> Replay:
    """The kernel that replays whole traces; `play_round`, a part, decides and carries out a round.

    There is one loop. It is compiled once for each way to decide, because compiling takes seconds
    and most runs need one or two of them. Machine code is kept under `name`.
    """

    def replay(rule: Rule, s: State, rounds: int, status: Ints) -> None:
        """Play up to `rounds` rounds of each cluster b; status[b] becomes MORE, OVER or FLUSH."""
        policy = by_reference(rule)
        for b in range(status.size):
            one = one_of(s, b)
            for _ in range(rounds):
                status[b] = to_next_round(one)
                if status[b] != MORE:
                    break
                play_round(policy, one)
                note_round(one)

    replay.__name__ = replay.__qualname__ = name
    return kernel(replay)


def drafted_by(decide: Callable[..., tuple[int, float]]) -> Callable[[Rule, State], None]:
    """A round over all live jobs: `decide`, a part, edits the draft, which is then carried out."""

    @part
    def play_round(rule: Rule, s: State) -> None:
        clock, arrays = s.clock[0], draft_arrays(s)
        go_on(s)
        clock["used"], clock["wake_s"] = decide(
            rule, s.jobs, s.order, clock["live"], clock["now_s"], s.key, arrays, clock["used"]
        )
        enact_draft(s, rule.preempt)

    return play_round


replay = replay_with("replay", drafted_by(decide))
"""For every policy without backfilling, whatever changes cost."""
replay_free = replay_with("replay_free", drafted_by(decide_free))
"""The same where no change costs anything: less to compile."""
replay_backfill = replay_with("replay_backfill", drafted_by(decide_with_backfill))
"""For policies that backfill."""


@kernel
def observe(s: State, rows: Records, shares: Records) -> int:
    """Copy the live jobs, settled to now, and what they hold; returns the number of shares."""
    clock, used = s.clock[0], 0
    now_s = clock["now_s"]
    for i in range(clock["live"]):
        rows[i] = s.jobs[s.order[i]]
        job = rows[i]
        if job["status"] != RUNNING:
            continue
        done_s = job["pace"] * max(0.0, now_s - max(job["settled_s"], job["resume_s"]))
        job["progress_s"] += done_s
        left_s = job["remaining_s"] - done_s
        job["remaining_s"] = 0.0 if left_s < 0.0 else left_s
        job["attained_gpu_s"] += (
            job["held_workers"] * job["gpus_per_worker"] * (now_s - job["settled_s"])
        )
        job["settled_s"] = now_s
        for k in range(job["share_len"]):
            copy_share(shares, used + k, s.shares, job["share_at"] + k)
        job["share_at"] = used
        used += job["share_len"]
    return used


@kernel
def carry_out(state: State, uid: Ints, first: Ints, last: Ints, shares: Records, room: int) -> bool:
    """Give job uid[k] shares[first[k] : last[k]], `room` shares in all; False if there is no room.

    The plan lists only what changes, stops first. All jobs give back what they hold before any
    job takes what it gets, so jobs may swap places.
    """
    s = by_reference(state)
    clock = s.clock[0]
    if not tidy(s, room):
        return False
    for k in range(uid.size):
        job = s.jobs[uid[k]]
        for e in range(job["share_at"], job["share_at"] + job["share_len"]):
            hold(
                s.nodes,
                s.level,
                job,
                s.shares[e]["node"],
                s.shares[e]["workers"],
                s.shares[e]["servers"],
                1,
            )
    for k in range(uid.size):
        begins = clock["used"]
        for e in range(first[k], last[k]):
            copy_share(s.shares, clock["used"], shares, e)
            clock["used"] += 1
            hold(
                s.nodes,
                s.level,
                s.jobs[uid[k]],
                shares[e]["node"],
                shares[e]["workers"],
                shares[e]["servers"],
                -1,
            )
        enact(s, uid[k], begins, last[k] - first[k])
    note_round(s)
    return True


@kernel
def is_log_full(s: State) -> bool:
    """`log_is_full`, called from Python."""
    return log_is_full(by_reference(s))
