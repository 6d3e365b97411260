"""Units of a layer that is made wider, and where their replicas stand in a tensor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

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

    @property
    def even(self) -> bool:
        """Whether all old places have equally many replicas."""
        counts = np.bincount(self.places, minlength=self.old)
        return bool((counts == counts[0]).all())


@dataclass
class Change:
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
    changes: dict[str, Change] = field(default_factory=dict)
    constants: list[tuple[str, int, int]] = field(default_factory=list)
    """Node, position and new value of a number in a reshape."""


def repeated(old: int, new: int) -> Ints:
    """Which of `old` units each of `new` ones repeats: each equally often, or once more."""
    return np.arange(new, dtype=np.int64) * old // new


def spread(units: Units, inner: int, axis: int, dims: int, outer: int = 1) -> Units:
    """Units whose axis has been merged with `outer` places before and `inner` behind each."""
    before = np.arange(outer, dtype=np.int64)[:, None, None] * (units.old * inner)
    within = units.places[None, :, None] * inner
    behind = np.arange(inner, dtype=np.int64)[None, None, :]
    places = (before + within + behind).ravel()
    return Units(axis, places, outer * units.old * inner, dims)


def pieces(before: tuple[int, ...], after: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    """Runs of old axes that became one new axis: their first, the one behind, the new one."""
    i = j = 0
    while i < len(before) and j < len(after):
        start, product = i, before[i]
        i += 1
        while product < after[j] and i < len(before):
            product *= before[i]
            i += 1
        if product == after[j]:
            # Axes of length 1 belong to what stands before them, unless they stay themselves.
            rest_before, rest_after = before[i:], after[j + 1 :]
            while rest_before and rest_before[0] == 1 and len(rest_before) > len(rest_after):
                i += 1
                rest_before = before[i:]
            yield start, i, j
            j += 1
            continue
        if after[j] == 1:  # a new axis
            i = start
            j += 1
            continue
        target = after[j]  # one axis, or several, become several
        j += 1
        while target != product:
            if target < product and j < len(after):
                target *= after[j]
                j += 1
            elif i < len(before):
                product *= before[i]
                i += 1
            else:
                return
