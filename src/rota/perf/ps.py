"""Speed of a job with parameter servers: compute, push and pull, overheads.

All workers together handle one batch of fixed size per step, so a step of w workers and p servers
takes

    T(p, w) = sample·batch/w + fixed + shared·w/p + sent/p + worker·w + server·p

seconds. Of these, `shared·w/p` is w workers pushing to and pulling from p links, `sent/p` what a
server does with its part of the gradients, and the last two are barriers and
bookkeeping. Without `sent` it is the form of Optimus (Peng et al., 2018).
Every coefficient is 0 or more, so T is convex along either axis: compute only falls with workers,
traffic only falls with servers, and speed has one peak.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from rota.core.speed import Curves
from rota.perf.least_squares import robust_nnls
from rota.perf.shipped import chosen, shipped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from rota.core.types import Floats


@dataclass(frozen=True)
class PsModel:
    """Seconds that each part of a step takes."""

    batch: float
    sample: float
    fixed: float
    shared: float
    sent: float
    worker: float
    server: float

    def step_s(self, servers: ArrayLike, workers: ArrayLike) -> Floats:
        """Seconds per step; both arguments are 1 or more and broadcast."""
        theta = [self.sample, self.fixed, self.shared, self.sent, self.worker, self.server]
        return np.asarray(features(servers, workers, self.batch) @ np.array(theta))

    def speed(self, servers: ArrayLike, workers: ArrayLike) -> Floats:
        """Samples per second, 0 without a server or without a worker."""
        p, w = np.asarray(servers, np.float64), np.asarray(workers, np.float64)
        some = (p >= 1) & (w >= 1)
        return np.where(some, self.batch / self.step_s(np.maximum(p, 1), np.maximum(w, 1)), 0.0)


def features(servers: ArrayLike, workers: ArrayLike, batch: float) -> Floats:
    """What each coefficient is multiplied with; shape (…, 6)."""
    p, w = np.broadcast_arrays(np.asarray(servers, np.float64), np.asarray(workers, np.float64))
    return np.stack([batch / w, np.ones_like(p), w / p, 1 / p, w, p], axis=-1)


def fit_ps(servers: ArrayLike, workers: ArrayLike, speed: Floats, batch: float) -> PsModel:
    """Fit by non-negative least squares on the relative error of the step time.

    A few measured runs are far off their neighbours; they are weighed down, not removed.
    """
    relative = features(servers, workers, batch) * (speed / batch)[:, None]
    theta = robust_nnls(relative, np.ones(len(speed)))
    return PsModel(batch, *(float(value) for value in theta))


def ps_model(name: str) -> PsModel:
    """The shipped model of one of DL2's eight jobs."""
    (name,) = chosen("parameter-server model", [name], shipped("ps"))
    given = shipped("ps")[name]
    return PsModel(**{key: given[key] for key in given if key != "measured"})


def ps_curves(
    models: Sequence[str] | None = None, max_servers: int = 16, max_workers: int = 16
) -> Curves:
    """Speed by servers and workers, from shipped coefficients."""
    names = chosen("parameter-server model", models, shipped("ps"))
    p, w = np.arange(max_servers + 1)[:, None], np.arange(max_workers + 1)[None, :]
    speed = np.stack([ps_model(name).speed(p, w) for name in names])
    measured = np.array([shipped("ps")[name]["measured"] for name in names], np.int64)
    return Curves(names, ("gpu",), speed[:, None], by_nodes=False, measured=measured)


def ps_record(model: PsModel, measured: tuple[int, int]) -> dict[str, object]:
    """What `make fit` ships of a model."""
    return {**asdict(model), "measured": list(measured)}
