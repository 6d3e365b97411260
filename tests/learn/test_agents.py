"""Agents: two that act in turn learn together, and each is judged until its own next decision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from dense_rollout import dense_rollout
from two_agents import AGENTS, SYSTEM

from rota.core.cluster import Cluster
from rota.envs import BatchEnv, WorldPool
from rota.errors import ConfigError
from rota.learn.actor_critic import ActorCritic, ActorCriticConfig
from rota.learn.advantages import advantages
from rota.learn.batch_rollout_env import BatchRolloutEnv, greedy_jct_s
from rota.learn.collect import play
from rota.learn.deploy import as_policy
from rota.learn.ppo import PPO, PPOConfig
from rota.perf.physics import Physics
from rota.scenarios.scenario import World
from rota.sim import Conditions, simulate
from rota.systems.agents import LearnedAgent, follow_jobs
from rota.traces import Trace

if TYPE_CHECKING:
    from rota.learn.collect import Rollout


def world() -> World:
    """A wide, a short and a long job, on nodes of 4 and 2 GPUs.

    Best is the wide job on the large node, and on the small one the short and then the long: they
    end after 60, 10 and 610 s. If the long one comes first, or takes the large node, others wait.
    """
    trace = Trace.build(
        "tiny", job_id=["wide", "short", "long"], submit_s=np.zeros(3),
        duration_s=np.array([60.0, 10.0, 600.0]), num_gpus=np.array([4, 2, 2]),
    )  # fmt: skip
    cluster = Cluster(gpus=np.array([4, 2]))
    return World(cluster, trace, Conditions(), Physics())


BEST_S = (60 + 10 + 610) / 3


def made(seed: int) -> tuple[Any, Any, Any]:
    torch.manual_seed(seed)
    lens = SYSTEM.make_lens(None)
    return lens, SYSTEM.make_network(None, lens), SYSTEM.make_critic(None, lens)


@pytest.mark.parametrize("kind", ["ppo", "actor-critic"])
def test_two_agents_learn_together(kind: str) -> None:
    lens, network, critic = made(0)
    pool = WorldPool.of([world()], [0])
    env = BatchEnv(pool, lens, "jobs", batch=16, final_obs="cut", judged=True)
    envs, rng = BatchRolloutEnv(env, AGENTS), np.random.default_rng(0)
    generator = torch.Generator().manual_seed(0)
    learner: Any
    if kind == "ppo":
        config = PPOConfig(
            steps=24, discount=1.0, trace=1.0, learning_rate=1e-2, reward_scale=10.0, entropy=0.01,
            max_kl=0.2,
        )  # fmt: skip
        learner = PPO(network, critic, config, generator, AGENTS)
    else:
        # It judges a round by itself, so it fills nodes well, and need not do the short job first.
        learner = ActorCritic(
            network, critic, ActorCriticConfig(learning_rate=1e-2, memory=256), generator, AGENTS
        )

    def mean_s() -> float:
        found = greedy_jct_s(lambda: BatchEnv(pool, lens, batch=1), network, AGENTS)
        return float(found[0])

    assert mean_s() > 2 * BEST_S
    before = {name: array.clone() for name, array in network.state_dict().items()}
    for _ in range(30):
        rollout = play(envs, network, critic, 24, rng)
        assert rollout.agent is not None
        assert set(np.unique(rollout.agent)) == {0, 1}
        assert np.isfinite(list(learner.update(rollout, 1.0).values())).all()
    after = network.state_dict()
    assert all(not torch.equal(before[name], after[name]) for name in before)  # both parts
    assert mean_s() == pytest.approx(BEST_S) if kind == "ppo" else mean_s() < 1.1 * BEST_S

    # What was trained is what runs, and it needs no critic.
    made_of = world()
    run = simulate(made_of.cluster, made_of.trace, as_policy(SYSTEM, lens, network, "two"))
    assert (run.done_s - run.submit_s).mean() == pytest.approx(mean_s())


def in_turn(agents: list[int], reward: list[float], over: list[bool], value: float) -> Rollout:
    """One cluster; every state is worth 0, and the last one `value`."""
    t = len(reward)
    one = np.ones((t, 1), np.bool_)
    return dense_rollout(
        seen={}, live=one, action=np.zeros((t, 1), np.int64), mask=np.ones((t, 1, 2), np.bool_),
        log_prob=np.zeros((t, 1)), value=np.array([*[0.0] * t, value])[:, None],
        reward=np.array(reward)[:, None], over=np.array(over)[:, None], done=~one,
        inputs=np.zeros((t, 1), np.int64), agent=np.array(agents)[:, None],
    )  # fmt: skip


def test_an_agent_is_judged_until_its_own_next_decision() -> None:
    # Two rounds, in which the first agent acts once and the second one twice.
    agents, over = [0, 1, 1, 0, 1, 1], [False, False, True] * 2
    rollout = in_turn(agents, [0, 0, 3, 0, 0, 5], over, 8.0)
    config = PPOConfig(discount=0.5, trace=0.0, inside=1.0, reward_scale=1.0)
    value = np.array([1.0, 2.0, 4.0, 16.0, 32.0, 64.0])
    gain, target = advantages(rollout, value, config, AGENTS)
    # The first agent: 3 + ½ · its next value, 16; then 5 + ½ · 8. The second: with λ = 1 inside
    # a round its first decision is judged as its last, 3 + ½ · 32, then 5 + ½ · 8.
    assert target.tolist() == [3 + 8, 3 + 16, 3 + 16, 5 + 4, 5 + 4, 5 + 4]
    # Each agent's advantages have mean 0 and spread 1, whatever those of the other are.
    for number in (0, 1):
        mine = gain[np.array(agents) == number]
        assert mine.mean() == pytest.approx(0, abs=1e-6)
        assert mine.std() == pytest.approx(1, rel=1e-5)


def test_a_single_agent_is_judged_as_if_there_were_no_names() -> None:
    over = [False, True, False, True]
    rollout = in_turn([0, 0, 0, 0], [1, 3, -2, 5], over, 8.0)
    config = PPOConfig(discount=0.5, trace=0.3, inside=0.7, reward_scale=1.0)
    value = np.array([1.0, 2.0, 4.0, 16.0])
    named = advantages(rollout, value, config, AGENTS)
    rollout.agent = None
    for a, b in zip(named, advantages(rollout, value, config), strict=True):
        np.testing.assert_array_equal(a, b)


def test_agents_of_one_system_follow_the_same() -> None:
    with pytest.raises(ConfigError, match="must all follow steps, or all follow jobs"):
        follow_jobs((LearnedAgent(name="a"), LearnedAgent(name="b", follows="jobs")))
    with pytest.raises(ConfigError, match="follows = 'nodes'"):
        LearnedAgent(name="a", follows="nodes")
