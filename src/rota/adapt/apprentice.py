"""Trainings of agents, ours and the published one, driven and kept in the same way."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rota import weights_file
from rota.adapt import growth_agent as own
from rota.adapt import published_agent as published
from rota.adapt.growth_agent import GrowthAgent
from rota.adapt.published_agent import PublishedAgent
from rota.adapt.published_training import PublishedTraining
from rota.adapt.reinforce import Reinforce, ReinforceSettings
from rota.errors import CheckpointError, ConfigError, InputError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rota.adapt.growth_cases import Cases

LEARNERS: Final = ("ours", "published")
PUBLISHED_EPISODES: Final = 10_000
"""The fewest episodes of the published trainings from scratch."""
STATE: Final = ".state"
"""How the names of files end from which trainings are resumed."""
_EVERY: Final = 400
"""Episodes between two states on disk."""


class Apprentice:
    """A training that is kept on disk, and goes on where it stopped."""

    def __init__(self, learner: Reinforce | PublishedTraining, most: int, state: Path) -> None:
        self.learner, self.most, self.state = learner, most, state

    def run(self, watch: Callable[[int], None] | None = None, *, every: int = _EVERY) -> None:
        """Train to the end; the state is written after every so many episodes."""
        kept = self.learner.episodes
        while self.learner.episodes < self.most:
            self.learner.advance()
            if self.learner.episodes - kept >= every or self.learner.episodes >= self.most:
                self.learner.save(self.state)
                kept = self.learner.episodes
            if watch is not None:
                watch(self.learner.episodes)

    def save(self, path: Path) -> None:
        """Write the agent; the state of the training is no longer needed."""
        facts = {"episodes": self.learner.episodes, "cases": [*self.learner.cases.names]}
        self.learner.agent.save(path, facts)
        self.state.unlink(missing_ok=True)


def apprentice(
    name: str,
    cases: Cases,
    *,
    seed: int,
    state: Path,
    episodes: int | None = None,
    settings: ReinforceSettings | None = None,
    resume: bool = False,
) -> Apprentice:
    """A training of a kind of agent, begun anew or resumed from its state.

    `settings` are our learner's; the published one has none.
    """
    if name not in LEARNERS:
        raise UnknownNameError("learner", name, LEARNERS)
    learner: Reinforce | PublishedTraining
    if name == "ours":
        settings = settings or ReinforceSettings()
        if episodes is not None:
            settings = replace(settings, episodes=episodes)
        learner, most = Reinforce(cases, settings=settings, seed=seed), settings.episodes
    else:
        choices = {len(cases.moment(case, 0, ()).choices) for case in range(len(cases.names))}
        if choices != {4}:
            raise ConfigError(
                f"The published agent has 4 choices, this table {max(choices)}; let it learn on "
                "a table whose menu is 'deepen' or 'published', such as runs/adapt/deepen.db."
            )
        learner, most = PublishedTraining(cases, seed=seed), episodes or PUBLISHED_EPISODES
    if resume:
        if not state.is_file():
            raise ConfigError(
                f"{state}: There is no training to go on with; leave --resume out to begin one."
            )
        learner.restore(state)
    return Apprentice(learner, most, state)


def check_agent_path(path: Path) -> None:
    """Refuse, before anything is learned, a file that no agent can be written to."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; an agent needs the name of a file.")
    if path.suffix == STATE:
        raise InputError(
            f"{path}: The state of the training is kept under this name, and removed at its end; "
            "give the agent another one, such as agent.ckpt."
        )
    if path.exists():
        try:
            load_agent(path)
        except CheckpointError:
            raise InputError(
                f"{path} exists and is no agent of this rota; give another name, or remove it."
            ) from None


def load_agent(path: Path) -> GrowthAgent | PublishedAgent:
    """Read an agent of either kind."""
    kind = weights_file.read(path)[0].get("kind")
    if kind == own.KIND:
        return GrowthAgent.load(path)
    if kind == published.KIND:
        return PublishedAgent.load(path)
    raise CheckpointError(f"{path}: The file holds {kind!r}, not an agent of `rota adapt train`.")
