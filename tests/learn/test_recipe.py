"""Recipes: read strictly, laid over their bases, changed from the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rota.errors import ConfigError, UnknownNameError
from rota.learn.recipe_file import load_recipe
from rota.systems.registry import presets

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """about = "a test"
system = "dl2-onepass"
[world]
scenario = "dl2-small"
[ppo]
clip = 0.1
"""


def written(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", sorted(presets()))
def test_every_preset_can_be_read(name: str) -> None:
    assert load_recipe(name).name == name


def test_reads_what_is_there_and_takes_the_rest_as_usual(tmp_path: Path) -> None:
    recipe = load_recipe(
        written(tmp_path, GOOD), ["run.seed=3", "world.reward=jobs", "ppo.steps=4"]
    )
    assert (
        recipe.learning.clip,
        recipe.learning.steps,
        recipe.learning.epochs,
    ) == (0.1, 4, 3)
    assert (recipe.run.seed, recipe.world.reward, recipe.lens.window) == (3, "jobs", 20)


def test_stands_on_another(tmp_path: Path) -> None:
    written(tmp_path, GOOD)
    path = written(tmp_path, 'base = "./mine.toml"\n[ppo]\nsteps = 2\n', "child.toml")
    recipe = load_recipe(path)
    assert (recipe.about, recipe.learning.clip, recipe.learning.steps) == (
        "a test",
        0.1,
        2,
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (GOOD + "clipp = 1\n", r"mine\.toml:7: \[ppo\]: There is no key 'clipp'.*'clip'"),
        (GOOD + "[pppo]\n", r"mine\.toml:7: There is no key 'pppo'.*'ppo'"),
        (GOOD.replace("0.1", '"much"'), r"mine\.toml:6: \[ppo\] clip = 'much' must be a number"),
        (GOOD.replace("0.1", "-1.0"), r"mine\.toml:6: \[ppo\] ppo\.clip=-1\.0 must be above 0"),
        (GOOD.replace("dl2-onepass", "dl3"), r"mine\.toml:2: No learned system is called 'dl3'"),
        (GOOD.replace('about = "a test"', ""), r"about = .* is missing"),
        (GOOD.replace('scenario = "dl2-small"', ""), r"\[world\] scenario is missing"),
        ("ppo = 3\n" + GOOD[: GOOD.index("[ppo]")], r"mine\.toml:1: ppo must be a table"),
        (GOOD + '[run]\nthreads = 1.5\n', r"threads = 1\.5 must be a whole number"),
        ('base = "mine.toml"\n' + GOOD, r"mine\.toml:1: base = .* leads back to itself"),
        ('base = "dl2-onepas"\n', r"mine\.toml:1: No recipe .* 'dl2-onepass'"),
        (GOOD + "x = [\n", "no valid TOML"),
        (GOOD + '[lens]\nwindows = 3\n', r"\[lens\]: There is no key 'windows'"),
    ],
)  # fmt: skip
def test_complains_with_the_line(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load_recipe(written(tmp_path, text))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("ppo.clipp=1", r"--set ppo\.clipp=1: \[ppo\]: There is no key 'clipp'"),
        ("clip=1", "must look like table.key=value"),
        ("ppo.clip", "must look like table.key=value"),
        ("ppo.clip=wide", r"--set ppo\.clip=wide: \[ppo\] clip = 'wide' must be a number"),
        ("about.clip=1", "There is no table"),
        ("world.validate=3500:3600", "share seeds"),
        ("world.train=9000:10001", r"holds the seed 10000: .*outside checks.*'3000:10000'"),
        ("world.validate=12000:12010", r"holds the seed 12000: .*outside checks.*'1000:1050'"),
        ("world.train=1100:9000", r"holds the test seed 2000: .* 2000 to 2999, .*'3000:10000'"),
        ("world.validate=2500:2501", r"holds the test seed 2500: .*'1000:1050'"),
        ("world.train=3000:3000", "holds no seed"),
        ("clone.any_order=true", "not possible with 'dl2-onepass'"),
        ("clone.again=-1", "again = -1 must be 0 or more"),
        ("clone.every=0", "must be 1 or more"),
        ("world.train=all", "must be a range"),
        ("world.replicas=3", "multiple of replicas"),
        ("run.save_every_s=100", "at most 60"),
        ("run.learner=dqn", "No learner is called 'dqn'. Known: actor-critic"),
        ("run.minutes=nan", "minutes = nan must be 0 or more"),
        ("run.minutes=-1", "minutes = -1.0 must be 0 or more"),
        ("run.updates=0", "updates = 0 must be 1 or more"),
        ("clone.loss=huber", "must be 'cross-entropy'"),
        ("explore.kind=job-aware", r"does not go with learner = 'ppo'.*'actor-critic'"),
        ("explore.kind=wild", "must be 'none', 'job-aware' or 'epsilon'"),
        ("actor_critic.memory=0", r"actor_critic\.memory=0 must be 1 or more"),
    ],
)
def test_complains_of_a_change(tmp_path: Path, change: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load_recipe(written(tmp_path, GOOD), [change])


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (["run.threads=-1", "run.updates=1"], r"^--set run\.threads=-1: \[run\] threads = -1 must"),
        (["world.replicas=0"], r"^--set world\.replicas=0: \[world\] replicas = 0 must be 1 or"),
        (["world.replicas=3"], r"^--set world\.replicas=3: \[world\] clusters = 128 must be a mul"),
        (
            ["clone.every=0", "clone.epochs=2"],
            r"^--set clone\.every=0: \[clone\] every = 0 must be",
        ),
        (["explore.kind=epsilon", "run.learner=ppo"], r"^--set explore\.kind=epsilon: "),
    ],
)
def test_blames_the_change_that_is_wrong(
    tmp_path: Path, changes: list[str], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load_recipe(written(tmp_path, GOOD), changes)


def test_suggests_a_preset() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'dl2-onepass'"):
        load_recipe("dl2-onepas")


def test_exploration_needs_a_system_that_decides_step_by_step(tmp_path: Path) -> None:
    changes = ["explore.kind=epsilon", "run.learner=actor-critic"]
    with pytest.raises(ConfigError, match="not possible with 'dl2-onepass'"):
        load_recipe(written(tmp_path, GOOD), changes)
    text = GOOD.replace("dl2-onepass", "dl2")
    assert load_recipe(written(tmp_path, text), changes).explore.kind == "epsilon"
