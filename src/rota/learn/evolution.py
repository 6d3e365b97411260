"""Evolution: a few numbers are improved by playing with changed ones, and no gradient.

CMA-ES (Hansen, "The CMA evolution strategy: a tutorial", 2016): candidates are drawn from a normal
distribution, in pairs that mirror each other; its mean goes towards those that did best, its shape
and width follow the steps that succeeded. Its constants are those of the tutorial.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rota.core.types import Floats


@dataclass
class Evolution:
    """The distribution of candidates."""

    mean: Floats  # (D,)
    scale: Floats  # (D,) how far each number is changed at first
    population: int
    """Candidates of a generation; an even number."""
    rng: np.random.Generator
    width: float = 1.0
    _shape: Floats = field(init=False, repr=False)  # (D, D) covariance, in units of `scale`
    _path: Floats = field(init=False, repr=False)  # (D,) where the mean has been going
    _length: Floats = field(init=False, repr=False)  # (D,) the same, with the shape taken out
    _drawn: Floats = field(init=False, repr=False)  # (population, D) the last draws
    _steps: Floats = field(init=False, repr=False)  # (population, D) the same, shaped

    def __post_init__(self) -> None:
        D = len(self.mean)
        self._shape, self._path, self._length = np.eye(D), np.zeros(D), np.zeros(D)
        best = self.population // 2
        share = np.log(best + 0.5) - np.log(np.arange(1, best + 1))
        self._share = share / share.sum()
        many = self._many = 1.0 / (self._share**2).sum()
        self._rank_one = 2.0 / ((D + 1.3) ** 2 + many)
        self._rank_many = min(
            1.0 - self._rank_one, 2.0 * (many - 2.0 + 1.0 / many) / ((D + 2.0) ** 2 + many)
        )
        self._path_rate = (4.0 + many / D) / (D + 4.0 + 2.0 * many / D)
        self._length_rate = (many + 2.0) / (D + many + 5.0)
        self._damping = 1.0 + self._length_rate
        self._damping += 2.0 * max(0.0, np.sqrt((many - 1.0) / (D + 1.0)) - 1.0)
        self._usual = np.sqrt(D) * (1.0 - 1.0 / (4.0 * D) + 1.0 / (21.0 * D**2))

    def ask(self) -> Floats:
        """Candidates to play (population, D)."""
        half = self.rng.normal(size=(self.population // 2, len(self.mean)))
        self._drawn = np.concatenate([half, -half])
        root = np.linalg.cholesky(self._shape + 1e-9 * np.eye(len(self.mean)))
        self._steps = self._drawn @ root.T
        asked: Floats = self.mean + self.width * self.scale * self._steps
        return asked

    def tell(self, costs: Floats) -> None:
        """Learn from what the candidates cost (population,)."""
        best = np.argsort(costs, kind="stable")[: len(self._share)]
        step, drawn = self._share @ self._steps[best], self._share @ self._drawn[best]
        self.mean = self.mean + self.width * self.scale * step
        self._length = _mixed(self._length, drawn, self._length_rate, self._many)
        self._path = _mixed(self._path, step, self._path_rate, self._many)
        many = (self._steps[best].T * self._share) @ self._steps[best]
        kept = 1.0 - self._rank_one - self._rank_many
        self._shape = kept * self._shape + self._rank_one * np.outer(self._path, self._path)
        self._shape = self._shape + self._rank_many * many
        grown = np.linalg.norm(self._length) / self._usual - 1.0
        self.width *= float(np.exp(self._length_rate / self._damping * grown))


def _mixed(path: Floats, step: Floats, rate: float, many: float) -> Floats:
    """A path after one more step; its length stays that of a single draw if steps are random."""
    mixed: Floats = (1.0 - rate) * path + np.sqrt(rate * (2.0 - rate) * many) * step
    return mixed
