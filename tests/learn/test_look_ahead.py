"""Look-ahead learning: it finds the mean of noisy costs, and refuses what it cannot learn from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy_games import KINDS, Small, Steps, Worth

from rota.errors import ConfigError, RotaError, TrainingError
from rota.learn.collect import play
from rota.learn.look_ahead import UNIT_S, LookAhead, LookAheadConfig, _centred
from rota.learn.recipe_file import load_recipe
from rota.learn.states import Allowed, begins_of
from rota.learn.trainer import Trainer
from rota.learn.training_folder import BEST, RIVALS


class Foreseen(Steps):
    """The game of steps, in which a wrong action costs a unit more; noise comes on top."""

    def __init__(self, batch: int, noise: float) -> None:
        super().__init__(batch, np.random.default_rng(0))
        self._chance, self._noise = np.random.default_rng(1), noise

    def costs(self) -> Any:
        wrong = np.arange(KINDS + 1) != self.kind[:, None]
        noise = self._noise * self._chance.normal(size=wrong.shape)
        cost = UNIT_S * (7.0 + wrong + noise)
        cost[:, KINDS] = np.inf  # never allowed
        return cost


def learner(**settings: Any) -> LookAhead:
    torch.manual_seed(0)
    usual = {"learning_rate": 1e-2, "memory": 4096, "batch": 256, "follow": 0.2}
    config = LookAheadConfig(**{**usual, **settings})
    return LookAhead(Small(KINDS + 1), Worth(), config, torch.Generator().manual_seed(0))


def improved(look: LookAhead, envs: Any, updates: int) -> list[float]:
    """The mean reward of a decision, update by update."""
    rng, rewards = np.random.default_rng(2), []
    for update in range(updates):
        rollout = play(envs, look.network, Worth(), look.config.steps, rng)
        rewards.append(float(rollout.reward.sum()) / len(rollout.decisions))
        look.update(rollout, 1 - update / updates)
    return rewards


def test_noise_that_is_three_times_the_difference_averages_out() -> None:
    rewards = improved(learner(), Foreseen(64, noise=3.0), 40)
    assert rewards[0] < 0.4  # 1/4 by chance
    assert np.mean(rewards[-5:]) > 0.9


def test_it_ends_at_the_softmax_of_mean_costs() -> None:
    look = learner(temperature_s=UNIT_S / 2)
    improved(look, Foreseen(64, noise=0.3), 60)
    with torch.inference_mode():
        logits, _ = look.network({"kind": torch.eye(KINDS)})
    right = np.exp(2.0) / (np.exp(2.0) + KINDS - 1)
    wanted = np.where(np.eye(KINDS) > 0, right, (1 - right) / (KINDS - 1))
    np.testing.assert_allclose(logits[:, :KINDS].softmax(-1).numpy(), wanted, atol=0.03)


def test_it_goes_on_from_what_the_network_has_learned_elsewhere() -> None:
    look = learner(follow=0.5, learning_rate=1e-9)
    with torch.no_grad():  # a warm-up, after the learner was made
        for weight in look.network.parameters():
            weight.add_(1.0)
    before = [weight.clone() for weight in look.network.parameters()]
    improved(look, Foreseen(8, noise=1.0), 3)
    for then, now in zip(before, look.network.parameters(), strict=True):
        torch.testing.assert_close(then, now.detach(), rtol=0, atol=1e-5)


def test_the_same_seed_gives_the_same_weights() -> None:
    def weights() -> list[float]:
        look = learner()
        improved(look, Foreseen(8, noise=1.0), 3)
        return torch.cat([p.detach().ravel() for p in look.network.parameters()]).tolist()

    assert weights() == weights()


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8), st.integers(0, 2**32))
def test_costs_in_lists_are_centred_like_those_in_tables(counts: list[int], seed: int) -> None:
    rng, most = np.random.default_rng(seed), max(counts)
    there = np.arange(most) < np.array(counts)[:, None]
    flags = there & (rng.random(there.shape) < 0.7)
    cost = np.where(flags, rng.normal(size=there.shape), 0.0)
    table = _centred(cost, Allowed(flags))
    listed = _centred(cost[there], Allowed(flags[there], begins_of(np.array(counts))))
    np.testing.assert_allclose(listed, table[there], rtol=1e-6, atol=1e-6)
    assert (table[~flags] == 0).all()


def test_what_it_cannot_learn_from_is_refused() -> None:
    with pytest.raises(TrainingError, match="can foresee"):
        improved(learner(), Steps(4, np.random.default_rng(0)), 1)
    with pytest.raises(TrainingError, match="not finite"):
        improved(learner(), Foreseen(4, noise=np.inf), 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("coming", -1),
        ("rules", ()),
        ("steps", 0),
        ("follow", 0.0),
        ("temperature_s", 0.0),
        ("learning_rate", np.inf),
    ],
)
def test_settings_that_make_no_sense_are_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=name):
        LookAheadConfig(**{name: value})


def test_a_system_without_foresight_cannot_use_it() -> None:
    with pytest.raises(ConfigError, match="cannot foresee"):
        load_recipe("dl2", ["run.learner=look-ahead"])


def test_one_training_learns_from_several_scenarios(tmp_path: Any) -> None:
    recipe = load_recipe("deepshare", [
        "world.scenario=deepshare", 'world.also=["contention-arrivals"]', "world.turns=[2, 1]",
        "world.clusters=2", "world.pool=2", "world.validate=1000:1002",
        'world.against=["contention-greedy"]',
        "clone.samples=40", "clone.clusters=2", "clone.epochs=1", "clone.again=0",
        "look_ahead.steps=2", "look_ahead.batches=1", "run.updates=2", "run.validate_every=2",
    ])  # fmt: skip
    trainer = Trainer(recipe, tmp_path / "run")
    best = trainer.run()
    first, second = trainer.standings()
    assert [first.scenario, second.scenario] == ["deepshare", "contention-arrivals"]
    assert best == pytest.approx(np.sqrt(first.jct * second.jct))
    assert (tmp_path / "run" / BEST).is_file()
    assert (tmp_path / "run" / f"contention-arrivals-{RIVALS}").is_file()
    again = Trainer(recipe, tmp_path / "run", resume=True)
    assert again.run() == best


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ('world.also=["deepshare"]', "names a scenario twice"),
        ('world.also=["none"]', "none"),
        ('world.also=["elastic-unknown"]', "elastic-unknown: Speeds are observed"),
        ('look_ahead.rules=["fifo-skip"]', "'fifo-skip' cannot play on"),
    ],
)
def test_scenarios_that_do_not_go_together_are_refused(
    tmp_path: Any, change: str, words: str
) -> None:
    with pytest.raises(RotaError, match=words):
        Trainer(load_recipe("deepshare", ["world.turns=[]", change]), tmp_path / "run")


def test_scenario_files_of_one_name_are_refused(tmp_path: Any) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "site.toml").write_text(
            'version = 1\nabout = "a test"\nbase = "contention-arrivals"\n'
        )
    both = f'world.also=["{tmp_path}/a/site.toml", "{tmp_path}/b/site.toml"]'
    with pytest.raises(ConfigError, match="two scenarios that are called 'site'"):
        Trainer(load_recipe("deepshare", ["world.turns=[]", both]), tmp_path / "run")


def test_scenarios_take_turns_in_proportion() -> None:
    equal = ["world.turns=[]"]
    assert load_recipe("deepshare", equal).world.cycle == (0, 1, 2, 3, 4, 5)
    two = ['world.also=["contention-arrivals"]', "world.turns=[3, 1]"]
    assert load_recipe("deepshare", two).world.cycle == (0, 0, 1, 0)


@pytest.mark.parametrize(
    ("turns", "words"),
    [
        ("[1, 2]", "must be 6 whole numbers from 1"),
        ("[1, 1, 1, 1, 1, 0]", "must be 6 whole numbers from 1"),
        ("[1, 1, 1, 1, 1, 1.5]", "must be a list of whole numbers"),
        ("[1, 1, 1, 1, 1, true]", "must be a list of whole numbers"),
        ("3", "must be a list of whole numbers"),
    ],
)
def test_turns_that_make_no_sense_are_refused(turns: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_recipe("deepshare", [f"world.turns={turns}"])
