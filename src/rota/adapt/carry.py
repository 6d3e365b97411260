"""Edits that can be taken back, and an optimizer that goes on with parameters that have grown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from rota.errors import GrowthError

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from torch import nn
    from torch.optim import Optimizer

_SQUARES: Final = frozenset(
    {"exp_avg_sq", "max_exp_avg_sq", "max_exp_avg_sqs", "square_avg", "sum", "variance"}
)
"""States of optimizers that add up squares of gradients."""
_LINEAR: Final = frozenset({"exp_avg", "momentum_buffer", "grad_avg", "exp_inf", "prev"})
"""States that are gradients, or means of them."""
_ABSENT: Final = object()


class Edits:
    """Entries of dictionaries that were set, so that they can be set back."""

    def __init__(self) -> None:
        self._done: list[tuple[MutableMapping[Any, Any], Any, Any]] = []

    def set(self, where: MutableMapping[Any, Any], key: Any, value: Any) -> None:
        """Set an entry."""
        self._done.append((where, key, where.get(key, _ABSENT)))
        where[key] = value

    def drop(self, where: MutableMapping[Any, Any], key: Any) -> None:
        """Remove an entry, if it is there."""
        if key in where:
            self._done.append((where, key, where.pop(key)))

    def undo(self) -> None:
        """Set everything back, the last first."""
        while self._done:
            where, key, value = self._done.pop()
            if value is _ABSENT:
                where.pop(key, None)
            else:
                where[key] = value


@dataclass(frozen=True)
class Moved:
    """A parameter or buffer in its new shape, and where its numbers come from."""

    takes: tuple[tuple[int, Tensor], ...]
    """Axes, and for each place along them the old place whose numbers it has."""
    name: str
    """What the parameter is called."""
    copies: Tensor | None = None
    """How many replicas each place of the first of these axes has; its gradient is divided among
    them. None: the gradient of a place is what it was."""

    def values(self, old: Tensor) -> Tensor:
        """The old numbers in their new places."""
        for axis, places in self.takes:
            old = old.index_select(axis, places.to(old.device))
        return old

    def state(self, old: Tensor, power: int) -> Tensor:
        """What an optimizer knows about gradients, or their squares, in its new places."""
        new = self.values(old)
        if not (power and self.copies is not None):
            return new
        axis = self.takes[0][0]
        shape = [-1 if i == axis else 1 for i in range(new.dim())]
        return new / self.copies.to(new.device, new.dtype).view(shape) ** power


@dataclass
class Parameters:
    """Which parameters a growth replaces, and which it adds."""

    moved: list[tuple[nn.Parameter, nn.Parameter, Moved]] = field(default_factory=list)
    added: list[tuple[str, nn.Parameter, tuple[Tensor, ...]]] = field(default_factory=list)
    """Name, parameter, and the old ones whose options it shares: the first that there is."""


def carry(optimizer: Optimizer, parameters: Parameters, edits: Edits) -> None:
    """Let an optimizer go on with a network that has grown.

    What it knows about old numbers goes where these go. New parameters come into the group of the
    layer that they stand behind, and begin without a history.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise GrowthError(
            "LBFGS keeps a history of all parameters as one vector, which cannot grow with a "
            "network; train with another optimizer."
        )
    replaced = {id(old): new for old, new, _ in parameters.moved}
    grouped = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for old, _, moved in parameters.moved:
        if grouped and old.requires_grad and id(old) not in grouped:
            raise GrowthError(
                f"{moved.name} would become wider and learns, but not with this optimizer: "
                "whatever trains it would go on with what it was. Give an optimizer of all that "
                "learns, or freeze the rest by requires_grad_(False)."
            )
    for number, group in enumerate(optimizer.param_groups):
        mine = {id(p) for p in group["params"]}
        added = [
            (name, new)
            for name, new, kin in parameters.added
            if next((id(p) in mine for p in kin if id(p) in grouped), number == 0)
        ]
        if not added and not mine & replaced.keys():
            continue
        params = [replaced.get(id(p), p) for p in group["params"]] + [new for _, new in added]
        edits.set(group, "params", params)
        if "param_names" in group:
            edits.set(group, "param_names", [*group["param_names"], *(name for name, _ in added)])
    for old, new, moved in parameters.moved:
        if old in optimizer.state:
            state = _carried(optimizer, old, moved)
            edits.drop(optimizer.state, old)
            if state is not None:
                edits.set(optimizer.state, new, state)
    if isinstance(optimizer, torch.optim.Adagrad):  # the only one that does not begin by itself
        begin = optimizer.defaults["initial_accumulator_value"]
        for _, new, _ in parameters.added:
            state = {"step": torch.tensor(0.0), "sum": torch.full_like(new, begin)}
            edits.set(optimizer.state, new, state)


def _carried(optimizer: Optimizer, old: nn.Parameter, moved: Moved) -> dict[str, Any] | None:
    """A parameter's state after a growth; None where it has to begin anew."""
    if isinstance(optimizer, torch.optim.ASGD):
        return None  # it keeps a mean of weights, which would not be those of shares
    linear = _LINEAR
    if isinstance(optimizer, torch.optim.RMSprop):
        linear = _LINEAR - {"momentum_buffer"}  # gradients by their size: replicas have the same
    result: dict[str, Any] = {}
    if "row_var" in optimizer.state[old]:
        return None  # the factors of Adafactor: means over places that are others now
    for key, value in optimizer.state[old].items():
        if isinstance(value, Tensor) and value.shape == old.shape:
            power = 2 if key in _SQUARES else 1 if key in linear else 0
            result[key] = moved.state(value, power)
        elif isinstance(value, Tensor) and value.numel() == 1:
            result[key] = value.clone()  # such as the number of steps
        elif value is None or isinstance(value, (bool, int, float)):
            result[key] = value
        else:
            return None
    return result
