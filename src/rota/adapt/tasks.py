"""What small networks learn here: data that need no download, drawn anew for every seed.

`digits` are scikit-learn's 1,797 scanned digits; the others are made up, and hard for networks
that are too small. Rewards come from the validation split; the test split is for reports only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import torch

from rota.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


class Split(NamedTuple):
    """Inputs and labels that belong together."""

    inputs: torch.Tensor
    labels: torch.Tensor


class Data(NamedTuple):
    """One seed's samples of a task."""

    train: Split
    validation: Split
    test: Split


@dataclass(frozen=True)
class LearningTask:
    """Something to learn."""

    name: str
    about: str
    shape: tuple[int, ...]
    """Of one input."""
    classes: int
    sizes: tuple[int, int, int]
    """Samples to train on, to choose by and to report on."""
    draw: Callable[[np.random.Generator, int], tuple[NDArray[np.float32], NDArray[np.int64]]]
    """Inputs and labels of that many samples; one task is the same for every seed."""

    def data(self, seed: int) -> Data:
        """The samples of a seed; the same ones every time."""
        rng = np.random.default_rng([seed, *self.name.encode()])
        inputs, labels = self.draw(rng, sum(self.sizes))
        parts = np.cumsum(self.sizes)[:-1]
        splits = zip(np.split(inputs, parts), np.split(labels, parts), strict=True)
        return Data(*(Split(torch.from_numpy(x), torch.from_numpy(y)) for x, y in splits))


@lru_cache(maxsize=1)
def _scanned() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        raise InputError(
            "The digits come with scikit-learn, which is not installed: "
            "pip install 'rota[adapt]'; or take a start network of another task."
        ) from None
    found = load_digits()
    images = (found.images / 8.0 - 1.0).astype(np.float32)[:, None]
    return images, found.target.astype(np.int64)


def _digits(rng: np.random.Generator, count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    images, labels = _scanned()
    order = rng.permutation(len(images))[:count]
    return images[order], labels[order]


def _spirals(rng: np.random.Generator, count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Three arms that wind around each other one and a half times, in the plane."""
    labels = rng.integers(3, size=count)
    radius = np.sqrt(rng.uniform(0.02, 1.0, count))
    angle = 3.0 * np.pi * radius + labels * (2.0 * np.pi / 3.0) + rng.normal(0.0, 0.18, count)
    points = 2.0 * radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
    return points.astype(np.float32), labels.astype(np.int64)


@lru_cache(maxsize=1)
def _teacher_network() -> list[NDArray[np.float64]]:
    """Its three matrices, and what levels the shares of the classes."""
    fixed = np.random.default_rng(20_231)
    first = fixed.normal(0.0, 1.0, (4, 12))
    second = fixed.normal(0.0, 1.0, (12, 12)) / np.sqrt(12)
    last = fixed.normal(0.0, 1.0, (12, 8))
    points = fixed.normal(0.0, 1.0, (4096, 4))
    score = np.maximum(np.maximum(points @ first, 0.0) @ second, 0.0) @ last
    return [first, second, last / score.std(0), score.mean(0) / score.std(0)]


def _teacher(rng: np.random.Generator, count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """What a random network of two hidden layers says of points in four dimensions."""
    first, second, last, mean = _teacher_network()
    points = rng.normal(0.0, 1.0, (count, 4))
    hidden = np.maximum(np.maximum(points @ first, 0.0) @ second, 0.0)
    labels = (hidden @ last - mean).argmax(1)
    return points.astype(np.float32), labels.astype(np.int64)


def _waves(rng: np.random.Generator, count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Which two of four short motifs stand in a noisy signal of 48 values, in which order."""
    fixed = np.random.default_rng(7_041)
    motifs = fixed.normal(0.0, 1.3, (4, 6))
    labels = rng.integers(12, size=count)
    pairs = np.array([(a, b) for a in range(4) for b in range(4) if a != b])
    signal = rng.normal(0.0, 0.55, (count, 48))
    for part in range(2):
        at = rng.integers(1 + 24 * part, 17 + 24 * part, size=count)
        rows = np.arange(count)[:, None]
        signal[rows, at[:, None] + np.arange(6)] += motifs[pairs[labels, part]]
    return signal.astype(np.float32)[:, None], labels.astype(np.int64)


_new = LearningTask
TASKS: Final = {
    task.name: task
    for task in (
        _new("digits", "scanned digits of 8 × 8", (1, 8, 8), 10, (896, 400, 501), _digits),
        _new("spirals", "three arms in the plane", (2,), 3, (600, 600, 1000), _spirals),
        _new("teacher", "labels by a random network", (4,), 8, (1500, 1000, 1500), _teacher),
        _new("waves", "pairs of motifs in a signal", (1, 48), 12, (1200, 800, 1000), _waves),
    )
}


def task(name: str) -> LearningTask:
    """The task called so."""
    if name not in TASKS:
        raise UnknownNameError("task", name, TASKS)
    return TASKS[name]
