"""The network of the one-pass design: every job is scored at once, with weights shared by all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Mapping


class OnePassNetwork(nn.Module):
    """Per job: logits over (servers, workers).

    A job is observed beside the mean of all jobs of its cluster and the cluster's own state, so
    the order of jobs does not matter, and any number of them is possible. The output layer starts
    at 0, so the first policy is uniform.
    """

    def __init__(
        self, *, types: int, features: int, globals_: int, actions: int, width: int = 64
    ) -> None:
        """The first `types` features are the job's model; the next is the part of its work left."""
        super().__init__()
        self._types = types
        features += types
        self.job = nn.Linear(features, width)
        self.around = nn.Linear(width + globals_, width, bias=False)
        self.hidden = nn.Linear(width, width)
        self.logits = nn.Linear(width, actions)
        for weights in self.logits.parameters():
            nn.init.zeros_(weights)

    def forward(
        self, seen: Mapping[str, torch.Tensor]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """Logits (n, A) of the n jobs that there are, cluster by cluster, and what is inside.

        seen  "jobs" (B, W, F), "cluster" (B, G), "rows" (B, W): −1 where there is no job
        """
        live = seen["rows"] >= 0
        batch = live.nonzero()[:, 0]
        features = seen["jobs"][live]
        types = self._types
        features = torch.cat([features, features[:, :types] * features[:, types, None]], 1)
        own = torch.relu(self.job(features))
        total = torch.zeros(len(live), own.shape[1]).index_add(0, batch, own)
        mean = total / live.sum(1, keepdim=True).clamp(min=1)
        around = self.around(torch.cat([mean, seen["cluster"]], 1))
        hidden = torch.relu(self.hidden(own) + around[batch])
        return self.logits(hidden), (hidden, features)


class OnePassCritic(nn.Module):
    """Per job: the rewards that are still to come.

    It reads the player's inner layer. The value also has a linear path from the features, since a
    job's remaining rewards are nearly linear in them, with one slope per model.
    """

    needs_inner = True

    def __init__(self, *, types: int, features: int, width: int = 64) -> None:
        super().__init__()
        self.value = nn.Linear(width, 1)
        self.straight = nn.Linear(features + types, 1, bias=False)
        for head in (self.value, self.straight):
            for weights in head.parameters():
                nn.init.zeros_(weights)

    def forward(self, _seen: Any, inner: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Values (n,) of the jobs that the network scored."""
        hidden, features = inner
        value: torch.Tensor = self.value(hidden) + self.straight(features)
        return value.squeeze(-1)
