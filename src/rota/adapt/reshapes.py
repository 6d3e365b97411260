"""Where replicas of units stand after a tensor has been given another shape."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from rota.adapt.layers import function_name
from rota.adapt.replicas import Units

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import fx


def reshaped(units: Units, before: tuple[int, ...], after: tuple[int, ...]) -> Units | None:
    """Units in a tensor of another shape; None: their axis has been taken apart."""
    if units.old == 1 in after and before != after:
        return None  # any axis of length 1 could be that of the only unit
    for start, stop, axis in pieces(before, after):
        if start <= units.axis < stop:
            outer = math.prod(before[start : units.axis])
            inner = math.prod(before[units.axis + 1 : stop])
            return spread(units, inner, axis, len(after), outer)
    return None


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


def length_behind(node: fx.Node, modules: Mapping[str, nn.Module]) -> int:
    """How many features are read of what a node gives; 0: that cannot be seen."""
    for user in node.users:
        module = modules.get(str(user.target)) if user.op == "call_module" else None
        if isinstance(module, nn.Linear):
            return module.in_features
        if isinstance(module, nn.BatchNorm1d):
            return module.num_features
        if length := length_behind(user, modules):
            return length
    return 0


def stated_length(node: fx.Node, axis: int) -> int | None:
    """The length of an axis that a reshape was told as a number; None: it was not."""
    if function_name(node) not in ("view", "reshape"):
        return None
    sizes: Any = node.args[1:]
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = sizes[0]
    return sizes[axis] if axis < len(sizes) and isinstance(sizes[axis], int) else None
