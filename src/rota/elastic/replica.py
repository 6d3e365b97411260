"""What is trained, as one member holds it: model, optimizer, schedule, and where it has come to."""

from __future__ import annotations

import math
from dataclasses import asdict
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from rota.elastic.batches import Position
from rota.elastic.outline import Outline
from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from rota.elastic.batches import Batches


class Replica:
    """A whole copy of the training's state."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        batches: Batches,
        scheduler: LRScheduler | None,
        carry: Mapping[str, Any],
        clip_norm: float | None = None,
    ) -> None:
        _check(model, optimizer, carry)
        if clip_norm is not None and not 0.0 < clip_norm < math.inf:
            raise ConfigError(f"clip_norm={clip_norm!r} is not a number above 0.")
        self.clip_norm = clip_norm
        self.model, self.optimizer, self.batches = model, optimizer, batches
        self.scheduler, self.carry = scheduler, carry
        self.position = Position()
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]

    @property
    def device(self) -> torch.device:
        device: torch.device = self.parameters[0].device
        return device

    def tensors(self) -> list[torch.Tensor]:
        """Parameters and buffers of the model, each once."""
        return [*self.model.parameters(), *self.model.buffers()]

    def places(self, keys: Sequence[int] | None) -> list[torch.Tensor]:
        """Where the tensors of `part(keys)` belong, as far as they have a place."""
        return self.tensors() if keys is None else [self.parameters[key] for key in keys]

    def part(self, keys: Sequence[int] | None) -> dict[str, Any]:
        """What another member needs: everything, or some parameters and what belongs to them.

        The tensors that have a place come first.
        """
        state = {
            "values": [tensor.detach() for tensor in self.places(keys)],
            "position": self.position._asdict(),
            "scheduler": self.scheduler and self.scheduler.state_dict(),
        }
        if keys is not None:
            moments = [self.optimizer.state.get(self.parameters[key], {}) for key in keys]
            groups = self.optimizer.state_dict()["param_groups"]
            return {**state, "moments": moments, "groups": groups}
        carry = {name: thing.state_dict() for name, thing in self.carry.items()}
        return {**state, "optimizer": self.optimizer.state_dict(), "carry": carry}

    def take(self, state: Mapping[str, Any], keys: Sequence[int] | None, *, news: bool) -> None:
        """Take over what another member has given; tensors that lie in place stay there.

        `news` says that schedule and position are to be taken over as well.
        """
        with torch.no_grad():
            for own, given in zip(self.places(keys), state["values"], strict=True):
                if own.data_ptr() != given.data_ptr():
                    own.copy_(given)
        if keys is None:
            self.optimizer.load_state_dict(state["optimizer"])
            for name, thing in self.carry.items():
                thing.load_state_dict(state["carry"][name])
        else:
            for key, moments in zip(keys, state["moments"], strict=True):
                self.optimizer.state[self.parameters[key]] = moments
        if not (news or keys is None):
            return
        if keys is not None:
            held = self.optimizer.state_dict()["state"]
            self.optimizer.load_state_dict({"state": held, "param_groups": state["groups"]})
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        self.position = Position(**state["position"])

    def update(self) -> None:
        """One step of the optimizer, and of the schedule."""
        self.optimizer.step()
        if self.scheduler is not None:
            self.scheduler.step()

    def clip(self, square: float | None = None) -> None:
        """Limit the norm of all gradients; `square` is its square, if they are not all here."""
        if self.clip_norm is None:
            return
        if square is None:
            nn.utils.clip_grad_norm_(self.parameters, self.clip_norm)
            return
        ratio = self.clip_norm / (math.sqrt(square) + 1e-6)  # as torch has it
        if not ratio >= 1.0:
            for parameter in self.parameters:
                if parameter.grad is not None:
                    parameter.grad.mul_(ratio)

    def square_norm(self) -> float:
        """The square of the norm of the gradients that are here."""
        found = [p.grad for p in self.parameters if p.grad is not None]
        return sum(float(grad.detach().float().norm()) ** 2 for grad in found)

    def clear(self) -> None:
        """Forget all gradients."""
        self.optimizer.zero_grad(set_to_none=True)

    def suit(self, workers: int) -> None:
        """Set the learning rate for so many workers, as the rule of the batches has it."""
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
        """A number that differs when a single bit of a parameter does."""
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
        """What is trained here, for comparison with other members."""
        named = [*self.model.named_parameters(), *self.model.named_buffers()]
        forms = [(name, tuple(tensor.shape), str(tensor.dtype)) for name, tensor in named]
        digest = sha256(repr(forms).encode()).hexdigest()[:12]
        sizes = tuple(parameter.numel() for parameter in self.parameters)
        return Outline(sizes, digest, {**asdict(self.batches), "clip_norm": self.clip_norm})


def _check(model: nn.Module, optimizer: Optimizer, carry: Mapping[str, Any]) -> None:
    """Refuse what cannot be handed over whole."""
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
        raise ConfigError("The parameters lie on several devices; give each worker one.")
    for name, thing in carry.items():
        if not (hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")):
            raise ConfigError(f"carry[{name!r}] has no state_dict() and load_state_dict().")
