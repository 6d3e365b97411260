"""Choosers that look at nothing: the best constant sequence, a random one, and none at all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rota.adapt.growth_cases import gain_of, play, sequences
from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.random import Generator

    from rota.adapt.growth import Growth
    from rota.adapt.growth_cases import Cases
    from rota.adapt.moment import Moment


@dataclass(frozen=True)
class GrowthKind:
    """A kind of growth that can be looked for in any network."""

    operation: str
    """Empty: nothing grows."""
    factor: float = 1.0
    """How many times as wide the layer becomes; 1 where it is deepened."""
    place: float = 0.0
    """Where its layer is among those that could grow so: 0 is the first, 1 the last."""

    def __str__(self) -> str:
        times = f" ×{self.factor:g}" if self.operation == "widen" else ""
        return f"{self.operation}{times} at {self.place:g}" if self.operation else "nothing"


NOTHING = GrowthKind("")


def kinds_of(moment: Moment) -> list[GrowthKind]:
    """The kind of every choice."""
    alike: dict[tuple[str, float], set[int]] = {}
    for choice in moment.choices:
        if choice.growth is not None:
            alike.setdefault(_form(choice.growth), set()).add(choice.layer)
    kinds = []
    for choice in moment.choices:
        if choice.growth is None:
            kinds.append(NOTHING)
            continue
        form = _form(choice.growth)
        layers = sorted(alike[form])
        kinds.append(GrowthKind(*form, layers.index(choice.layer) / max(len(layers) - 1, 1)))
    return kinds


def _form(growth: Growth) -> tuple[str, float]:
    return growth.operation, growth.factor if growth.operation == "widen" else 1.0


@dataclass(frozen=True)
class Constant:
    """The same kinds of growth, one after the other, whatever the network and the time.

    Where there is no such growth, the nearest of the same operation is taken; where there is none
    of that operation, nothing.
    """

    kinds: tuple[GrowthKind, ...]

    def choose(self, moment: Moment) -> int:
        """The choice nearest to the kind whose turn it is; nothing after the last."""
        kind = self.kinds[moment.step] if moment.step < len(self.kinds) else NOTHING
        here = kinds_of(moment)
        close = [i for i, other in enumerate(here) if other.operation == kind.operation]
        if not close:
            return len(here) - 1

        def far(index: int) -> tuple[float, float]:
            other = here[index]
            return abs(math.log(other.factor / kind.factor)), abs(other.place - kind.place)

        return min(close, key=far)

    def __str__(self) -> str:
        return ", ".join(map(str, self.kinds))


@dataclass(frozen=True)
class Random:
    """Takes every choice as often as any other."""

    rng: Generator

    def choose(self, moment: Moment) -> int:
        """A choice by lot."""
        return int(self.rng.integers(len(moment.choices)))


class Nothing:
    """Leaves networks as they are."""

    def choose(self, moment: Moment) -> int:
        """The last choice."""
        return len(moment.choices) - 1


def best_constant(cases: Cases, on: Sequence[int]) -> Constant:
    """The constant sequence whose mean gain over some cases is highest; the first of equals."""
    if not len(on):
        raise ConfigError("There are no cases to choose a constant sequence on.")
    known = dict.fromkeys(
        _kinds(cases, case, taken) for case in on for taken in sequences(cases, case)
    )
    gains = [
        np.mean(
            [
                gain_of(cases, case, replica, play(Constant(kinds), cases, case, replica))
                for case in on
                for replica in range(cases.replicas)
            ]
        )
        for kinds in known
    ]
    return Constant([*known][int(np.argmax(gains))])


def _kinds(cases: Cases, case: int, taken: tuple[int, ...]) -> tuple[GrowthKind, ...]:
    """A sequence of choices as kinds."""
    return tuple(
        kinds_of(cases.moment(case, 0, taken[:step]))[choice] for step, choice in enumerate(taken)
    )


def constants_of_others(cases: Cases, labels: Sequence[str]) -> list[Constant]:
    """For every case, the constant that is best on all cases with another label.

    With scenarios for labels it has not seen the case's scenario, with start networks not its
    network.
    """
    if len(labels) != len(cases.names):
        raise ConfigError(f"{len(labels)} labels do not fit {len(cases.names)} cases.")
    best = {
        label: best_constant(cases, [i for i, other in enumerate(labels) if other != label])
        for label in dict.fromkeys(labels)
    }
    return [best[label] for label in labels]
