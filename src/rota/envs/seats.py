"""Policies at the clusters of a batch: each decides as it would under `rota.sim.simulate`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rota.sim.briefing import briefed
from rota.sim.setup import job_records, noise_of
from rota.sim.simulator import estimator_of
from rota.sim.world import seen_contention, seen_curves

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.core.decision import Decision
    from rota.core.seams import Policy
    from rota.core.snapshot import Snapshot
    from rota.core.types import Floats
    from rota.envs.vector import BatchEnv
    from rota.scenarios.scenario import World


class Seat:
    """A policy at one cluster for one episode, and what it may know there.

    Where that is the world as the lens sees it, nothing differs. Else (an oracle, errors of its
    own) it is shown its own estimates.
    """

    def __init__(self, policy: Policy, world: World, seed: int) -> None:
        self.policy, when, physics = briefed(policy, world.when, world.physics, world.trace)
        self._curves = seen_curves(physics, world.cluster, seed)
        self._contention = seen_contention(physics)
        self._estimator = estimator_of(physics)
        self._estimate_s: Floats | None = None
        self._duration_s = world.trace.duration_s
        if when != world.when:
            rows = job_records(world.trace, world.cluster, when, noise_of(seed))
            self._estimate_s = rows["estimate_s"].copy()

    def look(self, env: BatchEnv, b: int) -> Snapshot:
        """The snapshot of cluster b, once per round: an estimator learns from every one."""
        if self._estimate_s is None:
            snapshot = env.snapshot(b)
        else:
            snapshot = self._with_own_estimates(env, b, self._estimate_s)
        snapshot = replace(snapshot, curves=self._curves, contention=self._contention)
        return snapshot if self._estimator is None else self._estimator.see(snapshot)

    def _with_own_estimates(self, env: BatchEnv, b: int, estimate_s: Floats) -> Snapshot:
        """The snapshot as if these had been told from the first; the state is left as it was."""
        jobs, truth = env.state.jobs[b, : estimate_s.size], env.state.truth[b, : estimate_s.size]
        columns = jobs["estimate_s"], jobs["remaining_s"]
        kept = [column.copy() for column in columns]
        # Exactly what is left, where durations are known.
        left_s = truth["work_s"] + (estimate_s - self._duration_s)
        try:
            columns[0][:], columns[1][:] = estimate_s, np.where(left_s < 0.0, 0.0, left_s)
            return env.snapshot(b)
        finally:
            for column, before in zip(columns, kept, strict=True):
                column[:] = before


class Seats:
    """One policy of its own for every cluster and episode of a batch: policies may remember."""

    def __init__(self, env: BatchEnv, make: Callable[[], Policy]) -> None:
        self._env, self._make = env, make
        self._seats: dict[int, tuple[int, Seat]] = {}

    def at(self, b: int) -> Seat:
        """Who sits at cluster b in its present episode."""
        episode = int(self._env.deal.next[b])
        if b not in self._seats or self._seats[b][0] != episode:
            self._seats[b] = episode, Seat(self._make(), *self._env.world(b))
        return self._seats[b][1]

    def decide(self, b: int) -> tuple[Snapshot, Decision]:
        """What the policy sees of cluster b now, and what it decides."""
        seat = self.at(b)
        snapshot = seat.look(self._env, b)
        return snapshot, seat.policy.decide(snapshot)
