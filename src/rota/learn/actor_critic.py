"""The actor-critic of DL2 (Peng et al., 2021): gradient steps on states from a replay memory.

Every round is a bandit problem: all decisions of a round get the round's reward, and are judged by
how far it is above the critic's value. States are stored with their rewards and replayed by
priority. The probability of an action is computed again at every replay, under the mask of that
time; as in the original, nothing corrects for changes of the policy since. Two things differ from
the original: it uses the old probabilities in place of the network's output, which distorts the
gradient, and it forgets actions that failed.

Episodes that are cut short need no treatment: a decision gets the reward of its own round, and
nothing that comes later.

The memory is not part of the state to resume from: after a resume it is filled again before
anything is learned, and unfinished rounds are lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rota.errors import ConfigError, TrainingError
from rota.learn.choices import chances
from rota.learn.descent import Descent, mean
from rota.learn.inference import given_to
from rota.learn.replay_memory import Played, ReplayMemory
from rota.systems.agents import EDITOR, follow_jobs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rota.core.types import Ints
    from rota.learn.collect import Rollout
    from rota.systems.agents import LearnedAgent


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig:
    """Settings of the actor-critic; the defaults are DL2's."""

    steps: int = 16
    """Steps that every cluster plays between two updates."""
    batches: int = 4
    """Gradient steps of an update."""
    batch: int = 256
    """States of each gradient step."""
    memory: int = 8192
    """States in the replay memory; nothing is learned before it is full."""
    prioritised: bool = True
    """Replay states with large errors more often; otherwise all states equally."""
    critic: bool = True
    """Judge by the network's value of a state; otherwise by the mean reward in the memory."""
    learning_rate: float = 1e-4
    """Adam's step size; constant."""
    entropy: float = 0.1 / 61
    """Weight of the entropy, per decision; DL2's 0.1 is of its mean over 61 actions."""
    credit: str = "team"
    """The reward of a decision: "team", what all jobs gained; "own", what its job gained."""
    exponent: float = 0.9
    """Exponent by which an error becomes a priority."""
    correction: float = 0.1
    """Part of the bias of prioritised replay that is corrected at first, from 0 to 1."""
    correction_step: float = 1e-4
    """Increase of that part with every gradient step."""
    value_weight: float = 1.0
    """Weight of the critic's squared error."""
    max_gradient: float = 10.0
    """Longer gradients are shortened to this norm."""
    patience: int = 5
    """Failed updates in a row after which the training stops."""

    def tell(self, agents: tuple[LearnedAgent, ...]) -> str:
        """What it needs beside rewards."""
        own = any((agent.credit or self.credit) == "own" for agent in agents)
        return "gains" if own else ""

    def __post_init__(self) -> None:
        if self.credit not in ("own", "team"):
            raise ConfigError(f"actor_critic.credit={self.credit!r} must be 'own' or 'team'.")
        for name in ("steps", "batches", "batch", "memory", "patience"):
            if getattr(self, name) < 1:
                raise ConfigError(f"actor_critic.{name}={getattr(self, name)} must be 1 or more.")
        for name in ("learning_rate", "max_gradient"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"actor_critic.{name}={getattr(self, name)} must be above 0.")
        for name in ("exponent", "correction", "correction_step"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"actor_critic.{name}={getattr(self, name)} must be from 0 to 1.")


LEAST = 0.01
"""The smallest error that is counted, so that every state in the memory can be drawn."""
MOST = 4.0
"""The largest error that is counted."""


class ActorCritic:
    """Improves a network by states from a replay memory."""

    def __init__(
        self, network: torch.nn.Module, critic: torch.nn.Module, config: ActorCriticConfig,
        generator: torch.Generator, agents: tuple[LearnedAgent, ...] = EDITOR,
    ) -> None:  # fmt: skip
        self.network, self.critic, self.config = network, critic, config
        self._generator, self._agents = generator, agents
        self.descent = Descent(
            network, critic, table="actor_critic", rate=config.learning_rate,
            max_gradient=config.max_gradient, patience=config.patience, epsilon=1e-8,
        )  # fmt: skip
        self.memory = ReplayMemory(config.memory)
        self.taken = 0
        """Gradient steps so far."""
        self._open: tuple[Played, Ints] | None = None
        """States whose round is not over, so that nothing is paid yet, and their clusters."""

    def update(self, rollout: Rollout, left: float) -> dict[str, float]:
        """Store the rollout; once the memory is full, learn. Returns facts for the log."""
        del left  # DL2's step size is constant
        self._remember(rollout)
        facts = {"remembered": len(self.memory) / self.memory.capacity}
        return self.descent.attempt(self._learn) if self.memory.full else facts

    def _remember(self, rollout: Rollout) -> None:
        """Put every state whose round is over into the memory, with its reward."""
        batch, cluster, ends = _states_of(rollout)
        if self._open is not None:
            earlier, theirs = self._open
            batch, cluster = earlier.beside(batch), np.append(theirs, cluster)
            ends = np.append(_next_end(rollout)[0][theirs], ends)
        closed = ends < len(rollout.over)
        still = np.flatnonzero(~closed)
        self._open = batch.take(still), cluster[still]
        kept, cluster, end = batch.take(np.flatnonzero(closed)), cluster[closed], ends[closed]
        if not len(end):
            return
        state = kept.decisions.state
        reward = self._paid(rollout, kept, end[state], cluster[state]).astype(np.float32)
        kept = kept._replace(decisions=kept.decisions.having(reward=reward))
        paid = np.bincount(state, reward) / np.bincount(state)
        usual = float(self.memory.paid[: len(self.memory)].mean()) if self.memory else 0.0
        priority = np.maximum(1.0, paid - usual) if self.config.prioritised else np.ones(len(paid))
        self.memory.add(kept, paid, priority)

    def _paid(self, rollout: Rollout, kept: Played, end: Ints, cluster: Ints) -> NDArray[Any]:
        """The rewards of the rounds that ended at these steps, of every decision."""
        own = np.array([(agent.credit or self.config.credit) == "own" for agent in self._agents])
        number = kept.seen["agent"][kept.decisions.state] if len(own) > 1 else 0
        if not own.any():
            return self._team(rollout, end, cluster)
        if rollout.gains is None:
            raise TrainingError(
                "actor_critic.credit = 'own' needs an environment that gives each job's gain."
            )
        gains, job = rollout.gains[end, cluster], kept.decisions["job"]
        # The action that ends a round belongs to no job: it gets the mean.
        mean = gains.sum(1) / np.maximum((gains != 0).sum(1), 1)
        own_gain = np.take_along_axis(gains, np.maximum(job, 0)[:, None], 1)[:, 0]
        single = np.where(job >= 0, own_gain, mean)
        return np.where(own[number], single, self._team(rollout, end, cluster))

    def _team(self, rollout: Rollout, end: Ints, cluster: Ints) -> NDArray[Any]:
        """What all jobs gained, in the window or not."""
        if follow_jobs(self._agents):
            assert rollout.gains is not None
            gained: NDArray[Any] = rollout.gains.sum(2)[end, cluster]
            return gained
        reward: NDArray[Any] = rollout.reward[end, cluster]
        return reward

    def _learn(self) -> dict[str, float]:
        facts = [self._step() for _ in range(self.config.batches)]
        names = ("entropy", "value_loss", "policy_loss", "error")
        return dict(zip(names, np.mean(facts, 0).tolist(), strict=True))

    def _step(self) -> tuple[float, float, float, float]:
        """One gradient step on states drawn by priority."""
        c, memory = self.config, self.memory
        chance = torch.rand(c.batch, generator=self._generator, dtype=torch.float64)
        place = memory.draw(chance.numpy())
        beta = min(1.0, c.correction + c.correction_step * self.taken)
        weight = (memory.priority[place] / memory.priority.min()) ** -beta
        loss, error, fact = self._loss(
            memory.take(place), torch.from_numpy(weight.astype(np.float32))
        )
        self.descent.step(loss)
        self.taken += 1
        if c.prioritised:
            memory.judge(place, np.minimum(error + LEAST, MOST) ** c.exponent)
        return (*fact, float(error.mean()))

    def _loss(
        self, part: Played, weight: torch.Tensor
    ) -> tuple[torch.Tensor, NDArray[Any], tuple[float, float, float]]:
        """The loss, the mean error of every state, and facts for the log."""
        c, decisions, count = self.config, part.decisions, len(part.seen)
        seen = given_to(self.network, part.seen)
        logits, inner = self.network(seen)
        value = self.critic(
            seen if part.judged is None else given_to(self.critic, part.judged), inner
        )
        state = torch.from_numpy(decisions.state)
        reward = torch.from_numpy(decisions["reward"])
        usual = value.detach() if c.critic else float(self.memory.paid.mean())
        advantage = reward - usual
        chose = np.flatnonzero((decisions["action"] >= 0) & decisions.allowed.free)
        found = chances(decisions.allowed.of(logits, chose), decisions.allowed.take(chose))
        taken = found.of(torch.from_numpy(decisions["action"][chose]))
        policy_loss = -mean(weight[state[chose]] * advantage[chose] * taken)
        each = found.entropy()
        entropy = bonus = mean(each)
        if len(self._agents) > 1:
            weights = torch.tensor([agent.entropy for agent in self._agents])
            bonus = mean(each * weights[torch.from_numpy(part.seen["agent"])[state[chose]]])
        value_loss = mean(weight[state] * (value - reward).square())
        loss = policy_loss - c.entropy * bonus
        if c.critic:
            loss = loss + c.value_weight * value_loss
        many = torch.bincount(state, minlength=count).clamp(min=1)
        error = torch.zeros(count).index_add(0, state, advantage.abs()) / many
        told = float(entropy.detach()), float(value_loss.detach()), float(policy_loss.detach())
        return loss, error.double().numpy(), told

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a resumed training needs apart from the weights: facts for JSON, and arrays."""
        return {"taken": self.taken}, self.descent.state()

    def restore(self, facts: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Continue from what `state` gave, with an empty memory."""
        self.taken = int(facts["taken"])
        self.descent.restore(arrays)


def _states_of(rollout: Rollout) -> tuple[Played, Ints, Ints]:
    """The states that have a decision, oldest first; their clusters, and where their rounds end."""
    cluster = np.tile(np.arange(rollout.over.shape[1]), len(rollout.over))
    begins = rollout.decisions.begins
    decides = np.arange(len(cluster)) if begins is None else np.flatnonzero(np.diff(begins))
    batch = Played(rollout.seen, rollout.judged, rollout.decisions).take(decides)
    return batch, cluster[decides], _next_end(rollout).ravel()[decides]


def _next_end(rollout: Rollout) -> Ints:
    """(T, B) The step at which the round of each step ends; T if not in this rollout."""
    steps = len(rollout.over)
    ends = np.full(rollout.over.shape, steps)
    for t in reversed(range(steps)):
        ends[t] = np.where(rollout.over[t], t, ends[t + 1] if t + 1 < steps else steps)
    return ends
