"""How fast jobs really are, and what policies get to see of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from rota.errors import ConfigError

if TYPE_CHECKING:
    from rota.core.learning import LearningCurves
    from rota.core.speed import Contention, Curves

Sight: TypeAlias = Literal["true", "noisy", "observed", "hidden"]
HOUR_S: Final = 3600.0
SIGHTS: Final = ("true", "noisy", "observed", "hidden")


@dataclass(frozen=True)
class Drift:
    """Machines whose speed ξ changes over time: log ξ is AR(1) with standard deviation `sd`."""

    sd: float
    step_s: float = 300.0
    correlation: float = 0.9
    """Between two steps."""

    def __post_init__(self) -> None:
        if not (0 <= self.sd < 10 and 0 < self.step_s < float("inf")):
            raise ConfigError(
                f"Drift with sd={self.sd} and step_s={self.step_s}: the first must lie in 0 … 10, "
                "the second must be positive."
            )
        if not 0 <= self.correlation < 1:
            raise ConfigError(f"correlation={self.correlation} must lie in 0 … 1.")


@dataclass(frozen=True)
class Billing:
    """What running costs its user, from the prices of the nodes."""

    whole_nodes: bool = False
    """Whether a job pays for every GPU of a node it touches, or for those it holds."""
    grain_s: float = 1.0
    """Each stint is rounded up to a multiple of this."""

    def __post_init__(self) -> None:
        if not 0 < self.grain_s < float("inf"):
            raise ConfigError(f"grain_s={self.grain_s} must be a positive number of seconds.")


@dataclass(frozen=True)
class Physics:
    """The laws of one simulated world; without any, a trace's own durations hold."""

    curves: Curves | None = None
    """Speeds of the models a trace names; jobs of other models keep to `scaling`."""
    sight: Sight = "true"
    """What policies see of `curves`: the truth, the truth with noise, an estimate made from
    observed speeds, or nothing but the pace of each job."""
    sight_error: float = 0.0
    """Standard deviation of the log error of each point of a noisy curve."""
    scaling: float = 1.0
    """A job without a curve runs at (workers / requested)^scaling."""
    contention: Contention | None = None
    drift: Drift | None = None
    billing: Billing = Billing()
    learning: LearningCurves | None = None
    """Accuracies of the models a trace names, and what it costs to let their networks grow."""

    def __post_init__(self) -> None:
        if self.sight not in SIGHTS:
            raise ConfigError(f"sight={self.sight!r} must be one of {', '.join(SIGHTS)}.")
        if not 0 <= self.scaling < 10 or not 0 <= self.sight_error < 10:
            raise ConfigError(
                f"scaling={self.scaling} and sight_error={self.sight_error} must lie in 0 … 10."
            )
