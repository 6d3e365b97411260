"""What is known, or believed, of speed: tables that a snapshot carries and kernels read.

The models behind the tables live in `rota.perf`; here is only their common form, so that a
measured table, a fitted formula and an online estimate look the same to all other rooms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from rota.core.types import Floats, Ints
from rota.errors import ConfigError


@dataclass(frozen=True)
class Curves:
    """Speed of each kind of job by what it holds, alone on its nodes."""

    names: tuple[str, ...]  # (C,) the models; JOB.curve points here
    gpu_types: tuple[str, ...]  # (T,)
    speed: Floats  # (C, T, A, W) work per second on type t with a servers, or over a nodes
    by_nodes: bool
    """Whether the third axis counts the nodes a job spans, or else its parameter servers."""
    measured: Ints  # (C, 2) largest (a, w) that was measured; beyond it the table extrapolates

    def __post_init__(self) -> None:
        C, T = len(self.names), len(self.gpu_types)
        if self.speed.shape[:2] != (C, T) or self.speed.ndim != 4:
            raise ConfigError(
                f"A speed table for {C} models on {T} GPU types has shape {self.speed.shape}."
            )
        if 0 in self.speed.shape[2:] or self.measured.shape != (C, 2):
            raise ConfigError(
                f"A speed table needs a place for at least (0, 0), and measured sizes of shape "
                f"({C}, 2); got {self.speed.shape} and {self.measured.shape}."
            )
        bad = np.argwhere(~((self.speed >= 0) & (self.speed < np.inf)))
        if len(bad):
            c, t, a, w = (int(i) for i in bad[0])
            raise ConfigError(
                f"Speed of {self.names[c]!r} on {self.gpu_types[t]!r} at ({a}, {w}) is "
                f"{self.speed[c, t, a, w]}; it must be a number of 0 or more."
            )

    def index(self, model: str) -> int:
        """Which curve is that of `model`; −1 if none is."""
        return self.names.index(model) if model in self.names else -1

    def on(self, gpu_types: tuple[str, ...]) -> Curves:
        """The same curves with the types in another order, as a cluster lists them."""
        missing = [name for name in gpu_types if name not in self.gpu_types]
        if missing:
            raise ConfigError(
                f"There are no speeds for GPU type {missing[0]!r}; "
                f"known are {', '.join(self.gpu_types)}."
            )
        rows = [self.gpu_types.index(name) for name in gpu_types]
        speed = np.ascontiguousarray(self.speed[:, rows])
        return Curves(self.names, gpu_types, speed, self.by_nodes, self.measured)


PAIRS: Final = 0
"""Measured: the worst co-runner on the worst node."""
RANKS: Final = 1
"""Sensitivity × intensity, every co-runner counts: the product of 1 − hurt × harm."""
LINKS: Final = 2
"""Max-min fair shares of NICs, rack uplinks and spine."""
MACHINES: Final = 3
"""Like RANKS, but between all jobs on a machine, weighed by the share of it that they hold."""


class Contention(NamedTuple):
    """How jobs slow each other down; arrays only, so that kernels can take it."""

    mode: int
    kind: Ints  # (C+1, A, W) kind of traffic of a curve over a nodes with w workers; last: no curve
    ratio: Floats  # (K, K) speed of the row's kind beside the column's; (0, 0) unless PAIRS
    hurt: Floats  # (K,) how much it suffers
    harm: Floats  # (K,) how much others suffer from it
    floor: float  # no job falls below this part of its speed
    traffic_gbps: Floats  # (K,) what a job of the kind wants of each link, for LINKS
    talk: Floats  # (K,) part of a step that is communication when alone, for LINKS
    link_gbps: Floats  # (N,) NICs
    uplink_gbps: Floats  # (racks,)
    spine_gbps: float


def no_contention(curves: Curves | None = None) -> Contention:
    """Laws by which no job slows another one down."""
    none, rows = np.zeros(0), 1 if curves is None else len(curves.names) + 1
    return Contention(
        PAIRS, np.full((rows, 1, 1), -1, np.int64), np.zeros((0, 0)), none, none, 0.0, none, none,
        none, none, np.inf,
    )  # fmt: skip
