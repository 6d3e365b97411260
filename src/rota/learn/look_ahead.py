"""Look-ahead learning: a network learns from what every action of a state would lead to.

A system that can foresee (`System.make_foresight`) plays on from a state after each allowed action
and gives the cost of every one: the mean time that jobs are still there under a simple rule, also
those that arrive next in the trace. Such a cost is noisy, because no policy knows those jobs, but
its mean over many similar states is what an action is worth. So the network minimises the expected
cost of its choices minus their entropy, Σ π(a) (cost(a) + τ log π(a)): it is linear in the cost,
so noise averages out, and its minimum is the softmax of −(mean cost) / τ. States are those that the
network's own choices lead to. Next to a policy gradient it learns from all actions of a state, not
only from the one that was taken, and they share the same future.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from rota.errors import ConfigError, TrainingError
from rota.learn.choices import chances
from rota.learn.descent import Descent
from rota.learn.replay_memory import Played, ReplayMemory
from rota.learn.states import States
from rota.systems.agents import EDITOR

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rota.learn.collect import Rollout
    from rota.learn.states import Allowed
    from rota.systems.agents import LearnedAgent

UNIT_S: Final = 100.0
"""Costs are learned in this unit; they differ by about one of it."""
COST: Final = "cost"
"""The costs of options, among the observations that are remembered."""


@dataclass(frozen=True, kw_only=True)
class LookAheadConfig:
    """Settings of look-ahead learning."""

    steps: int = 8
    """Steps that every cluster plays between two updates."""
    coming: int = 32
    """Jobs to come that a play knows; without them it ends when today's jobs have ended."""
    rules: tuple[str, ...] = ("contention-greedy:threshold=0.2",)
    """Policies that play on; of every action, the one counts that makes most of it."""
    memory: int = 65_536
    """States that are remembered, the latest ones; updates draw from them."""
    batches: int = 16
    """Gradient steps of an update."""
    batch: int = 512
    """States of each gradient step."""
    temperature_s: float = 20.0
    """τ: an action whose cost is lower by this is e times as likely at the optimum."""
    learning_rate: float = 2e-3
    """Adam's step size; falls linearly to 0 over the run."""
    follow: float = 0.05
    """Part of the way that the network that plays goes towards the one that learns, per update;
    so it is a mean over about 1 / follow updates."""
    max_gradient: float = 1.0
    """Longer gradients are shortened to this norm."""
    patience: int = 5
    """Failed updates in a row after which the training stops."""

    def __post_init__(self) -> None:
        for name in ("steps", "memory", "batches", "batch", "patience"):
            if getattr(self, name) < 1:
                raise ConfigError(f"look_ahead.{name}={getattr(self, name)} must be 1 or more.")
        if not 0 <= self.coming <= 4096:
            raise ConfigError(f"look_ahead.coming={self.coming} must be from 0 to 4,096.")
        if not self.rules:
            raise ConfigError("look_ahead.rules names no policy; name one or more that play on.")
        if not 0 < self.follow <= 1:
            raise ConfigError(f"look_ahead.follow={self.follow} must be above 0 and at most 1.")
        for name in ("temperature_s", "learning_rate", "max_gradient"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"look_ahead.{name}={getattr(self, name)} must be above 0.")

    def tell(self, _agents: tuple[LearnedAgent, ...]) -> str:
        """It needs nothing beside costs."""
        return ""


class LookAhead:
    """Improves a network by the costs of all actions in states that it came to."""

    def __init__(
        self, network: torch.nn.Module, critic: torch.nn.Module, config: LookAheadConfig,
        generator: torch.Generator, _agents: tuple[LearnedAgent, ...] = EDITOR,
    ) -> None:  # fmt: skip
        self.network, self.config, self._generator = network, config, generator
        self._learning = deepcopy(network)
        """What gradient steps are taken on; the network that plays follows it slowly."""
        self.descent = Descent(
            self._learning, critic, table="look_ahead", rate=config.learning_rate,
            max_gradient=config.max_gradient, patience=config.patience,
        )  # fmt: skip
        self.memory = ReplayMemory(config.memory)
        self._began = False

    def update(self, rollout: Rollout, left: float) -> dict[str, float]:
        """Remember the rollout's states and learn; `left` is the part of the run to come."""
        if not self._began:  # the network may have learned otherwise since it was handed over
            self._learning.load_state_dict(self.network.state_dict())
            self._began = True
        self._remember(rollout)
        if not len(self.memory):
            return {"remembered": 0.0}
        self.descent.set_rate(self.config.learning_rate * max(left, 0.0))
        facts = self.descent.attempt(self._learn)
        self._follow()
        return facts

    def _follow(self) -> None:
        """Move the network that plays a little towards the one that learns."""
        with torch.no_grad():
            pairs = zip(self.network.parameters(), self._learning.parameters(), strict=True)
            for own, learned in pairs:
                own.lerp_(learned, self.config.follow)

    def _remember(self, rollout: Rollout) -> None:
        """Keep the states in which there is a choice."""
        decisions = rollout.decisions
        if rollout.cost is None or decisions.begins is not None:
            raise TrainingError(
                "Look-ahead learning needs a system that decides step by step and can foresee."
            )
        flags = decisions.allowed.flags
        if not np.isfinite(rollout.cost[flags]).all():
            raise TrainingError(
                "The cost of an allowed action is not finite; look at the scenario's traces."
            )
        cost = np.where(flags, rollout.cost, 0.0) / UNIT_S
        free = np.flatnonzero(decisions.allowed.free)
        if not len(free):
            return
        listed = decisions.allowed.begins is not None
        seen = States(
            {**rollout.seen.arrays, COST: _centred(cost, decisions.allowed)},
            (*rollout.seen.lists, COST) if listed else (),
        )
        played = Played(seen.take(free), None, decisions.take(free))
        self.memory.add(played, np.zeros(len(free)), np.ones(len(free)))

    def _learn(self) -> dict[str, float]:
        facts = np.mean([self._step() for _ in range(self.config.batches)], 0)
        return dict(zip(("cost", "entropy"), facts.tolist(), strict=True))

    def _step(self) -> tuple[float, float]:
        """One gradient step on states of the memory, all equally likely."""
        chance = torch.rand(self.config.batch, generator=self._generator, dtype=torch.float64)
        part = self.memory.take(self.memory.draw(chance.numpy()))
        seen = part.seen.tensors()
        options = chances(self._learning(seen)[0], part.decisions.allowed)
        cost, entropy = options.mean(seen[COST]).mean(), options.entropy().mean()
        self.descent.step(cost - self.config.temperature_s / UNIT_S * entropy)
        return float(cost.detach()), float(entropy.detach())

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a resumed training needs apart from the weights that play.

        It begins with an empty memory, and learns on from the weights that play.
        """
        return {}, self.descent.state()

    def restore(self, facts: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Continue from what `state` gave."""
        del facts
        self.descent.restore(arrays)


def _centred(cost: NDArray[Any], allowed: Allowed) -> NDArray[np.float32]:
    """The costs minus the mean over what was allowed in the same decision."""
    flags = allowed.flags
    if allowed.begins is None:
        mean = cost.sum(1, keepdims=True) / np.maximum(flags.sum(1, keepdims=True), 1)
    else:
        first, counts = allowed.begins[:-1], np.diff(allowed.begins)
        many = np.maximum(np.add.reduceat(flags, first, dtype=np.int64), 1)
        mean = np.repeat(np.add.reduceat(cost, first) / many, counts)
    return np.where(flags, cost - mean, 0.0).astype(np.float32)
