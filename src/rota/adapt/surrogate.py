"""A model of a table: learning curves fitted to its runs, which answer for every epoch at once.

Accuracy after a growth is a learning curve of the epochs since, one for each start network,
sequence of choices and epoch of change that the table has; between these epochs it is interpolated.
So an agent can learn on any number of occasions that nobody has trained for. What differs from
seed to seed in the table is drawn at random here, once for each run. It knows of no splits: it is
fitted to accuracy on the validation split, and says the same of the test split.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.adapt.clock import Clock, Occasion
from rota.adapt.network_training import RunCurve
from rota.adapt.table_file import CONTROLS, TableRun
from rota.errors import InputError
from rota.perf.learning_curves import fit_curve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rota.adapt.cells import RunSource
    from rota.perf.learning_curves import LearningCurve

    Floats = NDArray[np.float32]


@dataclass(frozen=True)
class _Fitted:
    """The runs of one start network, sequence and epoch of change, over all seeds."""

    law: LearningCurve
    loss: Floats
    """Mean over seeds after each epoch since the change, as measured."""
    rate: Floats
    """The learning rate, which is the same for all seeds."""
    spread: float
    """Deviation of a seed's last accuracy from the mean over seeds."""
    work: tuple[float, ...]
    parameters: tuple[int, ...]


class Surrogate:
    """Runs for every epoch of change between the first and the last that a table has."""

    def __init__(self, runs: RunSource, *, noisy: bool = True) -> None:
        self.spec, self.name = runs.spec, f"the model of {runs.name}"
        self._runs, self._noisy = runs, noisy
        self.fitted_to = tuple(sorted(runs.epochs))
        if len(self.fitted_to) < 2:
            raise InputError(
                f"{runs.name}: A model of a table needs two epochs of change or more; this one "
                f"has {len(self.fitted_to)}."
            )
        self.epochs = tuple(range(self.fitted_to[0], self.fitted_to[-1] + 1))
        self._fits: dict[tuple[str, int, str], _Fitted] = {}
        self.curve = lru_cache(maxsize=200_000)(self._curve)

    def _curve(self, run: TableRun) -> RunCurve:
        before = max(e for e in self.fitted_to if e <= run.epoch)
        after = min(e for e in self.fitted_to if e >= run.epoch)
        share = (run.epoch - before) / (after - before) if after > before else 0.0
        low = self._fitted(run.start, before, run.sequence)
        high = self._fitted(run.start, after, run.sequence)
        past = self._past(run)
        longest = Occasion("longest", run.epoch, 1.0, Clock().gpus_for(self.spec.speedup))
        since = 1.0 + np.arange(max(longest.epochs(Clock(), low.work), len(low.work)))
        spread = (1.0 - share) * low.spread + share * high.spread
        luck = np.random.default_rng([run.seed, run.epoch, *repr(run).encode()]).standard_normal()
        found = (1.0 - share) * low.law.accuracy(since) + share * high.law.accuracy(since)
        found = np.clip(found + self._noisy * luck * spread, 0.0, 1.0)
        at = np.minimum(np.arange(len(since)), len(low.loss) - 1)
        # Rates that fall since the beginning have fallen further than at the epoch before.
        decay = self.spec.rules.decay
        falls = low.rate <= self.spec.rules.learning_rate * decay**before * (1 + 1e-6)
        rate = np.where(falls, low.rate * decay ** (run.epoch - before), low.rate)
        accuracy = _joined(past.validation, found)
        return RunCurve(
            accuracy, accuracy, _joined(past.loss, low.loss[at]), _joined(past.rate, rate[at]),
            low.work, low.parameters,
        )  # fmt: skip

    def _past(self, run: TableRun) -> RunCurve:
        """The run up to the change of resources, which the table has for every epoch."""
        whole = self._runs.curve(TableRun(run.start, self.fitted_to[0], "none", run.seed))
        end = run.epoch + 1
        return RunCurve(
            whole.validation[:end], whole.test[:end], whole.loss[:end], whole.rate[:end], (), ()
        )

    def _fitted(self, name: str, epoch: int, sequence: str) -> _Fitted:
        key = name, epoch, sequence
        if key not in self._fits:
            curves = [
                self._runs.curve(TableRun(name, epoch, sequence, seed))
                for seed in range(self.spec.seeds)
            ]
            first = curves[0]
            last = np.array([curve.validation[-1] for curve in curves])
            spread = float(last.std(ddof=1)) if len(curves) > 1 else 0.0
            mean = np.mean([curve.validation for curve in curves], 0)[epoch + 1 :]
            law = fit_curve(1.0 + np.arange(len(mean)), mean)
            loss = np.mean([curve.loss for curve in curves], 0)[epoch + 1 :]
            rate = first.rate[epoch + 1 :]
            self._fits[key] = _Fitted(law, loss, rate, spread, first.work, first.parameters)
        return self._fits[key]


def _joined(before: Floats, after: NDArray[Any]) -> Floats:
    return np.concatenate([before, after]).astype(np.float32)


class _Without:
    """The runs of a table but for one epoch of change."""

    def __init__(self, runs: RunSource, left_out: int) -> None:
        epochs = tuple(epoch for epoch in runs.epochs if epoch != left_out)
        self.spec, self.name, self.epochs = runs.spec, runs.name, epochs
        self.curve = runs.curve


def held_out_error(runs: RunSource, left_out: int) -> Mapping[str, float]:
    """How well a model of a table foretells an epoch of change that it was not fitted to.

    Means over start networks and sequences of the error of the mean accuracy over seeds, at the
    deadline on the table's fastest resources: of the model, and of taking the nearest epoch of
    change that it does know.
    """
    model = Surrogate(_Without(runs, left_out), noisy=False)
    nearest = min(model.fitted_to, key=lambda epoch: abs(epoch - left_out))
    labels = [*CONTROLS, *(",".join(map(str, taken)) for taken in runs.spec.sequences())]
    errors = []
    for name in runs.spec.starts:
        for label in labels:
            found = [
                [float(source.curve(TableRun(name, epoch, label, seed)).validation[-1])
                 for source, epoch in ((runs, left_out), (model, left_out), (runs, nearest))]
                for seed in range(runs.spec.seeds)
            ]  # fmt: skip
            true, foretold, near = np.mean(found, 0)
            errors.append((abs(foretold - true), abs(near - true)))
    of_model, of_nearest = np.mean(errors, 0)
    return {"model": float(of_model), "nearest": float(of_nearest)}
