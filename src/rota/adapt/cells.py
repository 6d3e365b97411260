"""The cases of a table: start networks on occasions, played by looking their runs up."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

from rota.adapt.clock import Clock
from rota.adapt.moment import GrowthChoice, Moment
from rota.adapt.operations import layers_of, replay, tokens_of
from rota.adapt.starts import growths, start
from rota.adapt.table_file import TableRun
from rota.errors import ConfigError, InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.adapt.clock import Occasion
    from rota.adapt.growth import Growth
    from rota.adapt.moment import LayerFacts
    from rota.adapt.network_training import RunCurve
    from rota.adapt.table_file import TableFile, TableSpec

Split = Literal["validation", "test"]
_SLOPE: Final = 3
"""Epochs over which the change of the accuracy is measured."""


class Form(NamedTuple):
    """What agents see of a network."""

    layers: tuple[LayerFacts, ...]
    tokens: tuple[str, ...]
    flops: float
    parameters: int


class Forms:
    """The forms that start networks take by their choices, each made when first asked for."""

    def __init__(self, spec: TableSpec) -> None:
        self._spec = spec
        self._found: dict[tuple[str, tuple[Growth, ...]], Form] = {}

    def of(self, name: str, taken: tuple[int, ...]) -> Form:
        """The form of a start network after these choices."""
        begun = start(name)
        menu = growths(begun, self._spec.menu)
        made = tuple(growth for k in taken if (growth := menu[k]) is not None)
        if (name, made) not in self._found:
            model = begun.build(0)
            some = begun.task.data(0).train.inputs[:2]
            replay(model, made)
            layers = layers_of(model, some)
            flops = sum(layer.flops for layer in layers)
            parameters = sum(p.numel() for p in model.parameters())
            self._found[name, made] = Form(layers, tokens_of(model), flops, parameters)
        return self._found[name, made]


class RunSource(Protocol):
    """Where runs come from: a table, or a model of one."""

    spec: TableSpec
    name: str
    epochs: tuple[int, ...]
    """At which it knows of a change of resources."""

    def curve(self, run: TableRun) -> RunCurve:
        """What became of a run."""
        ...


class TableRuns:
    """The runs of a table, in memory."""

    def __init__(self, table: TableFile) -> None:
        self.spec, self.name, self.epochs = table.spec, str(table.path), table.spec.epochs
        self._curves = table.curves()

    def curve(self, run: TableRun) -> RunCurve:
        """What became of a run."""
        try:
            return self._curves[run]
        except KeyError:
            raise InputError(
                f"{self.name}: The table lacks the run {run.sequence!r} of {run.start}, epoch "
                f"{run.epoch}, seed {run.seed}; go on with `rota adapt table`."
            ) from None


class Cells:
    """Start networks on occasions, played by looking runs up.

    What it says of accuracy is of one split: learn on "validation", report on "test".
    """

    def __init__(
        self,
        runs: RunSource,
        starts: Sequence[str],
        occasions: Sequence[Occasion],
        *,
        split: Split = "validation",
        clock: Clock | None = None,
    ) -> None:
        self.split: Split = split
        self.spec, self.clock = runs.spec, clock or Clock()
        _check(runs, starts, occasions)
        self.cases = tuple((name, occasion) for name in starts for occasion in occasions)
        self.names = tuple(f"{name}/{occasion.name}" for name, occasion in self.cases)
        self.decisions, self.replicas = self.spec.decisions, self.spec.seeds
        self._runs, self._forms = runs, Forms(self.spec)
        self._moments: dict[tuple[int, int, tuple[int, ...]], Moment] = {}

    def of_split(self, split: Split) -> Cells:
        """The same cases, with accuracy on another split."""
        other = copy.copy(self)
        other.split = split
        return other

    def only(self, cases: Sequence[int]) -> Cells:
        """Some of the cases."""
        other = copy.copy(self)
        other.cases = tuple(self.cases[case] for case in cases)
        other.names = tuple(self.names[case] for case in cases)
        other._moments = {}
        return other

    def accuracy(self, case: int, replica: int, taken: tuple[int, ...]) -> float:
        """Accuracy at the deadline after these choices."""
        return self._at_deadline(case, replica, _label(taken))

    def reference(self, case: int, replica: int) -> float:
        """The same without growth."""
        return self._at_deadline(case, replica, "none")

    def restarted(self, case: int, replica: int) -> float:
        """The same without growth, but with one restart of the learning rate."""
        return self._at_deadline(case, replica, "restart")

    def moment(self, case: int, replica: int, taken: tuple[int, ...]) -> Moment:
        """What an agent is shown after some choices; the same object every time."""
        key = case, replica, taken
        if key not in self._moments:
            self._moments[key] = self._moment(case, replica, taken)
        return self._moments[key]

    def _curve(self, case: int, replica: int, sequence: str) -> RunCurve:
        name, occasion = self.cases[case]
        return self._runs.curve(TableRun(name, occasion.epoch, sequence, replica))

    def _at_deadline(self, case: int, replica: int, sequence: str) -> float:
        occasion, curve = self.cases[case][1], self._curve(case, replica, sequence)
        seen = getattr(curve, self.split)
        epochs = occasion.epoch + occasion.epochs(self.clock, curve.work)
        if epochs >= len(seen):
            raise InputError(
                f"{self.names[case]} has time for {epochs} epochs of {sequence!r}, but its run "
                f"has {len(seen) - 1}; a table goes as far as the occasions that rota ships."
            )
        return float(seen[epochs])

    def _moment(self, case: int, replica: int, taken: tuple[int, ...]) -> Moment:
        name, occasion = self.cases[case]
        menu = growths(start(name), self.spec.menu)
        step, nothing = len(taken), len(menu) - 1
        epochs_s = [self._epoch_s(case, taken[:k]) for k in range(1, step + 1)]
        now_s = epochs_s[-1] if taken else self._epoch_s(case, ())
        curve = self._curve(case, replica, _label(taken + (nothing,) * (self.decisions - step)))
        now = occasion.epoch + step
        seen = curve.validation[max(0, now - _SLOPE) : now + 1]
        form = self._forms.of(name, taken)
        places = {layer.name: k for k, layer in enumerate(form.layers)}
        choices = []
        for k, growth in enumerate(menu):
            layer = -1 if growth is None else places[growth.layer]
            after = self._forms.of(name, (*taken, k))
            epoch_s = self._epoch_s(case, (*taken, k))
            choices.append(GrowthChoice(growth, layer, epoch_s, after.parameters))
        return Moment(
            layers=form.layers,
            tokens=form.tokens,
            choices=tuple(choices),
            left_s=max(0.0, occasion.left_s(self.clock) - sum(epochs_s)),
            total_s=occasion.total_s(self.clock),
            epoch_s=now_s,
            gpus_before=occasion.before,
            gpus=occasion.gpus,
            accuracy=float(seen[-1]),
            slope=float(seen[-1] - seen[0]) / (len(seen) - 1),
            loss=float(curve.loss[now]),
            learning_rate=float(curve.rate[now]),
            step=step,
        )

    def _epoch_s(self, case: int, taken: tuple[int, ...]) -> float:
        """Seconds of an epoch after these choices, on the GPUs since the change."""
        name, occasion = self.cases[case]
        work = self._forms.of(name, taken).flops / self._forms.of(name, ()).flops
        return self.clock.epoch(work, occasion.gpus)


def _label(taken: tuple[int, ...]) -> str:
    return ",".join(map(str, taken))


def _check(runs: RunSource, starts: Sequence[str], occasions: Sequence[Occasion]) -> None:
    """Refuse what there are no runs of."""
    if not (starts and occasions):
        raise ConfigError("There is nothing to play: give start networks and occasions.")
    if unknown := [name for name in starts if name not in runs.spec.starts]:
        raise InputError(
            f"{runs.name}: The table has no runs of {unknown[0]!r}, but of "
            f"{', '.join(runs.spec.starts)}."
        )
    for occasion in occasions:
        if occasion.epoch not in runs.epochs:
            raise InputError(
                f"{runs.name}: There are no runs in which resources change after epoch "
                f"{occasion.epoch} ({occasion.name}), but after "
                f"{', '.join(map(str, runs.epochs))}."
            )
