"""The knobs of DL2's experiments: every preset of an ablation can be read, built and trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rota.learn.collect import play
from rota.learn.recipe_file import load_recipe
from rota.learn.trainer import Trainer
from rota.systems.registry import presets

ABLATIONS = sorted(name for name, path in presets().items() if path.parent.name == "ablations")
SLOW = "dl2-speed-error-"  # where machines drift, all of the simulator is compiled anew
CASES = [
    pytest.param(name, marks=pytest.mark.slow) if name.startswith(SLOW) else name
    for name in ABLATIONS
]
TINY = (
    "world.train=3000:3002", "world.validate=1000:1001", "world.clusters=2", "world.pool=2",
    "world.replicas=1",
    "clone.samples=24", "clone.epochs=1", "clone.clusters=2", "ppo.steps=3", "ppo.epochs=1",
    "actor_critic.steps=24", "actor_critic.memory=4", "actor_critic.batch=4",
    "actor_critic.batches=1", "run.threads=1",
)  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_every_ablation_differs_and_can_be_trained(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    usual = load_recipe("dl2-actor-critic" if recipe.run.learner == "actor-critic" else "dl2")
    mine, base = recipe.facts(), usual.facts()
    assert any(mine[table] != base[table] for table in mine if table not in ("name", "about"))

    # The same on fitted speeds, which need no data.
    scenario = recipe.world.scenario.removesuffix("-published")
    training = Trainer(load_recipe(name, [*TINY, f"world.scenario={scenario}"]), tmp_path / "out")
    if recipe.clone.teacher != usual.clone.teacher and recipe.clone.teacher:
        assert training.worlds.policy(recipe.clone.teacher)
    rng = np.random.default_rng(0)
    envs = training.worlds.training_env(rng)
    rollout = play(envs, training.network, training.critic, training.learner.config.steps, rng)
    if recipe.run.learner == "actor-critic":  # it learns from rounds that are over
        rollout.over[-1] = True
    facts = training.learner.update(rollout, 1.0)
    assert np.isfinite(list(facts.values())).all()
    assert "entropy" in facts


def test_a_preset_for_every_knob_that_the_table_names() -> None:
    pages = Path(__file__).parents[2] / "docs" / "systems"
    text_of = {"dl2": "dl2-knobs.md", "deepshare": "deepshare.md", "das": "das.md"}
    for name in ABLATIONS:
        text = (pages / text_of[name.partition("-")[0]]).read_text()
        stem = name.rpartition("-")[0] if name.rpartition("-")[2].isdecimal() else name
        assert f"`{stem}" in text, name
