"""Surfaces through scattered points: distances to them as basis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rota.core.types import Floats


def through_points(points: Floats, values: Floats, at: Floats) -> Floats:
    """A sum of distances to the points that takes the given value at each of them.

    points (R, 2), values (R,), at (Q, 2); returns (Q,). Far from the points it runs off linearly.
    """
    return np.asarray(_distance(at, points) @ np.linalg.solve(_distance(points, points), values))


def near_points(points: Floats, values: Floats, at: Floats, *, smoothing: float) -> Floats:
    """Like `through_points`, but with a level of its own and smooth against noise.

    `smoothing` is in the unit of the distances: the larger, the less a point pulls.
    """
    R = len(points)
    system = np.zeros((R + 1, R + 1))
    system[:R, :R] = smoothing * np.eye(R) - _distance(points, points)
    system[:R, R] = system[R, :R] = 1.0
    weight = np.linalg.solve(system, np.append(values, 0.0))
    return np.asarray(weight[R] - _distance(at, points) @ weight[:R])


def _distance(a: Floats, b: Floats) -> Floats:
    return np.asarray(np.sqrt(np.square(a[:, None, :] - b[None, :, :]).sum(axis=-1)))
