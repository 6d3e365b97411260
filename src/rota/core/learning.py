"""What is known of learning: accuracy by epochs for networks that can grow, and where jobs stand.

Like speed, learning has one common form for all rooms; the fits behind it live in `rota.perf`.
Training by the curve of a size takes a network from accuracy `top - span` towards `top`:
`top - span * (1 + epochs / scale) ** -power`. A growth preserves what the network computes, so
it goes on along the larger size's curve from the point that has the accuracy it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Final

import numpy as np

from rota.errors import ConfigError, DecisionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike

    from rota.core.types import Bools, Floats, Ints

GROW: Final = "grow"
"""The setting of `Draft.tune` by which a network grows: the number of levels."""
_LAWS: Final = ("top", "span", "scale", "power", "cost")
ROUNDING: Final = 1e-9
"""What the starts of two fitted curves may differ by and still count as the same."""


@dataclass(frozen=True, kw_only=True)
class LearningCurves:
    """How accurate networks become: one family for each model, one curve for each of its sizes.

    Level 0 is the size with which a job begins. Entries beyond a family's levels mean nothing.
    """

    names: tuple[str, ...]  # (F,) the models
    epochs: Floats  # (F,) that a job of the family trains for
    levels: Ints  # (F,) the number of sizes
    top: Floats  # (F, L) what the accuracy comes near to
    span: Floats  # (F, L) top − accuracy at the start
    scale: Floats  # (F, L) epochs
    power: Floats  # (F, L)
    cost: Floats  # (F, L) work of an epoch, in epochs of level 0
    pause_s: float = 0.0
    """Seconds without progress when a network grows."""

    def __post_init__(self) -> None:
        families, most = len(self.names), int(self.levels.max(initial=1))
        shapes = {name: getattr(self, name).shape for name in _LAWS}
        if self.levels.shape != (families,) or self.epochs.shape != (families,):
            raise ConfigError(
                f"Learning curves of {families} families need as many epochs and levels, not "
                f"{self.epochs.shape} and {self.levels.shape}."
            )
        if wrong := [name for name, shape in shapes.items() if shape != (families, most)]:
            raise ConfigError(
                f"Learning curves: {wrong[0]} has shape {shapes[wrong[0]]}, not {families, most}."
            )
        if not families:
            raise ConfigError("Learning curves need one family at least.")
        if not 0 <= self.pause_s < np.inf:
            raise ConfigError(f"pause_s={self.pause_s} must be a number of seconds, 0 or more.")
        for family, name in enumerate(self.names):
            self._check(family, name)

    def _check(self, family: int, name: str) -> None:
        """Refuse a family in which accuracy could fall, or leave 0 … 1."""
        own = {law: getattr(self, law)[family, : self.levels[family]] for law in _LAWS}
        start = own["top"] - own["span"]
        rules = (
            (self.levels[family] > 0, "it has no level"),
            (0 < self.epochs[family] < np.inf, f"epochs={self.epochs[family]} must be positive"),
            (((own["top"] > 0) & (own["top"] <= 1)).all(), "every top must lie in (0, 1]"),
            (((own["span"] >= 0) & (start >= -ROUNDING)).all(), "every span must lie in 0 … top"),
            (
                ((own["scale"] > 0) & (own["scale"] < np.inf)).all()
                and ((own["power"] > 0) & (own["power"] < np.inf)).all(),
                "every scale and power must be positive",
            ),
            (
                (own["cost"] < np.inf).all() and (np.diff(own["cost"]) >= 0).all()
                and (own["cost"][:1] == 1).all(),
                "costs must begin with 1 and not fall",
            ),
            # Else a network that has learned nothing yet would jump when it grows.
            ((np.diff(start) <= ROUNDING).all(), "a larger size must not start above a smaller"),
        )  # fmt: skip
        for holds, why in rules:
            if not holds:
                raise ConfigError(f"Learning curves of {name!r}: {why}.")

    def index(self, model: str) -> int:
        """Which family is that of `model`; −1 if none is."""
        return self.names.index(model) if model in self.names else -1

    def accuracy(self, family: ArrayLike, level: ArrayLike, epochs: ArrayLike) -> Floats:
        """Accuracy after so many epochs at that size; all arguments may be arrays."""
        at = np.asarray(family), np.asarray(level)
        left = (1.0 + np.asarray(epochs) / self.scale[at]) ** -self.power[at]
        return np.asarray(self.top[at] - self.span[at] * left)

    def epochs_to(self, family: ArrayLike, level: ArrayLike, accuracy: ArrayLike) -> Floats:
        """Epochs after which a size has this accuracy: 0 below its start, inf from its top on."""
        at = np.asarray(family), np.asarray(level)
        short = self.top[at] - np.asarray(accuracy)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = np.where(short > 0, self.span[at] / short, np.inf)
            epochs = self.scale[at] * (np.maximum(ratio, 1.0) ** (1.0 / self.power[at]) - 1.0)
        # Where a curve is flat there is no way to its top: it is there from the start.
        return np.where((ratio <= 1) | (self.span[at] == 0), 0.0, epochs)

    def cost_ratio(self, family: ArrayLike, level: ArrayLike, by: ArrayLike) -> Floats:
        """By what the work left is multiplied when a network grows by so many levels."""
        family, level = np.asarray(family), np.asarray(level)
        return np.asarray(self.cost[family, level + by] / self.cost[family, level])


@dataclass(frozen=True)
class Learning:
    """Where each job of a snapshot stands in learning; −1 as family: it has no curve."""

    curves: LearningCurves
    family: Ints  # (J,)
    level: Ints  # (J,)
    epochs: Floats  # (J,) on the curve of its level
    floor: Floats  # (J,) the accuracy at its last growth, below which it does not fall
    epochs_left: Floats  # (J,) for which it still trains

    @property
    def knows(self) -> Bools:
        """Which jobs have a curve (J,)."""
        return np.asarray(self.family >= 0)

    @property
    def can_grow(self) -> Ints:
        """By how many levels each job can still grow (J,)."""
        levels = np.append(self.curves.levels, 1)  # of a job without a curve
        return np.asarray(levels[self.family] - 1 - self.level)

    @property
    def accuracy(self) -> Floats:
        """The accuracy of each job now (J,); NaN without a curve."""
        return self.after(np.zeros(len(self.family)))

    def after(self, epochs: ArrayLike, by: ArrayLike = 0) -> Floats:
        """The accuracy of each job (J,) after further epochs, if it grows by `by` levels first.

        NaN without a curve, and for a job that cannot grow so far.
        """
        out = np.full(len(self.family), np.nan)
        by = np.broadcast_to(np.asarray(by, np.int64), out.shape)
        mine = np.flatnonzero(self.knows & (by <= self.can_grow))
        more = np.broadcast_to(np.asarray(epochs, np.float64), out.shape)[mine]
        grown = self.grown(mine, by[mine])
        reached = self.curves.accuracy(self.family[mine], grown.level, grown.epochs + more)
        out[mine] = np.maximum(grown.floor, reached)
        return out

    def grown(self, jobs: Ints, by: ArrayLike) -> Learning:
        """The same of these jobs alone, after they have grown by so many levels each."""
        by = np.broadcast_to(np.asarray(by, np.int64), (len(jobs),))
        family, level, epochs = self.family[jobs], self.level[jobs], self.epochs[jobs]
        reached = np.maximum(self.floor[jobs], self.curves.accuracy(family, level, epochs))
        there = self.curves.epochs_to(family, level + by, reached)
        grows = by > 0
        return Learning(
            self.curves, family, level + by, np.where(grows, there, epochs),
            np.where(grows, reached, self.floor[jobs]), self.epochs_left[jobs],
        )  # fmt: skip


def check_tunes(
    tunes: Mapping[int, Mapping[str, float]], learning: Learning, uid: Ints, held: Ints
) -> None:
    """Refuse tunes that no network can follow; `held` (J,) tells what jobs shall hold."""
    can_grow = learning.can_grow
    for job, settings in tunes.items():
        for name, value in settings.items():
            if name != GROW:
                raise DecisionError(
                    f"Job {uid[job]} cannot be tuned by {name!r}; in a world with learning curves "
                    f"the one setting is {GROW!r}, the number of levels its network grows by."
                )
            whole = isinstance(value, Real) and not isinstance(value, bool)
            if not whole or not 1 <= value < np.inf or value != int(value):
                raise DecisionError(
                    f"Job {uid[job]} cannot grow by {value!r} levels; give a whole number from 1, "
                    "or leave the tune out."
                )
            if not held[job]:
                raise DecisionError(
                    f"Job {uid[job]} shall grow but holds nothing; place it, or let it grow later."
                )
            if learning.family[job] < 0:
                raise DecisionError(
                    f"Job {uid[job]} cannot grow: no learning curve of its model is known; tune "
                    "jobs with Learning.can_grow above 0 only."
                )
            if value > can_grow[job]:
                raise DecisionError(
                    f"Job {uid[job]} cannot grow by {value:g} levels: it is at level "
                    f"{learning.level[job]} and the largest is "
                    f"{learning.level[job] + can_grow[job]}; see Learning.can_grow."
                )
