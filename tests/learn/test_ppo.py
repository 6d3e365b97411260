"""PPO: it learns tiny envs, and its advantages are right where they can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from dense_rollout import dense_advantages, dense_rollout, live_of
from toy_games import FOLLOWER, KINDS, Jobs, Small, Steps, Worth

from rota.errors import ConfigError, TrainingError
from rota.learn.collect import play
from rota.learn.ppo import PPO, PPOConfig, ReturnScale, clipped_gain
from rota.systems.agents import EDITOR

if TYPE_CHECKING:
    from rota.learn.collect import Rollout


def learner(actions: int, agents: Any = EDITOR, **settings: Any) -> PPO:
    torch.manual_seed(0)
    config = PPOConfig(**{"learning_rate": 1e-2, "reward_scale": 1.0, **settings})
    return PPO(Small(actions), Worth(), config, torch.Generator().manual_seed(0), agents)


def train(envs: Any, ppo: PPO, updates: int) -> list[float]:
    rng = np.random.default_rng(1)
    rewards = []
    for update in range(updates):
        rollout = play(envs, ppo.network, ppo.critic, ppo.config.steps, rng)
        rewards.append(float(rollout.reward.sum()) / max(1, len(rollout.decisions)))
        ppo.update(rollout, 1 - update / updates)
    return rewards


@pytest.mark.parametrize("discount", [0.0, 0.9])
def test_learns_a_game_of_steps(discount: float) -> None:
    envs = Steps(32, np.random.default_rng(0))
    rewards = train(envs, learner(KINDS + 1, discount=discount), 40)
    assert rewards[0] < 0.4  # 1/4 by chance
    assert np.mean(rewards[-5:]) > 0.9


@pytest.mark.parametrize("credit", ["own", "team"])
@pytest.mark.parametrize("joint", [False, True])
def test_learns_a_game_of_jobs(credit: str, joint: bool) -> None:
    ppo = learner(
        KINDS, FOLLOWER, credit=credit, joint=joint, discount=0.5, entropy=0.01, max_kl=0.2
    )
    rewards = train(Jobs(48, np.random.default_rng(0)), ppo, 60)
    assert rewards[0] < -0.6  # 3/4 wrong by chance
    assert np.mean(rewards[-5:]) > -0.25


def test_the_same_seed_gives_the_same_weights() -> None:
    def weights() -> list[float]:
        ppo = learner(KINDS + 1)
        train(Steps(8, np.random.default_rng(0)), ppo, 3)
        return torch.cat([p.detach().ravel() for p in ppo.network.parameters()]).tolist()

    assert weights() == weights()


def steps_of(reward: list[float], over: list[bool], done: list[bool]) -> Rollout:
    t = len(reward)
    one = np.ones((t, 1), np.bool_)
    return dense_rollout(
        seen={}, live=one, action=np.zeros((t, 1), np.int64), mask=one[..., None],
        log_prob=np.zeros((t, 1)), value=np.zeros((t + 1, 1)), reward=np.array(reward)[:, None],
        rows=None, over=np.array(over)[:, None], done=np.array(done)[:, None],
        inputs=np.zeros((t, 1), np.int64),
    )  # fmt: skip


def test_discounts_between_rounds_and_not_within() -> None:
    # Rounds of two steps: 0, 3 | 0, 5. From the first step: 3 + 0.5 · 5 with the trace at 1.
    rollout = steps_of([0, 3, 0, 5], [False, True, False, True], [False] * 4)
    config = PPOConfig(discount=0.5, trace=1.0, reward_scale=1.0)
    _, target = dense_advantages(rollout, np.zeros((5, 1)), config)
    assert target[:, 0].tolist() == [5.5, 5.5, 5.0, 5.0]

    _, bandit = dense_advantages(rollout, np.zeros((5, 1)), replace(config, discount=0.0))
    assert bandit[:, 0].tolist() == [3, 3, 5, 5]


def test_the_end_of_an_episode_cuts_the_future_off() -> None:
    rollout = steps_of([1, 1, 1], [True] * 3, [False, True, False])
    value = np.array([[0.0], [0.0], [0.0], [10.0]])
    _, target = dense_advantages(
        rollout, value, PPOConfig(discount=1.0, trace=1.0, reward_scale=1.0)
    )
    assert target[:, 0].tolist() == [2, 1, 11]


def jobs_of(rows: list[list[int]], reward: list[list[float]]) -> Rollout:
    names, paid = np.array(rows)[:, None], np.array(reward, np.float64)[:, None]
    live = names[:-1] >= 0
    t = len(paid)
    return dense_rollout(
        seen={}, live=live, action=np.zeros(live.shape, np.int64), mask=live[..., None],
        log_prob=np.zeros(live.shape), value=np.zeros(names.shape), reward=paid, rows=names,
        over=np.ones((t, 1), np.bool_), done=np.zeros((t, 1), np.bool_),
        inputs=np.zeros((t, 1), np.int64),
    )  # fmt: skip


def test_follows_a_job_when_its_place_in_the_window_changes() -> None:
    # Job 7 leaves after the first round, 8 moves up, 9 arrives.
    rollout = jobs_of([[7, 8], [8, 9], [9, -1]], [[-1, -2], [-4, -8]])
    config = PPOConfig(discount=1.0, trace=1.0, reward_scale=1.0, credit="own")
    _, target = dense_advantages(rollout, np.zeros((3, 1, 2)), config)
    assert target[:, 0].tolist() == [[-1, -6], [-4, -8]]


def test_a_team_is_judged_together() -> None:
    rollout = jobs_of([[7, 8], [8, -1], [8, -1]], [[-1, -2], [-4, 0]])
    config = PPOConfig(discount=1.0, trace=1.0, reward_scale=1.0)
    gain, _ = dense_advantages(rollout, np.zeros((3, 1, 2)), config)
    # −7, −7 in the first round, −4 in the second: mean −6, sd √2.
    np.testing.assert_allclose(gain[live_of(rollout)] * 2**0.5, [-1, -1, 2], rtol=1e-5)


def test_what_the_same_arrivals_bring_to_others_is_no_merit() -> None:
    # Two pairs of clusters; the inputs are worth 10 more in the second pair.
    every = np.ones((1, 4), np.bool_)
    rollout = dense_rollout(
        seen={}, live=every, action=np.zeros((1, 4), np.int64), mask=every[..., None],
        log_prob=np.zeros((1, 4)), value=np.zeros((2, 4)), over=every, done=every,
        reward=np.array([[1.0, 2.0, 11.0, 12.0]]), inputs=np.array([[5, 5, 6, 6]]),
    )  # fmt: skip
    config = PPOConfig(reward_scale=1.0, same_inputs=True)
    gain, _ = dense_advantages(rollout, np.zeros((2, 4)), config)
    np.testing.assert_allclose(gain[0], [-1, 1, -1, 1], rtol=1e-6)


def test_forgets_an_update_that_is_not_finite_and_gives_up_after_a_few() -> None:
    ppo = learner(KINDS + 1, patience=2)
    rollout = play(
        Steps(8, np.random.default_rng(0)), ppo.network, ppo.critic, 8, np.random.default_rng(0)
    )
    before = [p.detach().clone() for p in ppo.network.parameters()]
    rollout.seen["kind"][0, 0] = np.nan
    assert ppo.update(rollout, 1.0) == {"failed": 1.0}
    assert all(torch.equal(a, b) for a, b in zip(before, ppo.network.parameters(), strict=True))
    with pytest.raises(TrainingError, match="2 updates in a row"):
        ppo.update(rollout, 1.0)


def test_stops_an_update_that_moves_too_far() -> None:
    ppo = learner(KINDS + 1, max_kl=1e-6, learning_rate=0.5)
    rollout = play(
        Steps(8, np.random.default_rng(0)), ppo.network, ppo.critic, 8, np.random.default_rng(0)
    )
    assert ppo.update(rollout, 1.0)["stopped"] == 1.0


def test_the_scale_follows_the_returns() -> None:
    scale, rng = ReturnScale(), np.random.default_rng(0)
    for _ in range(200):
        scale.update(rng.normal(100.0, 5.0, 1000))
    assert scale.mean == pytest.approx(100, abs=0.2)
    assert scale.sd == pytest.approx(5, abs=0.2)


@pytest.mark.parametrize(
    ("ratio", "advantage", "gain", "slope"),
    [
        (1.1, 2.0, 2.2, 2.0),  # within: free
        (1.3, 2.0, 2.4, 0.0),  # a good action that is likely enough already
        (0.7, 2.0, 1.4, 2.0),  # a good one that became unlikely: back
        (0.7, -2.0, -1.6, 0.0),  # a bad one that is unlikely enough
        (1.3, -2.0, -2.6, -2.0),  # a bad one that became likely: back
        (1.3, 0.0, 0.0, 0.0),
    ],
)
def test_clipping_by_hand(ratio: float, advantage: float, gain: float, slope: float) -> None:
    at = torch.tensor(ratio, dtype=torch.float64, requires_grad=True)
    found = clipped_gain(at, torch.tensor(advantage).double(), 0.2)
    found.backward()
    assert float(found.detach()) == pytest.approx(gain)
    assert at.grad is not None
    assert float(at.grad) == pytest.approx(slope)


@pytest.mark.parametrize(
    "settings", [{"credit": "mine"}, {"discount": 1.5}, {"epochs": 0}, {"clip": 0.0}]
)
def test_refuses_settings_that_make_no_sense(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        PPOConfig(**settings)


def test_judges_an_edit_by_what_its_round_adds_for_its_job() -> None:
    # One round: job 0, job 1, job 0, the end; then the first edit of a round that goes on.
    rollout = steps_of([0, 0, 0, 9, 0], [False, False, False, True, False], [False] * 5)
    rollout.potential = np.array([1.0, 3.0, 4.0, 8.0, 0.0, 2.0])[:, None]
    rollout.decisions = rollout.decisions.having(job=np.array([0, 1, 0, -1, 2]))
    config = PPOConfig(shaped=True, credit="own", inside=0.5, reward_scale=1.0)
    value = np.array([0, 0, 0, 0, 0, 6.0])[:, None]
    _, target = dense_advantages(rollout, value, config)
    assert target[:, 0].tolist() == [2 + 0.5 * 4, 1, 4, 0, 2 + 0.5 * 6]


def test_shaping_takes_from_a_round_its_potential_at_first() -> None:
    # Rounds of two steps that bring 3 and 5, and whose potential was 1 and 4 when they began.
    rollout = steps_of([0, 3, 0, 5], [False, True, False, True], [False] * 4)
    rollout.potential = np.array([1.0, 2.5, 4.0, 4.0, 7.0])[:, None]
    config = PPOConfig(shaped=True, discount=0.0, reward_scale=1.0)
    _, target = dense_advantages(rollout, np.zeros((5, 1)), config)
    assert target[:, 0].tolist() == [3 - 1, 3 - 2.5, 5 - 4, 5 - 4]
