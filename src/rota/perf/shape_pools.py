"""What the running of some jobs tells about the speed of others.

A curve is a sum of terms; its shape is what remains when it may be multiplied by any number, for
each job has its own unit of work. What jobs have shown of their shapes is pooled by model, and
over all of them: docs/estimation.md has the formulas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from rota.perf.nnls import nnls_normal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.core.types import Floats, Ints

TERMS: Final = 5
ANY_SHAPE: Final = 1.0
"""How far, relative to a step, each term of an average job may be from FIRST_SHAPE."""
MODELS_DIFFER: Final = 0.3
"""How far each term of a model may be from that of the average job."""
JOBS_DIFFER: Final = 0.05
"""How far each term of a job may be from that of its model."""
PINNED: Final = 0.01
"""How closely the scale of a shape is held, which means nothing and must only stay put."""
LEAST: Final = 1e-3
"""Computing takes at least this part of its term in FIRST_SHAPE: no job is infinitely fast."""


def terms(by_nodes: bool, a: Ints | int, w: Ints | int) -> Floats:
    """The terms (…, TERMS) of which a step's time consists, for w workers and a servers or nodes.

    With parameter servers: the batch is shared out, a fixed cost, traffic per server, and what
    each further worker and each further server costs. With all-reduce: the batch shared out, a
    fixed cost, and for those that span nodes a cost per worker's step, per step, and per step
    and worker beyond two.
    """
    one = np.ones(np.broadcast_shapes(np.shape(a), np.shape(w)))
    share = one / w
    if by_nodes:
        far = one * (np.asarray(a) > 1)
        return np.stack([share, one, far * share, far, far * np.maximum(0, w - 2)], axis=-1)
    return np.stack([share, one, one * w / a, one * w, one * a], axis=-1)


FIRST_SHAPE: Final[dict[bool, Floats]] = {
    False: np.array([1.0, 0.05, 0.05, 0.0, 0.0]),
    True: np.array([1.0, 0.02, 0.05, 0.02, 0.0]),
}
"""The shape that is assumed before any job has run: nearly linear at first, then ever less so."""


class ShapePools:
    """What all jobs of a run have shown, by model and together."""

    def __init__(self, *, by_nodes: bool, noise: float) -> None:
        self.noise = noise
        sizes = np.array([1, 2, 4, 8, 16])
        a, w = (axis.ravel() for axis in np.meshgrid(sizes, sizes))
        possible = (a <= w) | (not by_nodes)
        self.typical = terms(by_nodes, a[possible], w[possible])  # (…, TERMS)
        self.start = self.normal(FIRST_SHAPE[by_nodes][None])[0]
        # Sums of K and r, where K·θ = r is what a job shows of the shape θ.
        self.all_K, self.all_r = np.zeros((TERMS, TERMS)), np.zeros(TERMS)
        # One entry per model; the first is that of jobs without one and stays empty.
        self.K, self.r = np.zeros((1, TERMS, TERMS)), np.zeros((1, TERMS))
        self.index: dict[int, int] = {}

    def of(self, model: int) -> int:
        """The pool of `model`, new if there was none; 0 for jobs of no known model."""
        if model < 0:
            return 0
        if model not in self.index:
            self.index[model] = len(self.K)
            self.K = np.concatenate([self.K, np.zeros((1, TERMS, TERMS))])
            self.r = np.concatenate([self.r, np.zeros((1, TERMS))])
        return self.index[model]

    def pack(self) -> dict[str, Floats | Ints]:
        """All that was shown, as arrays by name."""
        return {
            "all_K": self.all_K, "all_r": self.all_r, "K": self.K, "r": self.r,
            "models": np.array(list(self.index), np.int64),
        }  # fmt: skip

    def unpack(self, kept: Mapping[str, Floats | Ints]) -> None:
        """Go on from what another has packed; ValueError where that cannot be."""
        models = kept["models"].tolist()
        for name in ("all_K", "all_r", "K", "r"):
            lead = (len(models) + 1,) if name in ("K", "r") else ()
            if kept[name].shape != lead + (TERMS,) * (2 if "K" in name else 1):
                raise ValueError(f"{name} has another shape")
            setattr(self, name, kept[name].astype(np.float64))
        self.index = {model: at for at, model in enumerate(models, 1)}

    def tell(self, pool: Ints, K: Floats, r: Floats) -> None:
        """Add what jobs (D,) have shown; what they had shown before is taken out by adding −K."""
        self.all_K += K.sum(axis=0)
        self.all_r += r.sum(axis=0)
        named = pool > 0
        np.add.at(self.K, pool[named], K[named])
        np.add.at(self.r, pool[named], r[named])

    def normal(self, theta: Floats) -> Floats:
        """Shapes (D, k) scaled so that a typical step takes 1."""
        return theta / self._size(theta)[:, None]

    def others(self, pool: Ints, K: Floats, r: Floats) -> tuple[Floats, Floats]:
        """The shape (D, k) that all other jobs suggest, and its covariance (D, k, k).

        From the first shape to the average job, to the model, to the job: each step adds what has
        been seen of others at that level, and doubt about how far the next may be off.
        """
        start = np.broadcast_to(self.start, r.shape)
        known = self.noise**2 + MODELS_DIFFER**2
        theta, doubt = self._learn_shape(
            start,
            self._leeway(start, ANY_SHAPE),
            (self.all_K - K) / known,
            (self.all_r - r) / known,
        )
        known, named = self.noise**2 + JOBS_DIFFER**2, pool > 0
        theta, doubt = self._learn_shape(
            theta,
            doubt + self._leeway(theta, MODELS_DIFFER),
            (self.K[pool] - K * named[:, None, None]) / known,
            (self.r[pool] - r * named[:, None]) / known,
        )
        return theta, doubt + self._leeway(theta, JOBS_DIFFER)

    def _learn_shape(
        self, mean: Floats, doubt: Floats, K: Floats, r: Floats
    ) -> tuple[Floats, Floats]:
        """Like `learn`, where K·θ = r leaves the scale of θ open: a typical step takes 1."""
        g = self._parts(mean).mean(axis=1)
        K, r = K + g[:, :, None] * g[:, None, :] / PINNED**2, r + g / PINNED**2
        theta, doubt = learn(mean, doubt, K, r, LEAST * self.start[0])
        size = self._size(theta)
        return theta / size[:, None], doubt / size[:, None, None] ** 2

    def _size(self, theta: Floats) -> Floats:
        """How long a typical step takes (D,): the geometric mean over typical sizes."""
        size: Floats = np.exp(np.log(theta @ self.typical.T).mean(axis=1))
        return size

    def _parts(self, theta: Floats) -> Floats:
        """By how much a unit of each term would lengthen each typical step (D, …, k)."""
        parts: Floats = self.typical / (theta @ self.typical.T)[:, :, None]
        return parts

    def _leeway(self, theta: Floats, by: float) -> Floats:
        """Covariance that lets each term change a typical step by the part `by` of it."""
        leeway: Floats = np.eye(TERMS) * ((by / self._parts(theta).mean(axis=1)) ** 2)[:, None, :]
        return leeway


def times(M: Floats, v: Floats) -> Floats:
    """Matrix times vector for each of D."""
    product: Floats = np.einsum("dij,dj->di", M, v)
    return product


def learn(
    mean: Floats, doubt: Floats, K: Floats, r: Floats, least: Floats | float
) -> tuple[Floats, Floats]:
    """θ ≥ 0, its first ≥ `least`, and its covariance after seeing that K·θ = r, for each of D."""
    precision = np.asarray(np.linalg.inv(doubt), np.float64)
    total = precision + K
    theta = nnls_normal(total, times(precision, mean) + r)
    theta[:, 0] = np.maximum(theta[:, 0], least)
    left = np.asarray(np.linalg.inv(total), np.float64)
    return theta, left


def shape(theta: Floats, G: Floats, h: Floats) -> tuple[Floats, Floats]:
    """What observations say about the shape of a curve near `theta`, whatever its scale.

    The scale is eliminated from the normal equations, so a single configuration says nothing.
    """
    Gt = times(G, theta)
    norm = (theta * Gt).sum(axis=1)
    scale = (theta * h).sum(axis=1) / norm
    K = G - Gt[:, :, None] * Gt[:, None, :] / norm[:, None, None]
    return scale[:, None, None] ** 2 * K, scale[:, None] * (h - scale[:, None] * Gt)
