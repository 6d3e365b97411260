"""Learners by name: how each is built, and the table of a recipe that it is set by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rota.learn.actor_critic import ActorCritic, ActorCriticConfig
from rota.learn.look_ahead import LookAhead, LookAheadConfig
from rota.learn.ppo import PPO, PPOConfig
from rota.plugins import Registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.plugins import Plugin


@dataclass(frozen=True)
class Learner:
    """One way to improve a network by rollouts."""

    name: str
    summary: str
    table: str
    """The table of a recipe with its settings."""
    settings: type[Any]
    """A frozen dataclass with `steps`, how many every cluster plays between two updates, and
    `tell(agents)`, what it needs beside rewards: "gains", "potential" or nothing."""
    make: Callable[..., Any]
    """From network, critic, settings, torch.Generator and agents; it has `update`, `state` and
    `restore`, as PPO."""
    replaced: bool = False
    """Whether it can learn from actions that an explorer put in place of those drawn."""


LEARNERS: Final = {
    learner.name: learner
    for learner in (
        Learner("ppo", "Proximal policy optimisation.", "ppo", PPOConfig, PPO),
        Learner(
            "actor-critic", "DL2's: prioritised replay, every round by itself.", "actor_critic",
            ActorCriticConfig, ActorCritic, replaced=True,
        ),
        Learner(
            "look-ahead", "From the costs of all actions, which the system foresees.",
            "look_ahead", LookAheadConfig, LookAhead,
        ),
        Learner("none", "Warm-up alone.", "ppo", PPOConfig, PPO),  # which then never updates
    )
}  # fmt: skip


def _plugged(thing: Any, plugin: Plugin) -> Learner:
    if not isinstance(thing, Learner) or thing.name != plugin.name:
        raise TypeError(f"{thing!r} is no rota.learn.learners.Learner called {plugin.name!r}")
    return thing


LEARNING: Final = Registry("rota.learners", "learner", [lambda: LEARNERS], _plugged)
"""Ours and those of plug-ins."""


def settings_tables(name: str) -> dict[str, type[Any]]:
    """The tables of our learners, and of the one called so, and the dataclass of each."""
    return {one.table: one.settings for one in (*LEARNERS.values(), LEARNING.get(name))}
