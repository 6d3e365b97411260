"""The worlds of a training: traces to learn from, traces to validate on, and other policies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.envs import BatchEnv, Pool
from rota.errors import ConfigError, InputError
from rota.learn.playing import EnvGames, greedy_jct_s
from rota.learn.recipe import seeds_of
from rota.policies import make_policy
from rota.scenarios import load
from rota.sim import simulate

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from rota.core.seams import Policy
    from rota.core.types import Ints
    from rota.learn.recipe import Recipe

HOUR_S = 3600.0
_EPISODES = 1024
"""Episodes for which traces are dealt in advance; then they come again."""


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
        self._validation = self._drawn(seeds_of("validate", recipe.world.validate))
        self.teacher: float | None = None
        """Mean JCT of the first of the other policies on the validation traces."""

    def games(self, rng: np.random.Generator) -> EnvGames:
        """The clusters that are learned from."""
        world = self._recipe.world
        deal = self._deal(rng, world.clusters, world.replicas)
        env = BatchEnv(self._fresh(rng), self.lens, world.reward, world.clusters, deal=deal)
        explore, make = self._recipe.explore, self._recipe.built_by.make_explorer
        explorer = None
        if explore.kind != "none" and make is not None:
            explorer = make(explore, self.lens, world.clusters, rng)
        return EnvGames(
            env, per_job=self._per_job, deal=deal if world.replicas > 1 else None,
            explorer=explorer, tell=self._recipe.tell,
        )  # fmt: skip

    def lesson_games(self) -> EnvGames:
        """A few clusters for a teacher, on the first traces to learn from."""
        recipe = self._recipe
        count = recipe.clone.clusters
        seeds = seeds_of("train", recipe.world.train)[: max(count, recipe.world.pool)]
        env = BatchEnv(self._drawn(seeds), self.lens, recipe.world.reward, count)
        return EnvGames(env, per_job=self._per_job)

    def renew(self, games: EnvGames, rng: np.random.Generator) -> None:
        """Other traces for the episodes to come."""
        games.env.swap(self._fresh(rng))

    def validate(self) -> NDArray[np.float64]:
        """The mean JCT, in seconds, of every validation trace under the network's best choices."""
        count = len(self._validation)
        reward = self._recipe.world.reward

        def make() -> Any:
            return BatchEnv(self._validation, self.lens, reward, count)

        return greedy_jct_s(make, self.network, per_job=self._per_job)

    def policy(self, name: str) -> Policy:
        """A policy, as this scenario names them."""
        return make_policy(self.scenario.policy(name))

    def measure_others(self, file: Path) -> dict[str, float]:
        """What other policies reach on the validation traces; kept in a file, as it takes time."""
        kept: dict[str, float] = {}
        if file.is_file():
            try:
                kept = json.loads(file.read_text())
            except ValueError:
                raise InputError(f"{file}: This is no valid JSON; delete it.") from None
        for name in self._recipe.world.against:
            if name not in kept:
                kept[name] = self._measure(name)
                file.write_text(json.dumps(kept, indent=2) + "\n")
        if self._recipe.world.against:
            self.teacher = kept[self._recipe.world.against[0]]
        return kept

    def _measure(self, name: str) -> float:
        policy, found = self.policy(name), []
        for seed in seeds_of("validate", self._recipe.world.validate):
            world = self.scenario.draw(seed, self._data)
            outcome = simulate(
                world.cluster, world.trace, policy, world.when, seed=seed, physics=world.physics
            )
            found.append(float(np.mean(outcome.done_s - outcome.submit_s)))
        return float(np.mean(found)) / self.unit_s

    def _drawn(self, seeds: range | list[int]) -> Pool:
        return Pool.draw(self.scenario, list(seeds), data=self._data)

    def _fresh(self, rng: np.random.Generator) -> Pool:
        seeds, count = seeds_of("train", self._recipe.world.train), self._recipe.world.pool
        if count > len(seeds):
            raise ConfigError(
                f"[world] pool = {count} wants more traces than train = "
                f"{self._recipe.world.train!r} has."
            )
        chosen = rng.choice(len(seeds), count, replace=False)
        return self._drawn([seeds[int(k)] for k in chosen])

    def _deal(self, rng: np.random.Generator, clusters: int, replicas: int) -> Ints:
        """Which trace every cluster plays next, and next; replicas play the same ones."""
        groups = rng.integers(0, self._recipe.world.pool, (clusters // replicas, _EPISODES))
        return np.repeat(groups, replicas, 0)
