"""The network of the one-pass design: every job is scored at once, with weights shared by all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Mapping


class OnePassNetwork(nn.Module):
    """Per job: logits over (servers, workers), and what the job will still bring.

    A job is seen beside the mean of all jobs of its cluster and the cluster's own state, so the
    order of jobs does not matter and any number of them will do. The value also has a straight
    path from the features, since what is left of a job is nearly linear in them, with a slope
    for every type. Heads start at 0: the first policy is uniform, and nothing is to be unlearned.
    """

    def __init__(
        self, *, types: int, features: int, globals_: int, actions: int, width: int = 64
    ) -> None:
        """`types` features tell the type of a job; the next one is the part of it that is left."""
        super().__init__()
        self._types = types
        features += types
        self.job = nn.Linear(features, width)
        self.around = nn.Linear(width + globals_, width, bias=False)
        self.hidden = nn.Linear(width, width)
        self.logits = nn.Linear(width, actions)
        self.value = nn.Linear(width, 1)
        self.straight = nn.Linear(features, 1, bias=False)
        for head in (self.logits, self.value, self.straight):
            for weights in head.parameters():
                nn.init.zeros_(weights)

    def forward(self, seen: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (n, A) and values (n,) of the n jobs that there are, cluster by cluster.

        seen  "jobs" (B, W, F), "cluster" (B, G), "who" (B, W): −1 where there is no job
        """
        live = seen["who"] >= 0
        batch = live.nonzero()[:, 0]
        features = seen["jobs"][live]
        types = self._types
        features = torch.cat([features, features[:, :types] * features[:, types, None]], 1)
        own = torch.relu(self.job(features))
        total = torch.zeros(len(live), own.shape[1]).index_add(0, batch, own)
        mean = total / live.sum(1, keepdim=True).clamp(min=1)
        around = self.around(torch.cat([mean, seen["cluster"]], 1))
        hidden = torch.relu(self.hidden(own) + around[batch])
        value = self.value(hidden) + self.straight(features)
        return self.logits(hidden), value.squeeze(-1)
