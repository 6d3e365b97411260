"""`least-loss` with two learned agents that advise it: the policy `das`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from rota.policies.contention.least_loss import SETTINGS, LeastLoss
from rota.policies.contention.loss_advice_kernels import ORDERING, PLACING
from rota.policies.settings import PolicyEntry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.core.decision import Decision
    from rota.core.snapshot import Snapshot
    from rota.core.types import Floats

WEIGHTS: Final = Path(__file__).with_name("advice.toml")
"""What was learned; results/das_advice.py writes it."""
KNOWN, HIDDEN = "known", "hidden"
"""Its tables: where the lengths of jobs are known, and where not."""
LEARNED: Final = ("horizon", "margin", "gain", "unknown", "again")
"""Settings of the rule that are learned beside the weights of the agents."""


@dataclass
class AdvisedLoss(LeastLoss):
    """`least-loss` with weights for the agents."""

    ordering: Floats = field(default_factory=lambda: np.zeros(len(ORDERING)), repr=False)
    placing: Floats = field(default_factory=lambda: np.zeros(len(PLACING)), repr=False)

    def _advice(self) -> tuple[Floats, Floats]:
        return self.ordering, self.placing

    @classmethod
    def of(cls, table: Mapping[str, Any], **settings: Any) -> AdvisedLoss:
        """As a table says: weights by what they are for, and settings of the rule."""
        found: dict[str, Any] = {name: float(table[name]) for name in LEARNED}
        for part, names in (("ordering", ORDERING), ("placing", PLACING)):
            found[part] = np.array([float(table[part][name]) for name in names])
        return cls(**found, **settings)


@cache
def learned() -> Mapping[str, Mapping[str, Any]]:
    """The tables that ship."""
    return tomllib.loads(WEIGHTS.read_text())


@dataclass
class Das:
    """`least-loss`, advised by one who orders jobs and one who sets what GPU types cost them.

    There are two pairs of them: for clusters that know how long jobs are, and for others. By
    default a dollar counts a little: weights of 25, 50 and 100 s all had shorter times than 0 on
    validation traces of das-small, as dear places are mostly those that others need.
    """

    compiles: ClassVar[bool] = True

    name: str = "das"
    oracle: bool = False
    stops: bool = True
    moves: bool = True
    displaces: bool = True
    lengths: bool = True
    drift: float = 0.0
    wake: float = 900.0
    fee: float = 50.0

    def __post_init__(self) -> None:
        settings = {name: getattr(self, name) for name in OWN}
        self._known, self._hidden = (
            AdvisedLoss.of(learned()[which], **settings) for which in (KNOWN, HIDDEN)
        )

    def decide(self, snapshot: Snapshot) -> Decision:
        """One round."""
        knows = self.lengths and np.isfinite(snapshot.jobs.remaining_s).any()
        return (self._known if knows else self._hidden).decide(snapshot)


OWN: Final = ("stops", "moves", "displaces", "lengths", "drift", "wake", "fee")
"""Settings of the rule that are not learned."""
POLICIES: Final = {
    "das": PolicyEntry(
        "least-loss with two learned agents that advise it on order and places.",
        "rota, after DAS, KDD 2023", Das, {name: SETTINGS[name] for name in OWN}),
}  # fmt: skip
