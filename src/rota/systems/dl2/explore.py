"""Exploration beyond what a network draws: DL2's rules, or random actions."""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.jit_call import Caller
from rota.systems.dl2.explore_kernels import FIRST, explore

if TYPE_CHECKING:
    from rota.core.types import Bools, Ints
    from rota.envs.book import Book
    from rota.systems.dl2.dl2_settings import ExploreConfig
    from rota.systems.dl2.step_lens import StepByStep

_HIGHEST = 700.0
"""The largest argument of exp() that does not overflow."""


class Explorer:
    """Replaces some of the actions that were drawn for a batch, and counts them.

    A replaced action is stored with the network's probability of it, not with the probability by
    which it was chosen, as in DL2. So PPO, which needs the latter, must not learn from it.
    """

    def __init__(
        self, config: ExploreConfig, lens: StepByStep, batch: int, rng: np.random.Generator
    ) -> None:
        self._config, self._lens, self._rng = config, lens, rng
        self._ratio, self._counts = np.zeros(batch, np.int64), np.zeros(3, np.int64)
        self._other = np.zeros(batch, np.int64)
        self._run = Caller()
        self.update = 0
        """Updates of the learner so far; the trainer sets it."""
        self.overruled = self.seen = 0

    @property
    def chance(self) -> float:
        """The probability of a random action now: DL2's 2 / (1 + e^(update / decay))."""
        return 2.0 / (1.0 + exp(min(self.update / self._config.decay, _HIGHEST)))

    def overrule(self, book: Book, mask: Bools, logits: Any, action: Ints, log_prob: Any) -> None:
        """Replace some of `action` (B,), which was drawn by `logits` (B, A)."""
        self.seen += action.size
        if self._config.kind == "epsilon":
            self._wander(mask, logits, action, log_prob)
            return
        luck = self._rng.random((action.size, FIRST + self._lens.window))
        self.overruled += self._run(
            explore, book, mask, logits, luck, self._config.balance, self._ratio, self._counts,
            action, log_prob,
        )  # fmt: skip

    def _wander(self, mask: Bools, logits: Any, action: Ints, log_prob: Any) -> None:
        self._lens.sample(mask, self._rng.random(action.size), self._other)
        rows = np.flatnonzero(self._rng.random(action.size) < self.chance)
        log_prob[rows] += logits[rows, self._other[rows]] - logits[rows, action[rows]]
        action[rows] = self._other[rows]
        self.overruled += rows.size
