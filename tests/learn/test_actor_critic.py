"""The actor-critic: it learns tiny envs, and remembers what can be worked out by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from dense_rollout import dense_rollout
from toy_games import FOLLOWER, KINDS, Jobs, Small, Steps, Worth, two_states

from rota.errors import ConfigError, TrainingError
from rota.learn.actor_critic import LEAST, MOST, ActorCritic, ActorCriticConfig
from rota.learn.collect import play
from rota.learn.inference import infer_values
from rota.systems.agents import EDITOR

if TYPE_CHECKING:
    from rota.learn.collect import Rollout

QUICK = {"learning_rate": 1e-2, "memory": 512, "batch": 64, "steps": 8, "entropy": 0.01}


def learner(actions: int, agents: Any = EDITOR, **settings: Any) -> ActorCritic:
    torch.manual_seed(0)
    config = ActorCriticConfig(**{**QUICK, **settings})
    return ActorCritic(Small(actions), Worth(), config, torch.Generator().manual_seed(0), agents)


def train(envs: Any, learner: ActorCritic, updates: int) -> list[float]:
    rng, rewards = np.random.default_rng(1), []
    for _ in range(updates):
        rollout = play(envs, learner.network, learner.critic, learner.config.steps, rng)
        rewards.append(float(rollout.reward.sum()) / max(1, len(rollout.decisions)))
        learner.update(rollout, 1.0)
    return rewards


@pytest.mark.parametrize(
    "settings",
    [{}, {"critic": False}, {"prioritised": False}, {"memory": 128, "steps": 3}],
    ids=["usual", "no critic", "no priorities", "small memory"],
)
def test_learns_a_game_of_steps(settings: dict[str, Any]) -> None:
    rewards = train(Steps(32, np.random.default_rng(0)), learner(KINDS + 1, **settings), 80)
    assert np.mean(rewards[:4]) < 0.4  # 1/4 by chance
    assert np.mean(rewards[-8:]) > 0.9


@pytest.mark.parametrize("credit", ["own", "team"])
def test_learns_a_game_of_jobs(credit: str) -> None:
    rewards = train(Jobs(48, np.random.default_rng(0)), learner(KINDS, FOLLOWER, credit=credit), 80)
    assert rewards[0] < -0.6  # 3/4 wrong by chance
    assert np.mean(rewards[-5:]) > -0.3


def rounds(
    reward: list[float], over: list[bool], first: int, job: list[int], gains: list[list[float]]
) -> Rollout:
    """One cluster; state and action number k of all that was played."""
    t = len(reward)
    number = np.arange(first, first + t)[:, None]
    return dense_rollout(
        seen={"kind": np.repeat(number[..., None], KINDS, 2).astype(np.float32)},
        live=np.ones((t, 1), np.bool_), action=number % KINDS,
        mask=np.ones((t, 1, KINDS), np.bool_), log_prob=np.zeros((t, 1)),
        value=np.zeros((t + 1, 1)), reward=np.array(reward, np.float32)[:, None], rows=None,
        over=np.array(over)[:, None], done=np.zeros((t, 1), np.bool_),
        inputs=np.zeros((t, 1), np.int64), job=np.array(job)[:, None],
        gains=np.array(gains)[:, None],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("credit", "paid"),
    # Own: jobs 0, 1 and the end, which gets the mean of the two that gained; then 1, 1 and 0.
    [("team", [3, 3, 3, 7, 7, 7]), ("own", [1, 2, 1.5, 4, 4, 3])],
)
def test_pays_all_decisions_of_a_round_when_it_ends(credit: str, paid: list[float]) -> None:
    one = learner(KINDS, credit=credit, memory=100)
    nothing = [0.0, 0.0, 0.0]
    # The second round begins in the first rollout, lasts all the second and ends in the third.
    one.update(
        rounds([0, 0, 3, 0], [False, False, True, False], 0, [0, 1, -1, 1],
               [nothing, nothing, [1, 2, 0], nothing]), 1.0,
    )  # fmt: skip
    assert len(one.memory) == 3
    one.update(rounds([0], [False], 4, [1], [nothing]), 1.0)
    assert len(one.memory) == 3
    facts = one.update(rounds([7], [True], 5, [0], [[3, 4, 0]]), 1.0)
    assert facts == {"remembered": 0.06}
    kept = one.memory.take(np.arange(6))
    assert kept.decisions["reward"].tolist() == paid
    assert kept.decisions["reward"].dtype == np.float32
    assert kept.seen["kind"][:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert kept.decisions["action"].tolist() == [0, 1, 2, 3, 0, 1]


def test_priorities_are_what_paid_more_than_usual_and_then_the_surprise() -> None:
    one = learner(KINDS, memory=3, batch=64, batches=1, learning_rate=1e-12)
    one.update(rounds([2], [True], 0, [0], [[0.0]]), 1.0)
    one.update(rounds([5], [True], 1, [0], [[0.0]]), 1.0)
    assert one.memory.priority.tolist() == [2, 3]  # 2 above nothing, 3 above the mean of 2
    one.update(rounds([3.7], [True], 2, [0], [[0.0]]), 1.0)  # at first 1, the least; then judged
    assert one.taken == 1
    value = infer_values(one.network, one.critic, one.memory.take(np.arange(3)).seen)
    surprise = np.abs(np.array([2, 5, 3.7]) - value)
    expected = np.minimum(surprise + LEAST, MOST) ** 0.9
    np.testing.assert_allclose(one.memory.priority, expected, rtol=1e-5)


def test_the_gradient_is_that_of_the_network_as_it_is_now() -> None:
    # One state, two actions allowed of four; the critic off, so that it can be worked out.
    one = learner(KINDS, critic=False, entropy=0.0, memory=2, batch=2, prioritised=False)
    part = two_states(np.array([[True, True, False, False]] * 2))
    one.memory.paid[:] = [1.0, 3.0]
    loss, surprise, _ = one._loss(part, torch.tensor([1.0, 0.5]))
    logits, _ = one.network({"kind": torch.eye(KINDS)[:2]})
    log_p = torch.log_softmax(logits[:, :2], 1)
    expected = -(-1.0 * log_p[0, 0] + 0.5 * 1.0 * log_p[1, 1]) / 2
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    assert surprise.tolist() == [1, 1]


def test_forgets_an_update_that_is_not_finite_and_gives_up_after_a_few() -> None:
    one = learner(KINDS + 1, patience=2, memory=32)
    envs, rng = Steps(8, np.random.default_rng(0)), np.random.default_rng(0)
    before = [p.detach().clone() for p in one.network.parameters()]
    rollout = play(envs, one.network, one.critic, 8, rng)
    rollout.seen["kind"][...] = np.nan
    assert one.update(rollout, 1.0) == {"failed": 1.0}
    assert all(torch.equal(a, b) for a, b in zip(before, one.network.parameters(), strict=True))
    with pytest.raises(TrainingError, match=r"2 updates in a row.*actor_critic\.learning_rate"):
        one.update(rollout, 1.0)


def test_resumes_with_an_empty_memory() -> None:
    one = learner(KINDS + 1, memory=64)
    train(Steps(8, np.random.default_rng(0)), one, 3)
    facts, arrays = one.state()
    again = learner(KINDS + 1, memory=64)
    again.restore(facts, arrays)
    assert again.taken == one.taken > 0
    assert len(again.memory) == 0
    for name, array in again.state()[1].items():
        np.testing.assert_array_equal(array, arrays[name])


def test_own_credit_needs_an_environment_that_gives_gains() -> None:
    one = learner(KINDS + 1, credit="own")
    with pytest.raises(TrainingError, match="gives each job's gain"):
        train(Steps(8, np.random.default_rng(0)), one, 1)


@pytest.mark.parametrize(
    "settings",
    [{"credit": "mine"}, {"memory": 0}, {"learning_rate": 0.0}, {"correction": 1.5}],
)
def test_refuses_settings_that_make_no_sense(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        ActorCriticConfig(**settings)
