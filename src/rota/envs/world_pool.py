"""Worlds to play in: simulations that have not begun, from which episodes are copied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.errors import ConfigError, InputError
from rota.policies.contention.neighbours import PlacementModel
from rota.sim.setup import build_state, check_fits
from rota.sim.simulator import fitting
from rota.sim.state import State
from rota.sim.world import seen_contention, seen_curves

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rota.core.cluster import Cluster
    from rota.core.types import Ints
    from rota.perf.physics import Physics
    from rota.policies.contention.spread_kernels import PlacementTables
    from rota.scenarios import Scenario
    from rota.scenarios.scenario import World

PARTS = ("jobs", "truth", "clock", "nodes", "level")
"""The parts of a state that a new episode overwrites; the rest is derived from them or scratch."""


@dataclass(frozen=True)
class WorldPool:
    """R simulations of one cluster under one set of speed laws, none of them begun."""

    state: State  # a batch of R
    cluster: Cluster
    physics: Physics
    seeds: Ints  # (R,)
    slot_s: float
    worlds: tuple[World, ...]
    """The worlds that are simulated."""

    @classmethod
    def draw(
        cls, scenario: Scenario, seeds: Sequence[int], *, data: Path | None = None
    ) -> WorldPool:
        """The worlds of these seeds."""
        if not len(seeds):
            raise InputError("A pool of worlds needs at least one seed.")
        return cls.of([scenario.draw(int(seed), data) for seed in seeds], seeds)

    @classmethod
    def of(cls, worlds: Sequence[World], seeds: Sequence[int]) -> WorldPool:
        """The given worlds, which may differ in their traces only."""
        first = worlds[0]
        if any(w.when != first.when or len(w.cluster) != len(first.cluster) for w in worlds):
            raise ConfigError(
                "The worlds of a pool differ in more than their traces; draw all of them from one "
                "scenario."
            )
        state = build_state(
            first.cluster, [w.trace for w in worlds], first.when, list(seeds), 0, first.physics
        )
        for world, rows in zip(worlds, state.jobs, strict=True):
            if len(world.trace) == 0:
                raise InputError(
                    f"{world.trace.name}: The trace has no jobs, so there is nothing to play; "
                    "leave it out."
                )
            jobs = rows[: len(world.trace)]
            check_fits(world.cluster, world.trace, jobs, fitting(world.cluster, jobs))
        numbers = np.asarray(seeds, np.int64)
        return cls(state, first.cluster, first.physics, numbers, first.when.slot_s, tuple(worlds))

    def __len__(self) -> int:
        return len(self.seeds)

    @property
    def jobs(self) -> int:
        """The number of jobs of the longest trace."""
        return int(self.state.jobs.shape[1])

    def new_state(self, batch: int) -> State:
        """Memory for a batch of episodes, none of them begun."""
        s = self.state
        arrays = [_empty(part, batch) for part in s[:-3]]
        net, breakdowns = s.net, s.breakdowns
        if breakdowns is not None:
            breakdowns = breakdowns._make(_empty(part, batch) for part in breakdowns)
        if net is not None:
            t = net.traffic
            traffic = t._make([t.laws, *(_empty(part, batch) for part in t[1:])])
            net = net._make([traffic, *(_empty(part, batch) for part in net[1:])])
        return State._make([*arrays, s.speed, breakdowns, net])


def shown_laws(pool: WorldPool, where: str = "The pool") -> PlacementTables:
    """Speed and contention as policies are shown them in every world of a pool."""
    physics, cluster = pool.physics, pool.cluster
    if physics.sight not in ("true", "hidden"):
        raise ConfigError(
            f"{where}: Speeds are {physics.sight}, so every world shows others; a system that "
            'places learns where they are "true" or "hidden".'
        )
    curves = seen_curves(physics, cluster, 0)
    return PlacementModel(cluster, curves, seen_contention(physics)).tables


def _empty(part: Any, batch: int) -> Any:
    return np.zeros((batch, *part.shape[1:]), part.dtype)


def words_of(state: State) -> tuple[Any, ...]:
    """The same memory as plain numbers: a tuple of (B, words) arrays."""
    arrays = [*(getattr(state, name) for name in PARTS), *(state.breakdowns or ())]
    if state.net is not None:
        t = state.net.traffic
        arrays += [t.many, t.kind, t.rate, t.load, t.left, t.busy, state.net.machine_speed]
    # Words of eight bytes; records are padded to that.
    return tuple(array.reshape(len(array), -1).view(np.int64) for array in arrays if array.size)
