"""The network of one member that grows: what lets it grow, and how a growth is taken back.

A growth is made in place, so that the script's model and optimizer stay the same objects. What was
there before is kept until the next step is complete: if another member cannot make the growth, all
take it back.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch

from rota.elastic.growths import begins, check_growth
from rota.errors import GrowthError, RotaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import nn
    from torch.optim import Optimizer

_MOST_TEXT: Final = 300
_HELD: Final = ("params", "param_names")
"""What an optimizer's group says about its parameters; all else are settings."""


@dataclass(frozen=True, kw_only=True)
class Resized:
    """A training whose workers have just become more or fewer."""

    workers_before: int
    workers: int
    step: int
    """Steps done."""
    epoch: int
    samples: int
    """Samples done, over all epochs."""
    total: int
    """Samples of the whole training."""
    per_epoch: int
    busy_s: float
    """Seconds that the steps took, without the pauses of changes."""
    samples_per_s: float
    """Of late, with the workers that there were before; 0: not known."""
    growths: tuple[Mapping[str, Any], ...]
    """Growths that the network has had, in order."""


class Grower(Protocol):
    """Lets a network grow: all workers of a training have one that does the same."""

    def propose(
        self, facts: Resized, model: nn.Module, optimizer: Optimizer
    ) -> Mapping[str, Any] | None:
        """A growth to make now, as JSON can keep it; None leaves the network as it is.

        Asked at one worker, after a resize, while the others wait: it should take little time, and
        changes nothing.
        """
        ...

    def apply(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        growth: Mapping[str, Any],
        *,
        structure_only: bool,
        seed: int,
    ) -> None:
        """Make a growth in place, or raise a RotaError.

        Model and optimizer stay the same objects, but parameters and moments are replaced, never
        written: so a growth can be taken back. The same network, growth and seed must give the
        same values. With `structure_only` they do not matter, since those of another worker
        follow; shapes and order of parameters do.
        """
        ...


class GrowingNetwork:
    """Model and optimizer of one member, and the growths that they have had."""

    def __init__(
        self, model: nn.Module, optimizer: Optimizer, grower: Grower | None, seed: int
    ) -> None:
        self.model, self.optimizer, self.grower = model, optimizer, grower
        self.growths: tuple[Mapping[str, Any], ...] = ()
        self._seed = seed
        self._before: _Backup | None = None
        self._stale = False  # the backup is of an earlier step

    def reach(self, growths: Sequence[Mapping[str, Any]], *, structure_only: bool) -> None:
        """Make the growths that are missing, or raise GrowthError and change nothing."""
        if not begins(growths, self.growths):
            raise GrowthError(
                f"This network has {len(self.growths)} growths, which the {len(growths)} of the "
                "other members do not begin with."
            )
        missing = growths[len(self.growths) :]
        if not missing:
            return
        before = _Backup(self.model, self.optimizer, self.growths)
        try:
            for growth in missing:
                _grow(self, growth, structure_only=structure_only)
                self.growths = (*self.growths, growth)
        except Exception as error:
            self.growths = before.growths
            before.restore(self.optimizer)
            raise GrowthError(_said(error)) from error
        self._before, self._stale = before, False

    def keep(self) -> None:
        """Keep the last growths for good: all members have made a step with them."""
        self._before = None

    def received(self) -> None:
        """Note that the values were replaced by those of another member, maybe of a later step."""
        self._stale = True

    def rewind(self, growths: Sequence[Mapping[str, Any]]) -> bool:
        """Take back growths that are not among these; False if that has cost the values."""
        if begins(growths, self.growths):
            return True
        before, self._before = self._before, None
        if before is None:
            return False
        before.restore(self.optimizer)
        self.growths = before.growths
        return not self._stale

    def propose(self, facts: Resized) -> Mapping[str, Any] | None:
        """Ask for a growth, and try it on a copy; GrowthError says why there is none."""
        if self.grower is None:
            return None
        try:
            with torch.random.fork_rng(devices=[]):
                growth = self.grower.propose(facts, self.model, self.optimizer)
            if growth is None:
                return None
            check_growth(growth)
            other = GrowingNetwork(
                *copy.deepcopy((self.model, self.optimizer)), self.grower, self._seed
            )
            other.growths = self.growths
            _grow(other, growth, structure_only=False)
        except Exception as error:
            raise GrowthError(_said(error)) from error
        return growth


def _grow(network: GrowingNetwork, growth: Mapping[str, Any], *, structure_only: bool) -> None:
    """Make one growth, and check what every growth must leave as it was."""
    model, optimizer, version = network.model, network.optimizer, len(network.growths)
    if network.grower is None:
        raise GrowthError("The network has grown, but the script gives Elastic no `grow`.")
    groups, loose = len(optimizer.param_groups), _untrained(model, optimizer)
    before = _writes(model, optimizer)
    seed = (network._seed * 0x9E3779B1 + version * 0x27D4EB2F) & 0x7FFFFFFF
    # The script's own random numbers stay as they were.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        network.grower.apply(model, optimizer, growth, structure_only=structure_only, seed=seed)
    if written := sum(tensor._version != version for tensor, version in before):
        raise GrowthError(
            f"{dict(growth)} writes into {written} parameters or moments; a growth puts new ones "
            "in their place, so that it can be taken back."
        )
    known = {id(parameter) for parameter in model.parameters()}
    held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if foreign := sum(id(parameter) not in known for parameter in held):
        raise GrowthError(
            f"{dict(growth)} leaves {foreign} parameters with the optimizer that are not the "
            "model's any more."
        )
    if more := _untrained(model, optimizer) - loose:
        raise GrowthError(f"{dict(growth)} adds {more} parameters that the optimizer lacks.")
    if len(optimizer.param_groups) != groups:
        raise GrowthError(
            f"{dict(growth)} changes the number of the optimizer's parameter groups; a new "
            "parameter belongs into one that is there."
        )


def _untrained(model: nn.Module, optimizer: Optimizer) -> int:
    """Parameters that need gradients, but that the optimizer does not hold."""
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return sum(p.requires_grad and id(p) not in held for p in model.parameters())


class _Backup:
    """Model and optimizer as they were.

    Only buffers are copied: growths replace parameters and moments, but do not write into them.
    """

    def __init__(
        self, model: nn.Module, optimizer: Optimizer, growths: tuple[Mapping[str, Any], ...]
    ) -> None:
        self.growths = growths
        self._modules = [(part, type(part), _copied(vars(part))) for part in model.modules()]
        self._groups: list[tuple[dict[str, Any], dict[str, Any]]] = [
            (group, {key: list(group[key]) for key in _HELD if key in group})
            for group in optimizer.param_groups
        ]
        self._buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
        self._state = [(p, dict(state)) for p, state in optimizer.state.items()]

    def restore(self, optimizer: Optimizer) -> None:
        """Undo what was done since; the settings of the optimizer stay as they are."""
        for module, kind, facts in self._modules:
            module.__class__ = kind
            vars(module).clear()
            vars(module).update(_copied(facts))
        with torch.no_grad():
            for buffer, value in self._buffers:
                buffer.copy_(value)
        optimizer.param_groups[:] = [group for group, _ in self._groups]
        for group, parameters in self._groups:
            group.update(parameters)
        optimizer.state.clear()
        optimizer.state.update(self._state)


def _copied(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a module; those that are containers are copied, too."""
    plain = (dict, list, set)
    return {k: copy.copy(v) if isinstance(v, plain) else v for k, v in facts.items()}


def _writes(model: nn.Module, optimizer: Optimizer) -> list[tuple[torch.Tensor, int]]:
    """Parameters and moments, and how often each was written in place."""
    states = [value for state in optimizer.state.values() for value in state.values()]
    tensors = [*model.parameters(), *states]
    return [(x, x._version) for x in tensors if isinstance(x, torch.Tensor)]


def _said(error: Exception) -> str:
    """An error in one line; with its kind, unless its text says all that there is to say."""
    text = " ".join(str(error).split())[:_MOST_TEXT]
    return text if isinstance(error, RotaError) else f"{type(error).__name__}: {text}"
