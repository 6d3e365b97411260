"""What one member trains: model, optimizer, schedule and position in the data."""

from __future__ import annotations

import math
from dataclasses import asdict
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from rota.elastic.batches import Position
from rota.elastic.growing import GrowingNetwork
from rota.elastic.outline import Outline
from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from rota.elastic.batches import Batches
    from rota.elastic.growing import Grower


class Replica:
    """One member's copy of the state of the training."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        batches: Batches,
        scheduler: LRScheduler | None,
        carry: Mapping[str, Any],
        clip_norm: float | None = None,
        grower: Grower | None = None,
    ) -> None:
        _check(model, optimizer, carry)
        if grower is not None:
            _check_growing(grower, carry)
        if clip_norm is not None and not 0.0 < clip_norm < math.inf:
            raise ConfigError(f"clip_norm={clip_norm!r} is not a number above 0.")
        self.clip_norm = clip_norm
        self.model, self.optimizer, self.batches = model, optimizer, batches
        self.scheduler, self.carry = scheduler, carry
        self.position = Position()
        self.parameters = _held(optimizer)
        self.network = GrowingNetwork(model, optimizer, grower, batches.seed)
        # As the script builds it: what members compare, whatever has grown since.
        self._sizes = tuple(parameter.numel() for parameter in self.parameters)
        self._form = _form(model)

    @property
    def device(self) -> torch.device:
        device: torch.device = self.parameters[0].device
        return device

    @property
    def growths(self) -> tuple[Mapping[str, Any], ...]:
        """Growths that the network has had, in order."""
        return self.network.growths

    def grow_to(self, growths: Sequence[Mapping[str, Any]], *, structure_only: bool) -> None:
        """Make the growths that are missing, or raise GrowthError and change nothing."""
        self.network.reach(growths, structure_only=structure_only)
        self.parameters = _held(self.optimizer)

    def rewind(self, growths: Sequence[Mapping[str, Any]]) -> bool:
        """Take back growths that are not among these; False if that has cost the values."""
        kept = self.network.rewind(growths)
        self.parameters = _held(self.optimizer)
        return kept

    def tensors(self) -> list[torch.Tensor]:
        """Parameters and buffers of the model, each once."""
        return [*self.model.parameters(), *self.model.buffers()]

    def targets(self, keys: Sequence[int] | None) -> list[torch.Tensor]:
        """Tensors into which the first tensors of `extract(keys)` can be received directly."""
        return self.tensors() if keys is None else [self.parameters[key] for key in keys]

    def extract(self, keys: Sequence[int] | None) -> dict[str, Any]:
        """What another member needs: the whole state, or some parameters with their moments.

        The tensors of `targets(keys)` come first.
        """
        state = {
            "values": [tensor.detach() for tensor in self.targets(keys)],
            "position": self.position._asdict(),
            "scheduler": self.scheduler and self.scheduler.state_dict(),
        }
        if keys is not None:
            moments = [self.optimizer.state.get(self.parameters[key], {}) for key in keys]
            groups = self.optimizer.state_dict()["param_groups"]
            return {**state, "moments": moments, "groups": groups}
        carry = {name: thing.state_dict() for name, thing in self.carry.items()}
        return {**state, "optimizer": self.optimizer.state_dict(), "carry": carry}

    def load(
        self, state: Mapping[str, Any], keys: Sequence[int] | None, *, with_position: bool
    ) -> None:
        """Load what `extract(keys)` of another member gave.

        Tensors that were received in place are not copied. `with_position` loads schedule and
        position as well; a whole state always includes them.
        """
        with torch.no_grad():
            for own, given in zip(self.targets(keys), state["values"], strict=True):
                if own.data_ptr() != given.data_ptr():
                    own.copy_(given)
        if keys is None:
            self.optimizer.load_state_dict(state["optimizer"])
            for name, thing in self.carry.items():
                thing.load_state_dict(state["carry"][name])
        else:
            for key, moments in zip(keys, state["moments"], strict=True):
                self.optimizer.state[self.parameters[key]] = moments
        if not (with_position or keys is None):
            return
        if keys is not None:
            held = self.optimizer.state_dict()["state"]
            self.optimizer.load_state_dict({"state": held, "param_groups": state["groups"]})
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        self.position = Position(**state["position"])

    def update(self) -> None:
        """Make one step of the optimizer and of the schedule."""
        self.optimizer.step()
        if self.scheduler is not None:
            self.scheduler.step()

    def clip(self, square: float | None = None) -> None:
        """Limit the norm of all gradients; `square` is the squared norm if only some are here."""
        if self.clip_norm is None:
            return
        if square is None:
            nn.utils.clip_grad_norm_(self.parameters, self.clip_norm)
            return
        ratio = self.clip_norm / (math.sqrt(square) + 1e-6)  # as in torch
        if not ratio >= 1.0:
            for parameter in self.parameters:
                if parameter.grad is not None:
                    parameter.grad.mul_(ratio)

    def square_norm(self) -> float:
        """The squared norm of the gradients that are here."""
        found = [p.grad for p in self.parameters if p.grad is not None]
        return sum(float(grad.detach().float().norm()) ** 2 for grad in found)

    def zero_grad(self) -> None:
        """Drop all gradients."""
        self.optimizer.zero_grad(set_to_none=True)

    def scale_for(self, workers: int) -> None:
        """Scale the learning rate for a number of workers, by the rule of the batches."""
        ratio = self.batches.factor(workers) / self.batches.factor(self.position.workers)
        if ratio != 1.0:
            for group in self.optimizer.param_groups:
                for key in ("lr", "initial_lr"):
                    if key in group:
                        group[key] = group[key] * ratio
            if self.scheduler is not None:
                self.scheduler.base_lrs = [lr * ratio for lr in self.scheduler.base_lrs]
        self.position = self.position._replace(workers=workers)

    def checksum(self) -> int:
        """A number that changes when a single bit of a parameter does."""
        total = 0
        with torch.no_grad():
            for k, parameter in enumerate(self.parameters):
                bits = {1: torch.uint8, 2: torch.int16, 8: torch.int64}.get(
                    parameter.element_size(), torch.int32
                )
                flat = parameter.detach().contiguous().view(-1).view(bits)
                total += (k + 1) * int(flat.sum(dtype=torch.int64))
        return total & 0xFFFFFFFFFFFFFFFF

    def outline(self) -> Outline:
        """A summary of what is trained, for comparison with other members."""
        grows = self.network.grower is not None
        plan = {**asdict(self.batches), "clip_norm": self.clip_norm, "grow": grows}
        return Outline(self._sizes, self._form, plan, self.growths)


def _held(optimizer: Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _form(model: nn.Module) -> str:
    """A digest of names, shapes and types of all tensors of a model."""
    named = [*model.named_parameters(), *model.named_buffers()]
    forms = [(name, tuple(tensor.shape), str(tensor.dtype)) for name, tensor in named]
    return sha256(repr(forms).encode()).hexdigest()[:12]


def _check_growing(grower: Grower, carry: Mapping[str, Any]) -> None:
    """Refuse what could not follow a network that grows."""
    for name in ("propose", "apply"):
        if not callable(getattr(grower, name, None)):
            raise ConfigError(
                f"grow={grower!r:.80} has no {name}(); give an object like rota.adapt.live.Grow."
            )
    for name, thing in carry.items():
        if isinstance(thing, nn.Module):
            raise ConfigError(
                f"carry[{name!r}] is a module, whose form does not follow a network that grows; "
                "leave it out of `carry`, or leave `grow` out."
            )


def _check(model: nn.Module, optimizer: Optimizer, carry: Mapping[str, Any]) -> None:
    """Refuse a model, an optimizer or other things whose state cannot be sent whole."""
    for module in model.modules():
        kind = type(module).__name__
        if kind in ("FullyShardedDataParallel", "DistributedDataParallel") or any(
            base.__name__ == "FSDPModule" for base in type(module).__mro__
        ):
            raise ConfigError(
                f"The model holds a {kind}; hand Elastic the plain module: it replicates the model "
                "itself, and does not shard it."
            )
        if isinstance(module, nn.SyncBatchNorm):
            raise ConfigError(
                "The model holds a SyncBatchNorm, which binds itself to one process group; use "
                "BatchNorm or GroupNorm, whose groups may change."
            )
    known = {id(parameter) for parameter in model.parameters()}
    held = [p for group in optimizer.param_groups for p in group["params"]]
    if foreign := sum(id(p) not in known for p in held):
        raise ConfigError(f"The optimizer holds {foreign} parameters that are not the model's.")
    if len({p.device for p in held}) != 1:
        raise ConfigError("The parameters are on several devices; put them on one per worker.")
    for name, thing in carry.items():
        if not (hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")):
            raise ConfigError(f"carry[{name!r}] has no state_dict() and load_state_dict().")
