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


def few(args: tuple[Any, ...], most: int) -> tuple[Any, ...]:
    """The first samples of a batch."""
    return tuple(x[:most] if isinstance(x, Tensor) and x.dim() else x for x in args)


@contextmanager
def own_randomness(model: nn.Module, seed: int = 0) -> Iterator[None]:
    """Leave PyTorch's random numbers as they were."""
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    with torch.random.fork_rng(devices=sorted(devices, key=str)):
        torch.manual_seed(seed)
        yield


@contextmanager
def undisturbed(model: nn.Module, *, training: bool, seed: int = 0) -> Iterator[None]:
    """Run a network in a mode, and leave modes, buffers and random numbers as they were."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(b, b.clone()) for b in model.buffers()] if training else []
    try:
        with own_randomness(model, seed), torch.no_grad():
            for module, _ in modes:
                module.training = training
            yield
    finally:
        for module, mode in modes:
            module.training = mode
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)


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
    finder = _Shapes(model, graph)
    with undisturbed(model, training=False):
        try:
            finder.run(*few(args, _PROBE))
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
    with undisturbed(model, training=training, seed=seed):
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


def difference(before: list[Tensor], after: list[Tensor]) -> float:
    """Largest change of an output, in units of its tolerance; infinite: other shapes."""
    if [x.shape for x in before] != [x.shape for x in after]:
        return math.inf
    worst = 0.0
    for x, y in zip(before, after, strict=True):
        if not x.is_floating_point():
            continue  # such as the class that was found: two may be equal but for rounding
        tolerance = 40 * torch.finfo(x.dtype).eps ** 0.8
        x, y = x.double().nan_to_num(), y.double().nan_to_num()
        if x.numel():
            change = float((x - y).abs().amax() / x.abs().amax().clamp(min=1.0))
            worst = max(worst, change / tolerance)
    return worst
