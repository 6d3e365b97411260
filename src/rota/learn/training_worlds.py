"""The worlds of a training: traces to learn from, traces to validate on, and rivals on these."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.envs import BatchEnv, WorldPool
from rota.envs.world_pool import shown_laws
from rota.errors import ConfigError
from rota.learn.batch_rollout_env import BatchRolloutEnv, greedy_jct_s
from rota.learn.clone import JOURNAL
from rota.learn.copy_score import CopyScore, copy_score
from rota.learn.demonstrations import watch_journal, watch_policy
from rota.learn.journal_replay import JournalReplay, jobs_of
from rota.learn.recipe import seeds_of
from rota.learn.rivals import fitting_rules, measure_rivals, named_rivals
from rota.policies import make_policy
from rota.scenarios import load

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import nn

    from rota.core.seams import Policy
    from rota.core.types import Floats, Ints
    from rota.learn.demonstrations import Demonstrations
    from rota.learn.recipe import Recipe, WorldConfig
    from rota.learn.stretches import Stretches
    from rota.scenarios.scenario import World
    from rota.traces import Trace

HOUR_S = 3600.0
_EPISODES = 1024
"""Episodes per cluster for which traces are drawn in advance; then they repeat."""
HELD_OUT = 5
"""One in this many episodes of a journal validates."""


class TrainingWorlds:
    """The lens, the network, its critic and the worlds of a recipe."""

    def __init__(
        self, recipe: Recipe, data: Path | None = None, past: Stretches | None = None
    ) -> None:
        self._recipe, self._data, self._past = recipe, data, past
        self.scenario = load(recipe.world.scenario, recipe.world.changes)
        self.unit_s = self.scenario.when.slot_s or HOUR_S
        """The seconds of the unit in which JCTs are reported: a slot, or an hour without slots."""
        system = recipe.built_by
        self.lens = system.make_lens(recipe.lens)
        self.network = system.make_network(recipe.network, self.lens)
        self.critic = system.make_critic(recipe.network, self.lens)
        self._agents = system.agents
        self._episodes = _cut(recipe.world) if recipe.world.trace else []
        self._held = max(1, len(self._episodes) // HELD_OUT)
        if past is not None:
            self._episodes, self._held = [*past.learn, *past.choose], len(past.choose)
        self._validation = self._drawn(self._seeds("validate"))
        self.rivals = self._named_rivals()
        """The policies that the network is compared with: the teacher, those of `world.against`,
        and the strongest rule."""
        self._recorded: Demonstrations | None = None
        """What the journal teaches, from when it was checked until it is asked for."""
        # What is wrong is told before anything is measured.
        for name in self.rivals:
            self.policy(name)
        if recipe.run.learner == "look-ahead" and system.check_rules is not None:
            system.check_rules(recipe.learning.rules)
        if self.lens.places:
            shown_laws(self._validation, self.scenario.name)

    @property
    def unit(self) -> str:
        """The unit of reported JCTs, in words."""
        slot_s = self.scenario.when.slot_s
        return f"slots of {slot_s:g} s" if slot_s else "hours"

    @property
    def validation_words(self) -> str:
        """Which traces validate, in words."""
        seeds = self._seeds("validate")
        plural = "s" * (len(seeds) != 1)
        if self._episodes:
            return f"the last {len(seeds)} of {len(self._episodes)} parts of the trace"
        return f"{len(seeds)} validation trace{plural} (seed{plural} {seeds[0]}{_to(seeds)})"

    def _named_rivals(self) -> list[str]:
        names, teacher = self._recipe.world.against, self._recipe.clone.teacher
        if not names:
            return []
        own = [teacher] if teacher and not teacher.startswith(JOURNAL) else []
        world = self._world(self._seeds("validate")[0])
        strongest = fitting_rules(self.scenario, world)[-1]
        rivals = named_rivals([*names, strongest], self.scenario, world)
        return list(dict.fromkeys([*own, *rivals]))

    def training_env(self, rng: np.random.Generator) -> BatchRolloutEnv:
        """The clusters to learn from."""
        world = self._recipe.world
        entries = self._entries(rng, world.clusters, world.replicas)
        env = BatchEnv(
            self._fresh(rng), self.lens, world.rewards, world.clusters, entries=entries,
            max_rounds=world.max_rounds, potentials=self._recipe.tell == "potential",
            final_obs="cut", judged=hasattr(self.lens, "critic_space"),
        )  # fmt: skip
        explore, make = self._recipe.explore, self._recipe.built_by.make_explorer
        explorer = None
        if explore.kind != "none" and make is not None:
            explorer = make(explore, self.lens, world.clusters, rng)
        foresee, ahead = self._recipe.built_by.make_foresight, self._recipe.learning
        foresight = None
        if self._recipe.run.learner == "look-ahead" and foresee is not None:
            foresight = foresee(env, ahead.coming, ahead.rules)
        return BatchRolloutEnv(
            env, self._agents, entries=entries if world.replicas > 1 else None,
            explorer=explorer, tell=self._recipe.tell, foresight=foresight,
        )  # fmt: skip

    def demonstrations(
        self, rng: np.random.Generator, time: int = 0, student: nn.Module | None = None
    ) -> Demonstrations:
        """What the teacher does, a policy or the scheduler of a journal.

        With a `student`, it says what it would do in states that the student's choices lead to.
        Each `time` plays other traces, if there are others.
        """
        config = self._recipe.clone
        if config.teacher.startswith(JOURNAL):
            shown, self._recorded = self._recorded or self._watched(), None
            return shown
        envs = self.teacher_env(time)
        return watch_policy(envs, lambda: self.policy(config.teacher), config, rng, student)

    def check_teacher(self) -> None:
        """Raise if the teacher is a journal that cannot be learned from."""
        if self._recipe.clone.teacher.startswith(JOURNAL):
            self._recorded = self._watched()

    def _watched(self) -> Demonstrations:
        """What the scheduler of the journal did; the teacher is a journal."""
        config = self._recipe.clone
        path = Path(config.teacher.removeprefix(JOURNAL))
        journal = JournalReplay(path, self.scenario, self._data)
        models = self._world(self._seeds("validate")[0]).trace.models
        return watch_journal(journal, self.lens, config.samples, models, self._agents)

    def teacher_env(self, time: int = 0) -> BatchRolloutEnv:
        """A few clusters for a teacher; at time 0 on the first traces to learn from."""
        recipe = self._recipe
        count = recipe.clone.clusters
        size, every = max(count, recipe.world.pool), self._seeds("train")
        first = time * size % max(1, len(every) - size + 1)
        seeds = every[first : first + size]
        env = BatchEnv(self._drawn(seeds), self.lens, recipe.world.rewards, count)
        return BatchRolloutEnv(env, self._agents)

    def renew(self, envs: BatchRolloutEnv, rng: np.random.Generator) -> None:
        """Draw other traces for future episodes, if there are others."""
        if not self._episodes:
            envs.batch_env.swap(self._fresh(rng))

    def validate(self, network: Any) -> NDArray[np.float64]:
        """The mean JCT, in seconds, of each validation trace under a network's likeliest actions.

        It is infinite for a trace with a job that has not ended.
        """
        count = len(self._validation)
        reward = self._recipe.world.rewards

        def make() -> Any:
            most = self._recipe.world.max_rounds
            return BatchEnv(self._validation, self.lens, reward, count, max_rounds=most)

        return greedy_jct_s(make, network, self._agents)

    def policy(self, name: str) -> Policy:
        """The policy that has this name in the scenario."""
        return make_policy(self.scenario.policy(name))

    def measure_copy(self, file: Path, report: Callable[[int, int], None]) -> CopyScore | None:
        """What a perfect copy of the teacher reaches on the validation traces; kept in a file.

        None if there is no teacher, or if it is a journal, which cannot be asked in other states.
        """
        teacher = self._recipe.clone.teacher
        if not teacher or teacher.startswith(JOURNAL):
            return None
        if file.is_file():
            return CopyScore.load(file)
        worlds = self._validation_worlds()

        def tell(done: int) -> None:
            report(done, len(worlds))

        score = copy_score(
            worlds, self.lens, lambda: self.policy(teacher), teacher, self.unit_s, tell
        )
        score.save(file)
        return score

    def measure_rivals(
        self, file: Path, report: Callable[[int, int], None] = lambda _done, _of: None
    ) -> dict[str, Floats]:
        """By rival: its mean JCT, in seconds, of each validation trace; kept in a file."""
        names = self.rivals
        worlds = self._validation_worlds() if names else []
        return measure_rivals(names, self.scenario, worlds, file, report)

    def _validation_worlds(self) -> list[tuple[int, World]]:
        return [(seed, self._world(seed)) for seed in self._seeds("validate")]

    def _seeds(self, use: str) -> range:
        """The worlds for a use, "train" or "validate"."""
        if not self._episodes:
            return seeds_of(use, getattr(self._recipe.world, use))
        count = len(self._episodes)
        first = count - self._held
        return range(first) if use == "train" else range(first, count)

    def _world(self, seed: int) -> World:
        """The scenario's world of a seed; with parts of a past, the part of that number."""
        trace = self._episodes[seed] if self._episodes else None
        if self._past is not None and trace is not None:
            return self._past.world(self.scenario, trace, self._data)
        return self.scenario.draw(seed, self._data, trace)

    def _drawn(self, seeds: range | list[int]) -> WorldPool:
        return WorldPool.of([self._world(seed) for seed in seeds], list(seeds))

    def _fresh(self, rng: np.random.Generator) -> WorldPool:
        seeds, count = self._seeds("train"), self._recipe.world.pool
        if self._episodes:
            return self._drawn(seeds)
        if count > len(seeds):
            raise ConfigError(
                f"[world] pool = {count} is more than the {len(seeds)} seeds of train = "
                f"{self._recipe.world.train!r}; lower pool, or name more seeds."
            )
        chosen = rng.choice(len(seeds), count, replace=False)
        return self._drawn([seeds[int(k)] for k in chosen])

    def _entries(self, rng: np.random.Generator, clusters: int, replicas: int) -> Ints:
        """The traces that each cluster plays, by episode; replicas play the same ones."""
        pool = len(self._seeds("train")) if self._episodes else self._recipe.world.pool
        groups = rng.integers(0, pool, (clusters // replicas, _EPISODES))
        return np.repeat(groups, replicas, 0)


def _to(seeds: range) -> str:
    return f" to {seeds[-1]}" if len(seeds) > 1 else ""


def _cut(world: WorldConfig) -> list[Trace]:
    """The jobs of a journal or log in consecutive parts of about the same number of jobs."""
    trace = jobs_of(world.trace)
    if len(trace) < world.parts:
        raise ConfigError(
            f"[world] trace = {world.trace!r} holds {len(trace)} jobs, too few for parts = "
            f"{world.parts} episodes; take a longer one or fewer parts (2 or more)."
        )
    ends = np.linspace(0, len(trace), world.parts + 1).astype(int).tolist()
    return [trace.take(slice(a, b)) for a, b in pairwise(ends)]
