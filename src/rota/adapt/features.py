"""A moment as numbers of about unit size, for agents that must carry over to other networks.

Nothing is told by name or index: a layer is its shape, its cost and its place, and a choice is what
it does to the time of an epoch and to the size of the network.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rota.adapt.moment import GrowthChoice, LayerFacts, Moment

    Floats = NDArray[np.float32]
    Ints = NDArray[np.int64]

KINDS: Final = ("linear", "conv1d", "conv2d")
_IDEMPOTENT: Final = ("relu", "relu6", "hardtanh")
"""Activations that a layer put behind them leaves as they are."""
_LARGE: Final = 1e12
LAYER_WIDTH: Final = 23
CHOICE_WIDTH: Final = 14
CONTEXT_WIDTH: Final = 27


@dataclass(frozen=True, eq=False)
class Numbers:
    """A moment in numbers: L layers, C choices."""

    layers: Floats
    """(L, LAYER_WIDTH)"""
    choices: Floats
    """(C, CHOICE_WIDTH)"""
    grows: Ints
    """(C,) which layer a choice grows; −1: none"""
    context: Floats
    """(CONTEXT_WIDTH,)"""


def numbers_of(moment: Moment) -> Numbers:
    """Put a moment into numbers; a moment that contradicts itself is refused."""
    if not moment.choices:
        raise ConfigError("A moment needs at least one choice: to leave the network as it is.")
    grows = np.array([choice.layer for choice in moment.choices], np.int64)
    if grows.min() < -1 or grows.max() >= len(moment.layers):
        raise ConfigError(
            f"A choice grows layer {int(max(grows.max(), -grows.min()))}, but the network has "
            f"{len(moment.layers)}, counted from 0."
        )
    layers = [_layer(moment.layers, i) for i in range(len(moment.layers))]
    return Numbers(
        np.array(layers, np.float32).reshape(-1, LAYER_WIDTH),
        np.array([_choice(moment, choice) for choice in moment.choices], np.float32),
        grows,
        np.array(_context(moment), np.float32),
    )


def _layer(layers: tuple[LayerFacts, ...], index: int) -> list[float]:
    layer = layers[index]
    activation = layer.activation.lower()
    idempotent = activation in _IDEMPOTENT
    flops = sum(_clean(other.flops) for other in layers)
    parameters = sum(_clean(other.parameters) for other in layers)
    return [
        *(float(layer.kind == kind) for kind in KINDS),
        _log(layer.inputs, 2.0) / 8.0,
        _log(layer.outputs, 2.0) / 8.0,
        _log(layer.outputs / max(layer.inputs, 1), 2.0) / 4.0,
        _bounded(layer.kernel / 5.0, 4.0),
        _bounded(layer.stride / 2.0, 4.0),
        _log(layer.positions, 2.0) / 10.0,
        _log(layer.parameters, 10.0) / 6.0,
        _log(layer.flops, 10.0) / 8.0,
        _clean(layer.parameters) / max(parameters, 1.0),
        _clean(layer.flops) / max(flops, 1.0),
        float(layer.norm),
        float(idempotent),
        float(bool(activation) and not idempotent),
        float(layer.residual),
        _bounded(layer.added / 2.0, 4.0),
        float(layer.original),
        float(index == 0),
        float(index == len(layers) - 1),
        index / max(len(layers) - 1, 1),
        1.0,
    ]


def _choice(moment: Moment, choice: GrowthChoice) -> list[float]:
    growth = choice.growth
    now = moment.choices[-1]  # to leave the network as it is
    slower = _log(_ratio(choice.epoch_s, moment.epoch_s), 2.0)
    larger = _log(_ratio(choice.parameters, now.parameters), 2.0)
    after = _epochs(moment.left_s, choice.epoch_s)
    return [
        float(growth is None),
        float(growth is not None and growth.operation == "deepen"),
        float(growth is not None and growth.operation == "widen"),
        *_factor(choice),
        _bounded(slower, 4.0),
        _bounded(larger, 8.0) / 2.0,
        math.log1p(after) / 4.0,
        _bounded((after - _epochs(moment.left_s, moment.epoch_s)) / 5.0, 4.0),
        float(after < 1.0),
        1.0,
    ]


def _factor(choice: GrowthChoice) -> list[float]:
    """How many times as wide a layer becomes, and how near that is to some usual factors.

    Without the latter, a factor in the middle is hard to tell apart from those on both sides.
    """
    if choice.growth is None or choice.growth.operation != "widen":
        return [0.0] * 5
    doublings = _log(choice.growth.factor, 2.0)
    return [
        doublings / 2.0,
        *(math.exp(-0.5 * ((doublings - usual) / 0.2) ** 2) for usual in (0.58, 1.0, 1.58, 2.0)),
    ]


def _context(moment: Moment) -> list[float]:
    left = _bounded(_ratio(max(_clean(moment.left_s), 0.0), moment.total_s), 1.0)
    epochs = _epochs(moment.left_s, moment.epoch_s)
    whole = _epochs(moment.total_s, moment.epoch_s)
    gpus = _ratio(moment.gpus, moment.gpus_before)
    parameters = sum(_clean(layer.parameters) for layer in moment.layers)
    return [
        left,
        *(math.exp(-0.5 * ((left - middle) / 0.15) ** 2) for middle in (0.1, 0.3, 0.5, 0.7, 0.9)),
        _log(moment.left_s, 10.0) / 4.0,
        _log(moment.total_s, 10.0) / 4.0,
        _log(moment.epoch_s, 10.0) / 4.0,
        math.log1p(epochs) / 4.0,
        _bounded(epochs / 20.0, 4.0),
        math.log1p(whole) / 4.0,
        _bounded(_log(gpus, 2.0), 6.0) / 2.0,
        _log(moment.gpus, 2.0) / 4.0,
        *_measured(moment.accuracy, 1.0, 1.0),
        *_measured(moment.slope, 20.0, 3.0),
        *_measured(math.log1p(max(moment.loss, 0.0)), 1.0, 4.0),
        _log(moment.learning_rate, 10.0) / 3.0,
        *(float(moment.step == step) for step in range(3)),
        len(moment.layers) / 20.0,
        _log(parameters, 10.0) / 6.0,
        1.0,
    ]


def _measured(value: float, scale: float, limit: float) -> tuple[float, float]:
    """A value that may not have been measured, and whether it was."""
    known = not math.isnan(value)
    return (_bounded(value * scale, limit) if known else 0.0), float(known)


def _epochs(left_s: float, epoch_s: float) -> float:
    """Whole and broken epochs that fit; bounded, whatever the clock says."""
    return min(_ratio(max(_clean(left_s), 0.0), epoch_s), 1e6)


def _ratio(above: float, below: float) -> float:
    return _clean(_clean(above) / max(_clean(below), 1.0 / _LARGE))


def _log(value: float, base: float) -> float:
    return math.log(max(_clean(value), 1e-6), base)


def _clean(value: Any) -> float:
    """A number that arithmetic can go on with: not NaN, not endless."""
    return 0.0 if math.isnan(value) else min(max(float(value), -_LARGE), _LARGE)


def _bounded(value: float, limit: float) -> float:
    return min(max(_clean(value), -limit), limit)
