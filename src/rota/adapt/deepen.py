"""Put a new layer behind a layer, so that the network computes what it did.

Two forms. *Identity*: the new layer passes its input on, its norm is set so that it undoes itself,
and the activation is applied once more, which changes nothing where it is idempotent. *Residual*:
y becomes y + s·f(y), with f = activation∘norm∘layer as a new layer begins, and factors s that are
zero: whatever f is, for every batch, in training and evaluation; s learns first, then f.
"""

from __future__ import annotations

import copy
import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from rota.adapt.carry import Parameters
from rota.adapt.layers import (
    BATCH_NORMS,
    IDEMPOTENT,
    INSTANCE_NORMS,
    SHAPED_NORMS,
    Scale,
    activation_name,
)
from rota.adapt.running import arguments, values_at
from rota.errors import GrowthError

if TYPE_CHECKING:
    from torch import Tensor, fx

    from rota.adapt.graph import Architecture
    from rota.adapt.growth import Form
    from rota.adapt.layers import Block, Layer
    from rota.adapt.running import Batch


@dataclass(frozen=True)
class Deepening:
    """What comes behind which layer."""

    block: Block
    form: Form
    norm: nn.Module | None
    """The norm whose kind the new layer gets."""
    activation: fx.Node | None
    """The node whose activation the new layer gets."""
    module: nn.Module | None
    """What that node calls, if it calls a module; ReLU where there is nothing to take after."""

    @property
    def kernel(self) -> tuple[int, ...]:
        """Sizes of the new kernel: odd ones, which have a middle; empty for a linear layer."""
        layer = self.block.layer
        if isinstance(layer, nn.Linear):
            return ()
        return tuple(k if k % 2 else k - 1 for k in layer.kernel_size)

    @property
    def weights(self) -> int:
        """How many weights the new layer has."""
        units, layer = self.block.units, self.block.layer
        groups = 1 if isinstance(layer, nn.Linear) else layer.groups
        return units * (units // groups) * math.prod(self.kernel)

    @property
    def parameters(self) -> int:
        """How many parameters the network has more afterwards."""
        units = self.block.units
        count = self.weights + units * (self.block.layer.bias is not None)
        if isinstance(self.norm, SHAPED_NORMS):
            both = 1 if isinstance(self.norm, nn.RMSNorm) else 2
            count += both * math.prod(self.norm.normalized_shape)
        elif self.norm is not None:
            count += 2 * _channels(self.norm)
        if self.module is not None:
            count += sum(p.numel() for p in self.module.parameters())
        return count + units * (self.form == "residual")


def plan(outline: Architecture, name: str, form: Form) -> Deepening:
    """How to deepen a layer; an error that names it where that cannot keep the function."""
    block = outline.block(name)
    norm = outline.modules[str(block.norm.target)] if block.norm else None
    active = activation_name(block.activation, outline.modules) if block.activation else ""
    if not form:
        plain = norm is None and block.activation is not None and active in IDEMPOTENT
        form = "identity" if plain else "residual"
    if form == "residual":
        own = block.activation or _nearest(outline, block.node)
        module = _module_of(outline, own) if own else nn.ReLU()
        if isinstance(module, nn.PReLU) and own is not block.activation:
            module = nn.PReLU(**_place(block.layer))  # its own factors are of other units
        return Deepening(block, form, norm, own, module)
    if active not in IDEMPOTENT:
        raise GrowthError(
            f"{name} is followed by {active}, which changes what it has already been applied to: "
            f"{active}({active}(x)) ≠ {active}(x). No identity layer keeps the function there; "
            "deepen it in the residual form."
        )
    if norm is not None and not isinstance(norm, BATCH_NORMS):
        raise GrowthError(
            f"{name} has a {type(norm).__name__}, which scales each sample by numbers of its own: "
            "no constants undo that behind an identity layer. Deepen it in the residual form."
        )
    if norm is not None and norm.running_mean is None:
        raise GrowthError(
            f"{name} has a {type(norm).__name__} that keeps no statistics: in evaluation too it "
            "scales by those of each batch, which no constants undo. Use the residual form."
        )
    return Deepening(block, form, norm, block.activation, _module_of(outline, block.activation))


def _module_of(outline: Architecture, node: fx.Node | None) -> nn.Module | None:
    called = node is not None and node.op == "call_module"
    return outline.modules[str(node.target)] if node is not None and called else None


def _nearest(outline: Architecture, node: fx.Node) -> fx.Node | None:
    """The last activation before a layer that has none, or else the first one behind it."""
    before: fx.Node | None = None
    passed = False
    for other in outline.graph.nodes:
        passed = passed or other is node
        if activation_name(other, outline.modules):
            if passed:
                return before or other
            before = other
    return before


def build(
    outline: Architecture, plan: Deepening, batch: Batch | None, seed: int
) -> tuple[fx.Graph, nn.ModuleDict, Parameters]:
    """The graph with the new layer, its modules, and its parameters; nothing is changed yet.

    Without a batch only the structure is as it shall be.
    """
    generator = torch.Generator().manual_seed(seed)
    parts = _parts(plan, generator)
    if batch is not None and plan.norm is not None:
        y = values_at(outline.model, outline.graph, plan.block.end.name, arguments(batch), seed)
        _calibrate(plan, parts, y)
    elif batch is not None and plan.form == "residual" and _silences(outline, plan):
        _awaken(parts["layer"], _given(outline, plan, batch, seed))
    for name, part in parts.items():
        like = plan.norm if name == "norm" and plan.norm is not None else plan.block.layer
        part.train(like.training)
    prefix = f"{outline.kept.container}.{len(outline.kept.history) + 1}"
    graph = _insert(outline, plan, parts, prefix)
    return graph, nn.ModuleDict(parts), _added(plan, parts, prefix)


def _parts(plan: Deepening, generator: torch.Generator) -> dict[str, nn.Module]:
    """The modules that are put in, in the order in which data pass through them."""
    layer, units = plan.block.layer, plan.block.units
    place = _place(layer)
    parts: dict[str, nn.Module] = {"layer": _new_layer(plan, place)}
    _initialise(parts["layer"], plan.form, generator)
    if plan.norm is not None:
        parts["norm"] = _new_norm(plan.norm, place)
    if plan.module is not None:
        parts["activation"] = copy.deepcopy(plan.module).requires_grad_(True)
    if plan.form == "residual":
        dims = 0 if isinstance(layer, nn.Linear) else len(layer.kernel_size)
        parts["scale"] = Scale(units, dims, layer.weight)
    return parts


def _place(layer: Layer) -> dict[str, Any]:
    return {"device": layer.weight.device, "dtype": layer.weight.dtype}


def _new_layer(plan: Deepening, place: dict[str, Any]) -> nn.Module:
    layer, units = plan.block.layer, plan.block.units
    if isinstance(layer, nn.Linear):
        return nn.Linear(units, units, bias=layer.bias is not None, **place)
    kind: Any = type(layer)
    new: nn.Module = kind(
        units,
        units,
        plan.kernel,
        padding=tuple(k // 2 for k in plan.kernel),
        groups=layer.groups,
        bias=layer.bias is not None,
        **place,
    )
    return new


def _channels(norm: nn.Module) -> int:
    """Channels of a norm; behind a linear layer they may be another axis than its units."""
    if isinstance(norm, nn.GroupNorm):
        return norm.num_channels
    assert isinstance(norm, (*BATCH_NORMS, *INSTANCE_NORMS))
    return norm.num_features


def _new_norm(norm: nn.Module, place: dict[str, Any]) -> nn.Module:
    kind: Any = type(norm)
    if isinstance(norm, SHAPED_NORMS):
        new = kind(norm.normalized_shape, eps=norm.eps, **place)
    elif isinstance(norm, nn.GroupNorm):
        new = kind(norm.num_groups, _channels(norm), eps=norm.eps, **place)
    else:
        assert isinstance(norm, (*BATCH_NORMS, *INSTANCE_NORMS))
        tracks = norm.track_running_stats
        new = kind(_channels(norm), norm.eps, norm.momentum, True, tracks, **place)
    result: nn.Module = new
    return result


@torch.no_grad()
def _initialise(layer: nn.Module, form: Form, generator: torch.Generator) -> None:
    """Set a new layer to the identity, or as He et al. (2015) begin layers in front of a ReLU."""
    assert isinstance(layer, (nn.Linear, nn.Conv1d, nn.Conv2d))
    if layer.bias is not None:
        layer.bias.zero_()
    if form == "identity":
        if isinstance(layer, nn.Linear):
            nn.init.eye_(layer.weight)
        else:
            nn.init.dirac_(layer.weight, layer.groups)
        return
    deviation = math.sqrt(2.0 / max(1, layer.weight[0].numel()))
    drawn = torch.randn(layer.weight.shape, generator=generator) * deviation
    layer.weight.copy_(drawn)


def _given(outline: Architecture, plan: Deepening, batch: Batch, seed: int) -> Tensor:
    """What a new layer is given in training, or in evaluation if the batch is too small for it."""
    args, end = arguments(batch), plan.block.end.name
    try:
        return values_at(outline.model, outline.graph, end, args, seed)
    except GrowthError:
        return values_at(outline.model, outline.graph, end, args, seed, training=False)


def _silences(outline: Architecture, plan: Deepening) -> bool:
    """Whether the activation of a new layer may let nothing through, and nothing back."""
    if plan.activation is None:
        return plan.module is not None  # ReLU, since there is nothing to take after
    return activation_name(plan.activation, outline.modules) in IDEMPOTENT


@torch.no_grad()
def _awaken(layer: nn.Module, y: Tensor) -> None:
    """Turn a new layer around if all that it gives is negative: behind a ReLU none would learn."""
    assert isinstance(layer, (nn.Linear, nn.Conv1d, nn.Conv2d))
    if y.numel() and bool((layer(y) <= 0.0).all()):
        layer.weight.neg_()


@torch.no_grad()
def _calibrate(plan: Deepening, parts: dict[str, nn.Module], y: Tensor) -> None:
    """Let a norm of batches begin with the statistics of what it will be given."""
    norm, layer = parts["norm"], parts["layer"]
    if not isinstance(norm, BATCH_NORMS):
        return
    given = layer(y) if plan.form == "residual" else y
    if given.numel() < 2 * _channels(norm):
        raise GrowthError(
            f"A batch norm behind {plan.block.name} cannot be set from a single number per unit; "
            "give a larger batch."
        )
    axes = [axis for axis in range(given.dim()) if axis != 1]
    variance, mean = torch.var_mean(given.double(), axes, correction=0)
    if not bool(mean.isfinite().all() and variance.isfinite().all()):
        raise GrowthError(f"What {plan.block.name} gives for the batch is not finite.")
    if norm.running_mean is not None and norm.running_var is not None:
        norm.running_mean.copy_(mean)
        norm.running_var.copy_(variance)
        assert norm.num_batches_tracked is not None
        norm.num_batches_tracked.fill_(1)  # else a cumulative mean would begin with the next batch
    if plan.form == "identity":
        norm.weight.copy_((variance + norm.eps).sqrt())
        norm.bias.copy_(mean)


def _insert(
    outline: Architecture, plan: Deepening, parts: dict[str, nn.Module], prefix: str
) -> fx.Graph:
    graph = copy.deepcopy(outline.graph)
    end = next(node for node in graph.nodes if node.name == plan.block.end.name)
    users = list(end.users)
    value = end
    for part in ("layer", "norm", "activation", "scale"):
        with graph.inserting_after(value):
            if part in parts:
                # Not graph.call_module, which warns of modules that are not there yet.
                value = graph.create_node("call_module", f"{prefix}.{part}", (value,))
            elif part == "activation" and plan.activation is not None:
                own = plan.activation
                value = graph.create_node(
                    own.op, own.target, (value, *own.args[1:]), dict(own.kwargs)
                )
    if plan.form == "residual":
        with graph.inserting_after(value):
            value = graph.call_function(operator.add, (end, value))
    for user in users:
        user.replace_input_with(end, value)
    return graph


def _added(plan: Deepening, parts: dict[str, nn.Module], prefix: str) -> Parameters:
    layer = plan.block.layer
    norm = [] if plan.norm is None else list(plan.norm.parameters())
    bias = [] if layer.bias is None else [layer.bias]
    kin: dict[str, tuple[Tensor, ...]] = {
        "weight": (layer.weight,),
        "bias": (*bias, layer.weight),
    }
    small = (*norm, *bias, layer.weight)
    return Parameters(
        added=[
            (f"{prefix}.{part}.{name}", parameter, kin[name] if part == "layer" else small)
            for part, module in parts.items()
            for name, parameter in module.named_parameters()
        ]
    )
