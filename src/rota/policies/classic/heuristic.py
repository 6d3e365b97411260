"""A policy made of parts: an ordering, a placement, a sizing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rota.core.draft import Draft
from rota.ledger.draft_kernels import DraftArrays
from rota.ledger.node_kernels import new_index
from rota.policies.classic.backfill_kernels import decide_once_with_backfill
from rota.policies.classic.decide_kernels import decide_once, wake_once
from rota.policies.classic.orderings import WITH_TABLES
from rota.policies.classic.place_kernels import FGD
from rota.policies.classic.rule import EASY, ELASTIC
from rota.policies.classic.sizing import grow, shrink_back

if TYPE_CHECKING:
    from rota.core.decision import Decision
    from rota.core.snapshot import Snapshot
    from rota.core.types import Floats, Ints
    from rota.policies.classic.rule import Rule


@dataclass(frozen=True)
class Heuristic:
    """A named combination, played round by round; the simulator replays most of them compiled."""

    name: str
    rule: Rule
    error: float = 0.0
    """Standard deviation of the log error of the duration estimates it is to be given."""
    classes: int = 64
    """The number of classes of attained service that a Gittins index tells apart."""
    oracle: bool = False
    """Whether it is shown the truth where a scenario hides it."""

    @property
    def compiled(self) -> bool:
        """Whether whole traces can be replayed without leaving compiled code."""
        return self.rule.sizing != ELASTIC

    @property
    def learns(self) -> bool:
        """Whether it draws on a history of past jobs."""
        return self.rule.order in WITH_TABLES or self.rule.place == FGD

    def learned(self, duration_s: Floats, num_gpus: Ints) -> Heuristic:
        """The same policy with its tables drawn from these past jobs."""
        rule = self.rule
        if rule.order in WITH_TABLES:
            rule = WITH_TABLES[rule.order](rule, duration_s, num_gpus, self.classes)
        if rule.place == FGD:
            # Of gangs larger than a node, what matters is that they need whole ones.
            rule = rule._replace(typical=np.bincount(num_gpus) / max(1, len(num_gpus)))
        return replace(self, rule=rule)

    def decide(self, snapshot: Snapshot) -> Decision:
        """One round."""
        draft, n = Draft(snapshot), len(snapshot.jobs)
        rule = self.rule
        if rule.sizing == ELASTIC:
            shrink_back(draft)
        draft.reserve(self._most_shares(snapshot))
        play = decide_once if rule.passing < EASY else decide_once_with_backfill
        node, part = np.empty((2, len(snapshot.cluster)), np.int64)
        level = new_index(draft.nodes)

        def arrays() -> DraftArrays:
            d = draft
            return DraftArrays(d.nodes, level, d.at, d.length, d.shares, node, part)

        rows = snapshot.jobs.rows.copy()  # a snapshot is read-only, which is another type to Numba
        order, now_s = np.arange(n), snapshot.time_s
        draft.used, wake_s = play(rule, rows, order, n, now_s, np.empty(n), arrays(), draft.used)
        if rule.sizing == ELASTIC:
            # A job shrunk and grown back is unchanged, so only now is it known what has changed.
            grow(draft, rule.place, order)
            wake_s = wake_once(rule, rows, order, n, now_s, arrays())
        return draft.commit(wake_s=wake_s)

    def _most_shares(self, snapshot: Snapshot) -> int:
        """The most shares a round may write: all GPUs anew, some twice, and jobs without GPUs."""
        cluster, rows = snapshot.cluster, snapshot.jobs.rows
        bare = rows["workers"][rows["gpus_per_worker"] == 0]
        return int(
            8 * cluster.total_gpus + len(cluster) + 64 + np.minimum(bare, len(cluster)).sum()
        )
