"""Turn a network's forward into a graph, and refuse one that does something else."""

from __future__ import annotations

import operator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, fx, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from rota.adapt.layers import Scale
from rota.adapt.running import collect, difference, few, other_values, undisturbed
from rota.adapt.written import Written
from rota.errors import GrowthError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_CHECKED: Final = 8
"""Samples on which the graph and the network are compared."""


def compiled(graph: fx.Graph) -> Callable[..., Any]:
    """The function that a graph describes; its first argument is the network."""
    code = graph.python_code("self")
    namespace = dict(code.globals)
    exec(compile(code.src, "<forward of a network that has grown>", "exec"), namespace)
    function: Callable[..., Any] = namespace["forward"]
    return function


class _Tracer(fx.Tracer):
    def __init__(self, opaque: Mapping[str, str], *, buffers: bool) -> None:
        """`buffers`: whether those that a forward reads are nodes, else they are their values."""
        super().__init__()
        self.proxy_buffer_attributes = buffers
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


def traced(model: nn.Module) -> tuple[fx.Graph, dict[str, str]]:
    """The graph of a network, and modules that torch.fx cannot look into, with the reasons."""
    known, used = set(vars(model)), set()
    before = Written(model)
    try:
        graph, opaque = _attempts(model)
        used = {str(node.target) for node in graph.nodes if node.op == "get_attr"}
    except BaseException:
        before.restore()
        raise
    finally:
        # torch.fx keeps constants that a forward makes on the network, anew in each attempt.
        for name in set(vars(model)) - known - used:
            delattr(model, name)
    return graph, opaque


def _attempts(model: nn.Module) -> tuple[fx.Graph, dict[str, str]]:
    """Trace a network, with modules that cannot be traced taken whole."""
    opaque = {
        path: "it has hooks, which run only where it is called"
        for path, module in model.named_modules(remove_duplicate=False)
        if path and _hooked(module)
    }
    while True:
        before = Written(model)
        for buffers in (False, True):  # first as they are, so that it is seen who writes on them
            tracer = _Tracer(opaque, buffers=buffers)
            try:
                graph, written = _in_both_modes(model, tracer)
            except Exception as error:  # whatever the user's forward does with what is no tensor
                before.restore()
                if not buffers:
                    continue
                if isinstance(error, GrowthError):
                    raise
                reason = str(error).strip().split("\n")[0]
                if not tracer.inside or tracer.inside[-1] in opaque:
                    raise GrowthError(
                        f"torch.fx cannot trace the forward of {type(model).__name__} ({reason}); a"
                        " forward whose way depends on its data does not grow."
                    ) from None
                opaque[tracer.inside[-1]] = reason
                break
            if written is not None:
                before.restore()
                where, what = written
                if not where or where in opaque:
                    raise GrowthError(
                        f"The forward of {type(model).__name__} writes "
                        f"{where}{'.' * bool(where)}{what} as it runs. torch.fx does not see that, "
                        "so nothing would write it once the network has grown; let forward return "
                        "it instead."
                    )
                opaque[where] = f"its forward writes {what}"
                break
        else:
            return graph, opaque


def _hooked(module: nn.Module) -> bool:
    hooks = (module._forward_hooks, module._forward_pre_hooks)
    return any(hooks) or any((module._backward_hooks, module._backward_pre_hooks))


def check_kind(model: nn.Module) -> None:
    """Refuse what is no plain network of the user's."""
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


def _in_both_modes(model: nn.Module, tracer: _Tracer) -> tuple[fx.Graph, tuple[str, str] | None]:
    """One graph of training and evaluation, which reads `training` where the two differ by it.

    Also what forward writes on a module, and on which.
    """
    with undisturbed(model, training=False):
        evaluation = tracer.trace(model)
    # What only the first run writes is made once and kept, such as a table of positions.
    between = Written(model)
    with undisturbed(model, training=True, seed=1):  # so that random numbers are seen to be such
        graph = tracer.trace(model)
        written = between.find()
    if written is not None:
        return graph, written
    if len(graph.nodes) != len(evaluation.nodes):
        raise GrowthError(
            f"The forward of {type(model).__name__} takes another way in training than in "
            "evaluation; torch.fx sees only one. Let modules such as Dropout decide that."
        )
    alike: dict[fx.Node, fx.Node] = {}
    for node, other in zip(list(graph.nodes), evaluation.nodes, strict=True):
        alike[other] = node
        if (node.op, node.target) != (other.op, other.target) and not (
            node.op == other.op == "get_attr" and _equal_constants(model, node, other)
        ):
            raise GrowthError(
                f"The forward of {type(model).__name__} uses {node} in training where it uses "
                f"{other} in evaluation; let modules such as Dropout decide that, and draw random "
                "numbers of the shape of a tensor (rand_like)."
            )
        merge = _Merge(graph, node, alike)
        node.args = merge(node.args, other.args)
        node.kwargs = merge(node.kwargs, other.kwargs)
    return graph, None


def _equal_constants(model: nn.Module, *nodes: fx.Node) -> bool:
    one, other = (getattr(model, str(node.target), None) for node in nodes)
    return isinstance(one, Tensor) and isinstance(other, Tensor) and one.equal(other)


class _Merge:
    """Arguments of one node in training and in evaluation, made one."""

    def __init__(self, graph: fx.Graph, node: fx.Node, alike: Mapping[fx.Node, fx.Node]) -> None:
        """`alike`: for nodes of evaluation those of training that are the same."""
        self.graph, self.node, self.alike = graph, node, alike

    def __call__(self, training: Any, evaluation: Any) -> Any:
        if isinstance(training, fx.Node) and isinstance(evaluation, fx.Node):
            if self.alike.get(evaluation) is training:
                return training
        elif isinstance(training, (tuple, list)) and len(training) == len(evaluation):
            return tuple(map(self, training, evaluation))
        elif isinstance(training, dict) and training.keys() == evaluation.keys():
            return {key: self(value, evaluation[key]) for key, value in training.items()}
        elif isinstance(training, bool) and isinstance(evaluation, bool):
            if training == evaluation:
                return training
            with self.graph.inserting_before(self.node):
                # Of the module whose forward that is: parts of a network may be frozen.
                inside = list(self.node.meta.get("nn_module_stack", {}).values())
                where = f"{inside[-1][0]}." if inside else ""
                mode = self.graph.create_node("get_attr", f"{where}training")
                if not training:
                    mode = self.graph.call_function(operator.not_, (mode,))
            return mode
        elif isinstance(training, slice) and isinstance(evaluation, slice):
            return slice(
                self(training.start, evaluation.start),
                self(training.stop, evaluation.stop),
                self(training.step, evaluation.step),
            )
        elif training is evaluation or training == evaluation:
            return training
        raise GrowthError(
            f"{self.node} is given {training!r} in training and {evaluation!r} in evaluation; "
            "torch.fx sees only one. Let modules such as Dropout decide that."
        )


def check_trace(model: nn.Module, graph: fx.Graph, args: tuple[Any, ...]) -> None:
    """Refuse a network that does something else than what torch.fx has seen of it."""
    function = partial(compiled(graph), model)
    probe, pair = few(model, args, _CHECKED), few(model, args, 2)
    for training in (False, True):
        _check_answers(model, function, probe, training=training)
    for whole in (False, True):
        with other_values(model, whole=whole):
            for training in (False, True):
                _check_answers(model, function, pair, training=training, other=True)
    network, seen = _learned(model, model.forward, probe), _learned(model, function, probe)
    if network is None or seen is None:
        return
    mine, taught = network
    theirs, more = seen
    if extra := {name for name in more if more[name] is not None and taught[name] is None}:
        raise GrowthError(
            f"The forward of {type(model).__name__} gives {min(extra)} no gradient, but what "
            "torch.fx has traced of it does, since it does not see torch.no_grad(); use detach() "
            "or requires_grad_(False) instead."
        )
    other = [name for name in taught if difference(*_pair(taught[name], more[name])) > 1.0]
    if other or difference(mine, theirs) > 1.0:
        what = f"the gradient of {min(other)}" if other else "what it gives"
        raise GrowthError(
            f"Where the forward of {type(model).__name__} learns, torch.fx has traced it otherwise:"
            f" {what} is not the same. It looks through a torch.autograd.Function, whose own "
            "backward would be lost, and does not see torch.is_grad_enabled()."
        )


def _pair(one: Tensor | None, other: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
    return [] if one is None else [one], [] if other is None else [other]


def _check_answers(
    model: nn.Module,
    function: Callable[..., Any],
    probe: tuple[Any, ...],
    *,
    training: bool,
    other: bool = False,
) -> None:
    """Compare what a network and its graph give in a mode; `other`: with other values in it."""
    before: list[Tensor] = []
    after: list[Tensor] = []
    with undisturbed(model, training=training):
        try:
            collect(model.forward(*probe), before)
        except Exception as error:
            if training or other:  # such as a batch norm over a single number
                return
            raise GrowthError(f"The network does not run on the given batch: {error}") from None
    name = type(model).__name__
    with undisturbed(model, training=training):
        try:
            collect(function(*probe), after)
        except Exception as error:
            raise GrowthError(
                f"The forward of {name} runs, but not as torch.fx has traced it ({error}); its way "
                "depends on its data, or on an argument that is not given. Such a forward does not "
                "grow."
            ) from None
    if difference(before, after) > 1.0 and other:
        raise GrowthError(
            f"With other values in its parameters or buffers, the forward of {name} gives something"
            " else than what torch.fx has traced of it, which has kept the numbers that were read "
            "from them (by float(), item() or in a list of them)."
        )
    if difference(before, after) > 1.0:
        raise GrowthError(
            f"The forward of {name} gives something else than what torch.fx has traced of it; does "
            "its way depend on random numbers, on its data, or on torch.autocast?"
        )


def _learned(
    model: nn.Module, forward: Callable[..., Any], probe: tuple[Any, ...]
) -> tuple[list[Tensor], dict[str, Tensor | None]] | None:
    """What a forward gives, and the gradients of that; None: it cannot train on the probe."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    found: list[Tensor] = []
    with undisturbed(model, training=True), torch.enable_grad():
        try:
            collect(forward(*probe), found)
            ends = [x for x in found if x.requires_grad]
            if not (named and ends):
                return None
            ones = [torch.ones_like(x) for x in ends]
            gradients = torch.autograd.grad(ends, [p for _, p in named], ones, allow_unused=True)
        except (RuntimeError, ValueError):  # such as a batch norm over a single number
            return None
    names = [name for name, _ in named]
    return [x.detach() for x in found], dict(zip(names, gradients, strict=True))
