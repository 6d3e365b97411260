"""What larger batches are worth: statistical efficiency from the noise of gradients.

A sample in a batch of M teaches (φ + M0) / (φ + M) of what it does in the model's own batch M0,
where φ = M0 · variance / squared norm of the gradient (McCandlish et al., 2018). φ grows by orders
of magnitude during training, so it is kept for each tenth of the way. Over a whole job, samples per
unit of progress add up: its efficiency is the harmonic mean of the tenths'.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from rota.perf.shipped import chosen, shipped

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from rota.core.types import Floats
    from rota.perf.profile_file import Profile

TENTHS: Final = 10


def fit_noise(runs: Profile) -> Floats:
    """φ in each tenth of training, from the runs of one application at all batch sizes, (10,).

    An epoch counts in every tenth it touches; the median in logarithms disregards the few epochs
    whose estimate has no sign.
    """
    own = int(runs["batch_size"].min())
    seen: list[list[float]] = [[] for _ in range(TENTHS)]
    for batch in np.unique(runs["batch_size"]):
        run = runs.of(batch_size=int(batch))
        until = run["progress"] / run["progress"][-1]
        since = np.append(0.0, until[:-1])
        sound = (run["grad_sqr"] > 0) & (run["grad_var"] > 0)
        noise = own * run["grad_var"] / np.where(sound, run["grad_sqr"], 1.0)
        for k in range(TENTHS):
            within = sound & (until > k / TENTHS + 1e-9) & (since < (k + 1) / TENTHS - 1e-9)
            seen[k].extend(noise[within].tolist())
    return np.array([np.exp(np.median(np.log(values))) for values in seen])


def whole_job(noise: Floats, own: float, batch: ArrayLike) -> Floats:
    """Efficiency of a batch size over all of training."""
    M = np.asarray(batch, np.float64)[..., None]
    return np.asarray(1 / ((noise + M) / (noise + own)).mean(axis=-1))


def efficiency(name: str, batch: ArrayLike, tenth: int | None = None) -> Floats:
    """Worth of a sample in a batch of this size, over the whole job or in one tenth of it."""
    (name,) = chosen("model with measured gradient noise", [name], shipped("goodput"))
    given = shipped("goodput")[name]
    noise = np.array(given["noise"])
    return whole_job(noise if tenth is None else noise[[tenth]], given["batch"], batch)


def max_batch(name: str) -> float:
    """The largest batch with which the model was seen to learn."""
    return float(shipped("goodput")[name]["largest"])


def total_samples(name: str) -> float:
    """Samples of the model's own batch that its whole training takes."""
    return float(shipped("goodput")[name]["samples"])
