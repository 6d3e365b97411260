"""Two small solvers: non-negative least squares that outliers cannot bend; Levenberg–Marquardt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from rota.perf.nnls import nnls

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.core.types import Floats

_TINY: Final = 1e-12
_HUBER: Final = 1.345
"""Robust standard deviations beyond which a residual counts by its size, not its square."""


def robust_nnls(A: Floats, b: Floats, *, rounds: int = 12) -> Floats:
    """`nnls` in which far outliers lose weight: Huber's weights, re-estimated `rounds` times."""
    weight = np.ones(len(b))
    x = nnls(A, b)
    for _ in range(rounds):
        off = np.abs(A @ x - b)
        spread = max(float(np.median(off)) / 0.6745, _TINY)
        weight = np.sqrt(np.minimum(1.0, _HUBER * spread / np.maximum(off, _TINY)))
        before, x = x, nnls(A * weight[:, None], b * weight)
        if np.abs(A @ (x - before)).max() < 1e-3 * spread:
            break
    return x


def levenberg_marquardt(
    residual: Callable[[Floats], Floats], start: Floats, *, steps: int = 200
) -> Floats:
    """The parameters that minimise the sum of squared residuals, from a start nearby.

    The Jacobian is taken by differences, so `residual` may be any smooth function.
    """
    x, damping = start.astype(np.float64), 1e-2
    at = residual(x)
    cost = float(at @ at)
    for _ in range(steps):
        J = _jacobian(residual, x, at)
        normal, slope = J.T @ J, J.T @ at
        before = cost
        while damping < 1e12:
            lift = damping * np.maximum(np.diag(normal), _TINY)
            move = np.linalg.solve(normal + np.diag(lift), -slope)
            there = residual(x + move)
            new_cost = float(there @ there)
            if new_cost < cost:
                x, at, cost = x + move, there, new_cost
                damping = max(damping / 5, 1e-12)
                break
            damping *= 4
        if before - cost <= 1e-8 * before:
            break
    return x


def _jacobian(residual: Callable[[Floats], Floats], x: Floats, at: Floats) -> Floats:
    J = np.empty((len(at), len(x)))
    for k in range(len(x)):
        nudged = x.copy()
        nudged[k] += 1e-6 * max(1.0, abs(float(x[k])))
        J[:, k] = (residual(nudged) - at) / (nudged[k] - x[k])
    return J
