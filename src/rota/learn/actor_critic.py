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
from rota.learn.descent import Descent, entropy_of, is_free, masked, mean
from rota.learn.replay_memory import ReplayMemory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rota.core.types import Ints
    from rota.learn.collect import Rollout


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
        self, network: torch.nn.Module, config: ActorCriticConfig, generator: torch.Generator
    ) -> None:
        self.network, self.config, self._generator = network, config, generator
        self.descent = Descent(
            network, table="actor_critic", rate=config.learning_rate,
            max_gradient=config.max_gradient, patience=config.patience, epsilon=1e-8,
        )  # fmt: skip
        self.memory = ReplayMemory(config.memory)
        self.taken = 0
        """Gradient steps so far."""
        self._open: dict[str, NDArray[Any]] = {}
        """States whose round is not over, so that their reward is not known yet."""

    def update(self, rollout: Rollout, left: float) -> dict[str, float]:
        """Store the rollout; once the memory is full, learn. Returns facts for the log."""
        del left  # DL2's step size is constant
        self._remember(rollout)
        facts = {"remembered": len(self.memory) / self.memory.capacity}
        return self.descent.attempt(self._learn) if self.memory.full else facts

    def _remember(self, rollout: Rollout) -> None:
        """Put every state whose round is over into the memory, with its reward."""
        rows = _rows(rollout)
        if self._open:
            rows = {name: np.concatenate([self._open[name], rows[name]]) for name in rows}
        rows["ends"] = np.where(
            rows["ends"] == _BEFORE, _next_end(rollout)[0][rows["cluster"]], rows["ends"]
        )
        closed = rows["ends"] < len(rollout.over)
        self._open = {name: array[~closed] for name, array in rows.items()}
        self._open["ends"] = np.full(len(self._open["ends"]), _BEFORE)
        kept = {name: array[closed] for name, array in rows.items()}
        end, cluster, job = kept.pop("ends"), kept.pop("cluster"), kept.pop("job")
        kept["reward"] = self._paid(rollout, kept["live"], end, cluster, job).astype(np.float32)
        if not len(end):
            return
        paid = _mean_of_live(kept["reward"], kept["live"])
        usual = float(self.memory.rows["paid"][: len(self.memory)].mean()) if self.memory else 0.0
        priority = np.maximum(1.0, paid - usual) if self.config.prioritised else np.ones(len(paid))
        self.memory.add({**kept, "paid": paid}, priority)

    def _paid(
        self, rollout: Rollout, live: NDArray[Any], end: Ints, cluster: Ints, job: Ints
    ) -> NDArray[Any]:
        """The rewards of the rounds that ended at these steps, in the shape of `live`."""
        reward = rollout.reward[end, cluster]
        if live.ndim > 1:
            if self.config.credit == "own":
                return reward
            # Of all jobs, in the window or not.
            team = reward if rollout.gains is None else rollout.gains[end, cluster]
            shared: NDArray[Any] = team.sum(1, keepdims=True) * live
            return shared
        if self.config.credit == "team":
            return reward
        if rollout.gains is None:
            raise TrainingError(
                "actor_critic.credit = 'own' needs an environment that gives each job's gain."
            )
        gains = rollout.gains[end, cluster]
        # The action that ends a round belongs to no job: it gets the mean.
        mean = gains.sum(1) / np.maximum((gains != 0).sum(1), 1)
        own_gain = np.take_along_axis(gains, np.maximum(job, 0)[:, None], 1)[:, 0]
        return np.where(job >= 0, own_gain, mean)

    def _learn(self) -> dict[str, float]:
        facts = [self._step() for _ in range(self.config.batches)]
        names = ("entropy", "value_loss", "policy_loss", "error")
        return dict(zip(names, np.mean(facts, 0).tolist(), strict=True))

    def _step(self) -> tuple[float, float, float, float]:
        """One gradient step on states drawn by priority."""
        c, memory = self.config, self.memory
        chance = torch.rand(c.batch, generator=self._generator, dtype=torch.float64)
        place = memory.draw(chance.numpy())
        part = {name: torch.from_numpy(array[place]) for name, array in memory.rows.items()}
        beta = min(1.0, c.correction + c.correction_step * self.taken)
        weight = (memory.priority[place] / memory.priority.min()) ** -beta
        loss, error, fact = self._loss(part, torch.from_numpy(weight.astype(np.float32)))
        self.descent.step(loss)
        self.taken += 1
        if c.prioritised:
            memory.judge(place, np.minimum(error + LEAST, MOST) ** c.exponent)
        return (*fact, float(error.mean()))

    def _loss(
        self, part: dict[str, torch.Tensor], weight: torch.Tensor
    ) -> tuple[torch.Tensor, NDArray[Any], tuple[float, float, float]]:
        """The loss, the mean error of every state, and facts for the log."""
        c, live = self.config, part["live"]
        logits, value = self.network(
            {name[5:]: array for name, array in part.items() if name.startswith("seen.")}
        )
        state = live.nonzero()[:, 0]  # of every decision
        reward, action = part["reward"][live], part["action"][live]
        usual = value.detach() if c.critic else float(self.memory.rows["paid"].mean())
        advantage = reward - usual
        mask = part["mask"][live]
        chose = (action >= 0) & is_free(mask)  # the others are no decisions
        log_probs = masked(logits[chose], mask[chose])
        taken = log_probs.gather(-1, action[chose].unsqueeze(-1)).squeeze(-1)
        policy_loss = -mean(weight[state[chose]] * advantage[chose] * taken)
        entropy = mean(entropy_of(log_probs))
        value_loss = mean(weight[state] * (value - reward).square())
        loss = policy_loss - c.entropy * entropy
        if c.critic:
            loss = loss + c.value_weight * value_loss
        decisions = torch.bincount(state, minlength=len(live)).clamp(min=1)
        error = torch.zeros(len(live)).index_add(0, state, advantage.abs()) / decisions
        told = float(entropy.detach()), float(value_loss.detach()), float(policy_loss.detach())
        return loss, error.double().numpy(), told

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a resumed training needs apart from the weights: facts for JSON, and arrays."""
        return {"taken": self.taken}, self.descent.state()

    def restore(self, facts: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Continue from what `state` gave, with an empty memory."""
        self.taken = int(facts["taken"])
        self.descent.restore(arrays)


_BEFORE = -1
"""In place of the step at which a round ends: it began in an earlier rollout."""


def _rows(rollout: Rollout) -> dict[str, NDArray[Any]]:
    """The states of a rollout that have a decision, oldest first."""
    steps, batch = rollout.over.shape
    cluster = np.tile(np.arange(batch), (steps, 1))
    job = np.full((steps, batch), -1) if rollout.job is None else rollout.job
    arrays = {f"seen.{name}": array for name, array in rollout.seen.items()}
    arrays |= {"live": rollout.live, "action": rollout.action, "mask": rollout.mask}
    arrays |= {"cluster": cluster, "job": job, "ends": _next_end(rollout)}
    decides = rollout.live.reshape(steps * batch, -1).any(1)
    return {
        name: array.reshape(steps * batch, *array.shape[2:])[decides]
        for name, array in arrays.items()
    }


def _next_end(rollout: Rollout) -> Ints:
    """(T, B) The step at which the round of each step ends; T if not in this rollout."""
    steps = len(rollout.over)
    ends = np.full(rollout.over.shape, steps)
    for t in reversed(range(steps)):
        ends[t] = np.where(rollout.over[t], t, ends[t + 1] if t + 1 < steps else steps)
    return ends


def _mean_of_live(values: NDArray[Any], live: NDArray[Any]) -> NDArray[np.float64]:
    """The mean of each state's live decisions."""
    if values.ndim == 1:
        return values.astype(np.float64)
    mean: NDArray[np.float64] = (values * live).sum(1) / np.maximum(live.sum(1), 1)
    return mean
