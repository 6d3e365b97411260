"""Units of a layer that is made wider, and where their replicas stand in a tensor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Units:
    """One axis of a tensor along which places have become replicas."""

    axis: int
    places: Ints
    """For each new place the old place that it repeats."""
    old: int
    """Length of the axis before."""
    dims: int
    """How many axes the tensor has."""

    @property
    def ratio(self) -> float:
        """How many times as long the axis becomes."""
        return len(self.places) / self.old

    def even(self, groups: int) -> bool:
        """Whether all old places have equally many replicas, in the group of their old place."""
        counts = np.bincount(self.places, minlength=self.old)
        group = np.arange(len(self.places)) * groups // len(self.places)
        same = np.array_equal(group, self.places * groups // self.old)
        return same and bool((counts == counts[0]).all())


@dataclass
class Rewiring:
    """What becomes of the parameters of one module."""

    outputs: Units | None = None
    """Its own units: rows of a layer, or the numbers of a norm."""
    inputs: Units | None = None
    """What it reads in shares."""

    @property
    def output_ratio(self) -> float:
        """How many times as many units it has afterwards."""
        return self.outputs.ratio if self.outputs else 1.0

    @property
    def weight_ratio(self) -> float:
        """How many times as many weights it has afterwards."""
        return self.output_ratio * (self.inputs.ratio if self.inputs else 1.0)


@dataclass
class Widening:
    """Everything that changes when a layer becomes wider."""

    layer: str
    places: Ints
    """For each new unit the old one that it repeats."""
    old: int
    """How many units there were."""
    sources: set[str]
    """Layers that become wider together."""
    changes: dict[str, Rewiring] = field(default_factory=dict)
    constants: list[tuple[str, int, int]] = field(default_factory=list)
    """Node, position and new value of a number in a reshape."""


def repeated(old: int, new: int) -> Ints:
    """Which of `old` units each of `new` ones repeats: each equally often, or once more."""
    return np.arange(new, dtype=np.int64) * old // new
