"""The ordering agent's head: jobs hear of the machines, then of each other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

from rota.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

LONGEST = 10_000.0
"""Wavelength of the slowest position wave, in jobs over 2π (Vaswani et al., 2017)."""


class Communicate(nn.Module):
    """Squeeze-and-communicate: tells every job how the machines are, as much as its gate lets in.

    Machines are pooled, however many there are. The mean alone, as published, cannot tell eight
    machines that are half free from four empty and four full ones; the maximum helps.
    """

    def __init__(self, job_width: int, machine_width: int, *, only_mean: bool = False) -> None:
        super().__init__()
        self.only_mean = only_mean
        pooled = machine_width if only_mean else 2 * machine_width
        self.message = nn.Sequential(nn.Linear(pooled, job_width), nn.Tanh())
        self.gate = nn.Linear(2 * job_width, job_width)

    def squeeze(self, machines: Tensor, present: Tensor) -> Tensor:
        """Mean, and maximum unless switched off, over machines (B, M, Dm) that are there.

        Zeros if there are none.
        """
        machines = machines.masked_fill(~present[..., None], 0.0)
        mean = machines.sum(1) / present.sum(1, keepdim=True).clamp_min(1)
        if self.only_mean:
            return mean
        lowest = torch.finfo(machines.dtype).min
        top = machines.masked_fill(~present[..., None], lowest).amax(1)
        return torch.cat([mean, top.masked_fill(~present.any(1, keepdim=True), 0.0)], -1)

    def forward(self, jobs: Tensor, machines: Tensor, present: Tensor) -> Tensor:
        """Jobs (B, J, Dj), mixed channel by channel with what machines (B, M, Dm) have to say."""
        message = self.message(self.squeeze(machines, present))[:, None].expand_as(jobs)
        gate = self.gate(torch.cat([jobs, message], -1)).sigmoid()
        told: Tensor = gate * message + (1 - gate) * jobs
        return told


class OrderingHead(nn.Module):
    """A Transformer encoder over the jobs in order of submission; the logit says how soon."""

    def __init__(self, width: int, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        if width % heads:
            raise ConfigError(
                f"width={width} does not split into heads={heads} equal parts; "
                f"try a width of {-(-width // heads) * heads}."
            )
        self.blocks = nn.ModuleList(JobAttention(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.logit = nn.Linear(width, 1)

    def forward(self, jobs: Tensor, present: Tensor, rank: Tensor | None = None) -> Tensor:
        """Logits (B, J) of jobs (B, J, width); −inf where `present` (B, J) is false.

        rank (B, J) is each job's place in order of submission, from 0. Without it, jobs stand in
        that order, with or without gaps.
        """
        if rank is None:
            rank = present.cumsum(-1) - 1
        inner = jobs + positions(rank, jobs.shape[-1], jobs.dtype)
        inner = inner.masked_fill(~present[..., None], 0.0)
        # Padding attends to itself, so a row without jobs is no softmax over nothing.
        itself = torch.eye(jobs.shape[1], dtype=torch.bool, device=jobs.device)
        hears = (present[:, None, :] | itself)[:, None]
        for block in self.blocks:
            inner = block(inner, hears)
        logits: Tensor = self.logit(self.norm(inner)).squeeze(-1)
        return logits.masked_fill(~present, -math.inf)


class JobAttention(nn.Module):
    """One layer of the encoder: attention, then two linear layers, each normalised before.

    torch's own encoder gives NaN in rows that are all padding, once it is in evaluation mode.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before = nn.LayerNorm(width)
        self.mix = nn.Linear(width, 3 * width)
        self.unite = nn.Linear(width, width)
        self.think = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)
        )

    def forward(self, inner: Tensor, hears: Tensor) -> Tensor:
        """The same shape (B, J, width); `hears` (B, 1, J, J) says who attends to whom."""
        parts = self.mix(self.before(inner)).unflatten(-1, (3, self.heads, -1))
        query, key, value = parts.permute(2, 0, 3, 1, 4)  # each (B, heads, J, width / heads)
        heard = functional.scaled_dot_product_attention(query, key, value, attn_mask=hears)
        inner = inner + self.unite(heard.transpose(1, 2).flatten(-2))
        thought: Tensor = self.think(inner)
        return inner + thought


def positions(rank: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """Sines and cosines (..., width) of a job's place in the queue, fast waves to slow ones."""
    half = (width + 1) // 2
    pace = LONGEST ** (-torch.arange(half, dtype=dtype, device=rank.device) / half)
    angle = rank[..., None].to(dtype) * pace
    return torch.cat([angle.sin(), angle.cos()], -1)[..., :width]
