"""Run a network and leave modes, buffers and random numbers as they were."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, fx

from rota.errors import GrowthError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import nn

Batch = Tensor | tuple[Any, ...]
_PROBE: Final = 2
"""Samples with which shapes are found: with one, an axis of length 1 could be any."""


def arguments(batch: Batch | None) -> tuple[Any, ...]:
    """What a network is called with."""
    if isinstance(batch, (tuple, list)):
        return tuple(batch)
    if not isinstance(batch, Tensor):
        raise GrowthError(
            f"A batch is what the network is called with, a tensor or a tuple; this is "
            f"{batch!r:.80}."
        )
    if batch.dim() and not len(batch):
        raise GrowthError("The batch has no samples, so that nothing can be checked with it.")
    return (batch,)


def few(model: nn.Module, args: tuple[Any, ...], most: int) -> tuple[Any, ...]:
    """The first samples of a batch; all of it for a network that does not run on these alone."""
    tensors = [x for x in args if isinstance(x, Tensor) and x.dim()]
    samples = len(tensors[0]) if tensors else 0
    first = tuple(
        x[:most] if isinstance(x, Tensor) and x.dim() and len(x) == samples else x for x in args
    )
    try:
        with undisturbed(model, training=False):
            model.forward(*first)
    except Exception:  # such as a graph whose edges are an argument, or a number of samples written
        return args
    return first


@contextmanager
def own_randomness(model: nn.Module, seed: int = 0) -> Iterator[None]:
    """Leave PyTorch's random numbers as they were."""
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    with torch.random.fork_rng(devices=sorted(devices, key=str)):
        torch.manual_seed(seed)
        yield


@contextmanager
def undisturbed(
    model: nn.Module, *, training: bool, seed: int = 0, frozen: bool = False
) -> Iterator[None]:
    """Run a network in a mode, and leave modes, buffers and random numbers as they were.

    `frozen`: while the network trains, parts of it that do not are left out of that.
    """
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(b, b._version, b.clone()) for b in model.buffers() if not b.is_inference()]
    try:
        with own_randomness(model, seed), torch.no_grad():
            for module, _ in modes if not (frozen and training and model.training) else ():
                module.training = training
            yield
    finally:
        for module, mode in modes:
            module.training = mode
        with torch.no_grad():
            for buffer, version, value in buffers:
                if training or buffer._version != version:  # norms write without a new version
                    buffer.copy_(value)


@contextmanager
def other_values(model: nn.Module, *, whole: bool) -> Iterator[None]:
    """Let a network have other flags and whole numbers for a while, or other numbers else.

    None becomes larger than there are: numbers may be places in a table.
    """
    tensors = (*model.parameters(), *model.buffers())
    kept = [(x, x.data) for x in tensors if (x.is_floating_point() or x.is_complex()) != whole]
    try:
        for x, value in kept:
            if value.dtype == torch.bool:
                x.data = value.logical_not()
            else:
                x.data = value.flatten().roll(1).view_as(value) if whole else value * 0.875
        yield
    finally:
        for x, value in kept:
            x.data = value


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


def shapes_in(
    model: nn.Module, graph: fx.Graph, args: tuple[Any, ...]
) -> Mapping[str, tuple[int, ...]]:
    """Shapes of the tensors that nodes give, by their names."""
    finder, probe = _Shapes(model, graph), few(model, args, _PROBE)
    with undisturbed(model, training=False):
        try:
            finder.run(*probe)
        except Exception as error:
            raise GrowthError(
                f"The network does not run on the batch that is to show its shapes: {error}"
            ) from None
    return finder.shapes


class _Watch(fx.Interpreter):
    def __init__(self, model: nn.Module, graph: fx.Graph, name: str) -> None:
        super().__init__(model, graph=graph)
        self.extra_traceback = False
        self.name = name
        self.value: Tensor | None = None

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n.name == self.name:
            self.value = value.clone()  # later functions may work in place
        return value


def values_at(
    model: nn.Module,
    graph: fx.Graph,
    name: str,
    args: tuple[Any, ...],
    seed: int,
    *,
    training: bool = True,
) -> Tensor:
    """What a node gives for a batch, in training unless told otherwise."""
    watch = _Watch(model, graph, name)
    with undisturbed(model, training=training, seed=seed, frozen=True):
        try:
            watch.run(*args)
        except Exception as error:
            raise GrowthError(f"The network does not train on the given batch: {error}") from None
    assert watch.value is not None
    return watch.value


def answer(model: nn.Module, args: tuple[Any, ...]) -> list[Tensor]:
    """All tensors that a network gives in evaluation, whatever they are packed in."""
    with undisturbed(model, training=False):
        found: list[Tensor] = []
        collect(model.forward(*args), found)
        return [x.detach().clone() for x in found]


def collect(value: Any, found: list[Tensor]) -> None:
    """Add all tensors of a value to a list."""
    if isinstance(value, Tensor):
        found.append(value)
    elif isinstance(value, (tuple, list)):
        for item in value:
            collect(item, found)
    elif isinstance(value, dict):
        for item in value.values():
            collect(item, found)
    elif hasattr(value, "__dict__"):
        collect(vars(value), found)


def coarsest(model: nn.Module) -> float:
    """Relative rounding error of the coarsest numbers that a network computes with."""
    kinds = {p.dtype for p in model.parameters() if p.is_floating_point() or p.is_complex()}
    return max((torch.finfo(kind).eps for kind in kinds), default=0.0)


def difference(before: list[Tensor], after: list[Tensor], rounding: float = 0.0) -> float:
    """Largest change of an output, in units of its tolerance; infinite: other shapes or types.

    `rounding`: relative error of what is computed before the outputs are.
    """
    if [(x.shape, x.dtype) for x in before] != [(x.shape, x.dtype) for x in after]:
        return math.inf
    worst = 0.0
    for x, y in zip(before, after, strict=True):
        if x.is_complex():
            x, y = torch.view_as_real(x.resolve_conj()), torch.view_as_real(y.resolve_conj())
        if not x.is_floating_point():
            continue  # such as the class that was found: two may be equal but for rounding
        tolerance = min(0.2, 40 * max(rounding, torch.finfo(x.dtype).eps) ** 0.8)
        x, y = x.double().nan_to_num(), y.double().nan_to_num()
        if x.numel():
            change = float((x - y).abs().amax() / x.abs().amax().clamp(min=0.1))
            worst = max(worst, change / tolerance)
    return worst
