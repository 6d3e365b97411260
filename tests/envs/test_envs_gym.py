"""The gymnasium face: what its checkers want, how episodes are dealt, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rota.envs import BatchEnv, Reward, SchedEnv, WorldPool
from rota.errors import ConfigError, InputError, UnknownNameError
from rota.policies import make_policy
from rota.scenarios import load
from rota.systems.dl2.onepass import OnePass
from rota.systems.dl2.step_lens import StepByStep

SMALL = load("dl2-small")
POOL = WorldPool.draw(SMALL, range(4))


@pytest.mark.parametrize("lens", [StepByStep(), OnePass()], ids=["step", "onepass"])
def test_gymnasium_accepts_the_single_environment(lens: Any) -> None:
    check_env(SchedEnv(POOL, lens), skip_render_check=True)


def test_the_mask_is_where_maskable_learners_look_for_it() -> None:
    env = SchedEnv(POOL, StepByStep())
    _, info = env.reset(seed=1)
    np.testing.assert_array_equal(env.action_masks(), info["mask"])
    *_, info = env.step(int(info["mask"].argmax()))
    np.testing.assert_array_equal(env.action_masks(), info["mask"])


def play(env: BatchEnv, steps: int) -> list[tuple[int, int, float]]:
    """Which entry each cluster has played, in order, and its mean completion time."""
    env.reset()
    seen = []
    for _ in range(steps):
        info = env.step(np.full((env.num_envs, env.lens.window), 20))[-1]
        for b in np.flatnonzero(info["_episode"]):
            episode = info["episode"]
            seen.append((int(b), int(episode["entry"][b]), float(episode["jct_s"][b])))
    return seen


def test_episodes_are_dealt_in_turn_and_repeat_exactly() -> None:
    seen = play(BatchEnv(POOL, OnePass(), batch=2), 1200)
    for b in (0, 1):
        mine = [entry for who, entry, _ in seen if who == b]
        assert mine[:4] == [b, b + 2, b, b + 2]
    for entry in range(4):
        assert len({jct for _, played, jct in seen if played == entry}) == 1


def test_episodes_can_be_drawn_or_prescribed() -> None:
    drawn = play(BatchEnv(POOL, OnePass(), batch=2, entries="sample", seed=5), 600)
    assert drawn == play(BatchEnv(POOL, OnePass(), batch=2, entries="sample", seed=5), 600)
    given = play(BatchEnv(POOL, OnePass(), batch=2, entries=np.array([[3], [3]])), 600)
    assert {entry for _, entry, _ in given} == {3}
    assert len({jct for *_, jct in given}) == 1  # the same trace, the same actions


def test_a_fresh_pool_is_played_after_the_present_episodes() -> None:
    env, other = BatchEnv(POOL, OnePass(), batch=1), WorldPool.draw(SMALL, range(10, 14))
    alone = play(BatchEnv(other, OnePass(), batch=1), 1200)
    env.reset()
    env.swap(other)
    seen = []
    for _ in range(1200):
        info = env.step(np.full((1, 20), 20))[-1]
        if info["_episode"][0]:
            seen.append(float(info["episode"]["jct_s"][0]))
    assert seen[1] == alone[1][2]
    assert seen[0] != alone[0][2]


def test_too_many_rounds_cut_an_episode_short() -> None:
    env = BatchEnv(POOL, OnePass(), batch=2, max_rounds=3, final_obs=True)
    env.reset()
    flags = []
    for _ in range(6):
        _, _, terminated, truncated, info = env.step(np.zeros((2, 20), np.int64))
        assert not terminated.any()
        flags.append(bool(truncated.all()))
        assert ("final_obs" in info) == truncated.any()
    assert flags == [False, False, True] * 2


@pytest.mark.parametrize("kind", ["progress", "jobs", "fee", "slowdown"])
def test_each_jobs_part_sums_to_the_reward(kind: str) -> None:
    env = BatchEnv(POOL, OnePass(), kind, batch=2)
    env.reset()
    for _ in range(100):
        _, reward, _, _, info = env.step(np.full((2, 20), 20))
        np.testing.assert_allclose(info["gains"].sum(axis=1), reward, rtol=1e-9, atol=1e-12)


def test_slowdown_sums_to_completion_over_run_time() -> None:
    env = BatchEnv(POOL, OnePass(), "slowdown", batch=1)
    env.reset()
    work_s = env.state.truth["work_s"][0].copy()
    while True:
        info = env.step(np.full((1, 20), 20))[-1]
        if info["_episode"][0]:
            break
    wanted = -(info["episode"]["jcts_s"][0] / work_s).sum()
    assert info["episode"]["return"][0] == pytest.approx(wanted, rel=1e-9)


def test_a_teacher_sees_the_cluster_as_in_a_simulation() -> None:
    env = BatchEnv(POOL, StepByStep(), batch=2)
    env.reset()
    for b in (0, 1):
        snapshot = env.snapshot(b)
        assert len(snapshot.jobs) == env.view.live[b]
        make_policy("optimus").decide(snapshot).check(snapshot)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(UnknownNameError, match=r"No reward is called 'job'\. Did you mean 'jobs'"):
        Reward(kind="job")
    with pytest.raises(ConfigError, match="unit_s=-1"):
        Reward(unit_s=-1)
    with pytest.raises(ConfigError, match="batch=0"):
        BatchEnv(POOL, OnePass(), batch=0)
    with pytest.raises(ConfigError, match="entries='random'"):
        BatchEnv(POOL, OnePass(), batch=1, entries="random")
    with pytest.raises(ConfigError, match=r"must be \(2, K\) entries of a pool of 4"):
        BatchEnv(POOL, OnePass(), batch=2, entries=np.array([[4], [0]]))
    with pytest.raises(InputError, match="at least one seed"):
        WorldPool.draw(SMALL, [])
    with pytest.raises(ConfigError, match="new pool has 1 worlds"):
        BatchEnv(POOL, OnePass(), batch=1).swap(WorldPool.draw(SMALL, [9]))
    with pytest.raises(ConfigError, match="of another size"):
        BatchEnv(POOL, OnePass(), batch=1).swap(WorldPool.draw(load("dl2-busy"), range(4)))
