"""A grower for tests: it puts linear layers into a sequential model, and adds units to them.

It does what it is told, and misbehaves where it is told to: it fails, raises or kills its process.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from rota.errors import GrowthError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.optim import Optimizer

    from rota.elastic.growing import Resized


@dataclass
class ScriptedGrower:
    """Deepens the network at every other resize and widens it in between."""

    most: int = 1_000_000
    """Growths that it proposes."""
    name: str = "alone"
    """The member whose grower it is."""
    misdeeds: Mapping[str, Any] = field(default_factory=dict)
    """By member: what it does, when, and at which version."""
    deaths: Mapping[str, str] = field(default_factory=dict)
    """By version: when the first worker that comes there dies, though it made no error."""
    place: str = ""
    """Folder in which workers note who comes first."""
    own: nn.Module | None = None
    """The model of the training; growths are also tried on copies of it."""
    asked: list[Resized] = field(default_factory=list)

    def propose(
        self,
        facts: Resized,
        model: nn.Module,  # noqa: ARG002
        optimizer: Optimizer,  # noqa: ARG002
    ) -> dict[str, Any] | None:
        self.asked.append(facts)
        version = len(facts.growths)
        print("asked", facts.workers_before, facts.workers, facts.step, flush=True)
        said = self.misbehave("propose", version)
        if version >= self.most:
            return None
        return said or {"do": ("deepen", "widen")[version % 2], "version": version}

    def apply(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        growth: Mapping[str, Any],
        *,
        structure_only: bool,
        seed: int,
    ) -> None:
        assert isinstance(model, nn.Sequential)
        first = model[0]
        assert isinstance(first, nn.Linear)
        if growth["do"] not in ("deepen", "widen"):
            raise GrowthError(f"No layer is called {growth['do']!r}.")
        self.die(model, "change", growth["version"])
        self.misbehave("change", growth["version"])
        before = {id(parameter) for parameter in model.parameters()}
        dice = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            if growth["do"] == "deepen":
                layer = nn.Linear(first.out_features, first.out_features)
                layer.weight.copy_(torch.eye(first.out_features))
                layer.weight += 0.01 * torch.randn(layer.weight.shape, generator=dice)
                layer.bias.zero_()
                model.insert(1, layer)
                optimizer.param_groups[0]["params"] += [layer.weight, layer.bias]
            else:
                self.widen(model, optimizer)
            if structure_only:
                for parameter in model.parameters():
                    if id(parameter) not in before:
                        parameter.fill_(float("nan"))
        self.die(model, "apply", growth["version"])
        self.misbehave("apply", growth["version"])  # it leaves the model half changed

    def die(self, model: nn.Module, when: str, version: int) -> None:
        if model is not self.own or self.deaths.get(str(version)) != when:
            return
        with suppress(FileExistsError):
            Path(self.place, f"death{version}").touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)

    def widen(self, model: nn.Sequential, optimizer: Optimizer) -> None:
        """Double the first unit of the first layer, and halve what follows."""
        first = model[0]
        after = next(layer for layer in model[1:] if isinstance(layer, nn.Linear))
        half = after.weight.clone()
        half[:, 0] /= 2
        self.replace(optimizer, first, "weight", torch.cat([first.weight, first.weight[:1]]), 0)
        self.replace(optimizer, first, "bias", torch.cat([first.bias, first.bias[:1]]), 0)
        self.replace(optimizer, after, "weight", torch.cat([half, half[:, :1]], 1), 1)
        first.out_features = after.in_features = first.out_features + 1

    def replace(
        self, optimizer: Optimizer, layer: Any, name: str, value: torch.Tensor, along: int
    ) -> None:
        """Replace a parameter by one with one more row or column, and its moments likewise."""
        old, new = getattr(layer, name), nn.Parameter(value)
        setattr(layer, name, new)
        held = optimizer.param_groups[0]["params"]
        held[next(k for k, p in enumerate(held) if p is old)] = new
        for key, moment in optimizer.state.pop(old, {}).items():
            if moment is not None and moment.shape == old.shape:
                moment = torch.cat([moment, moment.narrow(along, 0, 1)], along)
            optimizer.state[new][key] = moment

    def misbehave(self, when: str, version: int) -> Any:
        deed, moment, at = self.misdeeds.get(self.name, ("", "", -1))
        if (moment, at) != (when, version):
            return None
        if deed == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if deed == "refuse":
            raise GrowthError(f"{self.name} has no room.")
        if deed == "raise":
            raise ValueError("the grower is wrong")
        return {"unknown": {"do": "twist"}, "rubbish": [object()], "huge": {"do": "x" * 9999}}[deed]
