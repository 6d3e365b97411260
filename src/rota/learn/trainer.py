"""Runs a recipe: warm-up, reinforcement learning, validation, checkpoints, resuming.

A folder holds all that a training leaves behind:

- `best.ckpt`: the network with the lowest validation JCT so far, the earliest of equals. That
  is the rule by which the result is chosen, and nothing else is looked at. A network that leaves
  a job unfinished has an infinite JCT and is never the best.
- `last.ckpt` and `last.resume`: where to go on after a kill, at most a minute old.
- `copy.json`: what a perfect copy of the teacher reaches through the lens (`rota.learn.copying`).
- `curve.jsonl` and `events…`: what `rota.learn.diary` writes. `recipe.json`: what was asked for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from rota.errors import CheckpointError, ConfigError, TrainingError
from rota.learn import checkpoint
from rota.learn.actor_critic import ActorCritic
from rota.learn.checkpoint import About, weights_of
from rota.learn.clone import clone
from rota.learn.deploy import begin_with
from rota.learn.diary import Diary
from rota.learn.ppo import PPO
from rota.learn.rollout import play
from rota.learn.stage import Stage
from rota.systems.registry import LEARNED
from rota.traces.text_files import write_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rota.learn.copying import CopyScore
    from rota.learn.playing import EnvGames
    from rota.learn.recipe import Recipe

BEST: Final = "best.ckpt"
LAST: Final = "last.ckpt"
RESUME: Final = "last.resume"
WARM: Final = "warm-up.ckpt"
COPY: Final = "copy.json"
LEARNERS: Final[dict[str, tuple[Any, str]]] = {
    "ppo": (PPO, "ppo"), "actor-critic": (ActorCritic, "actor_critic"),
    "none": (PPO, "ppo"),  # which then never updates
}  # fmt: skip
"""Learners by name, and the table of a recipe that each is set by."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """How a training stands, for whoever watches."""

    phase: str
    """"copy", while a perfect one is measured; "clone", "rl" or "over"."""
    update: int = 0
    updates: int = 0
    rate: float = 0.0
    """Decisions per second, playing and learning together."""
    jct: float | None = None
    """Of training episodes that ended lately, in units of the report."""
    validation: float | None = None
    """Mean JCT on the validation traces, greedy."""
    best: float | None = None
    teacher: float | None = None
    """The teacher's mean JCT on them."""
    copy: CopyScore | None = None
    """That of a perfect copy of the teacher, once it is known."""
    facts: dict[str, float] | None = None


def _unwatched(_: Report) -> None:
    """Nobody watches."""


class Trainer:
    """One training, in one folder."""

    def __init__(
        self, recipe: Recipe, folder: Path, *, data: Path | None = None, resume: bool = False,
        watcher: Callable[[Report], None] = _unwatched,
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
            torch.manual_seed(run.seed)  # the first weights
            self.stage = Stage(recipe, data)
        self.network = self.stage.network
        if run.start and not resume:
            begin_with(self.network, run.start, recipe)
        learner, table = LEARNERS[run.learner]
        self.learner = learner(self.network, getattr(recipe, table), self._generator)
        self._prepare(resume)

    def run(self) -> float:
        """Train to the end; returns the best validation."""
        began_s = monotonic() - self.elapsed_s
        with Diary(self.folder, self.update) as self._diary:
            self._measure_copy()
            self.stage.measure_others(self.folder / "others.json")
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
        """What cloning can give at most, before any is done."""

        def tell(done: int, traces: int) -> None:
            self._tell("copy", update=done, updates=traces)

        self.copy = self.stage.measure_copy(self.folder / COPY, tell)
        if self.copy is not None:
            self._diary.scalars("validation", {"perfect_copy": self.copy.jct}, self.update)
            self._tell("copy", update=self.copy.traces, updates=self.copy.traces)

    def _warm_up(self) -> None:
        """Learn what the teacher does."""
        config, epochs = self.recipe.clone, 0
        lessons = self.stage.lessons(self._rng)
        for time in range(1 + config.again):
            if time:
                old = lessons.take(self._rng.permutation(len(lessons))[: config.samples])
                lessons = self.stage.lessons(self._rng, time, self.network).beside(old)
            torch.set_num_threads(self.recipe.run.threads)
            for facts in clone(self.network, lessons, config, self._generator):
                epochs += 1
                self._diary.scalars("clone", facts, epochs)
                total = config.epochs * (1 + config.again)
                self._tell("clone", update=epochs, updates=total, facts=facts)
            torch.set_num_threads(1)
        checkpoint.save(self.folder / WARM, self._about(), weights_of(self.network))

    def _reinforce(self, began_s: float) -> None:
        run, world = self.recipe.run, self.recipe.world
        games: EnvGames = self.stage.games(self._rng)
        if self._rl_began_s is None:
            self._rl_began_s = monotonic() - began_s
        if self.update == 0 and self._scored < 0:
            self._validate()
            self._save(force=True)
        while self.update < run.updates:
            left = self._left(monotonic() - began_s)
            if left <= 0 or (run.patience and self.stale >= run.patience):
                break
            began = monotonic()
            torch.set_num_threads(1)
            if games.explorer is not None:
                games.explorer.update = self.update
            rollout = play(games, self.network, self.learner.config.steps, self._rng)
            torch.set_num_threads(run.threads)
            facts = self.learner.update(rollout, left)
            torch.set_num_threads(1)
            self.update += 1
            self.elapsed_s = monotonic() - began_s
            rate = rollout.decisions / max(monotonic() - began, 1e-9)
            jct_s, cut = games.episodes.drain()
            if jct_s is not None:
                facts["jct"] = jct_s / self.stage.unit_s
            if cut:
                facts["cut_short"] = float(cut)
            self._diary.scalars("rl", {**facts, "rate": rate}, self.update)
            validates = self.update % run.validate_every == 0 or self.update == run.updates
            if validates:
                self._validate()
            if world.renew and self.update % world.renew == 0:
                self.stage.renew(games, self._rng)
            self._tell("rl", rate=rate, facts=facts)
            self._save(force=validates)
        if self._scored != self.update:
            self._validate()

    def _left(self, elapsed_s: float) -> float:
        """The share of the run that is still to come, by updates or by time, whichever is less."""
        run = self.recipe.run
        left = 1 - self.update / run.updates
        if not run.minutes:
            return left
        # The warm-up takes time, but none of the rates: they fall from here to the end.
        whole_s = 60 * run.minutes - (self._rl_began_s or 0.0)
        return min(left, (60 * run.minutes - elapsed_s) / whole_s if whole_s > 0 else 0.0)

    def _validate(self) -> None:
        """Score the network on the validation traces, and keep it if it is the best so far."""
        jct_s = self.stage.validate()
        self.validation = float(jct_s.mean()) / self.stage.unit_s
        if np.isnan(self.validation):
            raise TrainingError("The validation gave a JCT that is no number.")
        self._scored = self.update
        finished = bool(np.isfinite(self.validation))
        better = finished and (self.best is None or self.validation < self.best)
        if better:
            self.best, self.stale = self.validation, 0
            checkpoint.save(self.folder / BEST, self._about(), weights_of(self.network))
        else:
            self.stale += 1
        line = {"update": self.update, "seconds": round(self.elapsed_s, 1),
                "jct": self.validation if finished else None, "best": better}  # fmt: skip
        self._diary.point(line)
        facts = {"jct": self.validation, "unfinished": float(np.isinf(jct_s).sum())}
        if self.stage.teacher and finished:
            facts["against_teacher"] = self.validation / self.stage.teacher - 1
        self._diary.scalars("validation", facts, self.update)

    def _tell(self, phase: str, **more: Any) -> None:
        known: dict[str, Any] = {
            "phase": phase, "update": self.update, "updates": self.recipe.run.updates,
            "validation": self.validation, "best": self.best, "teacher": self.stage.teacher,
            "copy": self.copy,
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
            package=LEARNED.package(recipe.system),
        )  # fmt: skip

    def _save(self, *, force: bool = False) -> None:
        """Write down where to go on, if it is time."""
        if not force and monotonic() - self._saved_s < self.recipe.run.save_every_s:
            return
        facts, arrays = self.learner.state()
        arrays["generator"] = self._generator.get_state().numpy()
        # The weights are in both, so that the pair is whole whichever was written last.
        arrays |= {f"weights.{name}": array for name, array in weights_of(self.network).items()}
        progress = {
            "update": self.update, "elapsed_s": self.elapsed_s, "phase": self.phase,
            "best": self.best, "stale": self.stale, "scored": self._scored, "learner": facts,
            "rl_began_s": self._rl_began_s,
            "rng": self._rng.bit_generator.state, "recipe": self.recipe.facts(),
        }  # fmt: skip
        checkpoint.write(self.folder / RESUME, progress, arrays)
        checkpoint.save(self.folder / LAST, self._about(), weights_of(self.network))
        self._saved_s = monotonic()

    def _prepare(self, resume: bool) -> None:
        """A fresh folder, or the state that an earlier run left in it."""
        state, best = self.folder / RESUME, self.folder / BEST
        if resume and not state.is_file():
            raise CheckpointError(
                f"{self.folder}: There is no {RESUME} to go on from; leave --resume out"
                f"{', and name another folder with --out' if best.exists() else ''}."
            )
        if resume:
            self._restore(*checkpoint.read(state))
            return
        if best.exists() or state.exists():
            raise ConfigError(
                f"{self.folder} holds a training already; "
                f"{'go on with --resume, or ' if state.exists() else ''}name another folder with "
                "--out."
            )
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"{self.folder} cannot be made a folder for this training: {error.strerror}; name "
                "another with --out."
            ) from None
        write_text(self.folder / "recipe.json", json.dumps(self.recipe.facts(), indent=2) + "\n")

    def _restore(self, facts: dict[str, Any], arrays: dict[str, Any]) -> None:
        state = self.folder / RESUME
        mine = json.loads(json.dumps(self.recipe.facts()))
        then = facts.get("recipe", {})
        learner = then.get("run", {}).get("learner", self.recipe.run.learner)
        if LEARNERS[learner] != LEARNERS[self.recipe.run.learner]:
            raise ConfigError(
                f"{self.folder} was trained with learner = {learner!r}; resume with the same, or "
                "train anew with another --out."
            )
        tables = ("system", "world", "lens", "network", "clone", "ppo", "actor_critic", "explore")
        for table in tables:
            if then.get(table) != mine[table]:
                raise ConfigError(
                    f"{self.folder} was trained with other settings in [{table}]; resume with "
                    "the same recipe (recipe.json), or train anew with another --out."
                )
        named = {
            name.removeprefix("weights."): array
            for name, array in arrays.items()
            if name.startswith("weights.")
        }
        checkpoint.Checkpoint(self._about(), named, str(state)).fill(self.network)
        adam = {name: array for name, array in arrays.items() if name.startswith("adam.")}
        try:
            self.learner.restore(facts["learner"], adam)
            self._generator.set_state(torch.from_numpy(np.array(arrays["generator"])))
            self._rng.bit_generator.state = facts["rng"]
            self.update, self.elapsed_s = facts["update"], facts["elapsed_s"]
            self.phase, self.best, self.stale = facts["phase"], facts["best"], facts["stale"]
            self._scored, self._rl_began_s = facts["scored"], facts.get("rl_began_s")
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(
                f"{state}: The state lacks what this rota goes on from ({error}); train anew with "
                "another --out."
            ) from None
        if (self.folder / BEST).is_file():  # it may be later than the state: then it counts too
            kept = checkpoint.load(self.folder / BEST).about.scores
            self.best = kept.get("validation_jct", self.best)


def shorter(recipe: Recipe, minutes: float) -> Recipe:
    """The recipe with a limit of time."""
    return replace(recipe, run=replace(recipe.run, minutes=minutes))
