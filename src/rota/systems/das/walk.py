"""Random walks over machines: how likely a job's walk steps from one to another, and its features.

The random-walk kernel of two graphs counts the walks that both have in common. As published it is
1ᵀ(I − λ P₁⊗P₂)⁻¹1, a solve on the product of both graphs. Powers of a Kronecker product factorise,

    qᵀ(P₁⊗P₂)^ℓ z  =  (q₁ᵀ P₁^ℓ z₁) · (q₂ᵀ P₂^ℓ z₂),

so the kernel is the inner product of features that each graph has by itself, and no product graph
is ever built. What is left out after `terms` steps is a geometric series in the decay λ.

If the rows of P sum to 1 and every machine is worth 1, the walks of every graph sum up to the same
number, and the published kernel is constant. So walks may die ("sub"), or steps are normalised from
both sides ("symmetric"), or machines are worth a vector each: the `value` of `walk_features`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, get_args

import torch

from rota.errors import UnknownNameError

if TYPE_CHECKING:
    from torch import Tensor

Form = Literal["sub", "symmetric", "stochastic"]
FORMS: tuple[Form, ...] = get_args(Form)


def transition(
    query: Tensor,
    key: Tensor,
    room: Tensor,
    present: Tensor,
    *,
    form: Form,
    edges: Tensor | None = None,
) -> Tensor:
    """How likely a job's walk steps from machine k to machine l: P (..., M, M).

    query    (..., M, d)  of (machine, job), as the machine where a step begins
    key      (..., M, d)  of (machine, job), as the machine where it ends
    room     (..., M)     whether a part of the job fits on the machine
    present  (..., M)     whether there is such a machine; rows and columns of others are zero
    edges    (..., M, M)  which machines communicate, if not all; every one does with itself

    sub         attention over all machines, but a walk dies where there is no room:
                rows sum to the probability to find some
    symmetric   D^-1/2 W D^-1/2 of the symmetric part W of the attention; eigenvalues within ±1
    stochastic  attention as it is: rows sum to 1

    Only "sub" looks at `room`; the other forms know it from the embeddings, if at all.
    """
    if form not in FORMS:
        raise UnknownNameError("form of transition", form, FORMS)
    score = query / math.sqrt(query.shape[-1]) @ key.mT
    there = present[..., :, None] & present[..., None, :]
    if edges is not None:
        itself = torch.eye(score.shape[-1], dtype=torch.bool, device=score.device)
        there = there & (edges | itself)
    # Not −inf, whose differences are NaN in a row where nothing is left.
    score = score.masked_fill(~there, torch.finfo(score.dtype).min / 4)
    if form == "symmetric":
        return _symmetric(score).masked_fill(~(there | there.mT), 0.0)
    if form == "sub":
        there = there & room[..., None, :]
    return score.softmax(-1).masked_fill(~there, 0.0)


def _symmetric(score: Tensor) -> Tensor:
    """D^-1/2 W D^-1/2 for W = exp(score) + exp(score)ᵀ, in logarithms: nothing can overflow."""
    both = torch.logaddexp(score, score.mT)
    degree = both.logsumexp(-1) / 2
    return (both - degree[..., :, None] - degree[..., None, :]).exp()


def walk_features(
    P: Tensor,
    value: Tensor,
    start: Tensor,
    decay: Tensor | float,
    terms: int,
    present: Tensor | None = None,
) -> Tensor:
    """Features (..., (terms + 1) · d) whose inner product is the random-walk kernel.

    P        (..., M, M)  steps, of `transition`
    value    (..., M, d)  what a walk is worth where it ends, one kernel per column, summed up
    start    (..., M)     how many walks start at a machine
    decay                 scalar in (0, 1): what a walk of both graphs loses with each step
    terms                 longest walk, in steps
    present  (..., M)     machines that there are; needed only if P, value or start is not zero
                          at the others

    Each term is decay^(ℓ/2) · startᵀ P^ℓ value. It is taken from the left: so a step moves one row
    of M numbers instead of a matrix (M, d). With decay λ and (sub-)stochastic steps, the kernel of
    two graphs misses at most λ^(terms + 1) / (1 − λ) · ∏ ‖start‖₁ max|value| per column.
    """
    if present is not None:
        start = start.masked_fill(~present, 0.0)
        value = value.masked_fill(~present[..., None], 0.0)
        P = P.masked_fill(~(present[..., :, None] & present[..., None, :]), 0.0)
    walks = [start[..., None, :]]
    for _ in range(terms):
        walks.append(walks[-1] @ P)
    length = torch.arange(terms + 1, dtype=P.dtype, device=P.device)
    fade = torch.as_tensor(decay, dtype=P.dtype, device=P.device) ** (length / 2)
    return (fade[:, None] * torch.cat(walks, -2) @ value).flatten(-2)
