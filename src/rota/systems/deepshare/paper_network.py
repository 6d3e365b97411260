"""The network of DeepShare as published: a plain one over the raw image."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch


class PaperNetwork(nn.Module):
    """Two layers of tanh; the critic has two of its own.

    First weights are orthogonal, those of the last layer of the policy small, as in the library
    that the authors used.
    """

    def __init__(self, *, inputs: int, actions: int, width: int = 64) -> None:
        super().__init__()
        self.policy = _layers(inputs, width, actions, 0.01)

    def forward(self, seen: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, None]:
        """Logits (B, A)."""
        return self.policy(seen["image"]), None


class PaperCritic(nn.Module):
    """The value of an image."""

    def __init__(self, *, inputs: int, width: int = 64) -> None:
        super().__init__()
        self.value = _layers(inputs, width, 1, 1.0)

    def forward(self, seen: Mapping[str, torch.Tensor], _inner: None) -> torch.Tensor:
        """Values (B,)."""
        value: torch.Tensor = self.value(seen["image"]).squeeze(-1)
        return value


def _layers(inputs: int, width: int, out: int, last: float) -> nn.Sequential:
    sizes = ((inputs, width, sqrt(2.0)), (width, width, sqrt(2.0)), (width, out, last))
    parts: list[nn.Module] = []
    for size, wide, gain in sizes:
        layer = nn.Linear(size, wide)
        nn.init.orthogonal_(layer.weight, gain)
        nn.init.zeros_(layer.bias)
        parts += [layer, nn.Tanh()]
    return nn.Sequential(*parts[:-1])
