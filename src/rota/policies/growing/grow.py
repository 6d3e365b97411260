"""`grow`: another policy shares out the cluster; networks grow where accuracy is worth the time.

After each decision of the base policy, every job that holds something is asked what accuracy it
expects at its deadline as it is, and after a growth. The gain in accuracy is weighed against the
delay that the added work means for the job itself and for all jobs that lack workers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core.learning import GROW
from rota.errors import ConfigError
from rota.policies.catalogue import make_policy
from rota.policies.classic.heuristic import Heuristic
from rota.policies.growing.outlook import Outlook
from rota.policies.settings import PolicyEntry, Setting, flag

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rota.core.decision import Decision
    from rota.core.seams import Policy
    from rota.core.snapshot import Snapshot
    from rota.core.types import Floats, Ints

LEAST_GAIN: Final = 1e-4
"""Less accuracy than this is not worth a change."""
LATER: Final = (0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95)
"""Parts of the epochs left after which a growth is considered, beside now."""
LEAST_WAIT_S: Final = 60.0
"""A round sooner than this is not asked for."""
HOUR_S: Final = 3600.0


@dataclass(frozen=True)
class GrowPolicy:
    """The base policy's decisions, with growth where it pays."""

    base: Policy
    name: str = "grow"
    oracle: bool = False
    """Whether it, and its base, are shown the truth where a scenario hides it."""
    weight: float = 0.03
    """Accuracy, as a part of 1, that must be gained for each hour of delay, summed over jobs."""
    patient: bool = True
    """Whether a network that would be better grown later waits."""

    @property
    def compiles(self) -> bool:
        """Whether the base may have to wait for kernels to be compiled."""
        return compiles(self.base)

    def decide(self, snapshot: Snapshot) -> Decision:
        """One round."""
        decision = self.base.decide(snapshot)
        if snapshot.learning is None or np.isinf(self.weight):
            return decision
        outlook = Outlook.of(snapshot, decision, snapshot.learning)
        parts = (0.0, *LATER) if self.patient else (0.0,)
        by, worth = self._best(outlook, parts)
        when = worth.argmax(axis=0)  # the first of the best: now, if waiting is worth no more
        waits = when > 0
        wait_s = np.full(len(when), np.inf)
        wait_s[waits] = np.array(parts)[when[waits]] * outlook.takes_s[waits]
        holds = outlook.gpus > 0
        grown = tuned(decision, np.where(holds & ~waits, by[0], 0))
        soon_s = max(float(wait_s[holds].min(initial=np.inf)), LEAST_WAIT_S)
        return replace(grown, wake_s=min(grown.wake_s, snapshot.time_s + soon_s))

    def _best(self, outlook: Outlook, parts: Sequence[float]) -> tuple[Ints, Floats]:
        """The growth that is worth most beyond its price, and what it is worth.

        For each of P parts of the epochs left, and each job (P, J); 0: none is worth anything.
        """
        ungrown = np.tile(outlook.accuracy(0), len(parts))
        then = outlook.later(parts)
        most = int(outlook.learning.can_grow.max(initial=0))
        best, worth = np.zeros(len(ungrown), np.int64), np.zeros(len(ungrown))
        for by in range(1, most + 1):
            net = then.accuracy(by) - ungrown - LEAST_GAIN
            if self.weight:  # else 0 × an infinite delay would be unknown
                net = net - self.weight * then.delay_s(by) / HOUR_S
            # False where anything is unknown; after its deadline a job has nothing to gain.
            better = (net > worth) & (then.left_s > 0)
            best[better], worth[better] = by, net[better]
        return best.reshape(len(parts), -1), worth.reshape(len(parts), -1)


@dataclass(frozen=True)
class GrowAlways:
    """The base policy's decisions, with every network at its largest as soon as it runs."""

    base: Policy
    name: str = "grow-always"
    oracle: bool = False
    """Whether its base is shown the truth where a scenario hides it."""

    @property
    def compiles(self) -> bool:
        """Whether the base may have to wait for kernels to be compiled."""
        return compiles(self.base)

    def decide(self, snapshot: Snapshot) -> Decision:
        """One round."""
        decision = self.base.decide(snapshot)
        if snapshot.learning is None:
            return decision
        return tuned(decision, np.where(decision.length > 0, snapshot.learning.can_grow, 0))


def compiles(base: Policy) -> bool:
    """Whether a policy runs compiled code."""
    return isinstance(base, Heuristic) or bool(getattr(base, "compiles", False))


def tuned(decision: Decision, by: Ints) -> Decision:
    """The decision, with these growths (J,)."""
    more = {int(job): {GROW: int(by[job])} for job in np.flatnonzero(by)}
    if not more:
        return decision
    return replace(decision, tunes={**decision.tunes, **more})


def on_base(make: Callable[..., Policy]) -> Callable[..., Policy]:
    """The class, made with the name of its base in place of the base itself."""

    def made(
        base: str = "hull-greedy", name: str = "", oracle: bool = False, **settings: Any
    ) -> Policy:
        return make(base_policy(base), name=name, oracle=oracle, **settings)

    return made


def base_policy(name: str) -> Policy:
    """The policy called so, with `/` for `+`, as in `las/elastic`."""
    base = make_policy(name.replace("/", "+"))
    if isinstance(base, Heuristic) and (base.learns or base.error > 0):
        raise ConfigError(
            f"base={name!r} draws on past jobs or estimates of its own, which no other policy can "
            "hand on to it; take another base, such as hull-greedy or las/elastic."
        )
    return base


def _weight(text: str) -> float:
    value = float(text)
    if not value >= 0:
        raise ValueError
    return value


_BASE: Final = Setting(
    "the policy that shares out the cluster, with / for + (default hull-greedy)", str,
    "the name of a policy",
)  # fmt: skip

POLICIES: Final = {
    "grow": PolicyEntry(
        "Another policy; networks grow where accuracy at the deadline is worth the delay.",
        "rota; gain > weight × delay of all jobs",
        on_base(GrowPolicy),
        {
            "base": _BASE,
            "weight": Setting(
                "accuracy to be gained per hour of delay; 0: any gain will do, inf: never grow",
                _weight, "a number, 0 or more, or inf",
            ),
            "patient": Setting("whether networks wait that are better grown later", flag, "0 or 1"),
        },
    ),
    "grow-always": PolicyEntry(
        "Another policy; every network is grown to its largest as soon as it runs.",
        "baseline",
        on_base(GrowAlways),
        {"base": _BASE},
    ),
}  # fmt: skip
