"""The backend's side of the contract."""

from __future__ import annotations

from time import monotonic, sleep
from typing import TYPE_CHECKING

import numpy as np

from rota.core.draft import Draft
from rota.core.layout import RUNNING, SLACK, WAITING
from rota.core.snapshot import Snapshot
from rota.policies.catalogue import make_policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.core.decision import Decision
    from rota.core.seams import Backend
    from rota.core.types import Bools, Floats, Ints

MOST_ROUNDS = 100_000


def check_backend(make: Callable[[], Backend], *, patience_s: float = 0.0) -> None:
    """Drive a backend with jobs to run, fresh from `make()`, to its end, and watch it.

    A real cluster needs time to carry out a plan: it may take `patience_s` until what is
    observed is what was decided. Raises AssertionError unless

    - `wait` says whether there is something to decide, and time never runs backwards;
    - `observe` gives a read-only snapshot in which jobs, nodes and shares add up;
    - an empty plan changes nothing, and a plan brings about exactly what was decided;
    - a stopped job goes back to waiting and can be started again;
    - once all jobs have ended, `wait` says so, and `observe` finds no job.
    """
    backend = make()
    fifo, last_s, wake_s, stopped = make_policy("fifo-skip"), -np.inf, np.inf, False
    for number in range(MOST_ROUNDS):
        more = backend.wait(wake_s)
        _require(isinstance(more, bool), f"wait() returned {more!r}, not True or False.")
        if not more:
            break
        snapshot = backend.observe()
        check_snapshot(snapshot)
        _require(
            snapshot.time_s >= last_s,
            f"time runs backwards, from {last_s:g} s to {snapshot.time_s:g} s.",
        )
        last_s = snapshot.time_s
        nothing = Draft(snapshot).commit()
        backend.apply(nothing.diff(snapshot))
        _settle(backend, nothing, snapshot, patience_s, "an empty plan")
        snapshot = backend.observe()
        if not stopped and snapshot.jobs.running.any():
            snapshot, stopped = _stop_one(backend, snapshot, patience_s), True
        decision = fifo.decide(snapshot)
        backend.apply(decision.diff(snapshot))
        _settle(backend, decision, snapshot, patience_s, f"the plan of round {number + 1}")
        wake_s = decision.wake_s
    else:
        raise AssertionError(f"The backend is not over after {MOST_ROUNDS} rounds.")
    _require(number > 0, "the backend was over before it began: give it jobs to run.")
    _require(not backend.wait(np.inf), "wait() is True again after it was False.")
    left = len(backend.observe().jobs)
    _require(left == 0, f"it is over, but {left} jobs are still there.")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(f"Backend: {message}")


def _require_all(holds: Bools, uid: Ints, message: str) -> None:
    """Raise a message about the first job for which it does not hold."""
    if not holds.all():
        _require(False, f"job {uid[np.argmin(holds)]} {message}")


def _stop_one(backend: Backend, snapshot: Snapshot, patience_s: float) -> Snapshot:
    """Stop a running job and see that it waits."""
    job = int(snapshot.jobs.running.argmax())
    draft = Draft(snapshot)
    draft.stop(job)
    decision = draft.commit()
    backend.apply(decision.diff(snapshot))
    _settle(backend, decision, snapshot, patience_s, "a stop")
    after = backend.observe()
    uid = snapshot.jobs.uid[job]
    found = np.flatnonzero(after.jobs.uid == uid)
    _require(found.size == 1, f"job {uid} is gone after it was stopped.")
    _require(bool(after.jobs.waiting[found[0]]), f"job {uid} does not wait after it was stopped.")
    return after


def _settle(
    backend: Backend, decision: Decision, before: Snapshot, patience_s: float, what: str
) -> None:
    """Wait until what is observed is what was decided, about the jobs that are still there."""
    give_up_s = monotonic() + patience_s
    wanted = {int(uid): decision.share(job) for job, uid in enumerate(decision.uid)}
    while True:
        after = backend.observe()
        check_snapshot(after)
        wrong = [
            (int(uid), tuple(after.share(job)))
            for job, uid in enumerate(after.jobs.uid)
            if tuple(after.share(job)) != wanted.get(int(uid), ())
        ]
        gone = set(wanted) - set(after.jobs.uid.tolist())
        if not wrong and (not gone or after.time_s > before.time_s):
            return
        if monotonic() >= give_up_s:
            break
        sleep(0.05)
    _require(
        not gone or after.time_s > before.time_s, f"after {what} jobs {sorted(gone)} are gone."
    )
    uid, share = wrong[0]
    wish = wanted.get(uid, ())
    _require(False, f"after {what} job {uid} holds {share}, where {wish} was decided.")


def check_snapshot(snapshot: Snapshot) -> None:
    """Raise unless the jobs, nodes and shares of a snapshot add up."""
    _require(isinstance(snapshot, Snapshot), f"observe() returned {type(snapshot).__name__}.")
    rows, nodes, shares = snapshot.jobs.rows, snapshot.nodes, snapshot.shares
    for name, array in (("jobs.rows", rows), ("nodes", nodes), ("shares", shares)):
        _require(not array.flags.writeable, f"snapshot.{name} can be written to.")
    _require(len(np.unique(rows["uid"])) == len(rows), "two jobs have the same uid.")
    _require(bool((np.diff(rows["submit_s"]) >= 0).all()), "jobs are not in order of submission.")
    _require(np.isfinite(snapshot.time_s), f"the time is {snapshot.time_s}.")
    _require(len(nodes) == len(snapshot.cluster), "nodes and cluster differ in length.")
    uid, length = rows["uid"], rows["share_len"]
    running = rows["status"] == RUNNING
    _require_all(running | (rows["status"] == WAITING), uid, "neither waits nor runs.")
    _require_all(running == (length > 0), uid, "has a share but does not run, or the reverse.")
    inside = (rows["share_at"] >= 0) & (rows["share_at"] + length <= len(shares))
    _require_all((length == 0) | (length > 0) & inside, uid, "has a share that is not there.")
    # Which job each entry belongs to, and where it stands: jobs may keep theirs in any order.
    owner = np.repeat(np.arange(len(rows)), length)
    skipped = np.repeat(rows["share_at"] - (np.cumsum(length) - length), length)
    entries = shares[np.arange(len(owner)) + skipped]
    for what in ("workers", "servers"):
        held = np.bincount(owner, entries[what], len(rows))
        _require_all(
            held == rows[f"held_{what}"], uid, f"holds other {what} by its share than by its row."
        )
    asks = rows[owner]

    def used(what: str) -> Floats:
        taken = entries["workers"] * asks[f"{what}_per_worker"]
        if what != "gpus":
            taken = taken + entries["servers"] * asks[f"{what}_per_server"]
        total = np.zeros(len(nodes))
        np.add.at(total, entries["node"], taken)
        return total

    has = np.where(nodes["up"], nodes["gpus"], 0)
    # On a node that is down or drained jobs may linger; what is free there is nothing.
    _require(
        bool((nodes["free"] == np.where(nodes["up"], has - used("gpus"), 0)).all()),
        f"free GPUs are {nodes['free'].tolist()}, but jobs hold {used('gpus').tolist()} "
        f"of {has.tolist()}.",
    )
    for what in ("cpus", "memory_gb"):
        counted = np.isfinite(nodes[what])  # where not, free is infinite too
        if counted.any():
            off = nodes[f"free_{what}"][counted] + used(what)[counted] - nodes[what][counted]
            same = bool((np.abs(off) <= 1e3 * SLACK).all())
            _require(same, f"free {what} and what jobs hold differ.")
