"""What a network looks like to those that decide: its layers, how it may grow, what that costs.

All of it is worked out without growing anything, and kept while the network stays as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from rota.adapt import deepen, follow
from rota.adapt.graph import outline_of
from rota.adapt.growth import Growth
from rota.adapt.layers import activation_name, is_sum, own_parameters
from rota.adapt.moment import LayerFacts
from rota.adapt.running import arguments
from rota.errors import GrowthError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rota.adapt.graph import Architecture
    from rota.adapt.layers import Block
    from rota.adapt.replicas import Widening
    from rota.adapt.running import Batch


@dataclass(frozen=True)
class Cost:
    """What a network costs."""

    flops: float
    """Multiplications per sample, of all linear and convolutional layers."""
    parameters: int


def layers_of(model: nn.Module, batch: Batch) -> tuple[LayerFacts, ...]:
    """The linear and convolutional layers of a network, in data-flow order."""
    outline = outline_of(model, arguments(batch))
    found: tuple[LayerFacts, ...] = _remembered(
        outline, "layers", lambda: tuple(_facts(outline, block) for block in outline.blocks)
    )
    return found


def tokens_of(model: nn.Module) -> tuple[str, ...]:
    """Every leaf module as it prints itself, in data-flow order."""
    try:
        outline = outline_of(model, None)
    except GrowthError:  # the order in which they are registered will have to do
        leaves = [m for m in model.modules() if not any(True for _ in m.children())]
        return tuple(map(str, leaves))
    names = [str(n.target) for n in outline.graph.nodes if n.op == "call_module"]
    return tuple(str(outline.modules[name]) for name in names)


def candidates(model: nn.Module, batch: Batch, *, factor: float = 2.0) -> tuple[Growth, ...]:
    """All ways in which a network can grow: deepened, then made wider, layer by layer."""
    outline = outline_of(model, arguments(batch))

    def find() -> tuple[Growth, ...]:
        asked = [
            growth
            for block in outline.blocks
            for growth in (Growth("deepen", block.name), Growth("widen", block.name, factor))
        ]
        return tuple(growth for growth in asked if _possible(outline, growth))

    found: tuple[Growth, ...] = _remembered(outline, ("candidates", factor), find)
    return found


def costs(
    model: nn.Module, batch: Batch, growths: Sequence[Growth | None] = (None,)
) -> tuple[Cost, ...]:
    """What a network would cost after each of some growths; None: as it is."""
    outline = outline_of(model, arguments(batch))
    return tuple(_cost(outline, growth) for growth in growths)


def _remembered(outline: Architecture, key: Any, find: Callable[[], Any]) -> Any:
    memory = outline.kept.memory
    if key not in memory:
        memory[key] = find()
    return memory[key]


def _possible(outline: Architecture, growth: Growth) -> bool:
    try:
        _cost(outline, growth)
    except GrowthError:
        return False
    return True


def plan_of(outline: Architecture, growth: Growth) -> deepen.Deepening | Widening:
    """How a growth would be done; an error where it cannot."""
    if not isinstance(growth, Growth):
        raise GrowthError(f"{growth!r:.80} is no Growth, such as Growth('widen', 'layer').")
    if growth.operation == "deepen":
        return deepen.plan(outline, growth.layer, growth.form)
    return follow.plan(outline, growth.layer, growth.factor)


def _facts(outline: Architecture, block: Block) -> LayerFacts:
    layer, history, container = block.layer, outline.kept.history, outline.kept.container
    parameters = sum(p.numel() for p in layer.parameters())
    if block.norm is not None:
        norm = outline.modules[str(block.norm.target)]
        parameters += sum(p.numel() for p in norm.parameters())
    added = sum(growth.layer == block.name for growth in history)
    return LayerFacts(
        name=block.name,
        kind=block.kind,
        inputs=layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels,
        outputs=block.units,
        kernel=1 if isinstance(layer, nn.Linear) else layer.kernel_size[0],
        stride=1 if isinstance(layer, nn.Linear) else layer.stride[0],
        positions=_positions(outline, block),
        parameters=parameters,
        flops=_flops(outline, block),
        norm=block.norm is not None,
        activation=activation_name(block.activation, outline.modules) if block.activation else "",
        residual=any(map(is_sum, block.end.users)),
        added=added,
        original=not block.name.startswith(f"{container}."),
    )


def _positions(outline: Architecture, block: Block) -> int:
    """Places per sample at which all calls of a layer compute its units."""
    shapes = [outline.shapes[node.name] for node in outline.calls(block.name)]
    return sum(math.prod(shape[1:]) // max(1, block.units) for shape in shapes)


def _cost(outline: Architecture, growth: Growth | None) -> Cost:
    def find() -> Cost:
        return _own_cost(outline) if growth is None else _cost_after(outline, growth)

    found: Cost = _remembered(outline, ("cost", growth), find)
    return found


def _own_cost(outline: Architecture) -> Cost:
    flops = sum(_flops(outline, block) for block in outline.blocks)
    return Cost(flops, sum(p.numel() for p in outline.model.parameters()))


def _cost_after(outline: Architecture, growth: Growth) -> Cost:
    plan, now = plan_of(outline, growth), _cost(outline, None)
    flops, parameters = now.flops, now.parameters
    if isinstance(plan, deepen.Deepening):
        more = _positions(outline, plan.block) * plan.weights
        return Cost(flops + more, parameters + plan.parameters)
    for block in outline.blocks:
        if block.name in plan.changes:
            flops += _flops(outline, block) * (plan.changes[block.name].weight_ratio - 1.0)
    for name, change in plan.changes.items():
        for own, p in own_parameters(outline.modules[name]):
            ratio = change.weight_ratio if own == "weight" else change.output_ratio
            parameters += round(p.numel() * ratio) - p.numel()
    return Cost(flops, parameters)


def _flops(outline: Architecture, block: Block) -> float:
    return float(_positions(outline, block) * block.layer.weight.numel())
