"""A whole training, tiny but real: it learns, it can be killed, and its checkpoint decides."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from small_training import small_trainer

from rota.errors import CheckpointError, ConfigError, PolicyError, TrainingError
from rota.learn import checkpoint
from rota.learn.clone import CloneConfig
from rota.learn.collect import play
from rota.learn.copy_score import CopyScore
from rota.learn.demonstrations import watch_policy
from rota.learn.deploy import load_policy
from rota.learn.training_folder import BEST, COPY, LAST, RESUME
from rota.learn.training_log import CURVE
from rota.sim import simulate

if TYPE_CHECKING:
    from pathlib import Path

    from rota.learn.trainer import Trainer
    from rota.learn.training_report import Report

TABLES = {"ppo": {"learning_rate": 3e-3}}


def trainer(tmp_path: Path, *changes: str, system: str = "dl2-onepass", **options: Any) -> Trainer:
    return small_trainer(tmp_path, *changes, system=system, tables=TABLES, **options)


def test_learns_keeps_the_best_and_its_checkpoint_decides_the_same(tmp_path: Path) -> None:
    reports: list[Report] = []
    training = trainer(tmp_path, watcher=reports.append)
    best = training.run()

    curve = [json.loads(line) for line in (tmp_path / "out" / CURVE).read_text().splitlines()]
    assert [line["update"] for line in curve] == [0, 6, 12]
    assert best == min(line["jct"] for line in curve) < curve[0]["jct"]
    assert reports[-1].phase == "over"
    assert any(path.name.startswith("events") for path in (tmp_path / "out").iterdir())

    # The policy of the file reaches in the simulator what the validation saw in the environment.
    policy, found = load_policy(tmp_path / "out" / BEST), []
    for seed in range(1000, 1004):
        world = training.worlds.scenario.draw(seed)
        outcome = simulate(
            world.cluster, world.trace, policy, world.when, seed=seed, physics=world.physics
        )
        found.append(np.mean(outcome.done_s - outcome.submit_s) / training.worlds.unit_s)
    assert np.mean(found) == pytest.approx(best, rel=1e-9)


class KilledError(Exception):
    """Stands for a kill."""


def test_goes_on_after_a_kill(tmp_path: Path) -> None:
    def kill(report: Report) -> None:
        if report.phase == "rl" and report.update == 8:
            raise KilledError

    with pytest.raises(KilledError):
        trainer(tmp_path, "run.save_every_s=1e-6", watcher=kill).run()
    facts, _ = checkpoint.read(tmp_path / "out" / RESUME)
    assert facts["update"] == 7  # the eighth was lost: it was not saved yet

    again = trainer(tmp_path, "run.save_every_s=1e-6", resume=True)
    assert (again.update, again.best) == (7, facts["best"])
    assert again.learner.scale.count == 7
    again.run()
    assert checkpoint.load(tmp_path / "out" / LAST).about.step == 12
    curve = [json.loads(line) for line in (tmp_path / "out" / CURVE).read_text().splitlines()]
    assert [line["update"] for line in curve] == [0, 6, 12]
    assert again.best == min(line["jct"] for line in curve)


def test_the_same_seed_gives_the_same_curve(tmp_path: Path) -> None:
    short = ("run.updates=3", "run.validate_every=3")
    first = trainer(tmp_path, *short, out="a").run()
    assert trainer(tmp_path, *short, out="b").run() == first


def test_goes_on_from_a_state_of_a_version_that_had_fewer_settings(tmp_path: Path) -> None:
    trainer(tmp_path, "run.updates=1", "run.validate_every=1").run()
    state = tmp_path / "out" / RESUME
    facts, arrays = checkpoint.read(state)
    del facts["recipe"]["world"]["also"], facts["recipe"]["look_ahead"]
    checkpoint.write(state, facts, arrays)
    again = trainer(tmp_path, "run.updates=2", "run.validate_every=1", resume=True)
    again.run()
    assert again.update == 2


def test_does_not_go_on_from_a_state_of_another_version_of_its_system(tmp_path: Path) -> None:
    trainer(tmp_path, "run.updates=1", "run.validate_every=1").run()
    state = tmp_path / "out" / RESUME
    facts, arrays = checkpoint.read(state)
    checkpoint.write(state, facts | {"version": 7}, arrays)
    with pytest.raises(CheckpointError, match="version 7"):
        trainer(tmp_path, "run.updates=2", "run.validate_every=1", resume=True)


def test_refuses_to_mix_trainings(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no last\.resume"):
        trainer(tmp_path, resume=True)
    short = ("run.updates=1", "run.validate_every=1")
    trainer(tmp_path, *short).run()
    with pytest.raises(ConfigError, match="holds a training already"):
        trainer(tmp_path, *short)
    with pytest.raises(ConfigError, match=r"other settings in \[ppo\]"):
        trainer(tmp_path, *short, "ppo.clip=0.3", resume=True)


def test_an_actor_critic_fills_its_memory_anew_when_it_goes_on(tmp_path: Path) -> None:
    changes = (
        "run.learner=actor-critic", "run.validate_every=50", "actor_critic.memory=256",
        "actor_critic.batch=32", "actor_critic.steps=8", "actor_critic.credit=own",
        "explore.kind=job-aware",
    )  # fmt: skip
    training = trainer(tmp_path, *changes, "run.updates=8", system="dl2")
    training.run()
    assert (training.learner.memory.full, training.learner.taken > 0) == (True, True)
    again = trainer(tmp_path, *changes, "run.updates=9", system="dl2", resume=True)
    assert (len(again.learner.memory), again.learner.taken) == (0, training.learner.taken)
    again.run()
    assert again.learner.taken == training.learner.taken  # one rollout does not fill it
    with pytest.raises(ConfigError, match="learner = 'actor-critic'; resume with the same"):
        trainer(tmp_path, system="dl2", resume=True)


@pytest.mark.parametrize("system", ["dl2-onepass", "dl2"])
def test_clones_a_teacher(tmp_path: Path, system: str) -> None:
    changes = ("clone.teacher=drf", "clone.samples=1500", "run.learner=none", "clone.epochs=4")
    told: list[Report] = []
    trainer(tmp_path, *changes, system=system, watcher=told.append).run()
    losses = [r.facts["test_loss"] for r in told if r.phase == "clone" and r.facts]
    assert losses[-1] < losses[0]


def test_a_copy_may_be_taught_in_states_of_its_own_and_in_any_order(tmp_path: Path) -> None:
    changes = (
        "clone.teacher=drf", "clone.samples=1000", "run.learner=none", "clone.epochs=4",
        "clone.again=2", "clone.any_order=true", "clone.every=2", "clone.batch=32",
        "network.kind=shared",
    )  # fmt: skip
    told: list[Report] = []
    trainer(tmp_path, *changes, system="dl2", watcher=told.append).run()
    epochs = [r.update for r in told if r.phase == "clone"]
    agrees = [r.facts["agreement"] for r in told if r.phase == "clone" and r.facts]
    assert epochs == list(range(1, 13))
    assert agrees[-1] > 0.7


def test_tells_what_a_perfect_copy_would_reach_before_it_teaches(tmp_path: Path) -> None:
    changes = ("clone.teacher=optimus", "clone.samples=200", "run.learner=none", "clone.epochs=1")
    told: list[Report] = []
    training = trainer(tmp_path, *changes, watcher=told.append)
    training.run()
    phases = [r.phase for r in told]
    assert phases.index("copy") < phases.index("clone")
    score = training.copy
    assert score is not None
    assert all(r.copy == score for r in told if r.phase == "clone")
    assert score.traces == 4
    assert score.change == pytest.approx(score.jct / score.teacher_jct - 1)
    assert "a perfect copy of optimus through this lens" in score.words()
    kept = checkpoint.load(tmp_path / "out" / BEST).about.scores
    assert kept["perfect_copy_jct"] == score.jct
    assert CopyScore.load(tmp_path / "out" / COPY) == score


@pytest.mark.parametrize(
    ("teacher", "against", "rivals"),
    [
        ("optimus", '["drf"]', ["optimus", "drf", "hull-greedy"]),
        ("", '["drf"]', ["drf", "hull-greedy"]),
        ("optimus", '["auto"]', ["optimus", "drf-bundles", "hull-greedy"]),
        ("optimus", '["drf", "auto", "drf"]', ["optimus", "drf", "drf-bundles", "hull-greedy"]),
        ("optimus", "[]", []),
    ],
)
def test_validation_is_compared_with_the_teacher_and_with_rivals(
    tmp_path: Path, teacher: str, against: str, rivals: list[str]
) -> None:
    worlds = trainer(tmp_path, f"clone.teacher={teacher}", f"world.against={against}").worlds
    assert worlds.rivals == rivals
    scores = worlds.measure_rivals(tmp_path / "rivals.json")
    assert list(scores) == rivals
    assert all(jct_s.shape == (4,) for jct_s in scores.values())
    assert len({tuple(jct_s) for jct_s in scores.values()}) == len(scores)


def test_a_teacher_that_fails_is_named(tmp_path: Path) -> None:
    class Broken:
        name = "broken"

        def decide(self, _snapshot: object) -> Any:
            raise ValueError("no idea")

    envs = trainer(tmp_path).worlds.teacher_env()
    with pytest.raises(PolicyError, match=r"teacher 'broken' failed .*ValueError: no idea"):
        watch_policy(envs, Broken, CloneConfig(samples=10), np.random.default_rng(0))


def test_stops_when_nothing_gets_better(tmp_path: Path) -> None:
    # Steps so small that the greedy choices never change.
    changes = ("run.validate_every=1", "run.patience=2", "ppo.learning_rate=1e-12")
    training = trainer(tmp_path, *changes)
    training.run()
    assert training.update == 2


def test_stops_for_good_when_the_weights_cannot_be_saved_from_nan(tmp_path: Path) -> None:
    training = trainer(tmp_path, "ppo.patience=2")
    training.learner.config = replace(training.learner.config, learning_rate=float("inf"))
    with pytest.raises(TrainingError, match="2 updates in a row"):
        training.run()


def test_rewards_that_are_not_finite_end_it(tmp_path: Path) -> None:
    training = trainer(tmp_path)
    envs = training.worlds.training_env(np.random.default_rng(0))
    envs.batch_env.state.truth["work_s"] = np.nan
    with pytest.raises(TrainingError, match="A reward is not finite"):
        play(envs, training.network, training.critic, 4, np.random.default_rng(0))


def test_learns_with_a_baseline_of_the_same_arrivals(tmp_path: Path) -> None:
    training = trainer(
        tmp_path, "world.replicas=4", "ppo.same_inputs=true", "run.updates=2",
        "run.validate_every=2", "ppo.discount=1.0", "world.reward=jobs",
    )  # fmt: skip
    envs = training.worlds.training_env(np.random.default_rng(0))
    groups = envs.inputs().reshape(4, 4)
    assert (groups == groups[:, :1]).all()
    assert len(set(groups[:, 0].tolist())) > 1
    training.run()
