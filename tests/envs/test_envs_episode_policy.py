"""Policies at the clusters of a batch are those that `simulate` runs, to the last bit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rota.core.layout import SHARE
from rota.envs import BatchEnv, WorldPool
from rota.envs.episode_policy import EpisodePolicies
from rota.policies import make_policy
from rota.scenarios import load
from rota.sim import simulate
from rota.sim.event_kernels import advance_once
from rota.sim.replay_kernels import carry_out
from rota.sim.state import one_of_batch
from rota.systems.dl2.onepass import OnePass

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.core.decision import Decision
    from rota.core.seams import Policy
    from rota.core.snapshot import Snapshot
    from rota.scenarios.scenario import World

SEEDS = [3, 4]


def worlds_of(name: str, jobs: int, **when: Any) -> list[World]:
    scenario = load(name, [f"workload.jobs={jobs}"])
    found = [scenario.draw(seed) for seed in SEEDS]
    return [replace(world, when=replace(world.when, **when)) for world in found]


def played(worlds: list[World], make: Callable[[], Policy]) -> list[Any]:
    """When jobs begin and end if the policies decide, their clusters one round each in turn."""
    env = BatchEnv(WorldPool.of(worlds, SEEDS), OnePass(), batch=len(worlds))
    env.reset()
    policies, live = EpisodePolicies(env, make), list(range(len(worlds)))
    while live:
        for b in tuple(live):
            s = one_of_batch(env.state, b)
            snapshot, decision = policies.decide(b)
            decision.check(snapshot)
            apply(s, decision, snapshot)
            s.clock[0]["wake_s"] = decision.wake_s
            if not advance_once(s):
                assert s.clock[0]["ended"] == s.clock[0]["jobs"]
                live.remove(b)
    ended = zip(env.state.truth["done_s"], env.state.jobs["started_s"], worlds, strict=True)
    return [(done_s[: len(w.trace)], started_s[: len(w.trace)]) for done_s, started_s, w in ended]


def apply(s: Any, decision: Decision, snapshot: Snapshot) -> None:
    plan = decision.diff(snapshot)
    uid, first, length = (
        np.ascontiguousarray(column[plan.job], np.int64)
        for column in (decision.uid, decision.at, decision.length)
    )
    shares = np.ascontiguousarray(decision.shares, SHARE)
    assert carry_out(s, uid, first, first + length, shares, int(length.sum()))


@pytest.mark.parametrize(
    ("policy", "scenario", "jobs", "when"),
    [
        ("optimus", "elastic-unknown", 25, {}),
        ("hull-greedy", "elastic-unknown", 25, {}),
        ("hull-greedy@oracle", "elastic-unknown", 25, {}),
        ("drf-bundles", "dl2-small", 25, {}),
        ("sjf@oracle", "rigid-blind", 120, {}),
        ("srtf@oracle", "rigid-blind", 120, {}),
        ("srtf:error=0.7", "gang-nonpreemptive", 120, {"min_run_s": 0.0}),
        ("gittins", "rigid-blind", 120, {}),
        ("tiresias", "rigid-blind", 120, {}),
        ("fifo-skip+fgd", "gang-nonpreemptive", 120, {}),
        ("themis", "rigid-blind", 60, {"hide_durations": False, "estimate_error": 0.5}),
        ("themis@oracle", "rigid-blind", 60, {"hide_durations": False, "estimate_error": 0.5}),
        ("pollux:evals=200", "elastic-unknown", 8, {}),
    ],
)
def test_a_teacher_schedules_as_in_a_simulation(
    policy: str, scenario: str, jobs: int, when: dict[str, Any]
) -> None:
    worlds = worlds_of(scenario, jobs, **when)
    for world, seed, (done_s, started_s) in zip(
        worlds, SEEDS, played(worlds, lambda: make_policy(policy)), strict=True
    ):
        outcome = simulate(
            world.cluster, world.trace, make_policy(policy), world.when, seed=seed,
            physics=world.physics,
        )  # fmt: skip
        np.testing.assert_array_equal(started_s, outcome.started_s)
        np.testing.assert_array_equal(done_s, outcome.done_s)


class Counting:
    """First come, first served; but every other round nothing new starts."""

    def __init__(self) -> None:
        self.rounds = 0
        self.inner = make_policy("fifo-skip")

    def decide(self, snapshot: Snapshot) -> Decision:
        self.rounds += 1
        decision = self.inner.decide(snapshot)
        if self.rounds % 2:
            return decision
        held = replace(snapshot, jobs=snapshot.jobs)
        return Keeps().decide(held)


class Keeps:
    """Nothing changes."""

    def decide(self, snapshot: Snapshot) -> Decision:
        from rota.core.draft import Draft

        return Draft(snapshot).commit(wake_s=snapshot.time_s + 60.0)


def test_a_teacher_that_remembers_has_one_memory_per_cluster_and_episode() -> None:
    worlds = worlds_of("gang-nonpreemptive", 40)
    for world, seed, (done_s, _) in zip(worlds, SEEDS, played(worlds, Counting), strict=True):
        outcome = simulate(
            world.cluster, world.trace, Counting(), world.when, seed=seed, physics=world.physics
        )
        np.testing.assert_array_equal(done_s, outcome.done_s)

    env = BatchEnv(WorldPool.of(worlds, SEEDS), OnePass(), batch=2, max_rounds=3)
    env.reset()
    policies, first = EpisodePolicies(env, Counting), []
    for _ in range(4):
        first.append(policies.at(0))
        env.step(np.zeros((2, 20), np.int64))
    assert [own is first[0] for own in first] == [True, True, True, False]


def test_looking_as_an_oracle_leaves_the_world_as_it_was() -> None:
    env = BatchEnv(WorldPool.of(worlds_of("rigid-blind", 30), SEEDS), OnePass(), batch=2)
    env.reset()
    before = env.state.jobs.copy()
    snapshot, _ = EpisodePolicies(env, lambda: make_policy("srtf@oracle")).decide(1)
    assert np.isfinite(snapshot.jobs.remaining_s).all()
    assert np.isnan(env.snapshot(1).jobs.remaining_s).all()
    for name in before.dtype.names or ():
        np.testing.assert_array_equal(before[name], env.state.jobs[name])


def test_a_world_of_a_pool_that_was_swapped_stays_its_own() -> None:
    scenario = load("dl2-small", ["workload.jobs=5", "speed.sight=noisy", "speed.sight_error=0.3"])
    env = BatchEnv(WorldPool.draw(scenario, [3]), OnePass(), batch=1)
    env.reset()
    curves = env.snapshot(0).curves
    assert curves is not None
    env.swap(WorldPool.draw(scenario, [4]))
    again = env.snapshot(0).curves
    assert again is not None
    np.testing.assert_array_equal(curves.speed, again.speed)
    assert env.world(0)[1] == 3
