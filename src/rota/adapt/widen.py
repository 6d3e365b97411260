"""Make a layer wider by replicas of its units, so that the network computes what it did.

What reads replicas reads each in a share, and the shares of one unit add up to what it was. They
are drawn anew for every reader: replicas that were read alike would learn alike, and stay the same
unit for ever.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import nn

from rota.adapt.carry import Moved, Parameters
from rota.adapt.layers import Scale, own_parameters
from rota.errors import GrowthError

if TYPE_CHECKING:
    from torch import Tensor, fx

    from rota.adapt.carry import Edits
    from rota.adapt.graph import Architecture
    from rota.adapt.replicas import Rewiring, Units, Widening

_STATISTICS: Final = ("running_mean", "running_var")


def new_graph(outline: Architecture, plan: Widening) -> fx.Graph:
    """The graph with the lengths that reshapes are told now."""
    graph = copy.deepcopy(outline.graph)
    nodes = {node.name: node for node in graph.nodes}
    for name, position, value in plan.constants:
        node = nodes[name]
        if isinstance(node.args[1], (tuple, list)):
            sizes: list[Any] = list(node.args[1])
            sizes[position] = value
            node.args = (node.args[0], tuple(sizes))
        else:
            node.update_arg(position + 1, value)
    return graph


def apply(
    outline: Architecture, plan: Widening, edits: Edits, seed: int, noise: float, *, values: bool
) -> Parameters:
    """Put wider parameters into the network's modules; without values only their shapes count."""
    generator = torch.Generator().manual_seed(seed)
    parameters = Parameters()
    for name, change in plan.changes.items():  # in data-flow order, alike on all workers
        module = outline.modules[name]
        for own, old in own_parameters(module):
            moved = _moved(f"{name}.{own}", module, own, old, change)
            if moved is None:
                continue
            with torch.no_grad():
                new = moved.values(old.detach())
                if values and own == "weight" and change.inputs is not None:
                    new = new * _shares(change.inputs, new, generator)
                if values and noise and own == "weight" and name in plan.sources:
                    drawn = torch.randn(new.shape, generator=generator)
                    new = new + noise * float(old.std(correction=0)) * drawn.to(new)
            if old._backward_hooks or old._post_accumulate_grad_hooks:
                raise GrowthError(
                    f"{moved.name} has a hook, which would not be called for the wider weights that"
                    " take its place; remove it first, and put it on again afterwards."
                )
            parameter = nn.Parameter(new, requires_grad=old.requires_grad)
            vars(parameter).update(vars(old))  # marks that the user has put on it
            if old.grad is not None:  # of a step whose gradients are still being added up
                parameter.grad = moved.state(old.grad, 1)
            edits.set(module._parameters, own, parameter)
            parameters.moved.append((old, parameter, moved))
        _resize(module, change, edits)
    return parameters


def _moved(name: str, module: nn.Module, own: str, old: Tensor, change: Rewiring) -> Moved | None:
    """Where the numbers of a parameter go; None: they stay."""
    found = _axes(module, own, old, change)
    if not found:
        return None
    takes = tuple((axis, torch.from_numpy(units.places)) for axis, units in found)
    return Moved(takes, name, _copies(change.outputs) if change.outputs is not None else None)


def _axes(module: nn.Module, own: str, old: Tensor, change: Rewiring) -> list[tuple[int, Units]]:
    """Axes of a parameter or buffer that become longer, that of its own units first."""
    found: list[tuple[int, Units]] = []
    if change.outputs is not None:
        layer = isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d))
        found.append((0 if layer or old.dim() == 1 else change.outputs.axis, change.outputs))
    if change.inputs is not None and own == "weight":
        found.append((1, change.inputs))
    return found


@dataclass(frozen=True)
class Merge:
    """How a parameter or buffer that has become wider becomes what it was."""

    name: str
    axes: tuple[tuple[int, Units, bool], ...]
    """Axis, its units, and whether replicas become their mean; else they are added up."""

    def __call__(self, value: Tensor) -> Tensor:
        """The narrower one."""
        for axis, units, mean in self.axes:
            places = torch.from_numpy(units.places).to(value.device)
            shape = list(value.shape)
            shape[axis] = units.old
            merged = value.new_zeros(shape).index_add_(axis, places, value)
            if mean:
                counts = torch.bincount(places, minlength=units.old).to(value.dtype)
                merged /= counts.view([-1 if i == axis else 1 for i in range(value.dim())])
            value = merged
        return value


def merges(outline: Architecture, plan: Widening) -> list[Merge]:
    """How everything that becomes wider would become what it is now."""
    found: list[Merge] = []
    for name, change in plan.changes.items():
        module = outline.modules[name]
        tensors: dict[str, Tensor | None] = dict(own_parameters(module))
        tensors |= {own: module._buffers.get(own) for own in _STATISTICS}
        for own, tensor in tensors.items():
            if tensor is not None and (axes := _axes(module, own, tensor, change)):
                means = tuple((axis, units, units is change.outputs) for axis, units in axes)
                found.append(Merge(f"{name}.{own}", means))
    return found


def _copies(units: Units) -> Tensor:
    counts = np.bincount(units.places, minlength=units.old)
    return torch.from_numpy(counts[units.places].astype(np.float64))


def _shares(units: Units, weight: Tensor, generator: torch.Generator) -> Tensor:
    """A share for each row and each new place of what it reads; those of an old place add to 1."""
    places = torch.from_numpy(units.places)
    drawn = 0.5 + torch.rand(weight.shape[0], len(places), generator=generator, dtype=torch.float64)
    sums = torch.zeros(weight.shape[0], units.old, dtype=torch.float64)
    sums.index_add_(1, places, drawn)
    shares = (drawn / sums.index_select(1, places)).to(weight.device, weight.dtype)
    return shares.view(*shares.shape, *(1,) * (weight.dim() - 2))


def _resize(module: nn.Module, change: Rewiring, edits: Edits) -> None:
    """Buffers, and what a module says about its own size."""
    facts = module.__dict__
    if isinstance(module, nn.Linear):
        names = ("out_features", "in_features")
    elif isinstance(module, (nn.Conv1d, nn.Conv2d)):
        names = ("out_channels", "in_channels")
    else:
        assert change.outputs is not None
        _resize_norm(module, change.outputs, edits)
        return
    if change.outputs is not None:
        count = len(change.outputs.places)
        edits.set(facts, names[0], count)
        if facts.get("groups", 1) > 1:  # depthwise: one group for each channel that it reads
            channels = count * facts["groups"] // change.outputs.old
            edits.set(facts, names[1], channels)
            edits.set(facts, "groups", channels)
    if change.inputs is not None:
        edits.set(facts, names[1], len(change.inputs.places))


def _resize_norm(module: nn.Module, units: Units, edits: Edits) -> None:
    facts, count = module.__dict__, len(units.places)
    places = torch.from_numpy(units.places)
    for name in _STATISTICS:
        buffer = module._buffers.get(name)
        if buffer is not None:
            edits.set(module._buffers, name, buffer.index_select(0, places.to(buffer.device)))
    for name in ("num_features", "num_channels", "num_parameters"):
        if name in facts:
            edits.set(facts, name, count)
    if isinstance(module, Scale):
        edits.set(facts, "units", count)
    if "normalized_shape" in facts:
        shape = list(facts["normalized_shape"])
        shape[units.axis] = count
        edits.set(facts, "normalized_shape", tuple(shape))
