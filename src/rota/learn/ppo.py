"""Proximal policy optimisation (Schulman et al., 2017) with masks, for batches of clusters.

Five things differ from the textbook:
- Time passes only when a round ends. Inside a round nothing is discounted; between rounds both
  `discount` and `trace` apply, so `discount = 0` makes every round a bandit of its own.
- In a one-pass system every job has its own value and its own temporal difference, followed by
  the job's number over rounds. What a job brings while it is out of sight counts for the last
  decision about it. `credit = "own"` judges a job's decisions by its own future, `"team"` by the
  sum over the jobs that were there. Jobs that come into sight later enter neither, which removes
  the noise of arrivals; what those bring that were never in sight in a rollout counts for the
  team in that round.
- Decisions with one allowed action are no decisions: they have a value, but enter no other mean.
- An episode that is cut short is worth what the network expects of its last state.
- Where several clusters replay the same arrivals, the mean advantage of the others at the same
  time is subtracted (input-dependent baseline: Mao et al., 2019).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rota.errors import ConfigError
from rota.learn.descent import Descent, entropy_of, masked, mean
from rota.learn.rollout import inputs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from rota.core.types import Bools, Ints
    from rota.learn.rollout import Rollout


@dataclass(frozen=True, kw_only=True)
class PPOConfig:
    """Settings of the learner."""

    steps: int = 8
    """Steps that every cluster plays between two updates."""
    epochs: int = 3
    """How often an update goes through what was played."""
    minibatches: int = 4
    """Parts into which it is split each time."""
    learning_rate: float = 1e-3
    """Adam's step size; falls linearly to 0 over the run."""
    clip: float = 0.2
    """How far the probability of an action may move before it counts no more."""
    entropy: float = 0.03
    """Weight of the entropy, per decision."""
    cools: bool = False
    """Whether that weight falls to 0 as the learning rate does."""
    discount: float = 0.0
    """Of what comes one round later."""
    trace: float = 0.5
    """λ of the generalised advantage between rounds; within a round it is 1."""
    inside: float = 1.0
    """λ between the edits of one round."""
    shaped: bool = False
    """Judge every edit by what it adds to what its round promises; what is best stays the same
    (potential-based shaping: Ng et al., 1999). For systems that decide step by step."""
    credit: str = "team"
    """What a job's decision is judged by: "own" or "team"; "team" where there are no jobs."""
    joint: bool = False
    """Clip the probability of a round's decisions together instead of each by itself."""
    value_weight: float = 0.5
    """Weight of the value loss."""
    reward_scale: float = 0.1
    """Rewards are multiplied by this."""
    max_kl: float = 0.05
    """An update ends once the policy has moved this far, on average over a minibatch."""
    max_gradient: float = 0.5
    """Longer gradients are shortened to this norm."""
    same_inputs: bool = False
    """Subtract what other clusters made of the same arrivals at the same time."""
    patience: int = 5
    """So many updates in a row may fail before training stops."""

    def __post_init__(self) -> None:
        if self.credit not in ("own", "team"):
            raise ConfigError(f"ppo.credit={self.credit!r} must be 'own' or 'team'.")
        for name in ("discount", "trace", "inside"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"ppo.{name}={getattr(self, name)} must be from 0 to 1.")
        for name in ("steps", "epochs", "minibatches", "patience"):
            if getattr(self, name) < 1:
                raise ConfigError(f"ppo.{name}={getattr(self, name)} must be 1 or more.")
        for name in ("learning_rate", "clip", "max_kl", "max_gradient", "reward_scale"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"ppo.{name}={getattr(self, name)} must be above 0.")


@dataclass
class Scale:
    """Running mean and variance of returns; the network's values are in these units."""

    mean: float = 0.0
    var: float = 1.0
    count: float = 0.0

    def update(self, values: NDArray[Any], *, memory: float = 50.0) -> None:
        """Take in the returns of one rollout; older ones fade after `memory` of them."""
        if not len(values):
            return
        self.count = min(self.count + 1.0, memory)
        weight = 1.0 / self.count
        gap = float(values.mean()) - self.mean
        self.mean += weight * gap
        self.var += weight * (float(values.var()) + (1 - weight) * gap * gap - self.var)

    @property
    def sd(self) -> float:
        """The unit."""
        return float(np.sqrt(max(self.var, 1e-8)))


class PPO:
    """Improves a network by what it played."""

    def __init__(self, network: torch.nn.Module, config: PPOConfig, generator: torch.Generator):
        self.network, self.config, self._generator = network, config, generator
        self.descent = Descent(
            network, table="ppo", rate=config.learning_rate, max_gradient=config.max_gradient,
            patience=config.patience,
        )  # fmt: skip
        self.scale = Scale()
        self._entropy = config.entropy

    def update(self, rollout: Rollout, left: float) -> dict[str, float]:
        """One update; `left` is the share of the run still to come. Returns what happened."""
        c = self.config
        self._entropy = c.entropy * (max(left, 0.0) if c.cools else 1.0)
        self.descent.set_rate(c.learning_rate * max(left, 0.0))
        value = self._in_rewards(rollout.value)
        cuts = {t: replace(x, value=self._in_rewards(x.value)) for t, x in rollout.cuts.items()}
        rollout = replace(rollout, cuts=cuts)
        advantage, target = advantages(rollout, value, c)
        self.scale.update(target[rollout.live])
        data = _flat(rollout, advantage, (target - self.scale.mean) / self.scale.sd)
        return self.descent.attempt(lambda: self._epochs(data))

    def _in_rewards(self, value: NDArray[Any]) -> NDArray[Any]:
        """What the network gives, in units of reward."""
        scaled: NDArray[Any] = value * self.scale.sd + self.scale.mean
        return scaled

    def _epochs(self, data: dict[str, torch.Tensor]) -> dict[str, float]:
        facts: list[tuple[float, float, float, float]] = []
        seen = inputs_of(
            self.network, {name[5:]: data.pop(name) for name in [*data] if name[:5] == "seen."}
        )
        for _ in range(self.config.epochs):
            for rows in self._minibatches(len(data["action"])):
                part = {name: array[rows] for name, array in data.items()}
                loss, fact = self._loss(part, seen.take(rows))
                if fact[0] > self.config.max_kl and torch.isfinite(loss):
                    return _means([*facts, fact], stopped=1.0)
                self.descent.step(loss)
                facts.append(fact)
        return _means(facts, stopped=0.0)

    def _minibatches(self, count: int) -> Iterator[torch.Tensor]:
        shuffled = torch.randperm(count, generator=self._generator)
        yield from torch.tensor_split(shuffled, min(self.config.minibatches, count))

    def _loss(
        self, part: dict[str, torch.Tensor], seen: Any
    ) -> tuple[torch.Tensor, tuple[float, float, float, float]]:
        c, live = self.config, part["live"]
        logits, value = self.network(seen)
        action, mask = part["action"][live], part["mask"][live]
        chose = (action >= 0) & is_free(mask)  # the others decide nothing, but have a value
        log_probs = masked(logits[chose], mask[chose])
        change = log_probs.gather(-1, action[chose].unsqueeze(-1)).squeeze(-1)
        change = change - part["log_prob"][live][chose]
        advantage = part["advantage"][live][chose]
        if c.joint and live.dim() > 1:
            # One decision of many parts: its logarithms add up, its jobs' advantages are one.
            change, advantage = _together(change, advantage, live.nonzero()[chose, 0], len(live))
        ratio = change.exp()
        clipped = ratio.clamp(1 - c.clip, 1 + c.clip)
        policy_loss = -mean(torch.minimum(ratio * advantage, clipped * advantage))
        entropy = mean(entropy_of(log_probs))
        missed = torch.nn.functional.smooth_l1_loss(
            value, part["target"][live], beta=2.0, reduction="none"
        )
        value_loss = mean(missed)
        loss = policy_loss + c.value_weight * value_loss - self._entropy * entropy
        kl = float(mean(ratio.detach() - 1 - change.detach()))
        return loss, (kl, float(entropy.detach()), float(value_loss.detach()),
                      float(policy_loss.detach()))  # fmt: skip

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a resumed training needs beside the weights: facts for JSON, and arrays."""
        scale = {"mean": self.scale.mean, "var": self.scale.var, "count": self.scale.count}
        return {"scale": scale}, self.descent.state()

    def restore(self, facts: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Go on from what `state` gave."""
        self.scale = Scale(**facts["scale"])
        self.descent.restore(arrays)


def advantages(
    rollout: Rollout, value: NDArray[Any], config: PPOConfig
) -> tuple[NDArray[Any], NDArray[Any]]:
    """How much better than expected every decision went, and what its value should have been.

    Both in the shape of `live`; `value` is in units of reward and has one step more.
    """
    reward = rollout.reward * config.reward_scale
    if rollout.who is None:
        find = _by_edit if config.shaped and config.credit == "own" else _by_step
        gain = find(rollout, reward, value, config)
        target = gain + value[:-1]
    else:
        own, team = _by_job(rollout, rollout.who, value, config)
        target = own + value[:-1]
        gain = own if config.credit == "own" else np.broadcast_to(team[..., None], own.shape).copy()
    if config.same_inputs:
        _subtract_others(gain, rollout.inputs, rollout.live)
    free = rollout.live & is_free(rollout.mask)
    chosen = gain[free if free.any() else rollout.live]
    spread = float(chosen.std()) if len(chosen) else 1.0
    gain = (gain - float(chosen.mean() if len(chosen) else 0.0)) / (spread + 1e-8)
    return gain.astype(np.float32), target.astype(np.float32)


def _by_step(
    rollout: Rollout, reward: NDArray[Any], value: NDArray[Any], config: PPOConfig
) -> NDArray[Any]:
    gain = np.zeros_like(reward)
    after = np.zeros(reward.shape[1:], reward.dtype)
    promise = rollout.promise
    for t in reversed(range(len(reward))):
        discount = np.where(rollout.over[t], config.discount, 1.0)
        trace = np.where(rollout.over[t], config.trace, config.inside)
        done, cut = rollout.done[t], rollout.cuts.get(t)
        later = np.where(done, 0.0, value[t + 1])
        if cut is not None:
            later[cut.cluster] = cut.value
        if promise is not None:
            promised = np.where(done, 0.0, promise[t + 1])
            if cut is not None and cut.promise is not None:
                promised[cut.cluster] = cut.promise
            reward[t] += config.reward_scale * (discount * promised - promise[t])
        surprise = reward[t] + discount * later - value[t]
        gain[t] = after = surprise + discount * trace * np.where(done, 0.0, after)
    return gain


def _by_edit(
    rollout: Rollout, reward: NDArray[Any], value: NDArray[Any], config: PPOConfig
) -> NDArray[Any]:
    """The advantage of every edit by what it and later ones of its round promise the same job."""
    promise, job = rollout.promise, rollout.job
    assert promise is not None
    assert job is not None
    each = np.arange(reward.shape[1])
    # The last column is nobody's; rounds that go on after the rollout are judged by their value.
    later = np.repeat(value[-1][:, None], job.max() + 2, 1)
    gain = np.zeros_like(reward)
    for t in reversed(range(len(reward))):
        over = rollout.over[t]
        later[over] = 0.0
        # The edit that ends a round may have given somebody something, too: the last worker that
        # the last job could have. What it promised is known from before time passed.
        ended = promise[t] if rollout.promised is None else rollout.promised[t]
        own = (np.where(over, ended, promise[t + 1]) - promise[t]) * config.reward_scale
        own += config.inside * later[each, job[t]]
        later[each, job[t]] = own
        gain[t] = own - value[t]
    return gain


def _by_job(
    rollout: Rollout, who: Ints, value: NDArray[Any], config: PPOConfig
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The advantage of every job by its own rewards, (T, B, W), and of all together, (T, B).

    Between two sights of a job there may be rounds without one: their rewards belong to the
    decision before them. A job that is out of sight when the rollout ends, but has not ended,
    will bring more, nobody knows how much: it went as expected.
    """
    gains = (_gains_of(rollout, who) if rollout.gains is None else rollout.gains).astype(np.float64)
    gains *= config.reward_scale
    steps, batch, jobs = gains.shape
    own, team = np.zeros_like(value[:-1]), _never_seen(gains, who, rollout)
    # By job, and one column more for places without one.
    later, chain = np.zeros((2, batch, jobs + 1))
    known = np.ones((batch, jobs + 1), np.bool_)
    each, alive = np.arange(batch)[:, None], rollout.alive

    def go_on_from(cluster: Ints, who: Ints, value: NDArray[Any], alive: Bools | None) -> None:
        later[cluster], chain[cluster], known[cluster] = 0.0, 0.0, True
        if alive is not None and config.discount > 0:
            known[cluster, :jobs] = ~alive
        later[cluster[:, None], who], known[cluster[:, None], who] = value, True

    go_on_from(each[:, 0], who[steps], value[steps], alive)
    for t in reversed(range(steps)):
        done, cut = rollout.done[t], rollout.cuts.get(t)
        later[done], chain[done], known[done] = 0.0, 0.0, True
        if cut is not None and cut.who is not None:
            go_on_from(cut.cluster, cut.who, cut.value, cut.alive)
        live, shown = rollout.live[t], (each, who[t])
        gain = np.append(gains[t], np.zeros((batch, 1)), 1)
        surprise = gain[shown] + config.discount * later[shown] - value[t]
        judged = surprise + config.discount * config.trace * chain[shown]
        own[t] = np.where(live & known[shown], judged, 0.0)
        team[t] += own[t].sum(1)
        later[:] = gain + config.discount * later
        chain *= config.discount
        later[shown], chain[shown], known[shown] = value[t], own[t], True
    return own, team


def _gains_of(rollout: Rollout, who: Ints) -> NDArray[Any]:
    """Each job's part of the reward (T, B, J), where only those in sight have one."""
    steps, batch = who.shape[0] - 1, who.shape[1]
    gains = np.zeros((steps, batch, int(who.max(initial=0)) + 2))
    t, b = np.arange(steps)[:, None, None], np.arange(batch)[None, :, None]
    gains[t, b, who[:-1]] = rollout.reward
    return gains[..., :-1]


def _never_seen(gains: NDArray[Any], who: Ints, rollout: Rollout) -> NDArray[Any]:
    """What jobs bring before a decision about them is among those of the rollout (T, B)."""
    steps, batch, jobs = gains.shape
    each, seen = np.arange(batch)[:, None], np.zeros((batch, jobs + 1), np.bool_)
    brought = np.zeros((steps, batch))
    for t in range(steps):
        seen[each, who[t]] = True
        brought[t] = (gains[t] * ~seen[:, :jobs]).sum(1)
        seen[rollout.done[t]] = False
    return brought


def is_free(mask: Any) -> Any:
    """Where there is a choice: which rows of a mask (…, A) allow more than one action."""
    return mask.sum(-1) > 1


def _subtract_others(gain: NDArray[Any], inputs: Ints, live: Bools) -> None:
    """Take from every advantage the mean of the other clusters' at the same point of the inputs.

    It depends on the arrivals, which no action can change, and not on the cluster's own actions.
    """
    _, key = np.unique(inputs, return_inverse=True)  # (T, B)
    key = key.reshape(inputs.shape)
    if live.ndim > 2:
        count = np.maximum(live.sum(2), 1)
        mean = (gain * live).sum(2) / count
    else:
        mean = gain
    size = np.bincount(key.ravel())
    total = np.bincount(key.ravel(), mean.ravel())
    others = (total[key] - mean) / np.maximum(size[key] - 1, 1) * (size[key] > 1)
    gain -= others[..., None] if live.ndim > 2 else others


def _flat(rollout: Rollout, advantage: NDArray[Any], target: NDArray[Any]) -> dict[str, Any]:
    """The rollout as tensors with T and B joined; nothing is copied."""
    arrays = {f"seen.{name}": array for name, array in rollout.seen.items()}
    for name in ("live", "action", "mask", "log_prob"):
        arrays[name] = getattr(rollout, name)
    arrays |= {"advantage": advantage, "target": target}
    return {
        name: torch.from_numpy(array.reshape(-1, *array.shape[2:]))
        for name, array in arrays.items()
    }


def _together(
    change: torch.Tensor, advantage: torch.Tensor, row: torch.Tensor, rows: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of log-ratios and means of advantages by cluster, where it has any job."""
    count = torch.bincount(row, minlength=rows)
    total = torch.zeros(rows).index_add(0, row, change)
    mean = torch.zeros(rows).index_add(0, row, advantage) / count.clamp(min=1)
    return total[count > 0], mean[count > 0]


def _means(facts: list[tuple[float, float, float, float]], *, stopped: float) -> dict[str, float]:
    names = ("kl", "entropy", "value_loss", "policy_loss")
    return {**dict(zip(names, np.mean(facts, 0).tolist(), strict=True)), "stopped": stopped}
