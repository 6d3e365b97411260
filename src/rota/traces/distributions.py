"""Laws that durations and gaps are drawn from, each a frozen set of coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from rota.errors import ConfigError

if TYPE_CHECKING:
    from rota.core.types import Floats, Ints


class Distribution(Protocol):
    """A law of positive amounts, such as seconds."""

    def sample(self, rng: np.random.Generator, count: int) -> Floats:
        """Draw `count` independent values."""
        ...


@dataclass(frozen=True)
class Exponential:
    """Gaps of a Poisson process."""

    mean: float

    def __post_init__(self) -> None:
        _positive("mean", self.mean)

    def sample(self, rng: np.random.Generator, count: int) -> Floats:
        return rng.exponential(self.mean, count)


@dataclass(frozen=True)
class Bursts:
    """Gaps of jobs that come in bursts of geometric size, `within` a burst and `between` them."""

    jobs: float
    """Mean number of jobs in a burst."""
    within: float
    between: float

    def __post_init__(self) -> None:
        _positive("within", self.within)
        _positive("between", self.between)
        if not self.jobs >= 1:
            raise ConfigError(f"A burst holds at least one job on average, not {self.jobs}.")

    def sample(self, rng: np.random.Generator, count: int) -> Floats:
        opens = rng.random(count) < 1 / self.jobs
        return rng.exponential(1.0, count) * np.where(opens, self.between, self.within)


@dataclass(frozen=True)
class Lognormals:
    """A mixture of lognormals, the usual shape of run times, perhaps cut off at `cap`."""

    weights: tuple[float, ...]
    medians: tuple[float, ...]
    sigmas: tuple[float, ...]
    cap: float = np.inf

    def __post_init__(self) -> None:
        if not len(self.weights) == len(self.medians) == len(self.sigmas) > 0:
            raise ConfigError("Lognormals needs one weight, one median and one sigma per part.")
        for part in (*self.weights, *self.medians, *self.sigmas, self.cap):
            _positive("every coefficient of Lognormals", part)

    def sample(self, rng: np.random.Generator, count: int) -> Floats:
        part = draw(rng, self.weights, count)
        spread = np.array(self.sigmas)[part] * rng.standard_normal(count)
        values: Floats = np.minimum(np.array(self.medians)[part] * np.exp(spread), self.cap)
        return values


GRID: Final = (
    *(0.0, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5),
    *(
        0.55,
        0.6,
        0.65,
        0.7,
        0.75,
        0.8,
        0.85,
        0.9,
        0.925,
        0.95,
        0.965,
        0.98,
        0.99,
        0.995,
        0.999,
        1.0,
    ),
)
"""Where calibrated laws are tabulated: denser towards the ends, where the tails matter."""


@dataclass(frozen=True)
class Quantiles:
    """A law given by its quantiles at `GRID`, with straight lines in log(1 + x) between them."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.values) != len(GRID) or any(np.diff(self.values) < 0) or self.values[0] < 0:
            raise ConfigError(f"Quantiles needs {len(GRID)} values, none falling or negative.")

    def sample(self, rng: np.random.Generator, count: int) -> Floats:
        return np.expm1(np.interp(rng.random(count), GRID, np.log1p(self.values)))


def draw(rng: np.random.Generator, weights: tuple[float, ...], count: int) -> Ints:
    """Draw indices with the given weights, which need not sum to one."""
    edges = np.cumsum(weights)
    picked: Ints = np.searchsorted(edges, rng.random(count) * edges[-1], side="right")
    return picked


def _positive(name: str, value: float) -> None:
    if not value > 0:
        raise ConfigError(f"{name} must be positive, not {value}.")
