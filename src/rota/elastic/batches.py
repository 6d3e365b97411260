"""Which samples each worker takes: one order per epoch, of which each step takes the next part.

The order depends on the seed and the epoch alone, not on the workers. So workers may join and leave
within an epoch, and every sample is still taken exactly once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from rota.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from numpy.typing import NDArray

RULES: Final = {"constant": None, "linear": 1.0, "sqrt": 0.5, "batch": 0.0}
"""How batch and learning rate follow the number of workers n: None keeps both; with a power p the
batch grows by n and the learning rate by n ** p."""


class Position(NamedTuple):
    """The progress of a training."""

    step: int = 0
    epoch: int = 0
    taken: int = 0
    """Samples of this epoch that are done."""
    samples: int = 0
    """Samples done in all."""
    workers: int = 1
    """Number of workers for which the learning rate is set."""


class Batch(NamedTuple):
    """One worker's share of one step.

    A worker for which no samples are left gets one whose gradient does not count, so that it makes
    the same steps as the others: then `share` is 0.
    """

    indices: NDArray[np.int64]
    share: int
    """Samples of this worker that count."""
    total: int
    """Samples of all workers."""
    epoch: int
    step: int
    seed: int
    """A number of its own for every step and rank; torch is seeded with it."""


@dataclass(frozen=True, kw_only=True)
class Batches:
    """The samples of a training, in the order they are taken."""

    samples: int
    """Size of the data set."""
    batch: int
    """Samples per step: of all workers with the rule "constant", of each one otherwise."""
    epochs: int = 1
    seed: int = 0
    shuffle: bool = True
    rule: str = "constant"

    def __post_init__(self) -> None:
        for name in ("samples", "batch", "epochs"):
            value = getattr(self, name)
            if not (isinstance(value, int) and value > 0):
                raise ConfigError(f"{name}={value!r} is not a whole number above 0.")
        if self.rule not in RULES:
            raise UnknownNameError("rule", self.rule, RULES)

    def total(self, at: Position, workers: int) -> int:
        """Samples of the next step, over all workers."""
        wanted = self.batch if RULES[self.rule] is None else self.batch * workers
        return min(wanted, self.samples - at.taken)

    def factor(self, workers: int) -> float:
        """The learning rate, relative to that of one worker."""
        power: float = RULES[self.rule] or 0.0
        return math.pow(workers, power)

    def over(self, at: Position) -> bool:
        """Whether the last sample of the last epoch is done."""
        return at.epoch >= self.epochs

    def after(self, at: Position, workers: int) -> Position:
        """The position after one more step."""
        total = self.total(at, workers)
        ended = at.taken + total >= self.samples
        taken = 0 if ended else at.taken + total
        return Position(at.step + 1, at.epoch + ended, taken, at.samples + total, at.workers)


class ShareSampler:
    """Draws each worker's share of a step; caches the order of the present epoch."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches
        self._epoch = -1
        self._order: NDArray[np.int64] = np.arange(0)

    def share(self, at: Position, rank: int, workers: int) -> Batch:
        """The samples of the worker of this rank in the next step."""
        plan = self.batches
        if at.epoch != self._epoch:
            self._epoch = at.epoch
            self._order = np.arange(plan.samples)
            if plan.shuffle:
                np.random.default_rng([plan.seed, at.epoch]).shuffle(self._order)
        total = plan.total(at, workers)
        taken = self._order[at.taken : at.taken + total]
        own = taken[rank::workers]
        # A small hash: neighbouring steps and ranks get unrelated seeds.
        seed = (plan.seed * 0x9E3779B1 + at.step * 0x85EBCA77 + rank * 0xC2B2AE3D) & 0x7FFFFFFF
        return Batch(own if own.size else taken[:1], own.size, total, at.epoch, at.step, seed)
