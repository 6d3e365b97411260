"""The networks of DAS: both agents in one module, and the critic that sees what both see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from rota.systems.das.gaussian_choice import win_logits
from rota.systems.das.machine_kernels import FREE, MACHINE
from rota.systems.das.ordering_head import Communicate, OrderingHead
from rota.systems.das.placement_head import AttentionHead, PlacementHistory, WalkHead
from rota.systems.das.seen_kernels import JOB, PAIR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from rota.systems.das.das_player import TwoAgentsPlayer
    from rota.systems.das.order_place_lens import OrderPlaceLens
    from rota.systems.das.placement_head import PlacementScores
    from rota.systems.das.walk import Form

FORBIDDEN = -1e9
"""The logit of what cannot be chosen."""


class TwoAgents(nn.Module):
    """The ordering agent scores jobs and the round's end, the placement agent machines.

    Machines are scored by a walk head (or plain attention without `kernel`), and by what a machine
    is to the job by itself: how much of it fits, how fast it is there. With `scores="gaussian"`
    scores are drawn and the highest wins: machines by the posterior, jobs around their means.
    """

    def __init__(
        self, *, actions: int, width: int = 32, heads: int = 4, layers: int = 1, terms: int = 4,
        form: Form = "sub", communicate: bool = True, kernel: bool = True, only_mean: bool = False,
        scores: str = "softmax", fee: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.actions, self.fee = actions, fee
        self.job, self.machine = _encoder(JOB + fee, width), _encoder(MACHINE, width)
        self.hear = Communicate(width, width, only_mean=only_mean) if communicate else None
        self.order = OrderingHead(width, heads, layers)
        self.end = nn.Linear(width, 1)
        self.place: WalkHead | AttentionHead
        self.place = (
            WalkHead(width, width, width, terms, form) if kernel
            else AttentionHead(width, width, width)
        )  # fmt: skip
        self.fit = nn.Sequential(
            nn.Linear(PAIR + MACHINE + width, width), nn.ReLU(), nn.Linear(width, 1)
        )
        self.spread = nn.Parameter(torch.zeros(2)) if scores == "gaussian" else None
        """For each agent, the logarithm of the standard deviation of its scores."""

    def forward(self, seen: Mapping[str, Tensor]) -> tuple[Tensor, None]:
        """Logits (B, A) of the agent that acts in each row."""
        logits = seen["jobs"].new_full((len(seen["agent"]), self.actions), FORBIDDEN)
        for agent, score in enumerate((self._order, self._place)):
            rows = torch.nonzero(seen["agent"] == agent).squeeze(-1)
            if len(rows):
                found = score({name: part[rows] for name, part in seen.items()})
                padded = nn.functional.pad(
                    found, (0, self.actions - found.shape[1]), value=FORBIDDEN
                )
                logits = logits.index_copy(0, rows, padded.clamp_min(FORBIDDEN))
        return logits, None

    def player(self, lens: OrderPlaceLens) -> TwoAgentsPlayer | None:
        """What writes rounds with these weights, compiled; none for Gaussian scores."""
        from rota.systems.das.das_player import TwoAgentsPlayer

        return TwoAgentsPlayer(self, lens) if self.spread is None else None

    def _order(self, seen: Mapping[str, Tensor]) -> Tensor:
        """Logits (B, W + 1) of the jobs, in order of submission, and of the round's end."""
        present, usable = seen["waiting"] > 0, seen["usable"] > 0
        jobs = self.job(_with_fee(seen, "jobs") if self.fee else seen["jobs"])
        machines = self.machine(seen["machines"])
        if self.hear is not None:
            jobs = self.hear(jobs, machines, usable)
        shared = (machines * usable[..., None]).sum(1) / usable.sum(1, keepdim=True).clamp_min(1)
        logits = torch.cat([self.order(jobs, present), self.end(shared)], -1)
        if self.spread is None:
            return logits
        there = torch.cat([present, torch.ones_like(present[:, :1])], -1)
        return win_logits(logits, self.spread[0].exp().expand_as(logits), there)

    def _place(self, seen: Mapping[str, Tensor]) -> Tensor:
        """Logits (B, K) of the machines for the job that is being placed."""
        usable, known = seen["usable"] > 0, seen["known"] > 0
        job = self.job(_with_fee(seen, "job") if self.fee else seen["job"])
        machines = self.machine(seen["machines"])
        if self.hear is not None:
            job = self.hear(job[:, None], machines, usable)[:, 0]
        room = usable & (seen["pair"][..., 0] > 0)
        past = PlacementHistory(
            self.machine(seen["past"]), seen["past"][..., FREE] > 0, _centred(seen), known
        )
        told = torch.cat([
            seen["pair"], seen["machines"], job[:, None].expand(-1, usable.shape[1], -1)
        ], -1)  # fmt: skip
        fit: Tensor = self.fit(told).squeeze(-1)
        scores: PlacementScores = self.place(job, machines, room, usable, past)
        if self.spread is None:
            return scores.logits.clamp_min(FORBIDDEN) + fit
        sd = (scores.variance + self.spread[1].exp().square()).sqrt()
        return win_logits(scores.mean + fit, sd, room)


class BothSeen(nn.Module):
    """The value of a state, from all jobs and machines."""

    def __init__(self, *, width: int = 32, fee: bool = False) -> None:
        super().__init__()
        self.fee = fee
        self.job, self.machine = _encoder(JOB, width), _encoder(MACHINE, width)
        self.value = nn.Sequential(
            nn.Linear(4 * width + 3 + fee, 2 * width), nn.ReLU(), nn.Linear(2 * width, 1)
        )

    def forward(self, seen: Mapping[str, Tensor], _inner: None) -> Tensor:
        """Values (B,)."""
        waiting, usable = seen["waiting"][..., None], seen["usable"][..., None]
        jobs, machines = self.job(seen["jobs"]) * waiting, self.machine(seen["machines"]) * usable
        now = self.job(seen["job"]) * (seen["agent"] == 1)[:, None]
        counts = torch.stack(
            [waiting.sum((1, 2)) / 16, usable.sum((1, 2)) / 16, (seen["agent"] == 1).float()], -1
        )
        pooled = [jobs.mean(1), machines.mean(1), machines.amax(1), now, counts]
        if self.fee:
            pooled.append(seen["fee"])
        value: Tensor = self.value(torch.cat(pooled, -1)).squeeze(-1)
        return value


def _encoder(features: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width), nn.Tanh())


def _with_fee(seen: Mapping[str, Tensor], name: str) -> Tensor:
    """Descriptions of jobs, with what a dollar is worth."""
    jobs = seen[name]
    fee = seen["fee"] if jobs.dim() == 2 else seen["fee"][:, None]
    return torch.cat([jobs, fee.expand(*jobs.shape[:-1], 1)], -1)


def _centred(seen: Mapping[str, Tensor]) -> Tensor:
    """What was observed, less the mean of all that was; so a machine without is an average one."""
    known = seen["known"]
    total = (seen["observed"] * known).sum((1, 2))
    mean = total / known.sum((1, 2)).clamp_min(1.0)
    return (seen["observed"] - mean[:, None, None]) * known
