"""Work that is left undone: no validation may be won by it, and no episode is worth less by it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from dense_rollout import dense_advantages, dense_rollout
from small_training import small_trainer
from toy_lens import Alike, Starter, Taste, pool_of

from rota.envs import BatchEnv, WorldPool
from rota.errors import TrainingError
from rota.learn import batch_rollout_env
from rota.learn.batch_rollout_env import BatchRolloutEnv, greedy_jct_s
from rota.learn.collect import Cut, play
from rota.learn.ppo import PPO, PPOConfig
from rota.learn.training_folder import BEST, RESUME
from rota.learn.training_log import CURVE
from rota.perf.physics import Drift
from rota.scenarios import load

if TYPE_CHECKING:
    from pathlib import Path

    from rota.core.speed import Curves
    from rota.learn.collect import Rollout
    from rota.learn.trainer import Trainer

MIXED = [(0.0, 60.0, 2), (0.0, 6000.0, 4), (10.0, 60.0, 2), (20.0, 60.0, 2)]


def validated(lens: Starter, *, waits: bool = False, **more: Any) -> Any:
    pool = pool_of(MIXED, copies=3, **more.pop("when", {}))
    network = Taste(waits=waits)
    return greedy_jct_s(lambda: BatchEnv(pool, lens, batch=3, **more), network)


@pytest.mark.parametrize("when", [{}, {"slot_s": 100.0}], ids=["events", "slots"])
def test_a_lens_that_starves_long_jobs_does_not_win(when: dict[str, Any]) -> None:
    fair, starving = validated(Starter(), when=when), validated(Starter(below_s=600.0), when=when)
    assert np.isfinite(fair).all()
    assert np.isinf(starving).all()
    assert fair.mean() < starving.mean()


@pytest.mark.parametrize("when", [{}, {"slot_s": 100.0}], ids=["events", "slots"])
def test_a_network_that_always_waits_is_infinitely_slow_and_not_for_ever(
    when: dict[str, Any],
) -> None:
    assert np.isinf(validated(Starter(), waits=True, when=when)).all()


def test_too_many_rounds_are_no_finish() -> None:
    assert np.isfinite(validated(Starter(), max_rounds=50)).all()
    assert np.isinf(validated(Starter(), max_rounds=3)).all()


def test_a_round_without_end_is_no_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_rollout_env, "MOST_EDITS", 20)
    assert np.isinf(validated(Starter(endless=True))).all()


def test_machines_that_wander_do_not_keep_a_job_without_speed_going() -> None:
    # Everybody gets one worker, with which the model has no speed, and nothing else is to come.
    world = load("dl2-small").draw(0)
    assert world.physics.curves is not None
    curves: Curves = world.physics.curves
    speed = curves.speed.copy()
    speed[:, :, :, 1] = 0.0
    physics = replace(
        world.physics, curves=replace(curves, speed=speed),
        drift=Drift(sd=0.1, step_s=60.0, correlation=0.9),
    )  # fmt: skip
    when = replace(world.when, slot_s=0.0, whole_slots=False)
    pool = WorldPool.of([replace(world, physics=physics, when=when)], [0])
    network = Taste(waits=True)
    found = greedy_jct_s(lambda: BatchEnv(pool, Starter(), batch=1), network)
    assert np.isinf(found).all()
    lens = Starter()
    env = BatchEnv(pool, lens, batch=1, autoreset=False)
    env.reset()
    for _ in range(1000):
        for j in env.view.order[0, : env.view.live[0]]:
            env.book.workers[0, j] = env.book.servers[0, j] = 1
        *_, truncated, info = env.step(np.array([lens.window]))
        if truncated[0]:
            break
    assert truncated[0]
    assert info["episode"]["unfinished"][0] > 0


def test_an_episode_tells_what_was_left_and_what_was_seen_last() -> None:
    env = BatchEnv(pool_of(MIXED), Starter(below_s=600.0), batch=1, final_obs="cut")
    env.reset()
    truncated, info = np.zeros(1, np.bool_), {}
    while not truncated.any():
        assert "final_obs" not in info
        _, _, terminated, truncated, info = env.step(np.array([0]))
    assert not terminated.any()
    assert info["episode"]["unfinished"].tolist() == [1]
    assert np.isinf(info["episode"]["jct_s"]).all()
    assert info["final_alive"].tolist() == [[False, True, False, False]]
    assert info["final_obs"]["present"].tolist() == [[0, 0, 0, 0]]


def cut_short(reward: list[float], at: int, value: float) -> Rollout:
    """One cluster, one edit per round; cut after step `at`, where the rest was worth `value`."""
    t = len(reward)
    one, done = np.ones((t, 1), np.bool_), np.zeros((t, 1), np.bool_)
    done[at] = True
    return dense_rollout(
        seen={}, live=one, action=np.zeros((t, 1), np.int64), mask=one[..., None],
        log_prob=np.zeros((t, 1)), value=np.zeros((t + 1, 1)), reward=np.array(reward)[:, None],
        rows=None, over=one, done=done, inputs=np.zeros((t, 1), np.int64),
        cuts={at: Cut(np.array([0]), np.array([0]), np.array([value]))},
    )  # fmt: skip


def test_an_episode_that_is_cut_short_goes_on_in_its_value() -> None:
    # Values 1, 2 | 4, 5; the cut one would have been worth 8. δ = 3 + .5·2 − 1 = 3 and
    # 3 + .5·8 − 2 = 5, then 3 + .5·5 − 4 = 1.5. With γλ = .25: 5, 3 + 1.25, and 1.5 by itself.
    rollout = cut_short([3.0, 3.0, 3.0], 1, 8.0)
    value = np.array([1.0, 2.0, 4.0, 5.0])[:, None]
    config = PPOConfig(discount=0.5, trace=0.5, reward_scale=1.0)
    _, target = dense_advantages(rollout, value, config)
    np.testing.assert_allclose((target - value[:-1])[:, 0], [4.25, 5.0, 1.5])
    # An episode that came to its end is worth nothing afterwards: δ = 3 − 2.
    _, target = dense_advantages(replace(rollout, cuts={}), value, config)
    np.testing.assert_allclose((target - value[:-1])[:, 0], [3.25, 1.0, 1.5])


def test_the_potential_of_a_cut_round_is_handed_on_too() -> None:
    rollout = cut_short([0.0], 0, 2.0)
    rollout.potential = np.array([[1.0], [9.0]])  # 9 is of another episode
    rollout.cuts[0].potential = np.array([3.0])
    config = PPOConfig(discount=0.5, trace=0.5, reward_scale=1.0, shaped=True)
    _, target = dense_advantages(rollout, np.zeros((2, 1)), config)
    assert target[0, 0] == 0.5 * 3 - 1 + 0.5 * 2


def test_jobs_of_an_episode_that_is_cut_short_go_on_in_their_values() -> None:
    # Jobs 0 and 1 are cut after one round, job 0 in sight and worth 4, job 1 out of sight.
    live = np.ones((1, 1, 2), np.bool_)
    rollout = dense_rollout(
        seen={}, live=live, action=np.zeros(live.shape, np.int64), mask=live[..., None],
        log_prob=np.zeros(live.shape), value=np.zeros((2, 1, 2)),
        reward=np.array([[[1.0, 2.0]]]), rows=np.array([[[0, 1]], [[1, 0]]]),
        over=np.ones((1, 1), np.bool_), done=np.ones((1, 1), np.bool_),
        inputs=np.zeros((1, 1), np.int64), gains=np.array([[[1.0, 2.0]]]),
        alive=np.array([[True, True]]),
        cuts={0: Cut(np.array([0]), np.array([0]), np.array([4.0]), np.array([0]),
                     np.array([[True, True]]))},
    )  # fmt: skip
    value = np.array([[[0.5, 0.25]], [[50.0, 60.0]]])
    config = PPOConfig(discount=0.5, trace=1.0, reward_scale=1.0, credit="own")
    _, target = dense_advantages(rollout, value, config)
    # 1 + .5 · 4; of job 1 nobody knows what it will bring: as much as was expected.
    assert target[0, 0].tolist() == [3.0, 0.25]


def test_a_rollout_values_the_state_in_which_an_episode_is_cut_short() -> None:
    env = BatchEnv(pool_of(MIXED), Starter(), batch=1, max_rounds=2, final_obs="cut")
    envs, network = BatchRolloutEnv(env), Taste(waits=True)
    critic = Alike(7.0)
    rollout = play(envs, network, critic, 6, np.random.default_rng(0))
    at = np.flatnonzero(rollout.done[:, 0]).tolist()
    assert list(rollout.cuts) == at
    assert all(cut.value.tolist() == [7.0] for cut in rollout.cuts.values())
    learner = PPO(network, critic, PPOConfig(discount=0.9), torch.Generator())
    learner.scale.mean, learner.scale.var = 3.0, 4.0
    assert np.isfinite(learner.update(rollout, 1.0)["value_loss"])


def trainer(tmp_path: Path, *changes: str) -> Trainer:
    tables = {"run": {"updates": 2, "validate_every": 1}}
    return small_trainer(tmp_path, *changes, tables=tables)


def test_a_training_that_never_finishes_has_no_best_network(tmp_path: Path) -> None:
    training = trainer(tmp_path, "world.max_rounds=2", "ppo.discount=0.9")
    with pytest.raises(TrainingError, match=r"In no validation did every job end.*last\.ckpt"):
        training.run()
    assert not (tmp_path / "out" / BEST).exists()
    assert (tmp_path / "out" / RESUME).exists()
    curve = [json.loads(line) for line in (tmp_path / "out" / CURVE).read_text().splitlines()]
    assert [(line["jct"], line["best"]) for line in curve] == [(None, False)] * 3


def test_a_network_that_finishes_beats_one_that_does_not(tmp_path: Path) -> None:
    training = trainer(tmp_path)
    whole, calls = training.worlds.validate, []

    def validate(network: Any) -> Any:
        calls.append(1)
        jct_s = whole(network)
        return np.where(np.arange(len(jct_s)) == 0, np.inf, 0.0) if len(calls) == 2 else jct_s

    training.worlds.validate = validate  # type: ignore[method-assign]
    best = training.run()
    assert len(calls) == 3
    assert 0 < best < np.inf
