"""The network of DeepShare as rota has it: one score per candidate, whatever their number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from rota.systems.deepshare.feature_kernels import CANDIDATE, CLUSTER

if TYPE_CHECKING:
    from collections.abc import Mapping


class CandidateNetwork(nn.Module):
    """Scores every candidate by its own features, those of the cluster, and the other candidates.

    Only candidates that there are pass through the layers: they are kept in one list, and summed
    up cluster by cluster. So it has no size that depends on nodes, GPUs or jobs.
    """

    def __init__(self, *, width: int = 64) -> None:
        super().__init__()
        self.each = nn.Sequential(
            nn.Linear(CANDIDATE + CLUSTER, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.score = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))
        self.value = nn.Sequential(
            nn.Linear(CLUSTER, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, 1),
        )  # fmt: skip

    def forward(self, seen: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (B, K + 1) and values (B,)."""
        return self.act(seen), self.judge(seen)

    def act(self, seen: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Logits (B, K + 1) alone; 0 where there is no candidate."""
        many, cluster = seen["many"], seen["cluster"]
        batch, places = seen["candidate"].shape[:2]
        there = torch.arange(places) < many[:, None]
        owner = there.nonzero()[:, 0]
        seen_by = torch.cat([seen["candidate"][there], cluster[owner]], 1)
        inner = self.each(seen_by)
        mean = inner.new_zeros(batch, inner.shape[1]).index_add(0, owner, inner) / many[:, None]
        scores = self.score(torch.cat([inner, mean[owner]], 1)).squeeze(1)
        logits: torch.Tensor = inner.new_zeros(batch, places).masked_scatter(there, scores)
        return logits

    def judge(self, seen: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Values (B,) alone."""
        value: torch.Tensor = self.value(seen["cluster"]).squeeze(-1)
        return value
