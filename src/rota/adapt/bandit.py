"""A contextual bandit: the gain of an episode as a linear function of what grew, and when.

It is what learning by trial must beat to be worth its trouble. Thompson sampling (Agrawal and
Goyal, 2013) explores: weights are drawn from what they may still be, and the best choice under them
is taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rota.adapt.features import numbers_of
from rota.adapt.growth_cases import check_cases, gain_of
from rota.adapt.turns import Looked, Turns
from rota.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rota.adapt.features import Numbers
    from rota.adapt.growth_cases import Cases
    from rota.adapt.moment import GrowthChoice, Moment

    Doubles = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class BanditSettings:
    """What the bandit believes before it has seen anything."""

    prior: float = 0.1
    """Deviation of a weight."""
    noise: float = 0.03
    """Deviation of a gain from what the weights say."""

    def __post_init__(self) -> None:
        for name in ("prior", "noise"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0.0):
                raise ConfigError(f"bandit.{name}={value!r} must be a number above 0.")


def effects_of(moment: Moment) -> Doubles:
    """Every choice as what it does times when it is done (C, F); nothing is all zeros.

    The effect of no growth on the gain over no growth is 0, and needs no learning.
    """
    context = _context(moment)
    return np.array(
        [np.outer(_change(moment, choice), context).ravel() for choice in moment.choices]
    )


def _context(moment: Moment) -> list[float]:
    numbers: Numbers = numbers_of(moment)
    left = float(numbers.context[0])
    measured = 0.0 if math.isnan(moment.accuracy) else min(max(moment.accuracy, 0.0), 1.0)
    epochs = math.log1p(max(moment.left_s, 0.0) / max(moment.epoch_s, 1e-9)) / 4.0
    return [1.0, left, left * left, min(epochs, 4.0), measured]


def _change(moment: Moment, choice: GrowthChoice) -> list[float]:
    if choice.growth is None:
        return [0.0] * 9
    layer = moment.layers[choice.layer]
    # Layers that were put in later do not move the place of those that were there.
    originals = [i for i, other in enumerate(moment.layers) if other.original]
    before = sum(i < choice.layer for i in originals)
    place = min(before / max(len(originals) - 1, 1), 1.0)
    slower = choice.epoch_s / max(moment.epoch_s, 1e-9) - 1.0
    larger = math.log2(max(choice.parameters, 1) / max(moment.choices[-1].parameters, 1))
    return [
        1.0,
        place,
        place * place,
        math.log2(choice.growth.factor) if choice.growth.operation == "widen" else 0.0,
        float(layer.kind == "linear"),
        math.log2(max(layer.outputs, 1)) / 8.0,
        min(layer.added / 2.0, 4.0),
        min(max(slower, -1.0), 4.0),
        min(larger, 8.0),
    ]


@dataclass(frozen=True, eq=False)
class Linear:
    """Takes the choice whose effect is highest under its weights."""

    weights: Doubles

    def choose(self, moment: Moment) -> int:
        """The best choice; the first of equals."""
        return int((effects_of(moment) @ self.weights).argmax())


class Bandit:
    """Learns the effects of choices from the gains of episodes, by ridge regression."""

    def __init__(
        self, cases: Cases, *, settings: BanditSettings | None = None, seed: int = 0
    ) -> None:
        check_cases(cases)
        self.cases = cases
        self.settings = settings or BanditSettings()
        self._rng = np.random.default_rng(seed)
        self._look = Looked(effects_of)
        width = effects_of(cases.moment(0, 0, ())).shape[1]
        ridge = (self.settings.noise / self.settings.prior) ** 2
        self._products = np.eye(width) * ridge  # (F, F)
        self._sums = np.zeros(width)
        self._turns = Turns(cases, self._rng)
        self.episodes = 0

    @property
    def weights(self) -> Doubles:
        """The likeliest weights."""
        return np.asarray(np.linalg.solve(self._products, self._sums), np.float64)

    @property
    def chooser(self) -> Linear:
        """What has been learned so far, without exploration."""
        return Linear(self.weights)

    def advance(self) -> float:
        """Play one episode and learn from it; gives its gain."""
        case, replica = self._turns.next()
        weights = self._drawn()
        taken: tuple[int, ...] = ()
        done = np.zeros_like(weights)
        for _ in range(self.cases.decisions):
            effects = self._look(self.cases.moment(case, replica, taken))
            choice = int((effects @ weights).argmax())
            done += effects[choice]
            taken = (*taken, choice)
        gain = gain_of(self.cases, case, replica, taken)
        self._products += np.outer(done, done)
        self._sums += done * gain
        self.episodes += 1
        return gain

    def _drawn(self) -> Doubles:
        """Weights drawn from what they may be after all that was seen."""
        root = np.linalg.cholesky(self._products)
        noise = self.settings.noise * self._rng.standard_normal(len(self._sums))
        # With products = L·Lᵀ, L⁻ᵀ·ε has the covariance of their inverse.
        return self.weights + np.linalg.solve(root.T, noise)
