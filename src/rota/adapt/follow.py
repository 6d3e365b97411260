"""Follow the units of a layer through a network: who reads them, and who must grow along.

A layer that becomes wider gives replicas of its units. `Units` says, for one axis of a tensor,
which old place each new place repeats. Functions that treat every number, or every channel, alike
pass that on; layers end it by reading replicas in shares; what is added number by number must
have the same replicas on both sides, so that the layers behind the other side grow along.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from torch import nn

from rota.adapt.axis_lengths import AxisLengths
from rota.adapt.axis_words import asks, axes_of, option, order_of, turns
from rota.adapt.layers import (
    BATCH_NORMS,
    INSTANCE_NORMS,
    KINDS,
    PAIRED,
    POOL_FUNCTIONS,
    POOLS,
    SHAPED_NORMS,
    UNIT_FUNCTIONS,
    UNIT_MODULES,
    Scale,
    function_name,
    units_of,
)
from rota.adapt.replicas import Rewiring, Units, Widening, repeated
from rota.adapt.reshapes import length_behind, reshaped, spread, stated_length
from rota.errors import GrowthError

if TYPE_CHECKING:
    from torch import fx

    from rota.adapt.graph import Architecture
    from rota.adapt.replicas import Ints

_RESHAPES: Final = frozenset({"flatten", "reshape", "view", "squeeze", "unsqueeze"})
_MEANS: Final = frozenset({"mean", "sum", "amax", "amin"})
_SOFT: Final = frozenset({"softmax", "log_softmax"})
_CONVS: Final = (nn.Conv1d, nn.Conv2d)


class _Along(Exception):  # noqa: N818
    """Further layers must become wider with the one that is asked for."""

    def __init__(self, sources: set[str]) -> None:
        super().__init__()
        self.sources = sources


def plan(outline: Architecture, name: str, factor: float) -> Widening:
    """How to make a layer wider; an error that names it where the function cannot be kept."""
    block = outline.block(name)
    old = block.units
    new = max(old + 1, round(old * factor))
    sources = {name}
    while True:
        walk = _Walk(outline, name, repeated(old, new), old, set(sources))
        try:
            walk.go()
        except _Along as found:
            if found.sources <= sources:
                raise GrowthError(
                    f"{name} cannot become wider: {', '.join(sorted(sources))} are added to "
                    "themselves in another order."
                ) from None
            sources |= found.sources
            continue
        for changed in walk.plan.changes:
            outline.check_plain(changed)
            outline.check_unread(changed)
        return walk.plan


class _Walk:
    """One pass through the graph with a set of layers that become wider."""

    def __init__(
        self, outline: Architecture, name: str, places: Ints, old: int, sources: set[str]
    ) -> None:
        self.outline, self.name = outline, name
        self.plan = Widening(name, places, old, sources)
        self.units: dict[fx.Node, Units] = {}
        self.lengths = AxisLengths(outline.shapes, _RESHAPES)

    def refuse(self, where: object, why: str) -> GrowthError:
        return GrowthError(f"{self.name} cannot become wider: {where} {why}.")

    def go(self) -> None:
        for node in self.outline.graph.nodes:
            units = self._through(node)
            if units is not None:
                self.units[node] = units

    def _through(self, node: fx.Node) -> Units | None:
        given = [n for n in node.all_input_nodes if n in self.units]
        if not self.lengths.follow(node, self.units):
            raise self.refuse(node, "computes with the number of its units")
        if node.op == "output":
            if given:
                raise self.refuse(
                    f"{given[0]}", "is an output of the network, whose form is fixed from outside"
                )
            return None
        if node.op == "call_module":
            return self._module(node, str(node.target), self.units[given[0]] if given else None)
        if node.op not in ("call_function", "call_method"):
            return None
        return self._function(node, given) if given else None

    def _module(self, node: fx.Node, target: str, units: Units | None) -> Units | None:
        module = self.outline.modules[target]
        source = target in self.plan.sources
        if units is None and not source:
            return None
        if units is not None and (
            len(node.all_input_nodes) != 1 or node.args[:1] != (node.all_input_nodes[0],)
        ):
            raise self.refuse(target, f"({type(module).__name__}) reads it beside other tensors")
        if type(module) in KINDS:
            return self._layer(node, target, module, units)
        assert units is not None
        return self._passed(node, target, module, units)

    def _layer(
        self, node: fx.Node, target: str, module: nn.Module, units: Units | None
    ) -> Units | None:
        change = Rewiring()
        assert isinstance(module, (nn.Linear, *_CONVS))
        groups = 1 if isinstance(module, nn.Linear) else int(module.groups)
        dims = len(self.outline.shapes.get(node.name, ())) or module.weight.dim()
        axis = dims - 1 if isinstance(module, nn.Linear) else 1
        if units is not None:
            if units.axis != (units.dims - 1 if isinstance(module, nn.Linear) else 1):
                raise self.refuse(target, "reads another axis than that of its units")
            change.inputs = units
        if target in self.plan.sources:
            if units_of(module) != self.plan.old:
                raise self.refuse(target, "has another number of units, but is added to it")
            change.outputs = Units(axis, self.plan.places, self.plan.old, dims)
        if groups > 1:
            if units is None or module.in_channels != groups:
                raise self.refuse(
                    target,
                    f"is a convolution in {groups} groups, each of which reads its own channels",
                )
            if target in self.plan.sources:
                raise self.refuse(target, "is depthwise, as wide as what it reads")
            change = Rewiring(outputs=spread(units, units_of(module) // groups, 1, dims))
        self.plan.changes[target] = change
        return change.outputs

    def _passed(self, node: fx.Node, target: str, module: nn.Module, units: Units) -> Units | None:
        """A module that has units without mixing them."""
        kind = type(module)
        dims = units.dims
        if kind in UNIT_MODULES:
            return units
        if kind in POOLS:
            if units.axis >= dims - POOLS[kind]:
                raise self.refuse(target, f"({kind.__name__}) mixes its units")
            return units
        if kind is nn.Flatten:
            return self._reshaped(node, units)
        if isinstance(module, (nn.Softmax, nn.LogSoftmax)):
            if module.dim is None or module.dim % dims == units.axis:
                raise self.refuse(target, f"({kind.__name__}) divides by a sum over its units")
            return units
        first = dims - len(module.normalized_shape) if isinstance(module, SHAPED_NORMS) else 1
        if isinstance(module, (*SHAPED_NORMS, nn.GroupNorm)):
            if units.axis < first:
                return units
            if not units.even(1 if isinstance(module, SHAPED_NORMS) else module.num_groups):
                raise self.refuse(
                    target,
                    f"({kind.__name__}) takes means over its units, so all of them need equally "
                    "many replicas in their group; make it wider by a whole factor",
                )
        elif isinstance(module, Scale):
            first = dims - 1 - module.dims
        elif isinstance(module, nn.PReLU):
            if module.num_parameters == 1:
                return units
        elif not isinstance(module, (*BATCH_NORMS, *INSTANCE_NORMS)):
            raise self.refuse(target, f"is a {kind.__name__}, which cannot read its replicas")
        if units.axis != first and not isinstance(module, SHAPED_NORMS):
            raise self.refuse(target, f"({kind.__name__}) has another axis than its units")
        self.plan.changes[target] = Rewiring(outputs=replace(units, axis=units.axis - first))
        return units

    def _function(self, node: fx.Node, given: list[fx.Node]) -> Units | None:
        name = function_name(node)
        plain = name.removesuffix("_")
        units = self.units[given[0]]
        if asks(node) or (name == "getitem" and not self._is_tensor(node, given[0])):
            return None
        if name in ("cat", "concat", "concatenate"):
            return self._joined(node)
        if name in PAIRED and not (name in ("max", "min") and len(node.all_input_nodes) < 2):
            return self._agree(node, node.all_input_nodes)
        if node.args[:1] != (given[0],) or len(given) > 1:
            raise self.refuse(node, f"({name}) reads it beside other tensors")
        dims = units.dims
        if plain in UNIT_FUNCTIONS:
            # Such as bounds that are tensors; `to` reads no numbers of another one.
            others = len(node.all_input_nodes) > 1 and plain != "to" and self.outline.shapes
            return self._agree(node, node.all_input_nodes) if others else units
        if node.target in POOL_FUNCTIONS:
            if units.axis >= dims - POOL_FUNCTIONS[node.target]:
                raise self.refuse(node, f"({name}) mixes its units")
            return units
        if name in _SOFT:
            axis = option(node, "dim", 1)
            if not isinstance(axis, int) or axis % dims == units.axis:
                raise self.refuse(node, "divides by a sum over its units")
            return units
        if name in _MEANS:
            return self._mean(node, units)
        if turns(node):
            return self._turned(node, units)
        if name in _RESHAPES:
            return self._reshaped(node, units)
        raise self.refuse(node, f"calls {name}, which cannot read its replicas")

    # Axes ---------------------------------------------------------------------------------------

    def _is_tensor(self, node: fx.Node, given: fx.Node) -> bool:
        if self.outline.shapes:
            return node.name in self.outline.shapes
        return not asks(given)

    def _mean(self, node: fx.Node, units: Units) -> Units:
        over = axes_of(node, units.dims)
        if over is None or units.axis in over or not over:  # without axes, over all of them
            raise self.refuse(node, "runs over its units" if over else "runs over unknown axes")
        if option(node, "keepdim", 2, default=False):
            return units
        gone = sum(x < units.axis for x in over)
        return replace(units, axis=units.axis - gone, dims=units.dims - len(over))

    def _turned(self, node: fx.Node, units: Units) -> Units:
        order = order_of(node, units.dims)
        if order is None:
            raise self.refuse(node, "turns axes that are computed")
        return replace(units, axis=order.index(units.axis))

    def _joined(self, node: fx.Node) -> Units:
        """Tensors side by side: along their units, or along another axis."""
        parts: Any = node.args[0] if node.args else node.kwargs.get("tensors")
        axis: Any = option(node, "dim", 1, default=0)
        if not (isinstance(parts, (tuple, list)) and isinstance(axis, int)):
            raise self.refuse(node, "joins what is computed, or along an axis that is")
        known = [self.units[p] for p in parts if p in self.units]
        dims = known[0].dims
        axis %= dims
        if any(units.axis != axis for units in known):
            self._agree(node, list(parts))
            return known[0]
        places, start = [], 0
        for part in parts:
            units = self.units.get(part)
            if units is None:
                if part.name not in self.outline.shapes:
                    raise self.refuse(node, "joins tensors of unknown shape; give a batch")
                length = self.outline.shapes[part.name][axis]
                units = Units(axis, np.arange(length, dtype=np.int64), length, dims)
            places.append(units.places + start)
            start += units.old
        return Units(axis, np.concatenate(places), start, dims)

    def _agree(self, node: fx.Node, tensors: list[fx.Node]) -> Units:
        known = [x for x in tensors if x in self.units]
        units = self.units[known[0]]
        behind = units.dims - units.axis
        missing: set[str] = set()
        dims = units.dims
        for other in tensors:
            if other in self.units:
                theirs = self.units[other]
                same = np.array_equal(theirs.places, units.places)
                if not same or theirs.dims - theirs.axis != behind:
                    raise self.refuse(node, "combines units that have other replicas")
            elif not self._stretched(other, behind):
                missing |= self._sources(other, node)
            dims = max(dims, len(self.outline.shapes.get(other.name, ())))
        if missing:
            raise _Along(missing)
        return replace(units, axis=dims - behind, dims=dims)

    def _stretched(self, node: fx.Node, behind: int) -> bool:
        """Whether a tensor has one number for all units."""
        shape = self.outline.shapes.get(node.name)
        if shape is None:  # a plain number, or no shapes are known
            return bool(self.outline.shapes) or asks(node)
        return len(shape) < behind or shape[len(shape) - behind] == 1

    def _sources(self, node: fx.Node, sum_: fx.Node) -> set[str]:
        """The layers whose units a tensor holds, where these are in it as they were computed."""
        if node.op == "call_module":
            target = str(node.target)
            module = self.outline.modules[target]
            if type(module) in KINDS:
                if isinstance(module, _CONVS) and module.groups > 1:
                    if module.groups == module.in_channels == module.out_channels:
                        return self._sources(node.all_input_nodes[0], sum_)
                    raise self.refuse(target, f"works in {module.groups} groups")
                return {target}
            if type(module) is not nn.Flatten and len(node.all_input_nodes) == 1:
                return self._sources(node.all_input_nodes[0], sum_)
        elif node.op in ("call_function", "call_method"):
            name = function_name(node)
            tensors = [
                x
                for x in node.all_input_nodes
                if x.name in self.outline.shapes or not self.outline.shapes
            ]
            through = name.removesuffix("_") in UNIT_FUNCTIONS or node.target in POOL_FUNCTIONS
            if name in PAIRED or through or name in _MEANS or name in _RESHAPES:
                tensors = tensors if name in PAIRED else tensors[:1]
                return set().union(*(self._sources(x, sum_) for x in tensors))
        what = {"placeholder": "an input of the network", "get_attr": "a parameter of its own"}
        raise self.refuse(
            sum_,
            f"combines its units with {what.get(node.op, str(node))} ({node}), which has no "
            "layer that could become wider along",
        )

    def _reshaped(self, node: fx.Node, units: Units) -> Units:
        if node.kwargs.keys() & {"shape", "size"}:
            raise self.refuse(node, "is told its shape by name; give it by position")
        shapes = self.outline.shapes
        before, after = shapes.get(node.all_input_nodes[0].name), shapes.get(node.name)
        if before is not None and after is not None:
            merged = reshaped(units, before, after)
            why = f"takes units apart: from {before} to {after}"
        else:  # channels that are flattened in front of what reads them
            length = length_behind(node, self.outline.modules)
            merged = reshaped(units, (1, units.old, length // units.old), (1, length))
            why = "changes a shape that is not known; give a batch"
        if merged is None:
            raise self.refuse(node, why)
        if stated_length(node, merged.axis) == merged.old:
            self.plan.constants.append((node.name, merged.axis, len(merged.places)))
        return merged
