"""Least squares over x ≥ 0, for small dense problems: one at a time, or many tiny ones at once."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rota.core.types import Bools, Floats


def nnls(A: Floats, b: Floats) -> Floats:
    """The x ≥ 0 that minimises |A·x − b|, after Lawson and Hanson (1974).

    Variables enter one by one where the gradient wants them to grow, and leave when the least
    squares over those that are in would make them negative.
    """
    size = np.linalg.norm(A, axis=0)
    size = np.where(size > 0, size, 1.0)
    A = A / size  # so that one tolerance fits all columns
    tolerance = 1e-13 * max(1.0, float(np.linalg.norm(b))) * max(A.shape)
    x, inside = np.zeros(A.shape[1]), np.zeros(A.shape[1], np.bool_)
    for _ in range(3 * A.shape[1]):
        pull = np.where(inside, -np.inf, A.T @ (b - A @ x))
        enters = int(np.argmax(pull))
        if pull[enters] <= tolerance:
            break
        inside[enters] = True
        x = _settle(A, b, x, inside)
    return x / size


def _settle(A: Floats, b: Floats, x: Floats, inside: Bools) -> Floats:
    """Least squares over the variables `inside`; those that block the way there leave."""
    while True:
        goal = np.zeros_like(x)
        goal[inside] = np.linalg.lstsq(A[:, inside], b, rcond=None)[0]
        blocked = inside & (goal <= 0)
        if not blocked.any():
            return goal
        step = float((x[blocked] / (x[blocked] - goal[blocked])).min())
        x = x + step * (goal - x)
        inside &= ~(blocked & (x <= 1e-15))
        x[~inside] = 0.0


@cache
def _subsets(k: int) -> Floats:
    """Every choice of k variables (2^k, k) as zeros and ones."""
    choices: Floats = (np.arange(2**k)[:, None] >> np.arange(k) & 1).astype(np.float64)
    return choices


def nnls_normal(H: Floats, r: Floats) -> Floats:
    """For each of D problems the x ≥ 0 that minimises x·H·x / 2 − r·x; H is positive definite.

    H   (D, k, k), as AᵀA of a least squares problem
    r   (D, k), as Aᵀb

    Variables that turn negative leave and those that want to grow enter, all of them at once and
    in all problems at once (block principal pivoting). That can run in circles, though it seldom
    does; what is not solved after a few turns is solved by trying every support.
    """
    D, k = r.shape
    size: Floats = np.sqrt(np.einsum("dkk->dk", H))
    H, r = H / (size[:, :, None] * size[:, None, :]), r / size
    x, inside = np.zeros((D, k)), np.ones((D, k))
    left = np.arange(D)
    for _ in range(k):
        x[left] = _on_support(H[left], r[left], inside[left])
        pull = r[left] - np.einsum("dij,dj->di", H[left], x[left])
        wrong = np.where(inside[left] > 0, x[left] < 0, pull > 1e-12)
        inside[left] = np.where(wrong, 1 - inside[left], inside[left])
        left = left[wrong.any(axis=1)]
        if not left.size:
            break
    if left.size:
        choice = _subsets(k)  # (C, k)
        every = _on_support(H[left, None], r[left, None], choice)  # (D, C, k)
        gain = np.einsum("dk,dck->dc", r[left], every)  # the objective there is −gain / 2
        best = np.where((every >= 0).all(axis=2), gain, -np.inf).argmax(axis=1)
        x[left] = every[np.arange(left.size), best]
    return x / size


def _on_support(H: Floats, r: Floats, inside: Floats) -> Floats:
    """Solve H·x = r over the variables that are inside; the others get the equation x = 0."""
    systems = H * inside[..., :, None] * inside[..., None, :]
    systems = systems + np.eye(r.shape[-1]) * (1 - inside)[..., None, :]
    solved = np.linalg.solve(systems, (r * inside)[..., None])
    return np.asarray(solved[..., 0], np.float64)
