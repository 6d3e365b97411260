"""Follow the number of a layer's units through what a network computes from shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.adapt.axis_words import asks, option
from rota.adapt.layers import function_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from torch import fx

    from rota.adapt.replicas import Units


class AxisLengths:
    """Nodes that give shapes or numbers which depend on how many units there are."""

    def __init__(self, tensors: Collection[str], reshapes: Collection[str]) -> None:
        """`tensors`: names of nodes that give a tensor; `reshapes`: functions told a shape."""
        self._tensors, self._reshapes = tensors, reshapes
        self._shapes: dict[fx.Node, Units] = {}
        self._numbers: set[fx.Node] = set()

    def follow(self, node: fx.Node, known: Mapping[fx.Node, Units]) -> bool:
        """Look at the next node; False: it lets the numbers of a tensor depend on that."""
        inputs, name = node.all_input_nodes, function_name(node)
        if not inputs:
            return True
        if node.op == "output":
            return not any(x in self._numbers or x in self._shapes for x in inputs)
        first = inputs[0]
        if first in self._shapes and name == "getitem":
            if _takes(node, self._shapes[first]):
                self._numbers.add(node)
        elif any(x in self._numbers or x in self._shapes for x in inputs):
            if node.name in self._tensors:
                return name in self._reshapes
            self._numbers.add(node)
        elif first in known and asks(node):
            axis, dims = known[first].axis, known[first].dims
            asked = option(node, "dim", 1)
            if name == "size" and isinstance(asked, int):
                if asked % dims == axis:
                    self._numbers.add(node)
            elif name == "size" or asked == "shape":
                self._shapes[node] = known[first]
            elif name in ("numel", "nelement"):
                self._numbers.add(node)
        return True


def _takes(node: fx.Node, units: Units) -> bool:
    """Whether the places of a shape that a node reads have that of units among them."""
    place: Any = node.args[1]
    if isinstance(place, slice):
        ends = (place.start, place.stop, place.step)
        plain = all(x is None or isinstance(x, int) for x in ends)
        return not plain or units.axis in range(units.dims)[place]
    return not isinstance(place, int) or place % units.dims == units.axis
