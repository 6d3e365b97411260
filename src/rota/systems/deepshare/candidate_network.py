"""The network of DeepShare as rota has it: one score per candidate, whatever their number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from rota.systems.deepshare.feature_kernels import CANDIDATE, CLUSTER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.systems.deepshare.candidate_lens import CandidateLens
    from rota.systems.deepshare.round_player import RoundPlayer


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

    def forward(self, seen: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, None]:
        """Logits (C,) of the candidates of all clusters, one cluster after the other."""
        many, cluster = seen["many"], seen["cluster"]
        owner = torch.repeat_interleave(many)
        inner = self.each(torch.cat([seen["candidate"], cluster[owner]], 1))
        total = inner.new_zeros(len(many), inner.shape[1]).index_add(0, owner, inner)
        mean = total / many[:, None]
        return self.score(torch.cat([inner, mean[owner]], 1)).squeeze(1), None

    def player(self, lens: CandidateLens) -> RoundPlayer:
        """What writes rounds with these weights, compiled."""
        from rota.systems.deepshare.round_player import RoundPlayer

        weights = {name: array.detach().numpy() for name, array in self.named_parameters()}
        return RoundPlayer(weights, lens.actions - 1, lens.run)


class CandidateCritic(nn.Module):
    """The value of a cluster's state."""

    def __init__(self, *, width: int = 64) -> None:
        super().__init__()
        self.value = nn.Sequential(
            nn.Linear(CLUSTER, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, 1),
        )  # fmt: skip

    def forward(self, seen: Mapping[str, torch.Tensor], _inner: None) -> torch.Tensor:
        """Values (B,)."""
        value: torch.Tensor = self.value(seen["cluster"]).squeeze(-1)
        return value
