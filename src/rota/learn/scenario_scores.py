"""How a network does on the validation traces of every scenario, and how rivals do there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rota.learn.training_folder import RIVALS
from rota.learn.training_report import Standing, compared

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rota.core.types import Floats
    from rota.learn.training_worlds import TrainingWorlds


class ScenarioScores:
    """Mean JCTs, in seconds, of each validation trace, scenario by scenario."""

    def __init__(self, every: list[TrainingWorlds]) -> None:
        self._every = every
        self._rivals_s: list[dict[str, Floats]] = []
        self.best_s: list[Floats] | None = None
        """Those of the best network, if it was validated in this run."""

    def measure_rivals(self, folder: Path, tell: Callable[[int, int], None]) -> None:
        """Measure them, or read what an earlier run has measured."""
        first, *others = self._every
        self._rivals_s = [first.measure_rivals(folder / RIVALS, tell)]
        for worlds in others:
            file = folder / f"{worlds.scenario.name}-{RIVALS}"
            self._rivals_s.append(worlds.measure_rivals(file, tell))

    def of(self, network: Any) -> list[Floats]:
        """Those of a network that takes its likeliest actions."""
        return [worlds.validate(network) for worlds in self._every]

    def mean(self, jct_s: list[Floats]) -> float:
        """The geometric mean over scenarios of their means, in the unit of the first scenario."""
        means = [float(part.mean()) for part in jct_s]
        if len(means) == 1:
            return means[0] / self._every[0].unit_s
        return float(np.exp(np.mean(np.log(means)))) / self._every[0].unit_s

    def facts(self, jct_s: list[Floats]) -> dict[str, float]:
        """For the log: jobs that did not end, and where there are several, each scenario's mean."""
        facts = {"unfinished": float(sum(np.isinf(part).sum() for part in jct_s))}
        if len(jct_s) > 1:
            for worlds, part in zip(self._every, jct_s, strict=True):
                facts[f"jct-{worlds.scenario.name}"] = float(part.mean()) / worlds.unit_s
        return facts

    def rival_means(self) -> dict[str, float]:
        """The means of rivals that there are in all scenarios."""
        names = self._rivals_s[0] if self._rivals_s else {}
        return {
            name: self.mean([rivals_s[name] for rivals_s in self._rivals_s])
            for name in names
            if all(name in rivals_s for rivals_s in self._rivals_s)
        }

    def standings(self, teacher: str) -> list[Standing]:
        """How the best network compares with the rivals in each scenario."""
        assert self.best_s is not None
        return [
            Standing(
                scenario=worlds.scenario.name, traces=worlds.validation_words, unit=worlds.unit,
                jct=float(best_s.mean()) / worlds.unit_s, teacher=teacher,
                rivals=compared(best_s, rivals_s, worlds.unit_s),
            )
            for worlds, best_s, rivals_s in zip(
                self._every, self.best_s, self._rivals_s, strict=True
            )
        ]  # fmt: skip
