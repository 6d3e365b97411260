"""Gavel: policies as linear programs over heterogeneous GPUs (Narayanan et al., OSDI 2020).

The program's answer is a fraction of time for each job on each GPU type; `leases`
turns it into the jobs that run now.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from rota.core.draft import Draft
from rota.policies.classic.placing import start_if_idle
from rota.policies.gpu_types.leases import LEASE, TINY, Ledger, hand_out
from rota.policies.gpu_types.linear import Program
from rota.policies.gpu_types.type_pools import TypePools
from rota.policies.settings import PolicyEntry

if TYPE_CHECKING:
    from rota.core.decision import Decision
    from rota.core.snapshot import Snapshot
    from rota.core.types import Floats, Ints

SHORTEST_S = 60.0
"""Less remaining time than this counts as this: below it estimates tell nothing."""


def max_min(gain: Floats, gpus: Ints, has: Ints, share: Floats) -> Floats:
    """The max-min fair fractions of time, jobs × pools.

    No job can gain but at the cost of one that has less.

    gain   (J, P)  what a job gains per second in a pool; 0: it cannot run there
    gpus   (J,)    GPUs it holds while it runs
    has    (T,)    GPUs of each type
    share  (P, T)  part of a job's GPUs that a pool takes from each type

    Water-filling: the level of all jobs is raised until some are held back by a full type or by
    having all the time there is (their rows have a dual); those stay, the others rise further.
    """
    # Equal jobs share equally in some optimum, so one set of columns stands for all of them.
    kinds, kind, count = np.unique(
        np.column_stack([gain, gpus]), axis=0, return_inverse=True, return_counts=True
    )
    gain, each = kinds[:, :-1], kinds[:, -1]
    K, T = len(kinds), len(has)
    k, p = np.nonzero(gain)
    level = len(k)  # the column behind the others
    rows = _limits(k, p, each, K, share)
    rows += [
        (np.append(mine, level), np.append(gain[i][gain[i] > 0] / count[i], -1.0))
        for i, mine in enumerate(_columns(k, K))
    ]
    lower = np.concatenate([np.full(K + T, -np.inf), np.zeros(K)])
    upper = np.concatenate([count, has, np.full(K, np.inf)]).astype(np.float64)
    program = Program(np.append(np.zeros(level), 1.0), rows, lower, upper)
    rising = gain.max(axis=1) > 0
    for i in np.flatnonzero(~rising).tolist():
        program.set_coefficient(K + T + i, level, 0.0)
    fraction = np.zeros(gain.shape)
    while rising.any():
        best, dual = program.solve()
        fraction[k, p] = best[:level]
        held_back = rising & (np.abs(dual[K + T :]) > TINY / K)
        if not held_back.any():
            held_back = rising
        for i in np.flatnonzero(held_back).tolist():
            program.set_coefficient(K + T + i, level, 0.0)
            program.set_lower(K + T + i, best[level] * (1.0 - 1e-9))
        rising = rising & ~held_back
    return (fraction / count[:, None])[kind]


def most_gain(gain: Floats, gpus: Ints, has: Ints, share: Floats) -> Floats:
    """The fractions of time with the largest total gain; arguments as for `max_min`."""
    J, T = len(gain), len(has)
    j, p = np.nonzero(gain)
    fraction = np.zeros(gain.shape)
    if len(j):
        # HiGHS counts what is below 1e-7 as nothing: let the best gain be well above it.
        cost = gain[j, p] * (1e3 / gain.max())
        upper = np.concatenate([np.ones(J), has]).astype(np.float64)
        rows = _limits(j, p, gpus, J, share)
        best, _ = Program(cost, rows, np.full(J + T, -np.inf), upper).solve()
        fraction[j, p] = best
    return fraction


def _limits(
    k: Ints, p: Ints, gpus: Floats | Ints, kinds: int, share: Floats
) -> list[tuple[Ints, Floats]]:
    """A row for the time of each kind of job, and one for the GPUs of each type."""
    rows = [(mine, np.ones(len(mine))) for mine in _columns(k, kinds)]
    for t in range(share.shape[1]):
        users = np.flatnonzero(share[p, t] * gpus[k])
        rows.append((users, gpus[k[users]] * share[p[users], t]))
    return rows


def _columns(k: Ints, kinds: int) -> list[Ints]:
    """The columns that belong to each kind of job; they are in order of kinds."""
    return np.split(np.arange(len(k)), np.searchsorted(k, np.arange(1, kinds)))


def fair_gain(pools: TypePools, gpus: Ints) -> Floats:
    """GPUs × speed over the speed under an equal share of every type, for `max_min` (J, P).

    A job's equal share is 1/J of each type, at most all of its time; the factor GPUs makes
    a gang's share of GPUs count, not its share of time.
    """
    J = max(1, len(gpus))
    equal = np.append(pools.gpus, pools.gpus.sum()) / J
    equal[:-1] /= max(1.0, equal[:-1].sum())
    equal[-1] = min(1.0, equal[-1])
    reference = pools.speed @ equal
    return np.divide(
        pools.speed * gpus[:, None], reference[:, None],
        out=np.zeros(pools.speed.shape), where=reference[:, None] > 0,
    )  # fmt: skip


def completion_gain(pools: TypePools, snapshot: Snapshot) -> Floats:
    """What part of its remaining work a job does per second in each pool (J, P)."""
    jobs = snapshot.jobs
    # Of unknown length: likely to run as long again as it has, which is so for heavy tails.
    left_s = np.where(np.isnan(jobs.remaining_s), jobs.progress_s, jobs.remaining_s)
    fastest = pools.speed.max(axis=1, initial=0.0)
    work = fastest * np.maximum(left_s, SHORTEST_S)
    gain = np.zeros(pools.speed.shape)
    np.divide(pools.speed, work[:, None], out=gain, where=work[:, None] > 0)
    return gain


@dataclass
class Gavel:
    """Fractions of time from a linear program, in rounds of leases."""

    name: str
    fair: bool
    """Whether the least normalised throughput is maximised, or else the rate of completion."""
    lease: float = 360.0
    """Seconds of a round."""
    oracle: bool = False
    _ledger: Ledger = field(init=False, repr=False)
    _solved: tuple[bytes, Floats] = field(default=(b"", np.zeros((0, 0))), init=False, repr=False)

    def __post_init__(self) -> None:
        self._ledger = Ledger(self.lease)

    def decide(self, snapshot: Snapshot) -> Decision:
        """One round."""
        draft, pools = Draft(snapshot), TypePools.of(snapshot)
        if not len(snapshot.jobs):
            return draft.commit()
        renew = self._ledger.settle(snapshot, pools)
        gpus = snapshot.jobs.gpus.astype(np.int64)
        if self.fair:
            gain, spare = fair_gain(pools, gpus), np.arange(len(gpus))
        else:
            gain = completion_gain(pools, snapshot)
            spare = np.argsort(-gain.max(axis=1) / np.maximum(1, gpus), kind="stable")
        fraction = self._solve(np.where(gpus[:, None] > 0, gain, 0.0), gpus, pools)
        self._ledger.entitle(fraction)
        hand_out(draft, pools, self._ledger.priority(), spare, self.lease, renew=renew)
        start_if_idle(draft)
        if _settled(draft, pools, fraction):
            return draft.commit()
        return draft.commit(wake_s=self._ledger.next_round_s())

    def _solve(self, gain: Floats, gpus: Ints, pools: TypePools) -> Floats:
        """The program's answer; that of last time if the question is the same."""
        question = b"".join(x.tobytes() for x in (gain, gpus, pools.gpus))
        if question != self._solved[0]:
            program = max_min if self.fair else most_gain
            answer = program(gain, gpus, pools.gpus, pools.share)
            # What simplex leaves of a column that it dropped is no claim to a round.
            self._solved = question, np.where(answer < TINY, 0.0, np.minimum(answer, 1.0))
        return self._solved[1]


def _settled(draft: Draft, pools: TypePools, fraction: Floats) -> bool:
    """Whether all jobs run where they are to run all the time: no round can change that."""
    same = draft.snapshot.jobs.rows["share_len"] == draft.length
    home = np.where(pools.held >= 0, pools.held, 0)
    alone = (fraction > 0).sum(axis=1) == (fraction[np.arange(len(home)), home] > 0)
    return bool((same & (draft.length > 0) & alone).all())


POLICIES: Final = {
    "gavel-max-min": PolicyEntry(
        "Max-min fair throughput over GPU types, by linear programs; rounds of leases.",
        "Gavel, OSDI 2020", Gavel, LEASE, {"fair": True}),
    "gavel-min-jct": PolicyEntry(
        "Most remaining work completed per second over GPU types; rounds of leases.",
        "after Gavel, OSDI 2020", Gavel, LEASE, {"fair": False}),
}  # fmt: skip
