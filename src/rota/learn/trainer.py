"""Runs a recipe: warm-up, reinforcement learning, validation, checkpoints, resuming.

What it leaves in its folder is listed in `rota.learn.training_folder`.
"""

from __future__ import annotations

from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rota import weights_file
from rota.errors import CheckpointError, ConfigError, TrainingError
from rota.learn import checkpoint
from rota.learn.checkpoint import About, weights_of
from rota.learn.clone import clone
from rota.learn.collect import play
from rota.learn.demonstrations import Demonstrations
from rota.learn.deploy import begin_with, load_network
from rota.learn.scenario_scores import ScenarioScores
from rota.learn.training_folder import (
    BEST,
    COPY,
    LAST,
    RESUME,
    WARM,
    make_folder,
    read_state,
)  # fmt: skip
from rota.learn.training_log import TrainingLog
from rota.learn.training_report import Report
from rota.learn.training_worlds import TrainingWorlds
from rota.systems.registry import LEARNED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rota.learn.batch_rollout_env import BatchRolloutEnv
    from rota.learn.copy_score import CopyScore
    from rota.learn.recipe import Recipe
    from rota.learn.stretches import Stretches
    from rota.learn.training_report import Standing


def _unwatched(_: Report) -> None:
    """Ignore a report."""


class Trainer:
    """One training, in one folder."""

    def __init__(
        self, recipe: Recipe, folder: Path, *, data: Path | None = None, resume: bool = False,
        watcher: Callable[[Report], None] = _unwatched, past: Stretches | None = None,
    ) -> None:  # fmt: skip
        self.recipe, self.folder, self._watch = recipe, folder, watcher
        run = recipe.run
        self.update, self.elapsed_s, self.phase = 0, 0.0, "clone" if recipe.clone.teacher else "rl"
        self.best: float | None = None
        self.stale = 0
        """Validations since the best one."""
        self.validation: float | None = None
        self.copy: CopyScore | None = None
        self._scored = -1
        """The update that was validated last."""
        self._saved_s = -np.inf
        self._rl_began_s: float | None = None
        """Seconds of the run before reinforcement learning; its rates fall over those after."""
        self._rng = np.random.default_rng(run.seed)
        self._generator = torch.Generator().manual_seed(run.seed)
        with torch.random.fork_rng():
            torch.manual_seed(run.seed)  # for the first weights
            self.worlds = TrainingWorlds(recipe, data, past)
            self.every = [self.worlds, *(TrainingWorlds(part, data) for part in recipe.others())]
            """The worlds of all scenarios."""
        _check_names([worlds.scenario.name for worlds in self.every])
        self.scores = ScenarioScores(self.every)
        self.network, self.critic = self.worlds.network, self.worlds.critic
        if run.start and not resume:
            begin_with(self.network, self.critic, run.start, recipe)
        self.learner = recipe.learner.make(
            self.network, self.critic, recipe.learning, self._generator, recipe.built_by.agents
        )
        if resume:
            self._restore(*read_state(folder, recipe))
        else:
            self.worlds.check_teacher()
            make_folder(folder, recipe)

    def run(self) -> float:
        """Train to the end; returns the best validation."""
        began_s = monotonic() - self.elapsed_s
        with TrainingLog(self.folder, self.update) as self._log:
            self._measure_copy()
            self.scores.measure_rivals(self.folder, self._tell_rivals)
            if self.phase == "clone":
                self._warm_up()
                self.phase = "rl"
                self._validate()
                self._save(force=True)
            if self.recipe.run.learner != "none":
                self._reinforce(began_s)
            if self.best is None and self._scored != self.update:
                self._validate()
        self._save(force=True)
        self._tell("over")
        if self.best is None:
            raise TrainingError(
                "In no validation did every job end, so there is no best network; the last one is "
                f"{self.folder / LAST}. Look at the lens and the reward, or raise world.max_rounds."
            )
        return self.best

    def _measure_copy(self) -> None:
        """Measure the most that cloning can reach, before any is done."""

        def tell(done: int, traces: int) -> None:
            self._tell("copy", update=done, updates=traces)

        self.copy = self.worlds.measure_copy(self.folder / COPY, tell)
        if self.copy is not None:
            self._log.scalars("validation", {"perfect_copy": self.copy.jct}, self.update)
            self._tell("copy", update=self.copy.traces, updates=self.copy.traces)

    def standings(self) -> list[Standing]:
        """How the best network compares with the rivals in each scenario, after a run."""
        if self.scores.best_s is None:  # it is from before this training was resumed
            self.scores.best_s = self.scores.of(load_network(self.folder / BEST)[2])
        return self.scores.standings(self.recipe.clone.teacher)

    def _tell_rivals(self, done: int, runs: int) -> None:
        self._tell("rivals", update=done, updates=runs)

    def _warm_up(self) -> None:
        """Learn what the teacher does."""
        config, epochs = self.recipe.clone, 0
        demonstrations = self._demonstrations()
        for time in range(1 + config.again):
            if time:
                old = demonstrations.take(
                    self._rng.permutation(len(demonstrations))[: config.samples]
                )
                new = self._demonstrations(time, self.network)
                demonstrations = Demonstrations.joined([new, old])
            torch.set_num_threads(self.recipe.run.threads)
            for facts in clone(self.network, demonstrations, config, self._generator):
                epochs += 1
                self._log.scalars("clone", facts, epochs)
                total = config.epochs * (1 + config.again)
                self._tell("clone", update=epochs, updates=total, facts=facts)
            torch.set_num_threads(1)
        self._keep(WARM)

    def _demonstrations(self, time: int = 0, student: Any = None) -> Demonstrations:
        """What the teacher does in all scenarios."""
        return Demonstrations.joined(
            [worlds.demonstrations(self._rng, time, student) for worlds in self.every]
        )

    def _reinforce(self, began_s: float) -> None:
        run, world = self.recipe.run, self.recipe.world
        cycle = world.cycle
        envs = [worlds.training_env(self._rng) for worlds in self.every]
        if self._rl_began_s is None:
            self._rl_began_s = monotonic() - began_s
        if self.update == 0 and self._scored < 0:
            self._validate()
            self._save(force=True)
        while self.update < run.updates:
            left = self._left(monotonic() - began_s)
            if left <= 0 or (run.patience and self.stale >= run.patience):
                break
            facts, rate = self._improve(envs[cycle[self.update % len(cycle)]], left)
            self.elapsed_s = monotonic() - began_s
            self._log.scalars("rl", {**facts, "rate": rate}, self.update)
            validates = self.update % run.validate_every == 0 or self.update == run.updates
            if validates:
                self._validate()
            if world.renew and self.update % world.renew == 0:
                for worlds, env in zip(self.every, envs, strict=True):
                    worlds.renew(env, self._rng)
            self._tell("rl", rate=rate, facts=facts)
            self._save(force=validates)
        if self._scored != self.update:
            self._validate()

    def _improve(self, env: BatchRolloutEnv, left: float) -> tuple[dict[str, float], float]:
        """One update: play, then learn; returns facts for the log, and decisions per second."""
        began = monotonic()
        torch.set_num_threads(1)
        if env.explorer is not None:
            env.explorer.update = self.update
        rollout = play(env, self.network, self.critic, self.recipe.learning.steps, self._rng)
        torch.set_num_threads(self.recipe.run.threads)
        facts: dict[str, float] = self.learner.update(rollout, left)
        torch.set_num_threads(1)
        self.update += 1
        rate = len(rollout.decisions) / max(monotonic() - began, 1e-9)
        jct_s, cut = env.episodes.drain()
        if jct_s is not None:
            facts["jct"] = jct_s / self.worlds.unit_s
        if cut:
            facts["cut_short"] = float(cut)
        return facts, rate

    def _left(self, elapsed_s: float) -> float:
        """The part of the run that is still to come, by updates or by time, whichever is less."""
        run = self.recipe.run
        left = 1 - self.update / run.updates
        if not run.minutes:
            return left
        # Rates begin to fall when the warm-up has ended, and reach 0 at the end of the run.
        whole_s = 60 * run.minutes - (self._rl_began_s or 0.0)
        return min(left, (60 * run.minutes - elapsed_s) / whole_s if whole_s > 0 else 0.0)

    def _validate(self) -> None:
        """Measure the network on the validation traces, and keep it if it is the best so far."""
        jct_s = self.scores.of(self.network)
        self.validation = self.scores.mean(jct_s)
        if np.isnan(self.validation):
            raise TrainingError(
                "The validation gave a JCT that is not a number; look at the scenario's traces."
            )
        self._scored = self.update
        finished = bool(np.isfinite(self.validation))
        better = finished and (self.best is None or self.validation < self.best)
        if better:
            self.best, self.scores.best_s, self.stale = self.validation, jct_s, 0
            self._keep(BEST)
        else:
            self.stale += 1
        line = {"update": self.update, "seconds": round(self.elapsed_s, 1),
                "jct": self.validation if finished else None, "best": better}  # fmt: skip
        self._log.point(line)
        facts = {"jct": self.validation, **self.scores.facts(jct_s)}
        if self._teacher is not None and finished:
            facts["against_teacher"] = self.validation / self._teacher - 1
        if self._strongest is not None and finished:
            facts["against_strongest"] = self.validation / self._strongest[1] - 1
        self._log.scalars("validation", facts, self.update)

    @property
    def _teacher(self) -> float | None:
        """The teacher's mean JCT, if it is a policy and was measured."""
        return self.scores.rival_means().get(self.recipe.clone.teacher)

    @property
    def _strongest(self) -> tuple[str, float] | None:
        """The rival with the lowest mean JCT, and that JCT."""
        return min(self.scores.rival_means().items(), key=lambda item: item[1], default=None)

    def _tell(self, phase: str, **more: Any) -> None:
        known: dict[str, Any] = {
            "phase": phase, "update": self.update, "updates": self.recipe.run.updates,
            "unit": self.worlds.unit, "validation": self.validation, "best": self.best,
            "teacher": self._teacher, "strongest": self._strongest, "copy": self.copy,
        }  # fmt: skip
        self._watch(Report(**(known | more)))

    def _about(self) -> About:
        recipe = self.recipe
        facts = recipe.facts()
        jct = self.validation
        scores = {} if jct is None or not np.isfinite(jct) else {"validation_jct": jct}
        if self.copy is not None:
            scores["perfect_copy_jct"] = self.copy.jct
        return About(
            system=recipe.system, lens={"name": recipe.system, **facts["lens"]},
            network=facts["network"], training=facts, step=self.update, scores=scores,
            package=LEARNED.package(recipe.system), version=recipe.built_by.version,
        )  # fmt: skip

    def _keep(self, name: str) -> None:
        """Write the network as it is now."""
        checkpoint.save(self.folder / name, self._about(), weights_of(self.network, self.critic))

    def _save(self, *, force: bool = False) -> None:
        """Write the state to resume from, if it is due."""
        if not force and monotonic() - self._saved_s < self.recipe.run.save_every_s:
            return
        facts, arrays = self.learner.state()
        arrays["generator"] = self._generator.get_state().numpy()
        # The weights are in both files, so that each is complete if a kill comes in between.
        weights = weights_of(self.network, self.critic)
        arrays |= {f"weights.{name}": array for name, array in weights.items()}
        progress = {
            "update": self.update, "elapsed_s": self.elapsed_s, "phase": self.phase,
            "best": self.best, "stale": self.stale, "scored": self._scored, "learner": facts,
            "rl_began_s": self._rl_began_s,
            "rng": self._rng.bit_generator.state, "recipe": self.recipe.facts(),
            "version": self.recipe.built_by.version,
        }  # fmt: skip
        weights_file.write(self.folder / RESUME, progress, arrays)
        self._keep(LAST)
        self._saved_s = monotonic()

    def _restore(self, facts: dict[str, Any], arrays: dict[str, Any]) -> None:
        """Continue from the state of an earlier run."""
        state = self.folder / RESUME
        named = {
            name.removeprefix("weights."): array
            for name, array in arrays.items()
            if name.startswith("weights.")
        }
        about = replace(self._about(), version=facts.get("version", 1))
        found = checkpoint.Checkpoint(about, named, str(state))
        found.expect_version(self.recipe.built_by.version)
        found.player().fill(self.network)
        found.critic().fill(self.critic)
        adam = {name: array for name, array in arrays.items() if name.startswith("adam.")}
        try:
            self.learner.restore(facts["learner"], adam)
            self._generator.set_state(torch.from_numpy(np.array(arrays["generator"])))
            self._rng.bit_generator.state = facts["rng"]
            self.update, self.elapsed_s = facts["update"], facts["elapsed_s"]
            self.phase, self.best, self.stale = facts["phase"], facts["best"], facts["stale"]
            self._scored, self._rl_began_s = facts["scored"], facts.get("rl_began_s")
        except (LookupError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(
                f"{state}: The state lacks what this rota goes on from ({error}); train again with "
                "another --out."
            ) from None
        if (self.folder / BEST).is_file():  # it may be later than the state: then it counts
            kept = checkpoint.load(self.folder / BEST).about.scores
            self.best = kept.get("validation_jct", self.best)


def _check_names(names: list[str]) -> None:
    """Refuse scenarios of one name: what is measured of each is kept by it."""
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"[world] names two scenarios that are called {name!r}; rename one of the files."
            )


def limited(recipe: Recipe, seconds: float) -> Recipe:
    """The recipe with a limit of time."""
    return replace(recipe, run=replace(recipe.run, minutes=seconds / 60))
