"""DeepShare's workload (Ryu and Eo, 2023): gangs of six distributed models, about an hour each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from rota.errors import ConfigError
from rota.traces.trace import Trace

if TYPE_CHECKING:
    from rota.core.types import Floats

MODELS: Final = ("MobileNetV3", "GraphSage", "FSDP", "Transformer-XL", "DLRM", "MoE")
SIZES: Final = (2, 4, 8, 16, 32, 64)
"""GPUs of gangs; those of the original end at 8."""
SPANS: Final = {2: (2,), 4: (2, 4), 8: (2, 4), 16: (2, 4), 32: (4, 8), 64: (8, 16)}
"""Nodes over which a gang of each size is spread evenly."""
NOMINAL_S: Final = 3600.0
"""Run time of every job at its mean speed over SPANS."""
MIXES: Final = {
    "equal": (1.0,) * 6,
    "heavy": (0.125, 0.125, 0.25, 0.125, 0.125, 0.25),
    "medium": (0.125, 0.125, 0.125, 0.25, 0.25, 0.125),
    "low": (0.25, 0.25, 0.125, 0.125, 0.125, 0.125),
}
"""How often each model comes; `random` draws shares anew for every trace."""
_SHARES: Final = 100


@dataclass(frozen=True, kw_only=True)
class GangWorkload:
    """What to draw."""

    jobs: int = 256
    gpus: int = 32
    """Size of the cluster that `load` refers to."""
    load: float | None = None
    """Nominal GPU-seconds that arrive per GPU-second; None: all jobs are there at time 0."""
    mix: str = "random"
    largest_gang: int = 8

    def __post_init__(self) -> None:
        if self.largest_gang not in SIZES:
            raise ConfigError(
                f"largest_gang={self.largest_gang} must be one of {', '.join(map(str, SIZES))}."
            )


def gangs(
    plan: GangWorkload, speed: Floats, rng: np.random.Generator, name: str = "deepshare"
) -> Trace:
    """Draw a trace; `speed` (6, A, W) is in samples per second over a nodes with w workers."""
    known = np.array(SIZES[: SIZES.index(plan.largest_gang) + 1])
    if plan.gpus < plan.largest_gang:
        raise ConfigError(
            f"{name}: jobs of {plan.largest_gang} GPUs do not fit a cluster of {plan.gpus}."
        )
    shares = _shares(len(MODELS), rng) if plan.mix == "random" else np.array(MIXES[plan.mix])
    model = rng.choice(len(MODELS), plan.jobs, p=shares / shares.sum())
    sizes = known[rng.choice(len(known), plan.jobs, p=_shares(len(known), rng))]
    samples, fastest = np.zeros(plan.jobs), np.zeros(plan.jobs)
    for job, (m, gpus) in enumerate(zip(model, sizes.tolist(), strict=True)):
        over = [speed[m, span, gpus] for span in SPANS[gpus]]
        samples[job], fastest[job] = NOMINAL_S * np.mean(over), max(over)
    submit_s = np.zeros(plan.jobs)
    if plan.load is not None:
        gap_s = NOMINAL_S * sizes.sum() / plan.jobs / (plan.gpus * plan.load)
        submit_s = np.cumsum(rng.exponential(gap_s, plan.jobs))
    return Trace.build(
        name,
        submit_s=submit_s - submit_s[0],
        duration_s=samples / fastest,
        samples=samples,
        num_gpus=sizes,
        model=model,
        models=MODELS,
    )


def _shares(parts: int, rng: np.random.Generator) -> Floats:
    """Shares of a trace, in whole percent."""
    shares: Floats = rng.multinomial(_SHARES, np.full(parts, 1 / parts)) / _SHARES
    return shares
