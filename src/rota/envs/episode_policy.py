"""Policies that decide for the clusters of a batch as they would under `rota.sim.simulate`."""

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


class EpisodePolicy:
    """A policy that decides for one cluster during one episode, and what it may know there.

    Most policies are shown what the lens is shown. Others (an oracle, one with estimation errors
    of its own) are shown their own estimates.
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
        """The snapshot with these estimates in place of the state's; the state is not changed."""
        jobs, truth = env.state.jobs[b, : estimate_s.size], env.state.truth[b, : estimate_s.size]
        columns = jobs["estimate_s"], jobs["remaining_s"]
        kept = [column.copy() for column in columns]
        # Where durations are known this is exactly the remaining work.
        left_s = truth["work_s"] + (estimate_s - self._duration_s)
        try:
            columns[0][:], columns[1][:] = estimate_s, np.where(left_s < 0.0, 0.0, left_s)
            return env.snapshot(b)
        finally:
            for column, before in zip(columns, kept, strict=True):
                column[:] = before


class EpisodePolicies:
    """A separate policy for each cluster and episode of a batch, since policies may keep state."""

    def __init__(self, env: BatchEnv, make: Callable[[], Policy]) -> None:
        self._env, self._make = env, make
        self._policies: dict[int, tuple[int, EpisodePolicy]] = {}

    def at(self, b: int) -> EpisodePolicy:
        """The policy of cluster b in its present episode."""
        episode = int(self._env.plan.begun[b])
        if b not in self._policies or self._policies[b][0] != episode:
            self._policies[b] = episode, EpisodePolicy(self._make(), *self._env.world(b))
        return self._policies[b][1]

    def decide(self, b: int) -> tuple[Snapshot, Decision]:
        """What the policy of cluster b is shown now, and what it decides."""
        own = self.at(b)
        snapshot = own.look(self._env, b)
        return snapshot, own.policy.decide(snapshot)
