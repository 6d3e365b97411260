"""A network as a graph that growth works on: traced once with torch.fx, then kept on the network.

The network stays the object of the user's class. Once it has grown, its `forward` is an attribute
of the object, generated from the kept graph, which later growths start from.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from torch import Tensor

from rota.adapt.layers import KINDS, block_at, own_parameters
from rota.adapt.running import arguments, shapes_in
from rota.adapt.tracing import check_kind, check_trace, compiled, traced
from rota.errors import GrowthError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import fx, nn

    from rota.adapt.growth import Growth
    from rota.adapt.layers import Block
    from rota.adapt.running import Batch

_KEPT: Final = "_growth"
_UNPICKLED: Final = (
    "A network that has grown is not pickled whole. Save its state_dict() and its history, and "
    "load the first after replay(network, history)."
)


@dataclass
class Kept:
    """What growth keeps on a network, beside its parameters."""

    graph: fx.Graph
    opaque: Mapping[str, str]
    """Modules that torch.fx cannot look into, and why."""
    container: str
    """Name of the module below which all new layers are put."""
    history: tuple[Growth, ...] = ()
    checked: bool = False
    """Whether the graph was seen to compute what the network does."""
    key: Any = None
    """Shapes of parameters and inputs for which the following holds."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    memory: dict[Any, Any] = field(default_factory=dict)
    """What was found out about this architecture."""

    def __reduce__(self) -> Any:
        if self.history:
            raise TypeError(_UNPICKLED)
        return type(None), ()  # it can be found out again

    def __deepcopy__(self, memo: dict[int, Any]) -> Kept:
        graph = copy.deepcopy(self.graph)
        after = Kept(graph, self.opaque, self.container, self.history, self.checked)
        memo[id(self)] = after
        return after


@dataclass(frozen=True)
class Architecture:
    """A network and all that is known about its structure."""

    model: nn.Module
    modules: Mapping[str, nn.Module]
    kept: Kept
    shapes: Mapping[str, tuple[int, ...]]
    """Of what each node gives, by its name; empty: no batch was given."""

    @property
    def graph(self) -> fx.Graph:
        """The graph of the network as it is."""
        return self.kept.graph

    @cached_property
    def blocks(self) -> list[Block]:
        """Layers that may grow, in data-flow order; one that is called twice only once."""
        found: dict[str, Block] = {}
        for node in self.graph.nodes:
            if node.op == "call_module" and type(self.modules[node.target]) in KINDS:
                found.setdefault(node.target, block_at(node, self.modules))
        return list(found.values())

    def calls(self, name: str) -> list[fx.Node]:
        """Nodes that call a module."""
        return self._calls.get(name, [])

    @cached_property
    def _calls(self) -> Mapping[str, list[fx.Node]]:
        found: dict[str, list[fx.Node]] = {}
        for node in self.graph.nodes:
            if node.op == "call_module":
                found.setdefault(str(node.target), []).append(node)
        return found

    @cached_property
    def _owners(self) -> Mapping[int, list[tuple[str, nn.Module]]]:
        """By its id, every name of a parameter, and the module that it is one of."""
        found: dict[int, list[tuple[str, nn.Module]]] = {}
        for name, module in self.modules.items():
            for own, parameter in module._parameters.items():
                if parameter is not None:
                    found.setdefault(id(parameter), []).append((f"{name}.{own}", module))
        return found

    def block(self, name: str) -> Block:
        """The block of a layer that shall grow; an error that names it where it cannot."""
        module = self.modules.get(name)
        if module is None:
            known = ", ".join(block.name for block in self.blocks) or "none"
            raise GrowthError(f"The network has no layer {name!r}; its layers that grow: {known}.")
        calls = self.calls(name)
        if not calls:
            raise GrowthError(f"{name} cannot grow: {self._hidden(name)}.")
        if type(module) not in KINDS:
            raise GrowthError(
                f"{name} is a {type(module).__name__}; what grows is exactly of the class Linear, "
                "Conv1d or Conv2d."
            )
        self.check_plain(name)
        block = block_at(calls[0], self.modules)
        if not block.units:
            raise GrowthError(f"{name} has no units, of which there could be more.")
        return block

    def check_plain(self, name: str) -> None:
        """Refuse a module whose parameters are not its own, or that is called twice."""
        module = self.modules[name]
        if len(calls := self.calls(name)) > 1:
            raise GrowthError(
                f"{name} is called in {len(calls)} places of the network ("
                f"{', '.join(node.name for node in calls)}); what shares weights does not grow."
            )
        if any(hasattr(module, mark) for mark in ("parametrizations", "weight_g", "weight_orig")):
            raise GrowthError(
                f"The weights of {name} are computed from others (a parametrization, weight_norm, "
                "spectral_norm or pruning); take that off first, and put it on again afterwards."
            )
        for own, parameter in own_parameters(module):
            others = [x for x, owner in self._owners[id(parameter)] if owner is not module]
            if others:
                raise GrowthError(
                    f"{name}.{own} is tied to {others[0]}: they are one tensor, which cannot grow "
                    "in one of its places."
                )

    def check_unread(self, name: str) -> None:
        """Refuse a module whose parameters are also read without calling it."""
        for node in self.graph.nodes:
            if node.op == "get_attr" and str(node.target).rpartition(".")[0] == name:
                raise GrowthError(
                    f"{node.target} is also read by itself, without calling {name}; to make it "
                    "wider would change what is computed from it."
                )

    def _hidden(self, name: str) -> str:
        for path, reason in self.kept.opaque.items():
            if name.startswith(f"{path}."):
                return f"torch.fx cannot trace {path}, in which it lies ({reason})"
        parents = [name[:i] for i, letter in enumerate(name) if letter == "."]
        for path in parents:
            if self.calls(path):
                return f"it lies inside {path}, a {type(self.modules[path]).__name__}"
        return "the network's forward does not call it as a module"


class Forward:
    """The forward of a network that has grown."""

    def __init__(self, model: nn.Module, graph: fx.Graph) -> None:
        self.model, self.graph = model, graph
        self._function = compiled(graph)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(self.model, *args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Forward:
        model = copy.deepcopy(self.model, memo)  # it is being copied, so that is in the memo
        return Forward(model, copy.deepcopy(self.model.__dict__[_KEPT], memo).graph)

    def __reduce__(self) -> Any:
        raise TypeError(_UNPICKLED)


def kept_on(model: nn.Module) -> Kept | None:
    """What growth has kept on a network."""
    kept: Kept | None = model.__dict__.get(_KEPT)
    return kept


def look_again(model: nn.Module) -> None:
    """Forget what was found out about a network whose forward is another one by now.

    One that has grown is left as it is: its graph is its forward.
    """
    kept = kept_on(model)
    if kept is None or kept.history:
        return
    graph, opaque = traced(model)
    if (opaque, _code(graph)) != (kept.opaque, _code(kept.graph)):
        del model.__dict__[_KEPT]


def _code(graph: fx.Graph) -> str:
    return str(graph.python_code("self").src)


def new_state(model: nn.Module, kept: Kept, graph: fx.Graph, growth: Growth) -> dict[str, object]:
    """The attributes that a network has once it has grown."""
    after = Kept(graph, kept.opaque, kept.container, (*kept.history, growth), checked=True)
    return {_KEPT: after, "forward": Forward(model, graph)}


def outline_of(model: nn.Module, batch: Batch | None) -> Architecture:
    """Trace a network, unless that was done before; what was found out is kept on it."""
    kept = kept_on(model)
    if kept is None:
        check_kind(model)
    args = None if batch is None else arguments(batch)
    key = None if args is None else _key(model, args)
    changed = kept is not None and None not in (kept.key, key) and kept.key != key
    if kept is None or (changed and not kept.history):  # it may be another network by now
        graph, opaque = traced(model)
        kept = Kept(graph, opaque, _free_name(model))
        model.__dict__[_KEPT] = kept
    if args is not None and not kept.checked:
        check_trace(model, kept.graph, args)
        kept.checked = True
    if args is not None and kept.key != key:
        kept.shapes, kept.memory, kept.key = shapes_in(model, kept.graph, args), {}, key
    modules = dict(model.named_modules(remove_duplicate=False))
    return Architecture(model, modules, kept, {} if args is None else kept.shapes)


def _free_name(model: nn.Module) -> str:
    name = "grown"
    while hasattr(model, name):
        name += "_"
    return name


def _key(model: nn.Module, args: tuple[Any, ...]) -> Any:
    parameters = tuple((name, p.shape) for name, p in model.named_parameters())
    return parameters, tuple(x.shape[1:] if isinstance(x, Tensor) else None for x in args)
