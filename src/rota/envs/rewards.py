"""Kinds of reward, computed when a round ends.

Each is a sum over jobs, so that a learner can credit each job with its own part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from rota.core.types import Floats, Ints
from rota.errors import ConfigError, UnknownNameError

PROGRESS: Final = 0
JOBS: Final = 1
FEE: Final = 2
SLOWDOWN: Final = 3
DEEPSHARE: Final = 4
DAS: Final = 5
FADES: Final = 1.0 - 2.0 / 11.0
"""What the weight of a round's utilisation becomes with every later round: a span of ten."""
HOUR_S: Final = 3600.0

KINDS: Final = {
    "progress": PROGRESS,  # part of its work that each job has done, as DL2; sums to the jobs done
    "jobs": JOBS,  # −jobs in the system × time; sums to −ΣJCT
    "fee": FEE,  # −dollars
    "slowdown": SLOWDOWN,  # −time / run time at the requested size; sums to −Σ slowdown
    "deepshare": DEEPSHARE,  # −speed lost to neighbours + recent utilisation, as DeepShare
    "das": DAS,  # 1 / (fee × time) of each job that starts − a fine for each that waits, as DAS
}


@dataclass(frozen=True, kw_only=True)
class Reward:
    """A kind of reward and its unit of time."""

    kind: str = "jobs"
    """One of `progress`, `jobs`, `fee`, `slowdown`, `deepshare` and `das`."""
    unit_s: float = 0.0
    """Seconds that count as 1 in `jobs`; 0: a slot, or an hour where there are no slots."""
    contention_weight: float = 0.5
    """In `deepshare`: of the part of their speed that running jobs lose to others, on average."""
    utilisation_weight: float = 0.5
    """In `deepshare`: of the part of the GPUs in use, averaged over about ten rounds."""
    fine: float = 0.01
    """In `das`: of what the GPUs that waiting jobs ask for cost in an hour."""
    dollar_s: float = 0.0
    """In `jobs`: the seconds that a dollar counts as, at most, by which a fee is above what the job
    would pay at the mean price and its usual speed. Every world has its own, see `dollars`; 0: fees
    do not count."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UnknownNameError("reward", self.kind, KINDS)
        if not 0 <= self.unit_s < np.inf:
            raise ConfigError(f"reward.unit_s={self.unit_s} must be 0 or more seconds.")
        for name in ("contention_weight", "utilisation_weight", "fine", "dollar_s"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ConfigError(f"reward.{name}={getattr(self, name)} must be 0 or more.")
        if self.dollar_s and self.kind != "jobs":
            raise ConfigError(
                f"reward.dollar_s={self.dollar_s} counts fees in the reward 'jobs' only, not in "
                f"{self.kind!r}."
            )

    def dollars(self, seeds: Ints) -> Floats:
        """What a dollar is worth in the worlds of these seeds: in one of four nothing, in others
        from a fortieth of `dollar_s` up to it, evenly by its logarithm."""
        if not self.dollar_s:
            return np.zeros(len(seeds))
        luck = np.array([np.random.default_rng([int(seed), 1]).random(2) for seed in seeds])
        return np.where(luck[:, 0] < 0.25, 0.0, self.dollar_s * 40.0 ** (luck[:, 1] - 1.0))


class Score(NamedTuple):
    """The rewards of a batch so far; arrays and numbers only, so that kernels can take it."""

    kind: int
    unit_s: float
    since_s: Floats  # (B,) rewards are counted up to this time
    oldest: Ints  # (B,) the first job that had not ended by then
    level: Floats  # (B, J) what each job had reached by then: progress, or −dollars
    gains: Floats  # (B, J) each job's part of the last reward
    total: Floats  # (B,) the return so far
    contention_weight: float
    utilisation_weight: float
    recent: Floats  # (B, 2) utilisation summed with fading weights, and the sum of these
    fine: float
    dollar_s: Floats  # (B,) what a dollar of fee is worth


def new_score(reward: Reward, batch: int, jobs: int, slot_s: float) -> Score:
    """A score of 0 for every cluster."""
    return Score(
        KINDS[reward.kind], reward.unit_s or slot_s or HOUR_S, np.full(batch, -np.inf),
        np.zeros(batch, np.int64), np.zeros((batch, jobs)), np.zeros((batch, jobs)),
        np.zeros(batch), reward.contention_weight, reward.utilisation_weight,
        np.zeros((batch, 2)), reward.fine, np.zeros(batch),
    )  # fmt: skip
