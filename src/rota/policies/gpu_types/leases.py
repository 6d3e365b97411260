"""Rounds of leases: from fractions of time, which a linear program gives, to the jobs that run now.

Gavel's mechanism (Narayanan et al., OSDI 2020, §5): time is cut into rounds, and in each round a
job goes to the pool for which the time it is entitled to is largest against the time it has had.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import numpy as np

from rota.errors import DecisionError
from rota.policies.gpu_types.type_pools import find_room, try_place
from rota.policies.settings import Setting, number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rota.core.draft import Draft
    from rota.core.snapshot import Snapshot
    from rota.core.types import Bools, Floats, Ints
    from rota.policies.gpu_types.type_pools import TypePools

MEMORY_ROUNDS = 64
"""Rounds after which past time counts for 1/e, so that an idle hour does not weigh for long."""
ALWAYS = 1.25
"""A job that is to run all the time gives way only to one that has had less than 1/1.25 of its
due, such as a gang that needs the room of all others."""
TINY = 1e-6
LEASE: Final = {
    "lease": Setting("seconds of a round", lambda t: number(t, 1.0), "seconds, 1 or more")
}
"""The setting that all who hand out leases take."""
_WHO = ("submit_s", "estimate_s", "user", "model", "gpu_type", "workers", "gpus_per_worker")


class Ledger:
    """How long each job was to run in each pool, and how long it did; in seconds.

    A policy keeps one between its rounds. Jobs are told apart by what they are, not by their
    numbers, so that a backend that numbers them anew changes nothing; two that are alike in all
    of `_WHO` may swap accounts when one of them ends. Asking twice at the same time is asking
    once, and when time goes back a new run has begun.
    """

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        self._now_s = np.inf
        self._renewed_s = -np.inf
        self._where: dict[tuple[bytes, int], int] = {}
        self._due = self._had = self._rate = np.zeros((0, 0))  # (J, T + 1)

    def settle(self, snapshot: Snapshot, pools: TypePools) -> bool:
        """Bring the accounts up to now; whether the leases of all running jobs end now."""
        now_s, jobs = snapshot.time_s, snapshot.jobs
        gone_s = now_s - self._now_s
        if gone_s < 0 or self._rate.shape[1] != pools.speed.shape[1]:
            self._where, self._renewed_s, gone_s = {}, -np.inf, 0.0
        who = _identities(snapshot)
        old = np.array([self._where.get(key, -1) for key in who], np.int64)
        fade = np.exp(-gone_s / (MEMORY_ROUNDS * self.lease_s))
        shape = pools.speed.shape
        rate = _carried(self._rate, old, shape)
        self._due = fade * _carried(self._due, old, shape) + gone_s * rate
        self._had = fade * _carried(self._had, old, shape)
        ran = np.flatnonzero(pools.held >= 0)
        self._had[ran, pools.held[ran]] += np.minimum(gone_s, now_s - jobs.since_s[ran])
        self._rate, self._where = rate, {key: j for j, key in enumerate(who)}
        self._now_s = now_s
        if now_s == self._renewed_s or self._round(now_s) > self._round(self._renewed_s):
            self._renewed_s = now_s
            return True
        return False

    def entitle(self, fraction: Floats) -> None:
        """From now on each job is to run this fraction of the time in each pool (J, T + 1)."""
        self._rate = fraction

    def priority(self) -> Floats:
        """Time entitled to over time received, in each pool (J, T + 1); a fresh job's is large.

        With constant fractions this is Gavel's fraction over the fraction of rounds received.
        """
        ratio = (self._due + self._rate) / (self._had + 1.0)
        # A job that is to run all the time can never make up for a round that it missed.
        ratio[self._rate > 1.0 - TINY] *= ALWAYS
        ratio[self._rate < TINY] = 0.0
        return ratio

    def next_round_s(self) -> float:
        """When the present leases end."""
        return float((self._round(self._now_s) + 1) * self.lease_s)

    def _round(self, time_s: float) -> float:
        # A wake-up at the very end of a round, as floating point has it, is in the next.
        return float(np.floor(time_s / self.lease_s + 1e-9))


def _identities(snapshot: Snapshot) -> list[tuple[bytes, int]]:
    rows = snapshot.jobs.rows
    seen: dict[bytes, int] = {}
    keys = []
    for line in np.stack([rows[name].astype(np.float64) for name in _WHO], axis=1):
        key = line.tobytes()
        seen[key] = seen.get(key, 0) + 1
        keys.append((key, seen[key]))
    return keys


def _carried(accounts: Floats, old: Ints, shape: tuple[int, ...]) -> Floats:
    """The accounts of the jobs that are still there, and empty ones for those that are new."""
    kept = np.zeros(shape)
    known = old >= 0
    if known.any():
        kept[known] = accounts[old[known]]
    return kept


def hand_out(
    draft: Draft, pools: TypePools, priority: Floats, spare: Ints, lease_s: float, *, renew: bool
) -> None:
    """Give GPUs to jobs by priority (J, T + 1), then what is left to any job, by `spare` (J,).

    With `renew` all leases end but those of jobs within their minimum run time, and of jobs that
    would do nothing but start; a job that is to stay in its pool stays on its nodes. Otherwise
    only what is free is given out.
    """
    running = pools.held >= 0
    fixed = draft.snapshot.pinned | _starting(draft.snapshot, lease_s) if renew else running
    fixed = fixed | (running & (draft.rows["gpus"] == 0))
    order, goal = _choose(draft, pools, priority, fixed)
    before = {int(j): draft.held(int(j)) for j in np.flatnonzero(running & ~fixed)}
    for job in before:
        if goal[job] != pools.held[job]:
            draft.stop(job)
    failed = _place_all(draft, pools, [(j, int(goal[j])) for j in order])
    if failed and failed[0] == order[0]:
        # It comes first, yet the jobs that stayed leave it no nodes: let no job stay.
        for job in before:
            draft.stop(job)
        _place_all(draft, pools, [(j, int(goal[j])) for j in order])
    for job, share in before.items():
        if not draft.length[job]:
            _put_back(draft, job, share)
    _place_all(draft, pools, _anywhere(pools, [j for j in spare.tolist() if not draft.length[j]]))


def _choose(
    draft: Draft, pools: TypePools, priority: Floats, fixed: Bools
) -> tuple[list[int], Ints]:
    """The jobs to run, by priority, and all jobs' pools, if only numbers of GPUs counted."""
    rows, nodes = draft.rows, draft.nodes
    left = pools.gpus.astype(np.float64)
    for job in np.flatnonzero(fixed).tolist():
        for node, workers, _ in draft.held(job):
            left[nodes["type"][node]] -= workers * rows["gpus_per_worker"][job]
    goal = np.where(fixed, pools.held, -1)
    order = []
    P = priority.shape[1]
    ranked = np.argsort(-priority, axis=None, kind="stable")
    gpus = rows["gpus"].tolist()
    for place in ranked[: int((priority > 0.0).sum())].tolist():
        job, pool = divmod(place, P)
        if goal[job] != -1 or fixed[job]:
            continue
        if pool < P - 1 and gpus[job] <= left[pool]:
            left[pool] -= gpus[job]
        elif pool == P - 1 and gpus[job] <= left.sum():
            left *= 1.0 - gpus[job] / max(1.0, left.sum())
        else:
            continue
        goal[job] = pool
        order.append(job)
    return order, goal


def _place_all(draft: Draft, pools: TypePools, wanted: Iterable[tuple[int, int]]) -> list[int]:
    """Place the jobs that hold nothing, each in its pool; returns those that do not fit."""
    T, failed = len(pools.gpus), []
    inside = [draft.nodes["type"] == t for t in range(T)] + [np.ones(len(draft.nodes), np.bool_)]
    for job, pool in wanted:
        if not draft.length[job]:
            share = find_room(draft, job, int(draft.rows["workers"][job]), inside[pool])
            if share is None or not try_place(draft, job, share):
                failed.append(job)
    return failed


def _anywhere(pools: TypePools, jobs: list[int]) -> Iterable[tuple[int, int]]:
    """Each job with each pool that can run it, fastest first."""
    for job in jobs:
        for pool in np.argsort(-pools.speed[job], kind="stable").tolist():
            if pools.speed[job, pool] > 0.0:
                yield job, pool


def _put_back(draft: Draft, job: int, share: list[tuple[int, int, int]]) -> None:
    """Let a job that gave way for nothing go on where it was."""
    with suppress(DecisionError):
        draft.place(job, [(n, w) for n, w, _ in share], [(n, s) for n, _, s in share if s])


def _starting(snapshot: Snapshot, lease_s: float) -> Bools:
    """Which jobs take a lease or more to start, and have not run for as long since (J,)."""
    jobs = snapshot.jobs
    slow = jobs.running & (jobs.restart_s >= lease_s)
    return slow & (snapshot.time_s < jobs.resume_s + jobs.restart_s)
