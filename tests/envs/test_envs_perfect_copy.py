"""A perfect copy of a teacher: what a lens can say of its decisions, and what it cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rota.envs import BatchEnv, PerfectCopy, WorldPool
from rota.envs.wanted import Wanted
from rota.policies import make_policy
from rota.scenarios import load
from rota.sim import simulate
from rota.systems.dl2.onepass import OnePass
from rota.systems.dl2.step_lens import StepByStep
from rota.testing import policy_cases

# Nothing is lost by moving tasks, so that only counts matter, not nodes.
SCENARIO = load("dl2-busy", ["workload.jobs=25", "workload.per_hour=60", "when.restart_s=0"])
SEEDS = (1000, 1001, 1002)
FREE = StepByStep(window=25, least_first=False)


def done_s(policy: Any, seed: int) -> Any:
    world = SCENARIO.draw(seed)
    outcome = simulate(
        world.cluster, world.trace, policy, world.when, seed=seed, physics=world.physics
    )
    return outcome.done_s


def mean_jct_s(policy: Any) -> float:
    submit_s = [SCENARIO.draw(seed).trace.submit_s for seed in SEEDS]
    both = zip(SEEDS, submit_s, strict=True)
    return float(np.mean([done_s(policy, seed) - at_s for seed, at_s in both]))


@pytest.mark.parametrize("teacher", ["hull-greedy", "optimus", "drf-bundles"])
@pytest.mark.parametrize("seed", SEEDS)
def test_through_a_lens_that_can_say_all_a_copy_is_its_teacher(teacher: str, seed: int) -> None:
    policy = make_policy(teacher)
    np.testing.assert_allclose(
        done_s(PerfectCopy(FREE, policy), seed), done_s(policy, seed), rtol=1e-9
    )


@pytest.mark.parametrize(
    "lens",
    [StepByStep(window=25), StepByStep(window=3, least_first=False), OnePass(window=25, most=24)],
    ids=["least first", "small window", "one pass"],
)
def test_what_a_lens_cannot_say_is_lost_to_every_copy(lens: Any) -> None:
    teacher = make_policy("hull-greedy")
    assert mean_jct_s(PerfectCopy(lens, teacher)) > 1.01 * mean_jct_s(teacher)


@pytest.mark.parametrize("case", policy_cases(), ids=str)
def test_a_copy_keeps_the_contract(case: Any) -> None:
    case(PerfectCopy(StepByStep(window=3, least_first=False), make_policy("fifo-skip")))


def test_a_copy_whose_teacher_serves_nobody_in_sight_does_not_stand_still() -> None:
    lens = StepByStep(window=1, least_first=False)
    env = BatchEnv(WorldPool.draw(SCENARIO, SEEDS), lens, batch=3)
    env.reset()
    nothing, script = np.zeros_like(env.book.workers), np.zeros(3, np.int64)
    lens.script(env.view, env.book, Wanted.counts(nothing, nothing), script)
    assert script.tolist() == [0, 0, 0]  # the oldest job is started, then the round may end
    lens.act(env.view, env.book, script, np.zeros(3, np.bool_))
    lens.script(env.view, env.book, Wanted.counts(nothing, nothing), script)
    assert script.tolist() == [3, 3, 3]


def test_an_oracle_is_copied_as_an_oracle() -> None:
    policy = make_policy("srtf-bundles@oracle")
    assert PerfectCopy(FREE, policy).oracle
    assert not PerfectCopy(FREE, make_policy("srtf-bundles")).oracle
    assert PerfectCopy(FREE, policy).name.startswith("copy of srtf-bundles")


def followed(lens: StepByStep, steps: int) -> Any:
    """An environment after so many steps towards counts drawn at random, and these."""
    env, rng = (
        BatchEnv(WorldPool.draw(SCENARIO, SEEDS), lens, batch=3),
        np.random.default_rng(steps),
    )
    env.reset()
    shape = env.book.workers.shape
    workers, servers = rng.integers(0, 5, (2, *shape))
    out = np.zeros(3, np.int64)
    for _ in range(steps):
        lens.script(env.view, env.book, Wanted.counts(workers, servers), out)
        env.step(out)
    return env, workers, servers


@pytest.mark.parametrize("least_first", [True, False])
@pytest.mark.parametrize("steps", [0, 3, 40, 90])
def test_every_action_towards_a_teacher_is_allowed_and_the_script_is_one(
    steps: int, least_first: bool
) -> None:
    lens = StepByStep(window=8, least_first=least_first)
    env, workers, servers = followed(lens, steps)
    right, script = np.zeros((3, lens.actions), np.bool_), np.zeros(3, np.int64)
    lens.towards(env.view, env.book, Wanted.counts(workers, servers), right)
    lens.script(env.view, env.book, Wanted.counts(workers, servers), script)
    mask = np.zeros_like(right)
    lens.mask(env.view, env.book, mask)
    assert right[np.arange(3), script].all()
    assert not (right & ~mask).any()
    # The end is right only where nothing else is.
    np.testing.assert_array_equal(right[:, -1], right.sum(1) == right[:, -1])
