"""What growth knows about PyTorch's layers: which grow, and what treats each unit alone."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import fx, nn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

Kind = Literal["linear", "conv1d", "conv2d"]
KINDS: Final[Mapping[type[nn.Module], Kind]] = {
    nn.Linear: "linear",
    nn.Conv1d: "conv1d",
    nn.Conv2d: "conv2d",
}
"""Layers that grow."""
Layer = nn.Linear | nn.Conv1d | nn.Conv2d


class Scale(nn.Module):
    """Multiply each unit by a factor of its own; the last factor of a new branch, zero at first."""

    def __init__(self, units: int, dims: int, like: Tensor) -> None:
        """`dims`: how many axes follow that of the units."""
        super().__init__()
        self.units, self.dims = units, dims
        self.weight = nn.Parameter(torch.zeros(units, device=like.device, dtype=like.dtype))

    def forward(self, x: Tensor) -> Tensor:
        """`x` times the factors."""
        return x * self.weight.view(-1, *(1,) * self.dims)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return str(self.units)


BATCH_NORMS: Final = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
INSTANCE_NORMS: Final = (nn.InstanceNorm1d, nn.InstanceNorm2d)
SHAPED_NORMS: Final = (nn.LayerNorm, nn.RMSNorm)
NORMS: Final = (*BATCH_NORMS, *INSTANCE_NORMS, *SHAPED_NORMS, nn.GroupNorm)

ACTIVATIONS: Final[Mapping[type[nn.Module], str]] = {
    nn.ReLU: "relu",
    nn.ReLU6: "relu6",
    nn.Hardtanh: "hardtanh",
    nn.LeakyReLU: "leaky_relu",
    nn.PReLU: "prelu",
    nn.GELU: "gelu",
    nn.SiLU: "silu",
    nn.Mish: "mish",
    nn.ELU: "elu",
    nn.SELU: "selu",
    nn.CELU: "celu",
    nn.Tanh: "tanh",
    nn.Sigmoid: "sigmoid",
    nn.Softplus: "softplus",
    nn.Softsign: "softsign",
    nn.Hardswish: "hardswish",
    nn.Hardsigmoid: "hardsigmoid",
    nn.LogSigmoid: "logsigmoid",
}
IDEMPOTENT: Final = frozenset({"", "relu", "relu6"})
"""Activations f with f(f(x)) = f(x): behind them, an identity layer and f change nothing."""
_ACTIVE: Final = frozenset(ACTIVATIONS.values()) - {"prelu"}

UNIT_MODULES: Final = (
    *(kind for kind in ACTIVATIONS if kind is not nn.PReLU),
    nn.Identity,
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.AlphaDropout,
    nn.Threshold,
    nn.Hardshrink,
    nn.Softshrink,
    nn.Tanhshrink,
)
"""Modules that treat every number alike, whatever stands beside it."""
UNIT_FUNCTIONS: Final = _ACTIVE | {
    "abs",
    "alpha_dropout",
    "clamp",
    "clip",
    "contiguous",
    "clone",
    "detach",
    "dropout",
    "dropout1d",
    "dropout2d",
    "exp",
    "float",
    "half",
    "bfloat16",
    "double",
    "neg",
    "pow",
    "rsqrt",
    "sin",
    "cos",
    "sqrt",
    "square",
    "to",
    "type",
    "log",
    "log1p",
    "erf",
}
"""Functions and methods of which the same is true, without the `_` of their form in place."""
POOLS: Final[Mapping[type[nn.Module], int]] = {
    nn.MaxPool1d: 1,
    nn.AvgPool1d: 1,
    nn.AdaptiveAvgPool1d: 1,
    nn.AdaptiveMaxPool1d: 1,
    nn.LPPool1d: 1,
    nn.MaxPool2d: 2,
    nn.AvgPool2d: 2,
    nn.AdaptiveAvgPool2d: 2,
    nn.AdaptiveMaxPool2d: 2,
    nn.LPPool2d: 2,
    nn.ZeroPad1d: 1,
    nn.ZeroPad2d: 2,
    nn.ReflectionPad1d: 1,
    nn.ReflectionPad2d: 2,
    nn.ReplicationPad1d: 1,
    nn.ReplicationPad2d: 2,
}
"""Modules that work within each channel, and over how many last axes."""
POOL_FUNCTIONS: Final[Mapping[Any, int]] = {
    F.max_pool1d: 1,
    F.avg_pool1d: 1,
    F.adaptive_avg_pool1d: 1,
    F.adaptive_max_pool1d: 1,
    F.max_pool2d: 2,
    F.avg_pool2d: 2,
    F.adaptive_avg_pool2d: 2,
    F.adaptive_max_pool2d: 2,
    torch.max_pool1d: 1,
    torch.max_pool2d: 2,
    torch.avg_pool1d: 1,
    torch.adaptive_avg_pool1d: 1,
}
SUMS: Final = frozenset({"add", "iadd", "add_", "sub", "isub", "sub_"})
"""Functions that add two tensors number by number."""
PAIRED: Final = SUMS | {
    "mul",
    "imul",
    "mul_",
    "truediv",
    "itruediv",
    "div",
    "div_",
    "maximum",
    "minimum",
    "max",
    "min",
    "pow",
}
"""Functions of two tensors, number by number."""


def own_parameters(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The parameters of a module itself; much faster than to ask `named_parameters`."""
    return [(name, p) for name, p in module._parameters.items() if p is not None]


def function_name(node: fx.Node) -> str:
    """Name of the function or method that a node calls; empty where it calls neither."""
    if node.op == "call_method":
        return str(node.target)
    return str(getattr(node.target, "__name__", "")) if node.op == "call_function" else ""


def activation_name(node: fx.Node, modules: Mapping[str, nn.Module]) -> str:
    """Name of the activation that a node is; empty: it is none."""
    if node.op == "call_module":
        return ACTIVATIONS.get(type(modules[str(node.target)]), "")
    name = function_name(node).removesuffix("_")
    alone = node.args[:1] == tuple(node.all_input_nodes)  # no number of it is computed
    return name if name in _ACTIVE and alone else ""


def is_sum(node: fx.Node) -> bool:
    """Whether a node adds two tensors."""
    tensors = [x for x in node.args if isinstance(x, fx.Node)]
    adds = node.target is operator.add or function_name(node) in SUMS
    return node.op in ("call_function", "call_method") and adds and len(tensors) > 1


@dataclass(frozen=True)
class Block:
    """A layer with the norm and the activation that belong to it alone."""

    name: str
    layer: Layer
    kind: Kind
    node: fx.Node
    norm: fx.Node | None
    activation: fx.Node | None

    @property
    def end(self) -> fx.Node:
        """Where its result stands, and where a new layer is put in."""
        return self.activation or self.norm or self.node

    @property
    def units(self) -> int:
        """How many features or channels it computes."""
        return units_of(self.layer)


def units_of(layer: Layer) -> int:
    """How many features or channels a layer computes."""
    return layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels


def block_at(node: fx.Node, modules: Mapping[str, nn.Module]) -> Block:
    """The block of a layer that `node` calls."""
    layer = modules[str(node.target)]
    assert isinstance(layer, Layer)
    norm = activation = None
    end = node
    follower = _only_user(end)
    if follower is not None and _norm_of(follower, modules) is not None:
        norm = end = follower
        follower = _only_user(end)
    if follower is not None and activation_name(follower, modules):
        activation = follower
    return Block(str(node.target), layer, KINDS[type(layer)], node, norm, activation)


def _norm_of(node: fx.Node, modules: Mapping[str, nn.Module]) -> nn.Module | None:
    module = modules[str(node.target)] if node.op == "call_module" else None
    return module if isinstance(module, NORMS) else None


def _only_user(node: fx.Node) -> fx.Node | None:
    users = list(node.users)
    return users[0] if len(users) == 1 and users[0].args[:1] == (node,) else None
