"""The worlds of a training: traces to learn from, traces to validate on, and other policies."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.envs import BatchEnv, Pool
from rota.errors import ConfigError, InputError
from rota.learn.clone import JOURNAL, recall, watch
from rota.learn.copying import CopyScore, copy_score
from rota.learn.playing import EnvGames, greedy_jct_s
from rota.learn.recipe import seeds_of
from rota.learn.record import Record, jobs_of
from rota.policies import make_policy
from rota.scenarios import load
from rota.sim import simulate
from rota.traces.text_files import write_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import nn

    from rota.core.seams import Policy
    from rota.core.types import Ints
    from rota.learn.clone import Lessons
    from rota.learn.recipe import Recipe, WorldConfig
    from rota.scenarios.scenario import World
    from rota.traces import Trace

HOUR_S = 3600.0
_EPISODES = 1024
"""Episodes for which traces are dealt in advance; then they come again."""
HELD_OUT = 5
"""One in so many episodes of a journal validates."""


class Stage:
    """All that a recipe's worlds are made of."""

    def __init__(self, recipe: Recipe, data: Path | None = None) -> None:
        self._recipe, self._data = recipe, data
        self.scenario = load(recipe.world.scenario, recipe.world.changes)
        self.unit_s = self.scenario.when.slot_s or HOUR_S
        """What JCTs are reported in: slots, or hours where there are none."""
        system = recipe.built_by
        self.lens = system.make_lens(recipe.lens)
        self.network = system.make_network(recipe.network, self.lens)
        self._per_job = system.per_job
        self._episodes = _cut(recipe.world) if recipe.world.trace else []
        self._validation = self._drawn(self._seeds("validate"))
        self.teacher: float | None = None
        """Mean JCT of the teacher on the validation traces, or else of the first of `against`."""

    def games(self, rng: np.random.Generator) -> EnvGames:
        """The clusters that are learned from."""
        world = self._recipe.world
        deal = self._deal(rng, world.clusters, world.replicas)
        env = BatchEnv(
            self._fresh(rng), self.lens, world.reward, world.clusters, deal=deal,
            max_rounds=world.max_rounds, promises=self._recipe.tell == "promise", final_obs="cut",
        )  # fmt: skip
        explore, make = self._recipe.explore, self._recipe.built_by.make_explorer
        explorer = None
        if explore.kind != "none" and make is not None:
            explorer = make(explore, self.lens, world.clusters, rng)
        return EnvGames(
            env, per_job=self._per_job, deal=deal if world.replicas > 1 else None,
            explorer=explorer, tell=self._recipe.tell,
        )  # fmt: skip

    def lessons(
        self, rng: np.random.Generator, time: int = 0, pupil: nn.Module | None = None
    ) -> Lessons:
        """What the teacher does, a policy or the scheduler of a journal; or where a pupil plays.

        Other traces are played at other times, as far as there are others.
        """
        config = self._recipe.clone
        if config.teacher.startswith(JOURNAL):
            path = Path(config.teacher.removeprefix(JOURNAL))
            record = Record(path, self.scenario, self._data)
            models = self._world(self._seeds("validate")[0]).trace.models
            return recall(record, self.lens, config.samples, models, per_job=self._per_job)
        games = self.lesson_games(time)
        return watch(games, lambda: self.policy(config.teacher), config, rng, pupil)

    def lesson_games(self, time: int = 0) -> EnvGames:
        """A few clusters for a teacher, on the first traces to learn from, or on later ones."""
        recipe = self._recipe
        count = recipe.clone.clusters
        size, every = max(count, recipe.world.pool), self._seeds("train")
        first = time * size % max(1, len(every) - size + 1)
        seeds = every[first : first + size]
        env = BatchEnv(self._drawn(seeds), self.lens, recipe.world.reward, count)
        return EnvGames(env, per_job=self._per_job)

    def renew(self, games: EnvGames, rng: np.random.Generator) -> None:
        """Other traces for the episodes to come, if there are others."""
        if not self._episodes:
            games.env.swap(self._fresh(rng))

    def validate(self) -> NDArray[np.float64]:
        """The mean JCT, in seconds, of every validation trace under the network's best choices.

        Infinite for a trace that was not finished.
        """
        count = len(self._validation)
        reward = self._recipe.world.reward

        def make() -> Any:
            most = self._recipe.world.max_rounds
            return BatchEnv(self._validation, self.lens, reward, count, max_rounds=most)

        return greedy_jct_s(make, self.network, per_job=self._per_job)

    def policy(self, name: str) -> Policy:
        """A policy, as this scenario names them."""
        return make_policy(self.scenario.policy(name))

    def measure_copy(self, file: Path, report: Callable[[int, int], None]) -> CopyScore | None:
        """What a perfect copy of the teacher reaches on the validation traces; kept in a file.

        None if nobody teaches, or a journal, which cannot be asked what it would do there.
        """
        teacher = self._recipe.clone.teacher
        if not teacher or teacher.startswith(JOURNAL):
            return None
        if file.is_file():
            return CopyScore.load(file)
        worlds = [(seed, self._world(seed)) for seed in self._seeds("validate")]

        def tell(done: int) -> None:
            report(done, len(worlds))

        score = copy_score(
            worlds, self.lens, lambda: self.policy(teacher), teacher, self.unit_s, tell
        )
        score.save(file)
        return score

    def measure_others(self, file: Path) -> dict[str, float]:
        """What other policies reach on the validation traces; kept in a file, as it takes time."""
        kept: dict[str, float] = {}
        if file.is_file():
            try:
                kept = {str(name): float(jct) for name, jct in json.loads(file.read_text()).items()}
            except (ValueError, TypeError, AttributeError):
                raise InputError(f"{file}: This holds no scores by policy; delete it.") from None
        names, teacher = list(self._recipe.world.against), self._recipe.clone.teacher
        if names and teacher and not teacher.startswith(JOURNAL):
            names.insert(0, teacher)
        for name in names:
            if name not in kept:
                kept[name] = self._measure(name)
                write_text(file, json.dumps(kept, indent=2) + "\n")
        if names:
            self.teacher = kept[names[0]]
        return kept

    def _measure(self, name: str) -> float:
        found = []
        for seed in self._seeds("validate"):
            world = self._world(seed)
            outcome = simulate(
                world.cluster, world.trace, self.policy(name), world.when, seed=seed,
                physics=world.physics,
            )  # fmt: skip
            found.append(float(np.mean(outcome.done_s - outcome.submit_s)))
        return float(np.mean(found)) / self.unit_s

    def _seeds(self, use: str) -> range:
        """Which worlds are for this use: "train" or "validate"."""
        if not self._episodes:
            return seeds_of(use, getattr(self._recipe.world, use))
        count = len(self._episodes)
        held = max(1, count // HELD_OUT)
        return range(count - held) if use == "train" else range(count - held, count)

    def _world(self, seed: int) -> World:
        """The scenario's world of a seed; or in it, the episode of that number."""
        trace = self._episodes[seed] if self._episodes else None
        return self.scenario.draw(seed, self._data, trace)

    def _drawn(self, seeds: range | list[int]) -> Pool:
        return Pool.of([self._world(seed) for seed in seeds], list(seeds))

    def _fresh(self, rng: np.random.Generator) -> Pool:
        seeds, count = self._seeds("train"), self._recipe.world.pool
        if self._episodes:
            return self._drawn(seeds)
        if count > len(seeds):
            raise ConfigError(
                f"[world] pool = {count} wants more traces than train = "
                f"{self._recipe.world.train!r} has."
            )
        chosen = rng.choice(len(seeds), count, replace=False)
        return self._drawn([seeds[int(k)] for k in chosen])

    def _deal(self, rng: np.random.Generator, clusters: int, replicas: int) -> Ints:
        """Which trace every cluster plays next, and next; replicas play the same ones."""
        pool = len(self._seeds("train")) if self._episodes else self._recipe.world.pool
        groups = rng.integers(0, pool, (clusters // replicas, _EPISODES))
        return np.repeat(groups, replicas, 0)


def _cut(world: WorldConfig) -> list[Trace]:
    """The jobs of a journal or log in stretches of about as many jobs each."""
    trace = jobs_of(world.trace)
    if len(trace) < world.parts:
        raise ConfigError(
            f"[world] trace = {world.trace!r} holds {len(trace)} jobs, too few for parts = "
            f"{world.parts} episodes; take a longer one or fewer parts (2 or more)."
        )
    ends = np.linspace(0, len(trace), world.parts + 1).astype(int).tolist()
    return [trace.take(slice(a, b)) for a, b in pairwise(ends)]
