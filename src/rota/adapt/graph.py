"""A network as a graph that growth works on: traced once with torch.fx, then kept on the network.

The network stays the object of the user's class. Once it has grown, its `forward` is an attribute
of the object, generated from the kept graph, which later growths start from.
"""

from __future__ import annotations

import math
import operator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, fx, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from rota.adapt.layers import KINDS, Block, Scale, block_at
from rota.errors import GrowthError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rota.adapt.growth import Growth

Batch = Tensor | tuple[Any, ...]
_KEPT: Final = "_growth"
_PROBE: Final = 2
"""Samples with which shapes are found: with one, an axis of length 1 could be any."""


@dataclass
class Kept:
    """What growth keeps on a network, beside its parameters."""

    graph: fx.Graph
    opaque: Mapping[str, str]
    """Modules that torch.fx cannot look into, and why."""
    container: str
    """Name of the module below which all new layers are put."""
    history: tuple[Growth, ...] = ()
    key: Any = None
    """Shapes of parameters and inputs for which the following holds."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    memory: dict[Any, Any] = field(default_factory=dict)
    """What was found out about this architecture."""


@dataclass(frozen=True)
class Outline:
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

    def blocks(self) -> list[Block]:
        """Layers that may grow, in data-flow order; one that is called twice only once."""
        found: dict[str, Block] = {}
        for node in self.graph.nodes:
            if node.op == "call_module" and type(self.modules[node.target]) in KINDS:
                found.setdefault(node.target, block_at(node, self.modules))
        return list(found.values())

    def calls(self, name: str) -> list[fx.Node]:
        """Nodes that call a module."""
        return [n for n in self.graph.nodes if n.op == "call_module" and n.target == name]

    def block(self, name: str) -> Block:
        """The block of a layer that shall grow; an error that names it where it cannot."""
        module = self.modules.get(name)
        if module is None:
            known = ", ".join(block.name for block in self.blocks()) or "none"
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
        return block_at(calls[0], self.modules)

    def check_plain(self, name: str) -> None:
        """Refuse a module whose parameters are not its own, or that is called twice."""
        module = self.modules[name]
        if len(calls := self.calls(name)) > 1:
            raise GrowthError(
                f"{name} is called in {len(calls)} places of the network ("
                f"{', '.join(node.name for node in calls)}); what shares weights does not grow."
            )
        if hasattr(module, "parametrizations") or hasattr(module, "weight_g"):
            raise GrowthError(
                f"The weights of {name} are computed from others (a parametrization or "
                "weight_norm); take that off first, and put it on again afterwards."
            )
        if hasattr(module, "weight_orig") or hasattr(module, "weight_u"):
            raise GrowthError(
                f"The weights of {name} are computed from others (pruning or spectral_norm); take "
                "that off first, and put it on again afterwards."
            )
        own = {id(p): own for own, p in module.named_parameters(recurse=False)}
        for other, parameter in self.model.named_parameters(remove_duplicate=False):
            mine = own.get(id(parameter))
            if mine is not None and self.modules.get(other.rpartition(".")[0]) is not module:
                raise GrowthError(
                    f"{name}.{mine} is tied to {other}: they are one tensor, which cannot grow "
                    "in one of its places."
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
        # The network is being copied, so it is in the memo already.
        copied: nn.Module = memo[id(self.model)]
        kept: Kept = copied.__dict__.get(_KEPT) or memo[id(self.model.__dict__[_KEPT])]
        return Forward(copied, kept.graph)

    def __reduce__(self) -> Any:
        raise TypeError(
            "A network that has grown is not pickled whole. Save its state_dict() and "
            "rota.adapt's history(network), and load the first after replay(network, history)."
        )


def compiled(graph: fx.Graph) -> Callable[..., Any]:
    """The function that a graph describes; its first argument is the network."""
    code = graph.python_code("self")
    namespace = dict(code.globals)
    exec(compile(code.src, "<forward of a network that has grown>", "exec"), namespace)
    function: Callable[..., Any] = namespace["forward"]
    return function


def kept_on(model: nn.Module) -> Kept | None:
    """What growth has kept on a network."""
    kept: Kept | None = model.__dict__.get(_KEPT)
    return kept


def new_state(model: nn.Module, kept: Kept, graph: fx.Graph, growth: Growth) -> dict[str, object]:
    """The attributes that a network has once it has grown."""
    after = Kept(graph, kept.opaque, kept.container, (*kept.history, growth))
    return {_KEPT: after, "forward": Forward(model, graph)}


def outline_of(model: nn.Module, batch: Batch | None) -> Outline:
    """Trace a network, unless that was done before; what was found out is kept on it."""
    kept = kept_on(model)
    key = _key(model, batch) if batch is not None else None
    if kept is None or (kept.key is not None and key is not None and kept.key != key):
        if kept is None or not kept.history:  # it may be another network now
            kept = _traced(model, batch)
            model.__dict__[_KEPT] = kept
        kept.key = None
    if key is not None and kept.key is None:
        kept.shapes, kept.memory = _shapes(model, kept.graph, arguments(batch)), {}
        kept.key = key
    modules = dict(model.named_modules(remove_duplicate=False))
    return Outline(model, modules, kept, kept.shapes if key is not None else {})


def _key(model: nn.Module, batch: Batch) -> Any:
    parameters = tuple((name, p.shape) for name, p in model.named_parameters())
    inputs = (x.shape[1:] if isinstance(x, Tensor) else None for x in arguments(batch))
    return parameters, tuple(inputs)


def arguments(batch: Batch | None) -> tuple[Any, ...]:
    """What a network is called with."""
    if isinstance(batch, (tuple, list)):
        return tuple(batch)
    if not isinstance(batch, Tensor):
        raise GrowthError(
            f"A batch is what the network is called with, a tensor or a tuple; this is {batch!r}."
        )
    return (batch,)


def few(args: tuple[Any, ...], most: int) -> tuple[Any, ...]:
    """The first samples of a batch."""
    return tuple(x[:most] if isinstance(x, Tensor) and x.dim() else x for x in args)


@contextmanager
def undisturbed(model: nn.Module, *, training: bool, seed: int = 0) -> Iterator[None]:
    """Run a network in a mode, and leave modes, buffers and random numbers as they were."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(b, b.clone()) for b in model.buffers()] if training else []
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    try:
        with torch.random.fork_rng(devices=sorted(devices, key=str)), torch.no_grad():
            torch.manual_seed(seed)
            for module, _ in modes:
                module.training = training
            yield
    finally:
        for module, mode in modes:
            module.training = mode
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)


class _Tracer(fx.Tracer):
    def __init__(self, opaque: Mapping[str, str]) -> None:
        super().__init__()
        self.opaque = opaque
        self.inside: list[str] = []

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if module_qualified_name in self.opaque or isinstance(m, Scale):
            return True
        return super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: nn.Module, *rest: Any, **more: Any) -> Any:
        # Not taken off after an error: its last entry is then where the error happened.
        self.inside.append(self.path_of_module(m))
        result = super().call_module(m, *rest, **more)
        self.inside.pop()
        return result


def _traced(model: nn.Module, batch: Batch | None) -> Kept:
    _check_kind(model)
    opaque: dict[str, str] = {}
    while True:
        tracer = _Tracer(opaque)
        try:
            graph = _in_both_modes(model, tracer)
            break
        except GrowthError:
            raise
        except Exception as error:  # whatever the user's forward does with what is no tensor
            reason = str(error).strip().split("\n")[0]
            if not tracer.inside or tracer.inside[-1] in opaque:
                raise GrowthError(
                    f"torch.fx cannot trace the forward of {type(model).__name__} ({reason}); a "
                    "forward whose way depends on its data does not grow."
                ) from None
            opaque[tracer.inside[-1]] = reason
    container = "grown"
    while hasattr(model, container):
        container += "_"
    kept = Kept(graph, opaque, container)
    if batch is not None:
        _check_trace(model, graph, arguments(batch))
    return kept


def _check_kind(model: nn.Module) -> None:
    if isinstance(model, (DataParallel, DistributedDataParallel)) or hasattr(model, "_orig_mod"):
        raise GrowthError(
            f"A {type(model).__name__} does not grow; grow the network in it, then wrap it anew."
        )
    if isinstance(model, (torch.jit.ScriptModule, fx.GraphModule)) or "forward" in vars(model):
        raise GrowthError(
            f"The forward of this {type(model).__name__} is not that of its class; grow the "
            "network before it is compiled, traced or wrapped."
        )
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise GrowthError(f"{name} has no shape yet; run the network once before it grows.")


def _in_both_modes(model: nn.Module, tracer: _Tracer) -> fx.Graph:
    """One graph of training and evaluation, which reads `training` where the two differ by it."""
    with undisturbed(model, training=False):
        evaluation = tracer.trace(model)
    with undisturbed(model, training=True):
        graph = tracer.trace(model)
    if len(graph.nodes) != len(evaluation.nodes):
        raise GrowthError(
            f"The forward of {type(model).__name__} takes another way in training than in "
            "evaluation; torch.fx sees only one. Let modules such as Dropout decide that."
        )
    for node, other in zip(list(graph.nodes), evaluation.nodes, strict=True):
        if (node.op, node.target) != (other.op, other.target):
            raise GrowthError(
                f"The forward of {type(model).__name__} calls {node} in training where it calls "
                f"{other} in evaluation; let modules such as Dropout decide that."
            )
        merge = _Merge(graph, node)
        node.args = merge(node.args, other.args)
        node.kwargs = merge(node.kwargs, other.kwargs)
    return graph


class _Merge:
    def __init__(self, graph: fx.Graph, node: fx.Node) -> None:
        self.graph, self.node = graph, node

    def __call__(self, training: Any, evaluation: Any) -> Any:
        if isinstance(training, fx.Node) and isinstance(evaluation, fx.Node):
            if training.name == evaluation.name:
                return training
        elif isinstance(training, (tuple, list)) and len(training) == len(evaluation):
            return tuple(map(self, training, evaluation))
        elif isinstance(training, dict) and training.keys() == evaluation.keys():
            return {key: self(value, evaluation[key]) for key, value in training.items()}
        elif isinstance(training, bool) and isinstance(evaluation, bool):
            if training == evaluation:
                return training
            with self.graph.inserting_before(self.node):
                mode = self.graph.create_node("get_attr", "training")
                if not training:
                    mode = self.graph.call_function(operator.not_, (mode,))
            return mode
        elif training is evaluation or training == evaluation:
            return training
        raise GrowthError(
            f"{self.node} is given {training!r} in training and {evaluation!r} in evaluation; "
            "torch.fx sees only one. Let modules such as Dropout decide that."
        )


class _Shapes(fx.Interpreter):
    def __init__(self, model: nn.Module, graph: fx.Graph) -> None:
        super().__init__(model, graph=graph)
        self.extra_traceback = False
        self.shapes: dict[str, tuple[int, ...]] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, Tensor):
            self.shapes[n.name] = tuple(value.shape)
        return value


def _shapes(
    model: nn.Module, graph: fx.Graph, args: tuple[Any, ...]
) -> Mapping[str, tuple[int, ...]]:
    finder = _Shapes(model, graph)
    with undisturbed(model, training=False):
        try:
            finder.run(*few(args, _PROBE))
        except Exception as error:
            raise GrowthError(
                f"The network does not run on the batch that is to show its shapes: {error}"
            ) from None
    return finder.shapes


def values_at(outline: Outline, name: str, args: tuple[Any, ...], seed: int) -> Tensor:
    """What a node gives in training for a batch."""

    class Watch(fx.Interpreter):
        value: Tensor

        def run_node(self, n: fx.Node) -> Any:
            value = super().run_node(n)
            if n.name == name:
                self.value = value.clone()  # later functions may work in place
            return value

    watch = Watch(outline.model, graph=outline.graph)
    with undisturbed(outline.model, training=True, seed=seed):
        try:
            watch.run(*args)
        except Exception as error:
            raise GrowthError(f"The network does not train on the given batch: {error}") from None
    return watch.value


def answer(model: nn.Module, args: tuple[Any, ...], *, training: bool = False) -> list[Tensor]:
    """All tensors that a network gives, whatever they are packed in."""
    with undisturbed(model, training=training):
        found: list[Tensor] = []
        _collect(model.forward(*args), found)
        return [x.detach().clone() for x in found]


def _collect(value: Any, found: list[Tensor]) -> None:
    if isinstance(value, Tensor):
        found.append(value)
    elif isinstance(value, (tuple, list)):
        for item in value:
            _collect(item, found)
    elif isinstance(value, dict):
        for item in value.values():
            _collect(item, found)
    elif hasattr(value, "__dict__"):
        _collect(vars(value), found)


def difference(before: list[Tensor], after: list[Tensor]) -> float:
    """Largest change of an output, in units of its tolerance; infinite: other shapes."""
    if [x.shape for x in before] != [x.shape for x in after]:
        return math.inf
    worst = 0.0
    for x, y in zip(before, after, strict=True):
        if not x.is_floating_point():
            continue  # such as the class that was found: two may be equal but for rounding
        tolerance = (
            40 * torch.finfo(x.dtype).eps ** 0.8 * max(1.0, float(x.abs().amax()))
            if x.numel()
            else 1.0
        )
        change = float((x.double() - y.double()).abs().amax()) if x.numel() else 0.0
        worst = max(worst, change / tolerance if math.isfinite(change) else math.inf)
    return worst


def _check_trace(model: nn.Module, graph: fx.Graph, args: tuple[Any, ...]) -> None:
    """Refuse a network that does something else than what torch.fx has seen of it."""
    function = compiled(graph)
    probe = few(args, 8)
    for training in (False, True):
        with undisturbed(model, training=training):
            try:
                own = model.forward(*probe)
            except Exception as error:
                if training:  # such as a batch norm over a single number
                    continue
                raise GrowthError(f"The network does not run on the given batch: {error}") from None
        with undisturbed(model, training=training):
            traced = function(model, *probe)
        before: list[Tensor] = []
        after: list[Tensor] = []
        _collect(own, before)
        _collect(traced, after)
        if not all(bool(x.isfinite().all()) for x in before if x.is_floating_point()):
            raise GrowthError("The network's outputs are not finite; it has nothing to preserve.")
        if difference(before, after) > 1.0:
            raise GrowthError(
                f"The forward of {type(model).__name__} gives something else than what torch.fx "
                "has traced of it; does its way depend on random numbers, or on its data?"
            )
