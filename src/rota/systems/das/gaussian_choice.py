"""Choices by Gaussian scores, as published: each option draws a score, and the highest wins.

The authors take the density of the drawn scores for the probability of what was done. But many
scores mean the same choice, so gradients by that density are noisy. Here the probability is that of
the choice itself: the integral over the winner's score of the chance that all others are lower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from torch import Tensor

POINTS = 16
"""At which an integral is taken (Gauss–Hermite)."""
FAR = -1e4
"""The mean of options that are not there, in standard deviations: they never win."""


def win_logits(mean: Tensor, sd: Tensor, there: Tensor) -> Tensor:
    """Log-probabilities (B, A) that each option's score is the highest; −inf where it is not there.

    mean   (B, A)  of the scores, which are independent
    sd     (B, A)  their standard deviations, above 0
    there  (B, A)  which options there are

    They add up to 1 as well as the quadrature allows: within a percent unless some deviations
    are many times others. Whoever takes a softmax makes that exact.
    """
    points, weights = np.polynomial.hermite_e.hermegauss(POINTS)
    at = torch.as_tensor(points, dtype=mean.dtype, device=mean.device)
    share = torch.as_tensor(weights / weights.sum(), dtype=mean.dtype, device=mean.device)
    mean = mean.masked_fill(~there, 0.0)
    score = mean[..., None] + sd[..., None] * at  # (B, A, Q) of the winner
    apart = (score[:, :, None] - mean[:, None, :, None]) / sd[:, None, :, None]  # (B, A, A, Q)
    itself = torch.eye(mean.shape[-1], dtype=torch.bool, device=mean.device)
    beaten = torch.special.log_ndtr(apart.clamp_min(FAR))
    beaten = beaten.masked_fill((itself | ~there[:, None])[..., None], 0.0).sum(2)
    logits: Tensor = (beaten + share.log()).logsumexp(-1).masked_fill(~there, -torch.inf)
    return logits
