"""Networks that choose DL2's actions one by one: worker, server or both for a job, or the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from rota.systems.dl2.sparse import Rows, SparseLinear, rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.core.types import Floats
    from rota.systems.dl2.player import SlotPlayer
    from rota.systems.dl2.step_lens import StepByStep


class PlainNetwork(nn.Module):
    """DL2's own: all jobs of the window in one row, through layers of equal width.

    The critic has layers of its own, as in the original. A job's place in the window matters, and
    another window needs another network.
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

    def forward(self, seen: Mapping[str, torch.Tensor] | Rows) -> tuple[torch.Tensor, None]:
        """Logits (B, A)."""
        return self.policy(_filled(seen, self._cluster)), None

    def inputs(self, seen: Mapping[str, torch.Tensor]) -> Rows:
        """The part of observations that it reads, without the zeros, which are most of it."""
        return _filled(seen, self._cluster)

    def player(self, lens: StepByStep) -> SlotPlayer:
        """The policy as it is now, for deployment: no torch, one call per round."""
        from rota.systems.dl2.player import plain_player

        return plain_player(lens, _folded(self.policy))


class PlainCritic(nn.Module):
    """The value of a state, by layers as those of the plain network."""

    def __init__(
        self, *, window: int, features: int, globals_: int, layers: int = 2, width: int = 0,
        cluster: bool = False, scale: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        size = window * features + (globals_ if cluster else 0)
        width = width or window * features * 2 // 3
        self._cluster = cluster
        self.value = _layers(size, width, layers, 1, scale=scale)

    def forward(self, seen: Mapping[str, torch.Tensor] | Rows, _inner: None) -> torch.Tensor:
        """Values (B,)."""
        value: torch.Tensor = self.value(_filled(seen, self._cluster)).squeeze(-1)
        return value


def _filled(seen: Mapping[str, torch.Tensor] | Rows, cluster: bool) -> Rows:
    if isinstance(seen, Rows):
        return seen
    row = seen["jobs"].flatten(1)
    return rows_of(torch.cat([row, seen["cluster"]], 1) if cluster else row)


class SharedNetwork(nn.Module):
    """The same actions, scored by weights that all jobs share: three actions per job.

    The end of the round is scored from the mean of the jobs and the cluster's state.
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
        for head in (self.logits, self.end):
            for weights in head.parameters():
                nn.init.zeros_(weights)

    def forward(
        self, seen: Mapping[str, torch.Tensor]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Logits (B, 3·W + 1), and what is inside: of each job, its features and its cluster."""
        window = seen["present"].shape[1]
        which = seen["present"].flatten().nonzero().squeeze(1)  # only rows that hold a job
        cluster, jobs = which // window, seen["jobs"].flatten(0, 1)[which]
        own = torch.relu(self.job(jobs))
        many = seen["present"].sum(1, keepdim=True).clamp(min=1)
        mean = own.new_zeros(len(many), own.shape[1]).index_add(0, cluster, own) / many
        around = self.around(torch.cat([mean, seen["cluster"]], 1))
        hidden = torch.relu(self.hidden(own) + around[cluster])
        scores = hidden.new_zeros(len(many) * window, 3).index_copy(0, which, self.logits(hidden))
        end = self.end(torch.relu(around))
        return torch.cat([scores.view(len(many), -1), end], 1), (hidden, jobs, cluster)

    def player(self, lens: StepByStep) -> SlotPlayer:
        """The policy as it is now, for deployment: no torch, one call per round."""
        from rota.systems.dl2.player import shared_player

        return shared_player(lens, {name: w.numpy() for name, w in self.state_dict().items()})


class SharedCritic(nn.Module):
    """The value of a state, a sum over jobs, as rewards are; it reads the player's inner layer."""

    needs_inner = True

    def __init__(self, *, features: int, width: int = 64) -> None:
        super().__init__()
        self.value = nn.Linear(width, 1)
        self.straight = nn.Linear(features, 1, bias=False)
        for head in (self.value, self.straight):
            for weights in head.parameters():
                nn.init.zeros_(weights)

    def forward(
        self, seen: Mapping[str, torch.Tensor], inner: tuple[torch.Tensor, ...]
    ) -> torch.Tensor:
        """Values (B,)."""
        hidden, jobs, cluster = inner
        worth = (self.value(hidden) + self.straight(jobs)).squeeze(1)
        value: torch.Tensor = worth.new_zeros(len(seen["present"])).index_add(0, cluster, worth)
        return value


class ScaleShift(nn.Module):
    """Multiplies every feature by a weight and adds a bias."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """An output of the same shape."""
        return features * self.weight + self.bias


def _layers(size: int, width: int, layers: int, out: int, *, scale: bool) -> nn.Sequential:
    parts: list[nn.Module] = []
    for k in range(layers):
        parts += [(nn.Linear if k else SparseLinear)(size, width), nn.ReLU()]
        if scale:
            parts.append(ScaleShift(width))
        size = width
    head = nn.Linear(size, out)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return nn.Sequential(*parts, head)


def _folded(stack: nn.Sequential) -> list[tuple[Floats, Floats]]:
    """Weights and biases of the linear layers; a scaling before a layer becomes part of it."""
    layers: list[tuple[Floats, Floats]] = []
    scale: ScaleShift | None = None
    with torch.no_grad():
        for part in stack:
            if isinstance(part, ScaleShift):
                scale = part
            elif isinstance(part, nn.Linear):
                weight: torch.Tensor = part.weight
                bias: torch.Tensor = part.bias
                if scale is not None:
                    weight, bias = weight * scale.weight, bias + weight @ scale.bias
                layers.append((weight.numpy(), bias.numpy()))
                scale = None
    return layers
