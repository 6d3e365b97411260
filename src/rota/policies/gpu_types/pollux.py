"""Pollux: elastic allocation by speedup, found by a search with a budget (Qiao et al., OSDI 2021).

Each job's speedup is its speed with what it holds over its speed with a fair share. Maximised is
the power mean of all speedups; the power −1 favours the jobs with the least speedup.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from rota.core.draft import Draft
from rota.policies.classic.placing import start_if_idle
from rota.policies.gpu_types.leases import LEASE
from rota.policies.gpu_types.search_kernels import search
from rota.policies.gpu_types.search_state_kernels import SearchState
from rota.policies.gpu_types.type_pools import find_room, known_curves, speeds_at, try_place
from rota.policies.settings import PolicyEntry, Setting, number

if TYPE_CHECKING:
    from rota.core.decision import Decision
    from rota.core.snapshot import Snapshot
    from rota.core.types import Bools, Floats, Ints

IDLE = 0.01
"""What waiting counts as, per GPU of the least a job runs with: far worse than any share."""
STOPPED = 0.9
"""Factor on what waiting counts as for a running job: between equals none is stopped."""
PATIENCE_S = 3600.0
"""After waiting 1, 3, 7, … times as long as this, a job counts twice, three times, four times …"""
LEAST_FACTOR = 0.1
"""A change never counts for worse than this: a job that just started may still be shrunk."""


@dataclass(frozen=True)
class Pollux:
    """From what all jobs hold now, the best allocation that a search of `evals` moves finds."""

    compiles: ClassVar[bool] = True

    name: str
    lease: float = 60.0
    """Seconds until it is searched again."""
    evals: int = 2000
    """Moves tried per decision; the same number always, so that results do not depend on load."""
    p: float = -1.0
    """The power of the mean; 1 is the plain sum."""
    seed: int = 0
    oracle: bool = False

    def decide(self, snapshot: Snapshot) -> Decision:
        """One round."""
        draft = Draft(snapshot)
        if not len(snapshot.jobs):
            return draft.commit()
        state = search_state(snapshot, self.p)
        # Other moves at other times, the same at the same: what was missed may be found next time.
        rng = np.random.default_rng([self.seed, int(np.float64(snapshot.time_s).view(np.uint64))])
        queue = np.flatnonzero((state.held == 0) & ~state.fixed)
        search(state, queue, rng.random((self.evals, 7)))
        _carry_out(draft, state)
        start_if_idle(draft)
        if (state.held >= state.most).all():
            return draft.commit()
        return draft.commit(wake_s=snapshot.time_s + self.lease)


def search_state(snapshot: Snapshot, power: float) -> SearchState:
    """The snapshot as the search takes it."""
    jobs, nodes, curves = snapshot.jobs, snapshot.nodes, known_curves(snapshot)
    N = len(nodes)
    each, least = _ints(jobs.gpus_per_worker), _ints(jobs.min_workers)
    smallest = speeds_at(snapshot, least)
    share = _workers_by_node(snapshot)
    # A job's servers go beside its workers; that they are whole ones is seen to at the end.
    per_worker = jobs.servers / np.maximum(1, jobs.workers)
    up = nodes["up"]
    return SearchState(
        each=each,
        cpus=jobs.cpus_per_worker + per_worker * jobs.cpus_per_server,
        memory_gb=jobs.memory_gb_per_worker + per_worker * jobs.memory_gb_per_server,
        least=least,
        most=_ints(jobs.max_workers),
        bound=_ints(jobs.gpu_type),
        mixed=(jobs.gpu_type == -1) & (smallest[:, -1] > 0),
        fixed=_fixed(snapshot, smallest),
        curve=_curves(snapshot, least),
        servers=_ints(jobs.servers),
        unit=_fair_speed(snapshot, smallest),
        idle=_idle(snapshot),
        change_factor=_change_factor(snapshot),
        speed=np.zeros((1, 1, 1, 1)) if curves is None else np.ascontiguousarray(curves.speed),
        by_nodes=curves is not None and curves.by_nodes,
        power=power,
        type=_ints(nodes["type"]),
        free=np.where(up, nodes["free"], 0).astype(np.int64),
        free_cpus=np.where(up, nodes["free_cpus"], 0.0),
        free_memory_gb=np.where(up, nodes["free_memory_gb"], 0.0),
        before=share.copy(),
        share=share,
        held=share.sum(axis=1),
        worth=np.zeros(len(jobs)),
        kept=np.zeros((len(jobs), N), np.int64),
        touched=np.zeros(len(jobs), np.int64),
        is_touched=np.zeros(len(jobs), np.bool_),
    )


def _ints(column: Any) -> Ints:
    return np.ascontiguousarray(column, np.int64)


def _workers_by_node(snapshot: Snapshot) -> Ints:
    rows = snapshot.jobs.rows
    share = np.zeros((len(rows), len(snapshot.nodes)), np.int64)
    for job in np.flatnonzero(rows["share_len"]).tolist():
        for node, workers, _ in snapshot.share(job):
            share[job, node] += workers
    return share


def _fixed(snapshot: Snapshot, smallest: Floats) -> Bools:
    """Which jobs are within their minimum run time, or too large for what is up (J,)."""
    jobs = snapshot.jobs
    fixed: Bools = snapshot.pinned | (jobs.waiting & (smallest.max(axis=1) == 0.0))
    return fixed


def _curves(snapshot: Snapshot, least: Ints) -> Ints:
    """The curve of each job, −1 where it has none or none that says it can run (J,)."""
    jobs, curves = snapshot.jobs, known_curves(snapshot)
    if curves is None:
        return np.full(len(jobs), -1)
    W = curves.speed.shape[3]
    best = curves.speed.max(axis=(1, 2))  # (C, W)
    known = jobs.curve >= 0
    for size in (least, jobs.workers):
        known = known & (best[jobs.curve, np.minimum(size, W - 1)] > 0)
    return np.where(known, jobs.curve, -1).astype(np.int64)


def _fair_speed(snapshot: Snapshot, smallest: Floats) -> Floats:
    """Speed of each job with an equal part of all GPUs, as far as it may have that (J,)."""
    jobs, nodes = snapshot.jobs, snapshot.nodes
    gpus = int(nodes["gpus"][nodes["up"]].sum()) // len(jobs)
    fair = np.clip(gpus // np.maximum(1, jobs.gpus_per_worker), jobs.min_workers, jobs.max_workers)
    speed = speeds_at(snapshot, fair.astype(np.int64)).max(axis=1)
    speed = np.where(speed > 0, speed, smallest.max(axis=1))
    return np.where(speed > 0, speed, 1.0)


def _idle(snapshot: Snapshot) -> Floats:
    """What waiting counts as for each job (J,)."""
    jobs = snapshot.jobs
    ran_s = jobs.attained_gpu_s / np.maximum(1, jobs.gpus)
    waited_s = np.maximum(0.0, snapshot.time_s - jobs.submit_s - ran_s)
    times = 1.0 + np.floor(np.log2(1.0 + waited_s / PATIENCE_S))
    idle: Floats = IDLE / (times * np.maximum(1, jobs.min_workers * jobs.gpus_per_worker))
    return np.where(jobs.running, STOPPED * idle, idle)


def _change_factor(snapshot: Snapshot) -> Floats:
    """The part of its speed that a job keeps if it is changed now (J,).

    A new share is expected to last as long as the last has, and begins with the pause of a resize.
    """
    jobs = snapshot.jobs
    lasted_s = np.where(jobs.running, snapshot.time_s - jobs.since_s, 0.0)
    costs = jobs.running & (jobs.resize_s > 0)
    change_factor = np.where(costs, lasted_s / np.maximum(1e-9, lasted_s + jobs.resize_s), 1.0)
    return np.maximum(LEAST_FACTOR, change_factor)


def _carry_out(draft: Draft, state: SearchState) -> None:
    """Write what the search found into the draft."""
    changed = np.flatnonzero((state.share != state.before).any(axis=1)).tolist()
    for job in changed:
        draft.stop(job)
    for job in changed:
        nodes = np.flatnonzero(state.share[job]).tolist()
        share = [(n, int(state.share[job, n])) for n in nodes]
        if share and not try_place(draft, job, share):
            _place_smaller(draft, job, draft.nodes["type"] == draft.nodes["type"][nodes[0]])


def _place_smaller(draft: Draft, job: int, inside: Bools) -> None:
    """For a job whose servers did not fit: as many workers as there is room for with them."""
    row = draft.rows[job]
    for workers in range(int(row["workers"]), int(row["min_workers"]) - 1, -1):
        share = find_room(draft, job, workers, inside)
        if share is not None and try_place(draft, job, share):
            return


POLICIES: Final = {
    "pollux": PolicyEntry(
        "Elastic: the best power mean of speedups that a search of `evals` moves finds.",
        "after Pollux, OSDI 2021",
        Pollux,
        {
            **LEASE,
            "evals": Setting("moves tried per decision", lambda t: int(number(t, 0)),
                             "a whole number, 0 or more"),
            "p": Setting("power of the mean of speedups; 1 is the sum",
                         lambda t: number(t, -20.0), "a number, −20 or more"),
            "seed": Setting("seeds the search", lambda t: int(number(t, 0)),
                            "a whole number, 0 or more"),
        },
    ),
}  # fmt: skip
