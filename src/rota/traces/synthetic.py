"""Synthetic workloads: arrivals with a rhythm, gangs, heavy-tailed durations, users, models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from rota.errors import ConfigError
from rota.traces.columns import LARGEST_TIME_S
from rota.traces.distributions import Exponential, Lognormals, draw
from rota.traces.trace import Trace

if TYPE_CHECKING:
    from rota.core.types import Floats, Ints
    from rota.traces.distributions import Distribution

WEEK_S: Final = 7 * 86400.0


@dataclass(frozen=True)
class Rhythm:
    """How busy each hour of the day and each day of the week is, relative to the others."""

    hours: tuple[float, ...] = (1.0,) * 24
    days: tuple[float, ...] = (1.0,) * 7
    """The first is the day on which the trace begins."""

    def __post_init__(self) -> None:
        if len(self.hours) != 24 or len(self.days) != 7 or min(*self.hours, *self.days) <= 0:
            raise ConfigError("A rhythm has 24 hours and 7 days, all with a positive rate.")

    def _edges_s(self) -> Floats:
        """Even time at the beginning of each hour of a week, (169,)."""
        rate = np.outer(self.days, self.hours).ravel()
        edges: Floats = np.concatenate([[0.0], np.cumsum(rate / rate.sum())]) * WEEK_S
        return edges

    def to_clock(self, even_s: Floats) -> Floats:
        """Bend time in which jobs come evenly into clock time in which they follow the rhythm."""
        weeks: Floats = np.floor(even_s / WEEK_S)
        rest = even_s - weeks * WEEK_S
        clock_s: Floats = np.interp(rest, self._edges_s(), np.arange(169) * 3600.0)
        return weeks * WEEK_S + clock_s

    def to_even(self, clock_s: Floats) -> Floats:
        """Undo `to_clock`."""
        weeks: Floats = np.floor(clock_s / WEEK_S)
        rest = clock_s - weeks * WEEK_S
        even_s: Floats = np.interp(rest, np.arange(169) * 3600.0, self._edges_s())
        return weeks * WEEK_S + even_s


_EVEN: Final = Rhythm()
_ONE_A_MINUTE: Final = Exponential(60.0)
_TEN_MINUTES: Final = Lognormals((1.0,), (600.0,), (1.5,))


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Everything that `generate` needs to know."""

    name: str = "synthetic"
    jobs: int = 1000
    """Number of jobs."""
    total_gpus: int = 64
    """Size of the cluster that `load` refers to; larger gangs are not drawn."""
    load: float | None = None
    """GPU-seconds that arrive per GPU-second of the cluster; None leaves the gaps as they are."""
    offered: bool = False
    """Whether a job counts towards `load` for at most as long as jobs arrive; else in full. Where
    single jobs outlast the arrivals, work that is done after them makes no job wait."""
    users: int = 1
    """Number of users; the k-th submits in proportion to 1 / k."""
    gaps: Distribution = _ONE_A_MINUTE
    """Seconds between submissions, before the rhythm bends them."""
    rhythm: Rhythm = _EVEN
    sizes: tuple[tuple[int, float], ...] = ((1, 0.7), (2, 0.1), (4, 0.1), (8, 0.1))
    """Gang sizes in GPUs, each with its weight."""
    durations: tuple[tuple[float, Distribution], ...] = ((np.inf, _TEN_MINUTES),)
    """Laws of run time: each holds for gangs up to its first number, in rising order."""
    models: tuple[tuple[str, float], ...] = ()
    """Names of what is trained, each with its weight."""

    def __post_init__(self) -> None:
        _within("jobs", self.jobs, 1, 100_000_000)
        _within("total_gpus", self.total_gpus, 1, 10_000_000)
        _within("users", self.users, 1, 1_000_000)
        if self.load is not None:
            if not 0 < self.load <= 100:
                raise ConfigError(f"{self.name}: load={self.load:g} must lie in (0, 100].")
            if self.jobs < 2:
                raise ConfigError(f"{self.name}: load= needs at least two jobs, not {self.jobs}.")
        if not any(size <= self.total_gpus for size, _ in self.sizes):
            raise ConfigError(
                f"{self.name}: no gang is small enough for total_gpus={self.total_gpus}."
            )
        if not self.durations or self.durations[-1][0] < max(size for size, _ in self.sizes):
            raise ConfigError(f"{self.name}: durations must cover the largest gang.")


def generate(workload: Workload, rng: np.random.Generator) -> Trace:
    """Draw a trace. With a `load`, gaps are stretched until the trace has exactly that load."""
    gpus = _sizes(workload, rng)
    duration_s = _durations(workload, gpus, rng)
    submit_s = _arrivals(workload, gpus, duration_s, rng)
    user = draw(rng, tuple(1 / np.arange(1, workload.users + 1)), workload.jobs)
    model = np.full(workload.jobs, -1)
    if workload.models:
        model = draw(rng, tuple(weight for _, weight in workload.models), workload.jobs)
    return Trace.build(
        workload.name,
        submit_s=submit_s,
        duration_s=duration_s,
        num_gpus=gpus,
        user=user,
        users=[f"user{number}" for number in range(workload.users)],
        model=model,
        models=[name for name, _ in workload.models],
    )


def _sizes(workload: Workload, rng: np.random.Generator) -> Ints:
    fitting = [(size, weight) for size, weight in workload.sizes if size <= workload.total_gpus]
    picked = draw(rng, tuple(weight for _, weight in fitting), workload.jobs)
    sizes: Ints = np.array([size for size, _ in fitting], np.int64)
    return sizes[picked]


def _durations(workload: Workload, gpus: Ints, rng: np.random.Generator) -> Floats:
    duration_s = np.zeros(gpus.size)
    law = np.searchsorted([largest for largest, _ in workload.durations], gpus)
    for index, (_, distribution) in enumerate(workload.durations):
        mine = law == index
        duration_s[mine] = distribution.sample(rng, int(mine.sum()))
    return np.maximum(np.rint(duration_s), 1.0)  # whole seconds, as logs have them


def _arrivals(
    workload: Workload, gpus: Ints, duration_s: Floats, rng: np.random.Generator
) -> Floats:
    """Whole seconds from 0 on."""
    even_s = np.cumsum(workload.gaps.sample(rng, workload.jobs))
    even_s -= even_s[0]
    if workload.load is not None:
        wanted = workload.total_gpus * workload.load
        span_s = float(gpus @ duration_s) / wanted
        if workload.offered:
            span_s = _offering_span(gpus, duration_s, wanted)
        if not span_s < LARGEST_TIME_S:
            raise ConfigError(
                f"{workload.name}: load={workload.load:g} is too low: {workload.jobs:,} jobs would "
                f"arrive over {span_s:.3g} s, at most {LARGEST_TIME_S:g} s are possible."
            )
        if even_s[-1] == 0:  # a few jobs, all in one second: nothing to stretch
            even_s = np.arange(workload.jobs, dtype=np.float64)
        even_s *= workload.rhythm.to_even(np.array([span_s]))[0] / even_s[-1]
    return np.floor(workload.rhythm.to_clock(even_s))


def _offering_span(gpus: Ints, duration_s: Floats, wanted: float) -> float:
    """Seconds over which jobs must arrive so that `wanted` GPUs are asked for on average.

    A job asks for its GPUs for at most that time. If all jobs at once ask for fewer than `wanted`,
    all their work counts.
    """
    order = np.argsort(duration_s, kind="stable")
    length_s = duration_s[order]
    work_s = np.append(0.0, np.cumsum(gpus[order] * length_s))  # of those who end in time
    longer = gpus.sum() - np.append(0, np.cumsum(gpus[order]))  # GPUs of the others
    if not 0 < wanted < longer[0]:
        return float(work_s[-1] / wanted)
    for k in range(len(order), 0, -1):
        if longer[k] < wanted:
            span_s = float(work_s[k] / (wanted - longer[k]))
            if span_s >= length_s[k - 1]:
                return span_s
    return float(length_s[0])


def _within(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ConfigError(f"{name}={value} must lie between {least} and {most:,}.")
