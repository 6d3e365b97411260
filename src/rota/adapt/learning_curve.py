"""How many episodes a learner needs: its greedy policy, looked at again and again as it learns."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rota.adapt.growth_cases import gain_of, play
from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.adapt.growth_cases import Cases, Chooser


class GrowthLearner(Protocol):
    """A training of some agent."""

    @property
    def episodes(self) -> int:
        """Played so far."""
        ...

    @property
    def chooser(self) -> Chooser:
        """What has been learned so far, without exploration."""
        ...

    def advance(self) -> Any:
        """Play at least one episode, and learn from it."""
        ...


@dataclass(frozen=True)
class CurveCheck:
    """Learners after so many episodes each."""

    episodes: int
    gains: tuple[float, ...]
    """Mean gain of each learner's greedy policy over all cases and replicas."""

    @property
    def gain(self) -> float:
        """Mean over the learners."""
        return float(np.mean(self.gains))


@dataclass(frozen=True)
class Curve:
    """Learners that differ by their seeds, checked on a grid."""

    goal: float
    """The gain that they should reach."""
    checks: tuple[CurveCheck, ...]

    @property
    def reached(self) -> int | None:
        """Episodes from which the mean gain is at the goal, and is at the next check too."""
        return _lasting([(check.episodes, check.gain) for check in self.checks], self.goal)

    @property
    def reached_each(self) -> tuple[int | None, ...]:
        """The same for each learner by itself, as far as it was checked."""
        return tuple(
            _lasting([(check.episodes, check.gains[i]) for check in self.checks], self.goal)
            for i in range(len(self.checks[0].gains))
        )


def learning_curve(
    learners: Sequence[GrowthLearner], cases: Cases, *, goal: float, every: int, most: int
) -> Curve:
    """Train learners side by side until their mean gain lasts at the goal, or to the most episodes.

    Each is checked as soon as it has played `every` more episodes; a learner that plays in batches
    may be a batch further than the grid says.
    """
    if not learners or every < 1 or most < every:
        raise ConfigError(
            f"A learning curve of {len(learners)} learners, checked every {every} of {most} "
            "episodes, has no points; give at least one learner and 1 ≤ every ≤ most."
        )
    checks: list[CurveCheck] = []
    for episodes in range(every, most + 1, every):
        for learner in learners:
            while learner.episodes < episodes:
                learner.advance()
        gains = tuple(mean_gain(learner.chooser, cases) for learner in learners)
        checks.append(CurveCheck(episodes, gains))
        if Curve(goal, tuple(checks)).reached is not None:
            break
    return Curve(goal, tuple(checks))


def mean_gain(chooser: Chooser, cases: Cases) -> float:
    """The mean gain of a chooser's episodes over all cases and replicas."""
    return float(
        np.mean(
            [
                gain_of(cases, case, replica, play(chooser, cases, case, replica))
                for case in range(len(cases.names))
                for replica in range(cases.replicas)
            ]
        )
    )


def _lasting(points: Sequence[tuple[int, float]], goal: float) -> int | None:
    for (episodes, gain), (_, following) in pairwise(points):
        if gain >= goal and following >= goal:
            return episodes
    return None
