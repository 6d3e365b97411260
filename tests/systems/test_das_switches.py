"""What can be switched in DAS: Gaussian scores, what is remembered, rewards, the worth of a fee."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rota.envs import BatchEnv, WorldPool
from rota.envs.rewards import Reward
from rota.errors import ConfigError
from rota.learn import checkpoint
from rota.learn.deploy import as_policy
from rota.learn.recipe_file import load_recipe
from rota.learn.trainer import Trainer
from rota.policies import make_policy
from rota.scenarios import load
from rota.sim import simulate
from rota.sim.faults import Faults
from rota.systems.das.das_network import BothSeen, TwoAgents
from rota.systems.das.das_settings import OrderPlaceLensConfig, TwoAgentsConfig
from rota.systems.das.gaussian_choice import win_logits
from rota.systems.das.order_place_lens import OrderPlaceLens
from rota.systems.registry import system

torch.set_num_threads(1)


def small(jobs: int = 30) -> Any:
    return load("das-small", (f"workload.jobs={jobs}",))


def test_of_two_gaussian_scores_the_chance_is_that_of_their_difference() -> None:
    mean, sd = torch.tensor([[0.3, -0.5]]).double(), torch.tensor([[1.0, 2.0]]).double()
    found = win_logits(mean, sd, torch.ones(1, 2, dtype=torch.bool)).exp()
    first = float(torch.special.ndtr(torch.tensor(0.8 / 5**0.5).double()))
    assert found[0].tolist() == pytest.approx([first, 1 - first], abs=2e-4)


@given(st.integers(0, 10**6))
def test_chances_of_gaussian_scores_are_how_often_each_wins(seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    mean = torch.randn(1, 5, generator=random).double()
    sd = 0.5 + torch.rand(1, 5, generator=random).double()
    there = torch.tensor([[True, True, False, True, True]])
    found = win_logits(mean, sd, there).exp()[0]
    drawn = (mean + sd * torch.randn(20_000, 5, generator=random)).masked_fill(~there, -1e9)
    often = torch.bincount(drawn.argmax(-1), minlength=5) / 20_000
    assert found.sum() == pytest.approx(1.0, abs=0.01)
    assert found[2] == 0.0
    assert (found - often).abs().max() < 0.02


def test_gaussian_choices_stay_finite_where_deviations_and_means_are_extreme() -> None:
    mean = torch.tensor([[1e6, -1e6, 0.0, 3.0]], requires_grad=True)
    sd = torch.tensor([[1e-3, 1e3, 1.0, 1.0]], requires_grad=True)
    found = win_logits(mean, sd, torch.ones(1, 4, dtype=torch.bool))
    found.clamp_min(-1e9).softmax(-1)[0, 0].backward()
    assert found.argmax() == 0
    assert torch.isfinite(found).all()
    assert mean.grad is not None
    assert torch.isfinite(mean.grad).all()


def test_what_was_given_away_is_remembered_if_that_is_the_target() -> None:
    world = small().draw(3)
    pool = WorldPool.of([world], [3])
    env = BatchEnv(pool, OrderPlaceLens(targets="actions"), batch=1)
    env.reset()
    while True:
        _, _, _, _, info = env.step(np.argmax(env._mask, -1))
        if info["closed"][0]:
            break
    memory = env.book.own.machines
    # The round that is over stands in the first place; all its machines are known.
    assert memory.known[0, 0].all()
    assert memory.observed[0, 0].sum() > 0.0
    assert memory.observed[0, 0].max() <= 1.0


@pytest.mark.parametrize("form", [{"scores": "gaussian"}, {"fee": True}, {"kernel": False}])
def test_every_form_plays_whole_worlds(form: dict[str, Any]) -> None:
    kind = system("das-paper")
    lens = kind.make_lens(OrderPlaceLensConfig(wait=True, targets="actions", fee=100.0))
    torch.manual_seed(0)
    network = kind.make_network(TwoAgentsConfig(width=8, heads=2, **form), lens)
    world = small().draw(5)
    run = simulate(world.cluster, world.trace, as_policy(kind, lens, network, "x"), world.when,
                   seed=5, physics=world.physics)  # fmt: skip
    assert np.isfinite(run.done_s).all()


@pytest.mark.parametrize("form", [{}, {"scores": "gaussian"}, {"kernel": False}])
def test_machines_that_disappear_and_come_back_stop_nobody_for_ever(form: dict[str, Any]) -> None:
    kind = system("das-paper")
    lens = kind.make_lens(OrderPlaceLensConfig(wait=True, machines=4, past=3))
    torch.manual_seed(0)
    network = kind.make_network(TwoAgentsConfig(width=8, heads=2, **form), lens)
    world = small().draw(5)
    often = replace(world.when, faults=Faults(node_mtbf_s=4 * 3600.0, node_repair_s=1800.0))
    run = simulate(world.cluster, world.trace, as_policy(kind, lens, network, "x"), often, seed=5,
                   physics=world.physics)  # fmt: skip
    assert np.isfinite(run.done_s).all()


def test_a_network_that_sees_the_fee_minds_it_and_others_do_not() -> None:
    lens = OrderPlaceLens()
    env = BatchEnv(WorldPool.of([small().draw(1)], [1]), lens, batch=1)
    seen, _ = env.reset()
    tensors = {name: torch.from_numpy(part.copy()) for name, part in seen.items()}
    for fee in (False, True):
        torch.manual_seed(1)
        network = TwoAgents(actions=lens.actions, fee=fee)
        critic = BothSeen(fee=fee)
        before = network(tensors)[0], critic(tensors, None)
        more = {**tensors, "fee": tensors["fee"] + 1.0}
        after = network(more)[0], critic(more, None)
        assert torch.equal(before[0], after[0]) is not fee
        assert torch.equal(before[1], after[1]) is not fee


def world_s(pool: WorldPool, b: int) -> Any:
    """The work of the jobs of a world."""
    return pool.state.truth["work_s"][b]


def test_a_return_is_minus_the_time_and_what_the_fees_are_worth() -> None:
    scenario = small(12)
    seeds = [2, 3, 4, 5]
    reward = Reward(kind="jobs", dollar_s=500.0)
    worth = reward.dollars(np.array(seeds))
    assert (worth > 0).any()
    pool = WorldPool.of([scenario.draw(seed) for seed in seeds], seeds)
    env = BatchEnv(pool, OrderPlaceLens(), reward, 4, autoreset=False)
    env.reset()
    assert env.book.dollar_s.tolist() == worth.tolist()
    total, over = np.zeros(4), np.zeros(4, bool)
    ends: Any = [None] * 4
    while not over.all():
        _, gained, done, _, info = env.step(np.argmax(env._mask, -1))
        total += np.where(over, 0.0, gained)
        for b in np.flatnonzero(done & ~over):
            ends[b] = (info["episode"]["jct_s"][b], info["episode"]["cost_s"][b])
        over |= done
    for b, seed in enumerate(seeds):
        fees = env.state.truth["fee"][b].mean()
        assert ends[b][1] == pytest.approx(ends[b][0] + worth[b] * fees)
        usual = 2.26 * env.state.jobs["gpus"][b] * world_s(pool, b) / 3600.0
        expected = ends[b][0] + worth[b] * (fees - usual.mean())
        assert -total[b] * 3600.0 / 12 == pytest.approx(expected), seed


def test_the_worth_of_a_dollar_is_drawn_once_per_seed() -> None:
    reward = Reward(dollar_s=2000.0)
    worth = reward.dollars(np.arange(4000))
    assert worth.tolist() == reward.dollars(np.arange(4000)).tolist()
    assert np.mean(worth == 0.0) == pytest.approx(0.25, abs=0.03)
    assert worth[worth > 0].min() >= 50.0
    assert worth.max() <= 2000.0
    assert not Reward().dollars(np.arange(5)).any()


def test_the_authors_reward_by_hand() -> None:
    """Who starts brings 1 / (dollars × minutes); who waits is fined by its GPUs' price."""
    world = load("das-small", ("workload.jobs=8", "drift.sd=0")).draw(7)
    trace = replace(world.trace.take(slice(0, 2)), submit_s=np.zeros(2))
    pool = WorldPool.of([replace(world, trace=trace)], [7])
    env = BatchEnv(pool, OrderPlaceLens(wait=True), Reward(kind="das", fine=0.5), batch=1)
    _, info = env.reset()
    env.step([0])
    first = int(env.book.own.job[0, 0])
    while env.book.own.job[0, 0] >= 0:
        env.step(np.argmax(info["mask"], -1))
    _, gained, _, _, info = env.step([OrderPlaceLens().window])
    assert info["closed"][0]
    true = env.state.truth[0, first]  # it has ended, alone; billed by the second
    product = true["fee"] * true["done_s"] / 60
    waits = env.state.jobs[0, 1 - first]
    fine = 0.5 * (3.06 + 1.46) / 2 * waits["gpus"]
    assert gained[0] == pytest.approx((1 / max(product, 0.01) - fine) / 2, rel=1e-4)
    assert info["gains"][0].sum() == pytest.approx(gained[0])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"kind": "das", "fine": -1.0}, "fine=-1.0 must be 0 or more"),
        ({"dollar_s": float("nan")}, "dollar_s=nan must be 0 or more"),
        ({"kind": "fee", "dollar_s": 5.0}, "counts fees in the reward 'jobs' only"),
    ],
)
def test_rewards_that_make_no_sense_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Reward(**settings)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="scores='normal' must be"):
        TwoAgentsConfig(scores="normal")
    with pytest.raises(ConfigError, match="targets='pace' must be"):
        OrderPlaceLensConfig(targets="pace")
    with pytest.raises(ConfigError, match="fee=nan must be 0 or more"):
        OrderPlaceLensConfig(fee=float("nan"))
    with pytest.raises(ConfigError, match=r"against = \[\] only"):
        load_recipe("das-paper", ("world.dollar_s=100",))


def test_a_trained_policy_is_told_the_fee_where_it_is_used(tmp_path: Any) -> None:
    recipe = load_recipe(
        "das-paper-fee",
        ("world.changes=['workload.jobs=20']", "world.pool=4", "world.clusters=4",
         "world.validate=1000:1002", "clone.samples=200", "clone.clusters=2", "clone.epochs=1",
         "network.width=8", "run.updates=1", "ppo.steps=8"),
    )  # fmt: skip
    Trainer(recipe, tmp_path / "run").run()
    file = tmp_path / "run" / "best.ckpt"
    plain, dear = make_policy(str(file)), make_policy(f"{file}:fee=200")
    assert (plain.lens.fee, dear.lens.fee) == (0.0, 200.0)
    world = small(20).draw(1)
    for policy in (plain, dear):
        run = simulate(world.cluster, world.trace, policy, world.when, seed=1,
                       physics=world.physics)  # fmt: skip
        assert np.isfinite(run.done_s).all()
    assert checkpoint.load(file).about.lens["fee"] == 0.0
    with pytest.raises(ConfigError, match="must be 0 or more seconds"):
        make_policy(f"{file}:fee=-1")
    with pytest.raises(ConfigError, match="has no setting 'speed'; it takes: fee"):
        make_policy(f"{file}:speed=1")
    with pytest.raises(ConfigError, match="has no setting 'fee'; it takes: none"):
        make_policy("das-paper:fee=200")
