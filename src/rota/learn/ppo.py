"""Proximal policy optimisation (Schulman et al., 2017) with masks, for batches of clusters.

How decisions are judged is in `rota.learn.advantages`. Decisions with only one allowed action are
not counted as decisions: they have a value, but enter no other mean.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rota.errors import ConfigError
from rota.learn.advantages import advantages
from rota.learn.choices import chances
from rota.learn.descent import Descent, mean
from rota.learn.inference import inputs_of
from rota.systems.agents import EDITOR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from rota.core.types import Ints
    from rota.learn.collect import Cut, Rollout
    from rota.learn.states import Decisions
    from rota.systems.agents import LearnedAgent


@dataclass(frozen=True, kw_only=True)
class PPOConfig:
    """Settings of PPO."""

    steps: int = 8
    """Steps that every cluster plays between two updates."""
    epochs: int = 3
    """Passes of an update over the rollout."""
    minibatches: int = 4
    """Parts into which each pass is split; one gradient step each."""
    learning_rate: float = 1e-3
    """Adam's step size; falls linearly to 0 over the run."""
    clip: float = 0.2
    """The ratio of new to old probability is clipped to 1 ± this."""
    entropy: float = 0.03
    """Weight of the entropy, per decision."""
    cools: bool = False
    """Whether that weight falls to 0 as the learning rate does."""
    discount: float = 0.0
    """Discount from one round to the next; nothing is discounted within a round."""
    horizon_s: float = 0.0
    """Seconds in which the weight of later rewards falls to 1/e, in place of `discount`, for worlds
    without slots and systems that decide step by step. 0: `discount` applies."""
    trace: float = 0.5
    """λ of the generalised advantage between rounds."""
    inside: float = 1.0
    """λ between the edits of one round."""
    shaped: bool = False
    """Judge every edit by what it adds to its round's potential; the best policy stays the same
    (potential-based shaping: Ng et al., 1999). For systems that decide step by step."""
    credit: str = "team"
    """What a job's decision is judged by: the job's "own" rewards, or those of all ("team")."""
    joint: bool = False
    """Clip the probability of a round's decisions together instead of each by itself."""
    value_weight: float = 0.5
    """Weight of the value loss."""
    reward_scale: float = 0.1
    """Rewards are multiplied by this."""
    max_kl: float = 0.05
    """An update ends early when the KL divergence of a minibatch is above this."""
    max_gradient: float = 0.5
    """Longer gradients are shortened to this norm."""
    same_inputs: bool = False
    """Subtract the mean advantage of other clusters that replay the same arrivals."""
    patience: int = 5
    """Failed updates in a row after which the training stops."""

    def tell(self, _agents: tuple[LearnedAgent, ...]) -> str:
        """What it needs beside rewards."""
        return "potential" if self.shaped else ""

    def __post_init__(self) -> None:
        if self.credit not in ("own", "team"):
            raise ConfigError(f"ppo.credit={self.credit!r} must be 'own' or 'team'.")
        for name in ("discount", "trace", "inside"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"ppo.{name}={getattr(self, name)} must be from 0 to 1.")
        for name in ("steps", "epochs", "minibatches", "patience"):
            if getattr(self, name) < 1:
                raise ConfigError(f"ppo.{name}={getattr(self, name)} must be 1 or more.")
        if not 0 <= self.horizon_s < float("inf"):
            raise ConfigError(f"ppo.horizon_s={self.horizon_s} must be 0 or more seconds.")
        for name in ("learning_rate", "clip", "max_kl", "max_gradient", "reward_scale"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"ppo.{name}={getattr(self, name)} must be above 0.")


@dataclass
class ReturnScale:
    """Running mean and variance of returns; the network's values are normalised by them."""

    mean: float = 0.0
    var: float = 1.0
    count: float = 0.0

    def update(self, values: NDArray[Any], *, memory: float = 50.0) -> None:
        """Add the returns of one rollout; the mean is over about the last `memory` rollouts."""
        if not len(values):
            return
        self.count = min(self.count + 1.0, memory)
        weight = 1.0 / self.count
        gap = float(values.mean()) - self.mean
        self.mean += weight * gap
        self.var += weight * (float(values.var()) + (1 - weight) * gap * gap - self.var)

    @property
    def sd(self) -> float:
        """The standard deviation, never 0."""
        return float(np.sqrt(max(self.var, 1e-8)))


class PPO:
    """Improves a network by rollouts that it played."""

    def __init__(
        self, network: torch.nn.Module, critic: torch.nn.Module, config: PPOConfig,
        generator: torch.Generator, agents: tuple[LearnedAgent, ...] = EDITOR,
    ) -> None:  # fmt: skip
        self.network, self.critic, self.config = network, critic, config
        self._generator, self._agents = generator, agents
        self.descent = Descent(
            network, critic, table="ppo", rate=config.learning_rate,
            max_gradient=config.max_gradient, patience=config.patience,
        )  # fmt: skip
        self.scale = ReturnScale()
        self._entropy = config.entropy

    def update(self, rollout: Rollout, left: float) -> dict[str, float]:
        """One update; `left` is the part of the run still to come. Returns facts for the log."""
        c = self.config
        self._entropy = c.entropy * (max(left, 0.0) if c.cools else 1.0)
        self.descent.set_rate(c.learning_rate * max(left, 0.0))
        known = replace(
            rollout, last=self._in_rewards(rollout.last),
            cuts={t: self._in_rewards(cut) for t, cut in rollout.cuts.items()},
        )  # fmt: skip
        value = rollout.value * self.scale.sd + self.scale.mean
        advantage, target = advantages(known, value, c, self._agents)
        self.scale.update(target)
        decisions = rollout.decisions.having(
            advantage=advantage, target=(target - self.scale.mean) / self.scale.sd
        )
        if rollout.agent is not None:
            decisions = decisions.having(agent=rollout.agent.ravel()[decisions.state])
        return self.descent.attempt(lambda: self._epochs(rollout, decisions))

    def _in_rewards(self, cut: Cut) -> Cut:
        """The same with the critic's values in units of reward."""
        return replace(cut, value=cut.value * self.scale.sd + self.scale.mean)

    def _epochs(self, rollout: Rollout, decisions: Decisions) -> dict[str, float]:
        facts: list[tuple[float, float, float, float]] = []
        seen = inputs_of(self.network, rollout.seen)
        judged = None if rollout.judged is None else inputs_of(self.critic, rollout.judged)
        for _ in range(self.config.epochs):
            for states in self._minibatches(len(rollout.seen)):
                shown = seen.take(states)
                judges = shown if judged is None else judged.take(states)
                loss, fact = self._loss(decisions.take(states), shown, judges)
                if fact[0] > self.config.max_kl and torch.isfinite(loss):
                    return _means([*facts, fact], stopped=1.0)
                self.descent.step(loss)
                facts.append(fact)
        return _means(facts, stopped=0.0)

    def _minibatches(self, count: int) -> Iterator[Ints]:
        shuffled = torch.randperm(count, generator=self._generator)
        for part in torch.tensor_split(shuffled, min(self.config.minibatches, count)):
            yield part.numpy()

    def _loss(
        self, part: Decisions, seen: Any, judged: Any
    ) -> tuple[torch.Tensor, tuple[float, float, float, float]]:
        c = self.config
        logits, inner = self.network(seen)
        value = self.critic(judged, inner)
        # Those without a choice are no decisions, but have a value.
        chose = np.flatnonzero((part["action"] >= 0) & part.allowed.free)
        old, advantage, action = (
            torch.from_numpy(part[name][chose]) for name in ("log_prob", "advantage", "action")
        )
        found = chances(part.allowed.of(logits, chose), part.allowed.take(chose))
        change = found.of(action) - old
        if c.joint and part.begins is not None:
            # One decision of many parts: log-ratios are summed, advantages averaged.
            state = torch.from_numpy(part.state[chose])
            change, advantage = _together(change, advantage, state, len(part.begins) - 1)
        ratio = change.exp()
        policy_loss = -mean(clipped_gain(ratio, advantage, c.clip))
        each = found.entropy()
        entropy = bonus = mean(each)
        if "agent" in part.columns:
            weights = torch.tensor([agent.entropy for agent in self._agents])
            bonus = mean(each * weights[torch.from_numpy(part["agent"][chose])])
        missed = torch.nn.functional.smooth_l1_loss(
            value, torch.from_numpy(part["target"]), beta=2.0, reduction="none"
        )
        value_loss = mean(missed)
        loss = policy_loss + c.value_weight * value_loss - self._entropy * bonus
        kl = float(mean(ratio.detach() - 1 - change.detach()))
        return loss, (kl, float(entropy.detach()), float(value_loss.detach()),
                      float(policy_loss.detach()))  # fmt: skip

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a resumed training needs apart from the weights: facts for JSON, and arrays."""
        scale = {"mean": self.scale.mean, "var": self.scale.var, "count": self.scale.count}
        return {"scale": scale}, self.descent.state()

    def restore(self, facts: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Continue from what `state` gave."""
        self.scale = ReturnScale(**facts["scale"])
        self.descent.restore(arrays)


def clipped_gain(ratio: torch.Tensor, advantage: torch.Tensor, clip: float) -> torch.Tensor:
    """What each decision gains by its ratio of new to old probability, as far as that may go.

    The minimum is of the products: a ratio that has gone too far in the right direction learns
    nothing more, and one that has gone the wrong way always does.
    """
    return torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)


def _together(
    change: torch.Tensor, advantage: torch.Tensor, row: torch.Tensor, rows: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of log-ratios and means of advantages of each cluster that has a job."""
    count = torch.bincount(row, minlength=rows)
    total = torch.zeros(rows).index_add(0, row, change)
    mean = torch.zeros(rows).index_add(0, row, advantage) / count.clamp(min=1)
    return total[count > 0], mean[count > 0]


def _means(facts: list[tuple[float, float, float, float]], *, stopped: float) -> dict[str, float]:
    names = ("kl", "entropy", "value_loss", "policy_loss")
    return {**dict(zip(names, np.mean(facts, 0).tolist(), strict=True)), "stopped": stopped}
