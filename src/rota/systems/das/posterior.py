"""What past states say of the present one: Gaussian process regression with a linear kernel.

There is a process per machine. All share the features of the τ past states, but each has its own
targets, and its own states in which something was observed. A state in which nothing was observed
at a machine has infinite noise there: its row leaves that machine's system, exactly.

Systems are solved by Cholesky factors, never by an inverse: over features if those are fewer than
the states ("weight space"), else over states ("function space"). Both give the same numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rota.errors import TrainingError

if TYPE_CHECKING:
    from torch import Tensor

TRIES = 6
"""How often `safe_cholesky` raises its jitter tenfold before it gives up."""


def posterior(
    now: Tensor, past: Tensor, targets: Tensor, noise: Tensor, seen: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Mean and variance (B, M) of every machine's latent value in the present state.

    now      (B, f)     features of the present state
    past     (B, τ, f)  features of past states; τ may be 0
    targets  (B, τ, M)  what was observed at each machine in each past state
    noise    () or (B,) variance of the observations, > 0
    seen     (B, τ, M)  what was observed at all; everything if left out. Targets that were not
                        may be NaN.

    The prior has mean 0 and variance now·now, which is what a machine without observations gets.
    Without `seen` one system is solved for all machines of a job, else one for each.
    """
    tau = past.shape[1]
    if seen is None:
        rows = torch.ones(len(past), 1, tau, dtype=torch.bool, device=past.device)
    else:
        rows = seen.mT
        targets = torch.where(seen, targets, 0.0)
    noise = noise.expand(len(now))[:, None]
    solve = by_weights if now.shape[-1] < tau else by_states
    pull, variance = solve(now, past, noise, rows)
    mean = (pull * targets.mT).sum(-1)
    return mean, variance.clamp_min(0.0).expand_as(mean)


def by_states(now: Tensor, past: Tensor, noise: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """What each past state contributes to the mean (B, S, τ), and the variance (B, S).

    Function space: S systems (τ, τ) per job, where `rows` (B, S, τ) are a system's states, and
    noise is (B, 1). An unseen state keeps its place, uncoupled from all others.
    """
    pairs = rows[..., :, None] & rows[..., None, :]
    gram = torch.where(pairs, (past @ past.mT)[:, None], 0.0)
    cross = torch.where(rows, (past @ now[..., None]).mT, 0.0)[..., None]
    factor = safe_cholesky(gram + noise[..., None, None] * _identity(gram))
    half = torch.linalg.solve_triangular(factor, cross, upper=False)
    pull = torch.linalg.solve_triangular(factor.mT, half, upper=True)
    return pull.squeeze(-1), now.square().sum(-1, keepdim=True) - half.square().sum((-2, -1))


def by_weights(now: Tensor, past: Tensor, noise: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The same as `by_states`, in weight space: S systems (f, f) per job, whatever τ is."""
    each = past[:, None] * rows[..., None]  # (B, S, τ, f)
    moment = each.mT @ each
    factor = safe_cholesky(moment + noise[..., None, None] * _identity(moment))
    ask = now[:, None, :, None].expand(*moment.shape[:-1], 1)
    half = torch.linalg.solve_triangular(factor, ask, upper=False)
    gain = torch.linalg.solve_triangular(factor.mT, half, upper=True)
    return (each @ gain).squeeze(-1), noise * half.square().sum((-2, -1))


def safe_cholesky(matrix: Tensor) -> Tensor:
    """Lower Cholesky factors of matrices (..., n, n) that rounding may have made indefinite.

    A matrix that fails gets a jitter on its diagonal, ten times as much with each try; others of
    the batch stay as they are, so that no result depends on what else is in the batch.
    """
    factor: Tensor
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if not failed.any():
        return factor
    diagonal = matrix.detach().diagonal(dim1=-2, dim2=-1)
    if not torch.isfinite(matrix).all():
        raise TrainingError(
            f"A covariance matrix has entries that are not finite (largest on the diagonal: "
            f"{diagonal.max():g}): features or noise are NaN or too large for {matrix.dtype}. "
            f"Lower the learning rate, or scale the observations."
        )
    step = 10 * torch.finfo(matrix.dtype).eps * diagonal.abs().mean(-1)
    jitter = torch.zeros_like(step)
    for power in range(TRIES):
        jitter = torch.where(failed > 0, step * 10**power, jitter)
        raised = matrix + jitter[..., None, None] * _identity(matrix)
        factor, failed = torch.linalg.cholesky_ex(raised)
        if not failed.any():
            return factor
    raise TrainingError(
        f"{int((failed > 0).sum())} of {failed.numel()} covariance matrices are not positive "
        f"definite, even with {jitter.max():g} added to the diagonal (its mean is "
        f"{diagonal.mean():g}). Raise the noise, or compute in float64."
    )


def _identity(like: Tensor) -> Tensor:
    return torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)
