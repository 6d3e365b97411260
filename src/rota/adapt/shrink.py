"""Go back from a network that has grown to one of the form it had.

`shrink` gives a smaller network what fits of a grown one's weights; `distil` then teaches it what
the grown one knows.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812

from rota.adapt.graph import outline_of
from rota.adapt.operations import history, replay
from rota.adapt.possible import plan_of
from rota.adapt.replicas import Widening
from rota.adapt.running import arguments, undisturbed
from rota.adapt.widen import merges
from rota.errors import GrowthError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor, nn
    from torch.optim import Optimizer

    from rota.adapt.running import Batch
    from rota.adapt.widen import Merge


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
    undone: list[list[Merge]] = []
    for growth in whole[len(part) :]:
        outline = outline_of(stage, batch)
        plan = plan_of(outline, growth)
        undone.append(merges(outline, plan) if isinstance(plan, Widening) else [])
        replay(stage, [growth], batch=batch)
    values = {name: value.detach().clone() for name, value in grown.state_dict().items()}
    _check_alike(stage.state_dict(), values)
    for steps in reversed(undone):
        for step in steps:
            values[step.name] = step(values[step.name])
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

    Each batch is what the networks are called with, and what the student should answer. The
    teacher stays as it is. Its answers count by `soft_weight`, at a temperature, and the right ones
    by the rest. With `steps` beyond the batches, these are gone through again.
    """
    if student is teacher:
        raise GrowthError("A network cannot be its own teacher; copy.deepcopy it first.")
    if steps < 0:
        raise GrowthError(f"steps={steps} must be 0 or more.")
    if not (math.isfinite(temperature) and temperature > 0.0 and 0.0 <= soft_weight <= 1.0):
        raise GrowthError(
            f"temperature={temperature!r} must be above 0, and soft_weight={soft_weight!r} between "
            "0 and 1."
        )
    losses: list[float] = []
    mode = student.training
    student.train()
    try:
        while len(losses) < steps:
            begun = len(losses)
            for batch, target in batches:
                if len(losses) == steps:
                    break
                args = arguments(batch)
                with undisturbed(teacher, training=False):
                    wanted = teacher(*args)
                optimizer.zero_grad()
                answered = student(*args)
                if answered.shape != wanted.shape:
                    raise GrowthError(
                        f"The student answers {tuple(answered.shape)} numbers where its teacher "
                        f"answers {tuple(wanted.shape)}."
                    )
                loss = soft_weight * _soft_loss(answered, wanted, temperature)
                loss = loss + (1.0 - soft_weight) * hard_loss(answered, target)
                if not bool(loss.isfinite()):
                    raise GrowthError(
                        f"The loss of step {len(losses)} is {loss.item()}, so it was not made: the "
                        "teacher, the student or the batch has numbers that are not finite, or the "
                        "step size is too large."
                    )
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                losses.append(loss.item())
            if len(losses) == begun:
                raise GrowthError("There are no batches to teach with, or they come only once.")
    finally:
        student.train(mode)
    return tuple(losses)


def _soft_loss(answered: Tensor, wanted: Tensor, temperature: float) -> Tensor:
    """How far two distributions are apart; times T², so that T does not change the step size."""
    own = F.log_softmax(answered / temperature, dim=1)
    theirs = F.log_softmax(wanted / temperature, dim=1)
    apart = F.kl_div(own, theirs, reduction="batchmean", log_target=True)
    return apart * temperature**2
