"""Go back from a network that has grown to one of the form it had.

`shrink` gives a smaller network what fits of a grown one's weights; `distil` then teaches it what
the grown one knows.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Final

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from rota.adapt.candidates import plan_of
from rota.adapt.graph import outline_of
from rota.adapt.operations import history, replay
from rota.adapt.running import arguments
from rota.adapt.units import Widening
from rota.adapt.widen import moves
from rota.errors import GrowthError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch.optim import Optimizer

    from rota.adapt.running import Batch
    from rota.adapt.widen import Move

_OWN: Final = 0.25


@torch.no_grad()
def shrink(grown: nn.Module, small: nn.Module, *, batch: Batch | None = None) -> None:
    """Give `small` the weights of `grown` that fit, in place.

    `small` is a network of the same script that has grown by the first of the same growths, or by
    none. Growths are undone from the last to the first: the layers that were put in are left out;
    of the replicas of a unit, incoming weights and norms become their mean, and the shares in
    which they are read are added up. Replicas that have not been trained apart give back exactly
    what was there before; so does a layer that is still the identity. What was learned since then
    is lost with it: `distil` teaches it to the smaller network.
    """
    whole, part = history(grown), history(small)
    if whole[: len(part)] != part:
        raise GrowthError(
            f"The smaller network has grown by {', '.join(map(str, part))}, which is not how the "
            "other one began."
        )
    stage = copy.deepcopy(small)
    undone: list[list[Move]] = []
    for growth in whole[len(part) :]:
        outline = outline_of(stage, batch)
        plan = plan_of(outline, growth)
        undone.append(moves(outline, plan) if isinstance(plan, Widening) else [])
        replay(stage, [growth], batch=batch)
    values = {name: value.detach().clone() for name, value in grown.state_dict().items()}
    _check_alike(stage.state_dict(), values)
    for steps in reversed(undone):
        for step in steps:
            values[step.name] = step.back(values[step.name])
    small.load_state_dict({name: values[name] for name in small.state_dict()})


def _check_alike(expected: dict[str, Tensor], found: dict[str, Tensor]) -> None:
    for name, value in expected.items():
        if name not in found or found[name].shape != value.shape:
            raise GrowthError(
                f"{name} of the grown network is not what the smaller one would grow to; both "
                "must come from the same script."
            )


def distil(
    student: nn.Module,
    teacher: nn.Module,
    batches: Iterable[tuple[Batch, Tensor]],
    optimizer: Optimizer,
    *,
    steps: int,
    temperature: float = 2.0,
    soft_weight: float = 0.75,
    hard_loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
) -> tuple[float, ...]:
    """Train a student to answer as its teacher does; the loss of each step (Hinton et al., 2015).

    Each batch is what the networks are called with, and what the student should answer.
    """
