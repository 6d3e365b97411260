"""Elastic trainings with deadlines, many by day and few by night."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from rota.errors import ConfigError
from rota.traces.distributions import Lognormals
from rota.traces.synthetic import Rhythm, Workload, generate
from rota.traces.trace import Trace

if TYPE_CHECKING:
    from rota.core.types import Floats

MODELS: Final = ("cifar10", "imagenet", "bert", "deepspeech2")
"""Names as in Pollux's profiles, all drawn alike."""
_SIZES: Final = ((1, 0.6), (2, 0.4))
"""GPUs that a job asks for, each with its weight."""


@dataclass(frozen=True, kw_only=True)
class Days:
    """What a stream of such jobs is like."""

    jobs: int
    load: float = 0.6
    """GPU-seconds asked for per GPU-second of the cluster, over the time in which jobs come."""
    night: float = 0.15
    """Arrivals in an hour of the night (20 to 8 o'clock), as part of those by day."""
    median_min: float = 30.0
    """Of the run times at the size asked for, which are lognormal."""
    sigma: float = 1.8
    longest_min: float = 2880.0
    least_slack: float = 1.2
    """A deadline is so many run times after submission at least,"""
    most_slack: float = 6.0
    """and so many at most; the logarithm is drawn evenly in between."""
    max_workers: int = 4
    """Workers that each job can use."""

    def __post_init__(self) -> None:
        if not self.least_slack <= self.most_slack:
            raise ConfigError(
                f"least_slack = {self.least_slack:g} must not be above most_slack = "
                f"{self.most_slack:g}: they are the ends of a range."
            )
        if self.max_workers < max(size for size, _ in _SIZES):
            raise ConfigError(
                f"max_workers = {self.max_workers} is below the "
                f"{max(size for size, _ in _SIZES)} GPUs that some jobs ask for; give more."
            )


def elastic_days(plan: Days, gpus: int, rng: np.random.Generator, name: str = "daily") -> Trace:
    """Draw jobs for a cluster of so many GPUs; the first comes at midnight."""
    hours = (*(plan.night,) * 8, *(1.0,) * 12, *(plan.night,) * 4)
    drawn = generate(
        Workload(
            name=name, jobs=plan.jobs, total_gpus=gpus, load=plan.load, offered=True,
            rhythm=Rhythm(hours=hours), sizes=_SIZES,
            durations=((np.inf, _lengths(plan)),), models=tuple((model, 1.0) for model in MODELS),
        ),
        rng,
    )  # fmt: skip
    low, high = np.log([plan.least_slack, plan.most_slack]).tolist()
    slack: Floats = np.exp(rng.uniform(low, high, len(drawn)))
    return Trace.build(
        name, submit_s=drawn.submit_s, duration_s=drawn.duration_s, num_gpus=drawn.num_gpus,
        min_workers=np.ones(len(drawn)), max_workers=np.full(len(drawn), plan.max_workers),
        deadline_s=drawn.submit_s + slack * drawn.duration_s, model=drawn.model, models=MODELS,
    )  # fmt: skip


def _lengths(plan: Days) -> Lognormals:
    return Lognormals((1.0,), (60 * plan.median_min,), (max(plan.sigma, 1e-9),),
                      cap=60 * plan.longest_min)  # fmt: skip
