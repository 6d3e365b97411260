"""Grow a network in place, so that it computes what it did.

    grow(model, Growth("widen", "features.3"), batch, seed=0, optimizer=optimizer)

The network stays the user's object: `model(x)` runs the grown one. Everything is deterministic in
(weights, growth, batch, seed), so that all workers of a job come to the same network.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import nn

from rota.adapt import deepen, widen
from rota.adapt.carry import Edits, carry
from rota.adapt.graph import kept_on, look_again, new_state, outline_of
from rota.adapt.possible import Cost, candidates, costs, layers_of, plan_of, tokens_of
from rota.adapt.running import answer, arguments, coarsest, difference, few, own_randomness
from rota.errors import GrowthError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.optim import Optimizer

    from rota.adapt.growth import Growth
    from rota.adapt.running import Batch

__all__ = [
    "Cost",
    "candidates",
    "costs",
    "grow",
    "history",
    "layers_of",
    "replay",
    "tokens_of",
]
_CHECKED = 8
"""Samples on which a grown network is compared with what it was."""


def grow(
    model: nn.Module,
    growth: Growth,
    batch: Batch,
    *,
    seed: int,
    optimizer: Optimizer | None = None,
    noise: float = 0.0,
) -> None:
    """Grow a network in place, and its optimizer with it.

    `batch` is what the network is called with; norms of a new layer begin with its statistics, and
    the grown network is checked on it. `noise` is added to the layers that become wider, relative
    to the deviation of their weights: with it the function is kept only nearly. Where the growth
    is refused, by a GrowthError that names the layer, nothing has changed.
    """
    if not (math.isfinite(noise) and 0.0 <= noise <= 1.0):
        raise GrowthError(f"noise={noise!r} must be between 0 and 1.")
    _check_learning(model, optimizer)
    args = arguments(batch)
    look_again(model)  # a number or flag that its forward reads may have changed
    outline_of(model, batch)  # refuses what cannot be traced, or run on the batch
    probe = few(model, args, _CHECKED)
    before = answer(model, probe)
    if not all(bool(x.isfinite().all()) for x in before):
        raise GrowthError(
            "What the network gives for the batch is not finite: there is nothing to preserve."
        )
    edits = Edits()
    try:
        with own_randomness(model):
            _change(model, growth, batch, seed, optimizer, noise, edits, values=True)
        change = difference(before, answer(model, probe), coarsest(model))
        if math.isinf(change) or (change > 1.0 and not noise):
            raise GrowthError(
                f"{growth} would change what the network computes; something between its layers "
                "treats new units otherwise than it can be seen to."
            )
    except GrowthError:
        edits.undo()
        raise
    except (RuntimeError, MemoryError, ValueError, TypeError, IndexError) as error:
        edits.undo()
        reason = str(error).strip().split("\n")[0]
        raise GrowthError(f"{growth} failed, and nothing has changed: {reason}") from error
    except BaseException:
        edits.undo()
        raise


def history(model: nn.Module) -> tuple[Growth, ...]:
    """What a network has grown by, the first one first."""
    kept = kept_on(model)
    return () if kept is None else kept.history


def replay(
    model: nn.Module,
    growths: Sequence[Growth],
    *,
    batch: Batch | None = None,
    optimizer: Optimizer | None = None,
) -> None:
    """Give a network the structure that it has after some growths; its values are to be loaded.

    Names, order and shapes of parameters become those that `grow` gives. A batch is needed only
    where shapes cannot be seen from the layers: a flatten that no linear layer follows.
    """
    _check_learning(model, optimizer)
    edits = Edits()
    try:
        with own_randomness(model):
            for growth in growths:
                _change(model, growth, batch, 0, optimizer, 0.0, edits, values=False)
    except BaseException:
        edits.undo()
        raise


def _check_learning(model: nn.Module, optimizer: Optimizer | None) -> None:
    """Refuse what would leave a grown network with parameters that never learn."""
    if torch.is_inference_mode_enabled():
        raise GrowthError(
            "Parameters that are made in torch.inference_mode() cannot learn; grow the network "
            "outside of it."
        )
    learning = {id(p) for p in model.parameters() if p.requires_grad}
    groups = [] if optimizer is None else optimizer.param_groups
    if groups and learning and not any(id(p) in learning for g in groups for p in g["params"]):
        raise GrowthError(
            "The optimizer holds no parameter of this network; give the one that trains it, in "
            "every growth, or make a new one afterwards."
        )


def _change(
    model: nn.Module,
    growth: Growth,
    batch: Batch | None,
    seed: int,
    optimizer: Optimizer | None,
    noise: float,
    edits: Edits,
    *,
    values: bool,
) -> None:
    outline = outline_of(model, batch)
    plan = plan_of(outline, growth)
    if isinstance(plan, deepen.Deepening):
        graph, parts, parameters = deepen.build(outline, plan, batch if values else None, seed)
        container = model._modules.get(outline.kept.container)
        if container is None:
            container = nn.ModuleDict()
            container.training = model.training
            edits.set(model._modules, outline.kept.container, container)
        edits.set(container._modules, str(len(outline.kept.history) + 1), parts)
    else:
        graph = widen.new_graph(outline, plan)
        parameters = widen.apply(outline, plan, edits, seed, noise, values=values)
    for key, value in new_state(model, outline.kept, graph, growth).items():
        edits.set(model.__dict__, key, value)
    if optimizer is not None:
        carry(optimizer, parameters, edits)
