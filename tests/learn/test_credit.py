"""Who is paid for what: nothing that a cluster earned is lost, and no choice is no merit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from dense_rollout import FOLLOWS_JOBS, dense_advantages, dense_rollout, live_of
from small_training import small_trainer
from toy_games import KINDS, Small, Worth, two_states

from rota.envs import BatchEnv, WorldPool
from rota.learn.actor_critic import ActorCritic, ActorCriticConfig
from rota.learn.advantages import _others_by_time, advantages
from rota.learn.batch_rollout_env import BatchRolloutEnv
from rota.learn.collect import play
from rota.learn.inference import infer_values
from rota.learn.ppo import PPO, PPOConfig
from rota.scenarios import load
from rota.systems.agents import EDITOR
from rota.systems.dl2.network import PlainCritic, PlainNetwork
from rota.systems.dl2.onepass import OnePass
from rota.systems.dl2.onepass_network import OnePassCritic, OnePassNetwork
from rota.systems.dl2.step_lens import StepByStep

if TYPE_CHECKING:
    from pathlib import Path

    from rota.learn.collect import Rollout
    from rota.learn.trainer import Trainer

PLAIN = PPOConfig(discount=1.0, trace=1.0, reward_scale=1.0, credit="own")


def rollout_of(
    rows: list[list[int]], gains: list[list[float]], alive: list[bool] | None = None
) -> Rollout:
    """One cluster: jobs in sight at each step and after the last, and what every job gained."""
    names, paid = np.array(rows)[:, None], np.array(gains, np.float64)[:, None]
    live = names[:-1] >= 0
    reward = np.take_along_axis(paid, np.maximum(names[:-1], 0), 2) * live
    t = len(paid)
    return dense_rollout(
        seen={}, live=live, action=np.zeros(live.shape, np.int64),
        mask=np.ones((*live.shape, 2), np.bool_), log_prob=np.zeros(live.shape),
        value=np.zeros(names.shape), reward=reward, rows=names, over=np.ones((t, 1), np.bool_),
        done=np.zeros((t, 1), np.bool_), inputs=np.zeros((t, 1), np.int64), gains=paid,
        alive=np.array([alive or [False] * paid.shape[2]]),
    )  # fmt: skip


def test_what_a_job_brings_out_of_sight_counts_for_the_last_decision_about_it() -> None:
    # Job 0 is decided on once, then runs out of sight until it ends; job 1 leaves and comes back.
    rollout = rollout_of(
        [[0, 1], [-1, -1], [-1, -1], [1, -1], [-1, -1]],
        [[-1, -1], [-2, -4], [-8, -16], [0, -32]],
    )
    _, target = dense_advantages(rollout, np.zeros((5, 1, 2)), PLAIN)
    assert target[0, 0].tolist() == [-1 - 2 - 8, -1 - 4 - 16 - 32]
    assert target[3, 0, 0] == -32
    # γ = ½ counts every round, λ only sights: −1 − 4/2 − 16/4 + ¼ (½ V − …), with V = 0 here.
    half = replace(PLAIN, discount=0.5, trace=0.0)
    value = np.zeros((5, 1, 2))
    value[3, 0, 0] = 24.0
    _, target = dense_advantages(rollout, value, half)
    assert target[0, 0].tolist() == [-1 - 1 - 2, -1 - 2 - 4 + 24 / 8]


def test_a_job_that_is_out_of_sight_at_the_end_went_as_expected() -> None:
    rollout = rollout_of([[0], [-1], [-1]], [[-1.0], [-1.0]], alive=[True])
    value = np.array([-7.0, 0.0, 0.0])[:, None, None]
    _, target = dense_advantages(rollout, value, PLAIN)
    assert target[0, 0, 0] == -7
    # In a bandit nothing that comes later matters.
    _, target = dense_advantages(rollout, value, replace(PLAIN, discount=0.0))
    assert target[0, 0, 0] == -1


def test_a_team_is_whoever_was_there() -> None:
    # Job 1 arrives at the second step: what it costs is no concern of the first.
    rollout = rollout_of([[0, -1], [0, 1], [-1, -1]], [[-1, 0], [-2, -40]])
    config = replace(PLAIN, credit="team")
    gain, _ = dense_advantages(rollout, np.zeros((3, 1, 2)), config)
    # First step −1 − 2 = −3, second step −42 for both jobs: mean −29, sd √338.
    spread = np.std([-3, -42, -42])
    np.testing.assert_allclose(gain[live_of(rollout)], np.array([26, -13, -13]) / spread, rtol=1e-5)


def test_a_team_is_paid_for_jobs_that_nobody_saw() -> None:
    # Job 1 is never in sight; with job 0 in sight twice, the team gets −1 − 10 and then −2 − 20.
    rollout = rollout_of([[0], [0], [-1]], [[-1, -10], [-2, -20]])
    config = replace(PLAIN, credit="team", discount=0.0)
    gain, _ = dense_advantages(rollout, np.zeros((3, 1, 1)), config)
    np.testing.assert_allclose(gain[live_of(rollout)], [1, -1], rtol=1e-5)
    _, target = dense_advantages(rollout, np.zeros((3, 1, 1)), replace(config, discount=1.0))
    assert target[:, 0, 0].tolist() == [-3, -2]  # its own value knows nothing of it


@pytest.mark.parametrize("kind", ["jobs", "progress"])
def test_no_reward_is_lost_where_running_jobs_leave_the_window(kind: str) -> None:
    scenario = load("gang-nonpreemptive", ["workload.jobs=60"])
    lens = OnePass(window=20)
    env = BatchEnv(WorldPool.draw(scenario, [0, 1]), lens, kind, batch=2, final_obs="cut")
    envs, rng = BatchRolloutEnv(env, FOLLOWS_JOBS), np.random.default_rng(0)
    network = OnePassNetwork(
        types=lens.types, features=lens.features, globals_=lens.globals, actions=lens.actions
    )
    critic = OnePassCritic(types=lens.types, features=lens.features)
    team, begun = np.zeros(2), np.zeros(2, np.bool_)
    step = env.step

    def counted(actions: Any) -> Any:
        turn = step(actions)
        team[:] += np.where(begun, 0.0, turn[1])
        begun[:] |= turn[2] | turn[3]
        return turn

    env.step = counted  # type: ignore[method-assign]
    rollout = play(envs, network, critic, 240, rng)
    assert begun.all()
    assert rollout.gains is not None
    first = np.cumsum(rollout.done, 0) - rollout.done == 0  # of the first episode
    np.testing.assert_allclose((rollout.gains.sum(2) * first).sum(0), team, rtol=1e-5)
    # Summed over the first decision about each job, the credits are the whole of it.
    _, target = advantages(rollout, np.zeros(len(rollout.decisions)), PLAIN, FOLLOWS_JOBS)
    paid, in_sight = np.zeros((2, 2))
    known: set[tuple[int, int]] = set()
    decided = zip(rollout.decisions.state, rollout.decisions["job"], target, strict=True)
    for state, job, worth in decided:
        t, b = divmod(int(state), 2)
        if first[t, b]:
            in_sight[b] += rollout.gains[t, b, job] / team[b]
            paid[b] += 0.0 if (b, job) in known else worth
            known.add((b, job))
    assert len(known) == 2 * 60
    assert (in_sight < 0.7).all()  # the rest came while nobody saw the job
    np.testing.assert_allclose(paid, team, rtol=1e-5)


def forced(batch: int = 8) -> dict[str, Any]:
    """Steps in which nobody has a choice."""
    mask = np.zeros((2, batch, KINDS), np.bool_)
    mask[..., 0] = True
    return {
        "seen": {"kind": np.ones((2, batch, KINDS), np.float32)},
        "live": np.ones((2, batch), np.bool_), "action": np.zeros((2, batch), np.int64),
        "mask": mask, "log_prob": np.zeros((2, batch), np.float32),
        "value": np.zeros((3, batch), np.float32), "reward": np.ones((2, batch), np.float32),
        "rows": None, "over": np.ones((2, batch), np.bool_), "done": np.zeros((2, batch), np.bool_),
        "inputs": np.zeros((2, batch), np.int64),
    }  # fmt: skip


def ppo(agents: Any = EDITOR, **settings: Any) -> PPO:
    torch.manual_seed(0)
    return PPO(
        Small(KINDS), Worth(), PPOConfig(**settings), torch.Generator().manual_seed(0), agents
    )


def test_a_rollout_without_a_choice_teaches_values_and_nothing_else() -> None:
    learner = ppo(learning_rate=1e-2)
    before = learner.network.logits.weight.detach().clone()
    facts = learner.update(dense_rollout(**forced()), 1.0)
    assert facts["entropy"] == facts["kl"] == facts["policy_loss"] == 0.0
    assert facts["value_loss"] > 0
    assert torch.equal(before, learner.network.logits.weight)


def test_a_rollout_without_a_job_is_no_failure() -> None:
    empty = forced()
    shape = (2, 8, 3)
    empty |= {
        "seen": {"kind": np.zeros((*shape, KINDS), np.float32), "rows": np.full(shape, -1)},
        "live": np.zeros(shape, np.bool_), "action": np.full(shape, -1),
        "mask": np.zeros((*shape, KINDS), np.bool_), "log_prob": np.zeros(shape, np.float32),
        "value": np.zeros((3, 8, 3), np.float32), "reward": np.zeros(shape, np.float32),
        "rows": np.full((3, 8, 3), -1), "gains": np.zeros((2, 8, 5), np.float32),
        "alive": np.zeros((8, 5), np.bool_),
    }  # fmt: skip
    for settings in ({}, {"credit": "own"}, {"joint": True}):
        facts = ppo(FOLLOWS_JOBS, **settings).update(dense_rollout(**empty), 1.0)
        assert "failed" not in facts
        assert np.isfinite(list(facts.values())).all()
    config = ActorCriticConfig(memory=8, batch=4, batches=1)
    one = ActorCritic(Small(KINDS), Worth(), config, torch.Generator(), FOLLOWS_JOBS)
    assert one.update(dense_rollout(**empty), 1.0) == {"remembered": 0.0}
    one = ActorCritic(Small(KINDS), Worth(), config, torch.Generator())
    facts = one.update(dense_rollout(**forced()), 1.0)
    assert facts["entropy"] == facts["policy_loss"] == 0.0
    assert facts["value_loss"] > 0


def test_entropy_and_divergence_are_those_of_free_decisions() -> None:
    # Half of the decisions are free, among 4 equally likely actions: their entropy is ln 4.
    mixed = forced()
    mixed["mask"][:, ::2] = True
    mixed["log_prob"][:, ::2] = -np.log(4.0)
    learner = ppo(learning_rate=1e-12, epochs=1, minibatches=1)
    torch.nn.init.zeros_(learner.network.logits.weight)
    torch.nn.init.zeros_(learner.network.logits.bias)
    facts = learner.update(dense_rollout(**mixed), 1.0)
    assert facts["entropy"] == pytest.approx(np.log(4.0), rel=1e-5)
    # And the divergence is not diluted: what was drawn at 1/2 is now at 1/4.
    mixed["log_prob"][:, ::2] = -np.log(2.0)
    facts = ppo_of(learner).update(dense_rollout(**mixed), 1.0)
    assert facts["kl"] == pytest.approx(0.5 - 1 + np.log(2.0), rel=1e-4)


def ppo_of(other: PPO) -> PPO:
    config = replace(other.config, max_kl=10.0)
    return PPO(other.network, other.critic, config, torch.Generator().manual_seed(0))


def test_an_edit_that_ends_a_round_by_capping_the_last_job_gets_its_credit() -> None:
    data = forced(1)
    rollout = dense_rollout(**data)
    rollout.reward[:] = 0.0
    rollout.potential = np.array([[1.0], [3.0], [2.0]])  # the second step ends the round
    rollout.over = np.array([[False], [True]])
    rollout.potential_after = np.array([[3.0], [7.0]])
    rollout.decisions = rollout.decisions.having(job=np.array([0, 0]))
    config = PPOConfig(shaped=True, credit="own", inside=0.5, reward_scale=1.0)
    _, target = dense_advantages(rollout, np.zeros((3, 1)), config)
    assert target[:, 0].tolist() == [2 + 0.5 * 4, 4]


def test_turns_hold_the_potential_from_before_time_passed() -> None:
    lens = StepByStep(window=2)
    pool = WorldPool.draw(load("dl2-small", ["workload.jobs=4"]), [0])
    pool.state.jobs["max_workers"] = pool.state.jobs["max_servers"] = 2
    env = BatchEnv(pool, lens, "progress", batch=1, potentials=True)
    envs = BatchRolloutEnv(env, tell="potential")
    network = PlainNetwork(
        window=2, features=lens.features, globals_=lens.globals, actions=lens.actions
    )
    critic = PlainCritic(window=2, features=lens.features, globals_=lens.globals)
    with torch.no_grad():
        network.policy[-1].bias[-1] = -20.0  # it never ends a round of its own will
    rollout = play(envs, network, critic, 400, np.random.default_rng(0))
    assert rollout.potential is not None
    assert rollout.potential_after is not None
    inside = ~rollout.over[:, 0]
    np.testing.assert_array_equal(
        rollout.potential_after[inside, 0], rollout.potential[1:][inside, 0]
    )
    capped = rollout.over[:, 0] & (rollout.decisions["job"] >= 0)
    assert capped.any()
    assert (rollout.potential_after[capped, 0] > rollout.potential[:-1][capped, 0]).any()


def test_the_weights_of_replay_reach_the_critic() -> None:
    one = ActorCritic(
        Small(KINDS), Worth(), ActorCriticConfig(memory=2, batch=2, entropy=0.0), torch.Generator()
    )
    part = two_states(np.ones((2, KINDS), np.bool_))
    value = infer_values(one.network, one.critic, part.seen)
    missed = np.square(value - part.decisions["reward"])
    _, _, (_, told, _) = one._loss(part, torch.tensor([1.0, 0.25]))
    assert told == pytest.approx(float((missed[0] + 0.25 * missed[1]) / 2), rel=1e-5)


TABLES = {
    "world": {"validate": "1000:1002", "clusters": 4, "pool": 4},
    "clone": {"teacher": "drf", "samples": 100, "epochs": 1},
    "ppo": {"steps": 4},
    "run": {"updates": 2, "validate_every": 2},
}


def trainer(tmp_path: Path, *changes: str, **options: Any) -> Trainer:
    return small_trainer(tmp_path, *changes, system="dl2", tables=TABLES, **options)


def test_cloning_uses_as_many_threads_as_it_is_told(tmp_path: Path) -> None:
    threads = []
    training = trainer(tmp_path, "run.threads=3", "run.learner=none")
    forward = training.network.forward

    def spied(seen: Any) -> Any:
        if torch.is_grad_enabled():
            threads.append(torch.get_num_threads())
        return forward(seen)

    training.network.forward = spied
    training.run()
    assert set(threads) == {3}
    assert torch.get_num_threads() == 1


def test_the_warm_up_uses_up_none_of_the_learning_rate(tmp_path: Path) -> None:
    training = trainer(tmp_path, "run.minutes=1.0", "run.updates=1000000")
    training._rl_began_s = 45.0  # of 60: a long warm-up
    assert training._left(45.0) == pytest.approx(1.0)
    assert training._left(52.5) == pytest.approx(0.5)
    assert training._left(60.0) == 0.0
    training._rl_began_s = 61.0
    assert training._left(61.0) <= 0.0


def test_a_resumed_training_knows_when_learning_began(tmp_path: Path) -> None:
    training = trainer(tmp_path, "run.minutes=1000.0")
    training.run()
    began_s = training._rl_began_s
    assert began_s is not None
    assert 0 < began_s < training.elapsed_s
    again = trainer(tmp_path, "run.minutes=1000.0", resume=True)
    assert again._rl_began_s == began_s


def test_rewards_fade_by_time_where_rounds_are_not_slots() -> None:
    # Three steps: an edit without time, a round of an hour, a round of two.
    steps = 3
    rollout = dense_rollout(
        seen={}, live=np.ones((steps, 1), np.bool_), action=np.zeros((steps, 1), np.int64),
        mask=np.ones((steps, 1, 2), np.bool_), log_prob=np.zeros((steps, 1)),
        value=np.zeros((steps + 1, 1)), reward=np.array([[0.0], [-1.0], [-2.0]]), rows=None,
        over=np.array([[False], [True], [True]]), done=np.zeros((steps, 1), np.bool_),
        inputs=np.zeros((steps, 1), np.int64), passed_s=np.array([[0.0], [3600.0], [7200.0]]),
    )  # fmt: skip
    config = replace(PLAIN, horizon_s=3600.0)
    value = np.array([[0.0], [0.0], [0.0], [-8.0]])
    _, target = dense_advantages(rollout, value, config)
    last = -2.0 - 8.0 * np.exp(-2.0)
    expected = [-1.0 + last * np.exp(-1.0), -1.0 + last * np.exp(-1.0), last]
    np.testing.assert_allclose(target[:, 0], expected, rtol=1e-6)


def test_what_arrivals_do_to_all_is_no_merit_also_at_other_times() -> None:
    # Two clusters replay trace 7, a third one another; each pays what the other had just before.
    at_s = np.array([[0.0, 5.0, 0.0], [10.0, 12.0, 1.0], [20.0, 30.0, 2.0]])
    trace = np.array([[7, 7, 8], [7, 7, 8], [7, 9, 8]])
    gain = np.array([[1.0, 2.0, 9.0], [4.0, 8.0, 9.0], [16.0, 32.0, 9.0]])
    others = _others_by_time(gain, at_s, trace, np.ones(gain.shape, np.bool_))
    expected = [[0.0, 1.0, 0.0], [2.0, 4.0, 0.0], [8.0, 0.0, 0.0]]
    np.testing.assert_array_equal(others, expected)
