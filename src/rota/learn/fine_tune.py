"""Learns on from a checkpoint on the jobs of a journal, and judges what came of it."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.envs import BatchEnv, WorldPool
from rota.errors import CheckpointError, TrainingError
from rota.learn import checkpoint
from rota.learn.batch_rollout_env import greedy_jct_s
from rota.learn.deploy import load_network
from rota.learn.learners import LEARNING
from rota.learn.recipe import RunConfig, tables_of
from rota.learn.recipe_file import load_recipe
from rota.learn.stretches import read_stretches
from rota.learn.trainer import Trainer, limited
from rota.learn.training_folder import BEST
from rota.learn.verdict import compare, verdict_of
from rota.scenarios import load
from rota.sim.past import opened
from rota.systems.registry import system

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rota.core.types import Floats
    from rota.learn.checkpoint import Checkpoint
    from rota.learn.recipe import Recipe
    from rota.learn.stretches import Stretches
    from rota.learn.training_report import Report
    from rota.learn.verdict import Comparison

UPDATES: Final = 40
VALIDATE_EVERY: Final = 5
STEP: Final = 0.3
"""Part of the step size of the first training: what was learned is not to be unlearned."""
CLUSTERS: Final = 16
"""Clusters that are played at once, at most; there are few stretches."""


@dataclass(frozen=True)
class FineTuned:
    """What came of learning on."""

    running: Checkpoint
    """The weights that it began with."""
    new: Checkpoint | None
    """The new ones, with the verdict on them; None if no update was better where it was chosen."""
    stretches: Stretches
    running_s: Floats
    """The mean JCT of each held-out stretch, under the running weights."""
    new_s: Floats
    comparison: Comparison


def fine_tune(
    file: Path, journal: Path, *, scenario: str = "", size: int, changes: Sequence[str] = (),
    seconds: float | None = None, data: Path | None = None, watch: Callable[[Report], None],
    say: Callable[[str], None],
) -> FineTuned:  # fmt: skip
    """Learn on from the weights of a file on a journal's jobs, `size` to a stretch."""
    running = checkpoint.load(file)
    with tempfile.TemporaryDirectory(prefix="rota-learn-") as scratch:
        recipe = _recipe(running, file, Path(scratch), scenario or _scenario(journal), changes)
        recipe = recipe if seconds is None else limited(recipe, seconds)
        past = read_stretches(journal, load(recipe.world.scenario, recipe.world.changes), size)
        say(f"{journal}: {past.words()}")
        trainer = Trainer(recipe, Path(scratch) / "training", data=data, watcher=watch, past=past)
        _train(trainer, journal)
        best = trainer.folder / BEST
        found = checkpoint.load(best)
        # What it sees and does is the same, so it says so in the same words.
        about = replace(found.about, lens=running.about.lens, network=running.about.network)
        new = checkpoint.Checkpoint(about, found.weights, str(best))
        running_s, new_s = (_judged(path, past, recipe, data) for path in (file, best))
    comparison = compare(new_s, running_s)
    if new.digest == running.digest:
        return FineTuned(running, None, past, running_s, new_s, comparison)
    verdict = verdict_of(comparison, new, running, str(journal))
    new = replace(new, about=replace(new.about, verdict=verdict))
    return FineTuned(running, new, past, running_s, new_s, comparison)


def _train(trainer: Trainer, journal: Path) -> None:
    """Train to the end; say it in other words if no network ends all jobs."""
    try:
        trainer.run()
    except TrainingError:
        if trainer.best is not None:
            raise
        raise TrainingError(
            f"{journal}: Neither the running weights nor new ones bring all jobs of the stretches "
            "to choose by to their end in simulation, so nothing can be chosen; simulate with "
            "other laws of speed (--scenario)."
        ) from None


def _scenario(journal: Path) -> str:
    """The scenario that a journal was written in; "" if it names none."""
    with opened(journal) as view:
        return str((view.meta.get("scenario") or {}).get("name", ""))


def _recipe(
    running: Checkpoint, file: Path, folder: Path, scenario: str, changes: Sequence[str]
) -> Recipe:
    """The recipe of a checkpoint's training, for a few small steps from where it ended."""
    about = running.about
    told = dict(about.training)
    if "world" not in told or "run" not in told:
        raise CheckpointError(
            f"{file}: The checkpoint does not say how it was trained, so it cannot be trained "
            "further; train one with `rota train`."
        )
    kind = system(about.system)
    learner = told["run"].get("learner", RunConfig.learner)
    learner = "ppo" if learner == "none" else learner
    content = {key: told[key] for key in tables_of(kind, learner) if key in told}
    world, own = content["world"], LEARNING.get(learner)
    replicas = int(world.get("replicas", 1))
    clusters = min(int(world.get("clusters", CLUSTERS)), CLUSTERS)
    content["world"] = {
        **world, "scenario": scenario or world["scenario"], "also": [], "turns": [], "against": [],
        "changes": [] if scenario else world.get("changes", []), "trace": "",
        "clusters": max(replicas, clusters // replicas * replicas),
    }  # fmt: skip
    content["lens"] = {key: value for key, value in about.lens.items() if key != "name"}
    content["network"] = dict(about.network)
    content["clone"] = {**content.get("clone", {}), "teacher": ""}
    settings = content.get(own.table, {})
    usual = own.settings.__dataclass_fields__["learning_rate"].default
    rate = STEP * float(settings.get("learning_rate", usual))
    content[own.table] = {**settings, "learning_rate": rate}
    content["run"] = {
        "seed": told["run"].get("seed", 0), "start": str(file), "learner": learner,
        "updates": UPDATES, "validate_every": VALIDATE_EVERY,
    }  # fmt: skip
    path = folder / "recipe.json"
    name = told.get("name", about.system)
    facts: dict[str, Any] = {"name": name, "about": told.get("about", ""), "system": about.system}
    path.write_text(json.dumps({**facts, **content}))
    return load_recipe(path, changes)


def _judged(file: Path, past: Stretches, recipe: Recipe, data: Path | None) -> Floats:
    """The mean JCT, in seconds, of each held-out stretch under the weights of a file."""
    kind, lens, network = load_network(file)
    scenario = load(recipe.world.scenario, recipe.world.changes)
    worlds = [past.world(scenario, trace, data) for trace in past.judge]
    pool = WorldPool.of(worlds, list(range(len(worlds))))

    def make() -> Any:
        rewards, most = recipe.world.rewards, recipe.world.max_rounds
        return BatchEnv(pool, lens, rewards, len(worlds), max_rounds=most)

    network.eval()
    return np.asarray(greedy_jct_s(make, network, kind.agents))
