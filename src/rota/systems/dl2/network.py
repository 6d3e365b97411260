"""Networks that choose DL2's actions one by one: worker, server or both for a job, or the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Mapping


class PlainNetwork(nn.Module):
    """DL2's own: all jobs of the window in one row, through layers of equal width.

    The value has a body of its own, as in the original. What stands at which place of the
    window matters to it, and another window needs another network.
    """

    def __init__(
        self, *, window: int, features: int, globals_: int, actions: int, layers: int = 2,
        width: int = 0, cluster: bool = False, scale: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        size = window * features + (globals_ if cluster else 0)
        width = width or window * features * 2 // 3
        self._cluster = cluster
        self.policy = _layers(size, width, layers, actions, scale=scale)
        self.value = _layers(size, width, layers, 1, scale=scale)

    def forward(self, seen: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (B, A) and values (B,)."""
        row = seen["jobs"].flatten(1)
        if self._cluster:
            row = torch.cat([row, seen["cluster"]], 1)
        return self.policy(row), self.value(row).squeeze(-1)


class SharedNetwork(nn.Module):
    """The same actions by weights that all jobs share: each job scores its own three.

    The end of the round is scored by the mean of the jobs and the cluster's state; the value
    is the sum over jobs, because so are the rewards.
    """

    def __init__(
        self, *, window: int, features: int, globals_: int, actions: int, width: int = 64
    ) -> None:
        super().__init__()
        if actions != 3 * window + 1:
            raise ValueError(f"{actions} actions are not 3 for each of {window} jobs and an end.")
        self.job = nn.Linear(features, width)
        self.around = nn.Linear(width + globals_, width)
        self.hidden = nn.Linear(width, width, bias=False)
        self.logits = nn.Linear(width, 3)
        self.end = nn.Linear(width, 1)
        self.value = nn.Linear(width, 1)
        self.straight = nn.Linear(features, 1, bias=False)
        for head in (self.logits, self.end, self.value, self.straight):
            for weights in head.parameters():
                nn.init.zeros_(weights)

    def forward(self, seen: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (B, 3·W + 1) and values (B,)."""
        present = seen["present"].unsqueeze(-1)
        own = torch.relu(self.job(seen["jobs"])) * present
        mean = own.sum(1) / present.sum(1).clamp(min=1)
        around = self.around(torch.cat([mean, seen["cluster"]], 1))
        hidden = torch.relu(self.hidden(own) + around.unsqueeze(1))
        scores = self.logits(hidden).flatten(1)
        end = self.end(torch.relu(around))
        value = ((self.value(hidden) + self.straight(seen["jobs"])) * present).sum((1, 2))
        return torch.cat([scores, end], 1), value


class Scale(nn.Module):
    """Every feature times a weight, plus another."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Of the same shape."""
        return features * self.weight + self.bias


def _layers(size: int, width: int, layers: int, out: int, *, scale: bool) -> nn.Sequential:
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.Linear(size, width), nn.ReLU()]
        if scale:
            parts.append(Scale(width))
        size = width
    head = nn.Linear(size, out)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return nn.Sequential(*parts, head)
