"""The placement agent's head: how good each machine is for a job, by what was observed so far."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from rota.systems.das.posterior import posterior
from rota.systems.das.walk import transition, walk_features

if TYPE_CHECKING:
    from torch import Tensor

    from rota.systems.das.walk import Form

LEAST_NOISE = 1e-4
"""Least variance of the observations: keeps covariance matrices well conditioned."""
LEAST_VARIANCE = 1e-6
"""Added to a variance before it divides a mean."""


class PlacementHistory(NamedTuple):
    """The last T states of the cluster, seen by one job each; T may be 0.

    Machines stand at the same place as in the present state. A state in which nothing was observed
    anywhere counts as padding.
    """

    machines: Tensor
    """(B, T, M, Dm) embeddings of the machines."""
    room: Tensor
    """(B, T, M) where a part of the job would have fitted."""
    performance: Tensor
    """(B, T, M) what was observed, centred: a machine without observations is taken for 0."""
    seen: Tensor
    """(B, T, M) whether anything was observed at the machine."""


class PlacementScores(NamedTuple):
    """What a placement head says of each machine."""

    logits: Tensor
    """(B, M); −inf where the job has no room."""
    mean: Tensor
    """(B, M) expected performance; 0 for a machine that is not there."""
    variance: Tensor
    """(B, M) of the expected performance; 0 for a machine that is not there."""


class WalkHead(nn.Module):
    """Scores machines by a Gaussian process over random-walk features of the cluster.

    The job's walk over machines describes a state of the cluster as a whole. The more the present
    state resembles a past one in the job's eyes, the more counts what was observed then. A logit
    is the mean over the standard deviation.
    """

    def __init__(
        self, job_width: int, machine_width: int, width: int = 32, terms: int = 4,
        form: Form = "sub",
    ) -> None:  # fmt: skip
        super().__init__()
        self.terms, self.form = terms, form
        self.pair = MachineForJob(job_width, machine_width, width)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.start = nn.Linear(width, 1, bias=False)  # a softmax ignores what all have in common
        self.decay_logit = nn.Parameter(torch.zeros(()))
        self.raw_noise = nn.Parameter(torch.zeros(()))

    @property
    def decay(self) -> Tensor:
        """What a walk loses with each step, in (0, 1)."""
        return self.decay_logit.sigmoid()

    @property
    def noise(self) -> Tensor:
        """Variance of the observed performance."""
        return functional.softplus(self.raw_noise) + LEAST_NOISE

    def features(self, job: Tensor, machines: Tensor, room: Tensor, present: Tensor) -> Tensor:
        """Walk features (B, T, (terms + 1) · width) of states `machines` (B, T, M, Dm).

        They are scaled so that the kernel of a state with itself stays of the order of 1, however
        many machines, terms and columns there are.
        """
        inner = self.pair(job, machines)
        P = transition(self.query(inner), self.key(inner), room, present, form=self.form)
        lowest = torch.finfo(inner.dtype).min
        start = self.start(inner).squeeze(-1).masked_fill(~present, lowest).softmax(-1) * present
        scale = ((1 - self.decay) / inner.shape[-1]).sqrt()
        scaled: Tensor = scale * walk_features(P, inner, start, self.decay, self.terms)
        return scaled

    def forward(
        self, job: Tensor, machines: Tensor, room: Tensor, present: Tensor, past: PlacementHistory
    ) -> PlacementScores:
        """Scores of the machines for one job per row.

        job       (B, Dj)     embedding of the job
        machines  (B, M, Dm)  embeddings of the machines
        room      (B, M)      where the job may go: others get a logit of −inf
        present   (B, M)      which machines there are; others contribute nothing
        """
        room, seen = room & present, past.seen & present[:, None]
        states = torch.cat([machines[:, None], past.machines], 1)
        useful = torch.cat([present[:, None], seen.any(-1, keepdim=True) & present[:, None]], 1)
        states = states.masked_fill(~useful[..., None], 0.0)
        rooms = torch.cat([room[:, None], past.room], 1)
        every = self.features(job, states, rooms, present[:, None].expand_as(useful))
        mean, variance = posterior(every[:, 0], every[:, 1:], past.performance, self.noise, seen)
        mean, variance = mean * present, variance * present
        logits = mean / (variance + LEAST_VARIANCE).sqrt()
        return PlacementScores(logits.masked_fill(~room, -math.inf), mean, variance)


class AttentionHead(nn.Module):
    """Scores machines by plain attention of the job: `WalkHead` without walks and without a kernel.

    It knows the same: of the past, each machine's mean performance and how often it was observed.
    Its scores are certain: the variance is 0.
    """

    def __init__(self, job_width: int, machine_width: int, width: int = 32) -> None:
        super().__init__()
        self.query = nn.Linear(job_width, width)
        self.key = MachineForJob(job_width, machine_width + 2, width)

    def forward(
        self, job: Tensor, machines: Tensor, room: Tensor, present: Tensor, past: PlacementHistory
    ) -> PlacementScores:
        """The same as of `WalkHead`."""
        seen = past.seen & present[:, None]
        often = seen.sum(1)
        mean = torch.where(seen, past.performance, 0.0).sum(1) / often.clamp_min(1)
        record = torch.stack([mean, often.to(mean.dtype).log1p()], -1)
        told = torch.cat([machines, record], -1).masked_fill(~present[..., None], 0.0)
        key = self.key(job, told[:, None])[:, 0]
        score = (key @ self.query(job)[..., None]).squeeze(-1) / math.sqrt(key.shape[-1])
        score = score * present
        logits = score.masked_fill(~(room & present), -math.inf)
        return PlacementScores(logits, score, torch.zeros_like(score))


class MachineForJob(nn.Module):
    """Embeds every machine of every state as one job sees it, with entries within ±1."""

    def __init__(self, job_width: int, machine_width: int, width: int) -> None:
        super().__init__()
        self.job = nn.Linear(job_width, width, bias=False)
        self.machine = nn.Linear(machine_width, width)
        self.out = nn.Linear(width, width)

    def forward(self, job: Tensor, machines: Tensor) -> Tensor:
        """Embeddings (B, T, M, width) of job (B, Dj) and machines (B, T, M, Dm)."""
        # The layer of (machine ⊕ job), with the job's part computed once instead of T · M times.
        inner = (self.machine(machines) + self.job(job)[:, None, None]).relu()
        embedded: Tensor = self.out(inner).tanh()
        return embedded
