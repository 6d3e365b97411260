"""Advantages of a rollout's decisions, for PPO, agent by agent.

They differ from the textbook in these points:
- Time passes only when a round ends. Inside a round nothing is discounted; between rounds both
  `discount` and `trace` apply, so `discount = 0` makes every round a bandit problem. Where rounds
  are not slots, a discount per round would favour what makes rounds short: `horizon_s` discounts
  by time instead.
- An agent's decision is followed by that agent's next one. What is earned in between, while others
  act, belongs to it; λ counts decisions of the same agent. All may use the value of any state.
- An agent that follows jobs has a value and a temporal difference for every job, which is followed
  by its number over rounds. A reward that a job brings while it is outside of the window counts
  for the last decision about it. `credit = "own"` judges a job's decisions by its own future
  rewards, `"team"` by the sum over the jobs that were in the window. Jobs that enter the window
  later count in neither, which removes the noise of arrivals. Rewards of jobs that were never in
  the window during a rollout count for the team in that round.
- An episode that is cut short is continued by the critic's value of its last state.
- Where several clusters replay the same arrivals, the mean advantage of the others at the same
  time, or just before it, is subtracted (input-dependent baseline: Mao et al., 2019).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rota.learn.job_advantages import by_job, by_state
from rota.systems.agents import EDITOR, follow_jobs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rota.core.types import Bools, Floats, Ints
    from rota.learn.collect import Rollout
    from rota.learn.ppo import PPOConfig
    from rota.systems.agents import LearnedAgent


def advantages(
    rollout: Rollout,
    value: NDArray[Any],
    config: PPOConfig,
    agents: tuple[LearnedAgent, ...] = EDITOR,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The normalised advantage of every decision (D,), and the target of its value.

    `value` (D,) and those of the rollout's cuts are in units of reward.
    """
    gain, target = np.zeros((2, len(value)), np.float32)
    state, free = rollout.decisions.state, rollout.decisions.allowed.free
    find = _of_jobs if follow_jobs(agents) else _of_steps
    for number, agent in enumerate(agents):
        own = np.ones(len(value), np.bool_)
        if rollout.agent is not None:
            own = rollout.agent.ravel()[state] == number
        if not own.any():
            continue
        found = find(rollout, value, np.flatnonzero(own), config, agent.credit or config.credit)
        target[own] = found[1]
        chosen = found[0][free[own]] if free[own].any() else found[0]
        gain[own] = (found[0] - float(chosen.mean())) / (float(chosen.std()) + 1e-8)
    return gain, target


def _of_jobs(
    rollout: Rollout, value: NDArray[Any], which: Ints, config: PPOConfig, credit: str
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Advantages and targets of those decisions of an agent that follows jobs."""
    state = rollout.decisions.state[which]
    own, team = by_job(rollout, value, which, config)
    target = own + value[which]
    gain = own if credit == "own" else team.ravel()[state]
    if config.same_inputs:
        many = np.bincount(state, minlength=rollout.over.size)
        mean = by_state(rollout, which, gain).sum(1) / np.maximum(many, 1)
        every = np.ones(rollout.over.shape, np.bool_)
        gain -= _others(mean.reshape(every.shape), rollout.inputs, every).ravel()[state]
    return gain, target


def _of_steps(
    rollout: Rollout, value: NDArray[Any], which: Ints, config: PPOConfig, credit: str
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Advantages and targets of those decisions of an agent that follows steps."""
    shape, state = rollout.over.shape, rollout.decisions.state[which]
    acts, values = np.zeros(shape, np.bool_), np.zeros(shape, value.dtype)
    acts.reshape(-1)[state], values.reshape(-1)[state] = True, value[which]
    find = _by_edit if config.shaped and credit == "own" else _by_step
    gain = find(rollout, values, acts, config)
    target = gain + values
    if config.same_inputs and config.horizon_s and rollout.at_s is not None:
        assert rollout.trace is not None
        gain -= _others_by_time(gain, rollout.at_s, rollout.trace, acts)
    elif config.same_inputs:
        gain -= _others(gain, rollout.inputs, acts)
    return gain.ravel()[state], target.ravel()[state]


def _by_step(rollout: Rollout, value: NDArray[Any], acts: Bools, config: PPOConfig) -> NDArray[Any]:
    """The advantage (T, B) of every step at which the agent acts."""
    reward = rollout.reward * config.reward_scale
    gain, potential = np.zeros_like(reward), rollout.potential
    later, after, brought = np.array(rollout.last.value), *np.zeros((2, acts.shape[1]))
    # Since the step before the agent's next decision: by how much later rewards count less, and
    # whether a round ended.
    faded, closed = np.ones(acts.shape[1]), np.zeros(acts.shape[1], np.bool_)
    for t in reversed(range(len(reward))):
        over, done, cut = rollout.over[t], rollout.done[t], rollout.cuts.get(t)
        later, after, brought, faded, closed = (
            np.where(done, usual, x)
            for x, usual in (
                (later, 0.0), (after, 0.0), (brought, 0.0), (faded, 1.0), (closed, False)
            )
        )  # fmt: skip
        if cut is not None:
            later[cut.cluster] = cut.value
        discount = np.where(over, _discount(rollout, config, t), 1.0)
        if potential is not None:
            potential_after = np.where(done, 0.0, potential[t + 1])
            if cut is not None and cut.potential is not None:
                potential_after[cut.cluster] = cut.potential
            reward[t] += config.reward_scale * (discount * potential_after - potential[t])
        brought = reward[t] + discount * brought
        faded, closed = discount * faded, closed | over
        trace = np.where(closed, config.trace, config.inside)
        difference = brought + faded * later - value[t]
        found = difference + faded * trace * after
        now = acts[t]
        gain[t] = np.where(now, found, 0.0)
        later, after, brought = (
            np.where(now, new, old)
            for new, old in ((value[t], later), (found, after), (0.0, brought))
        )
        faded, closed = np.where(now, 1.0, faded), closed & ~now
    return gain


def _discount(rollout: Rollout, config: PPOConfig, t: int) -> Any:
    """What rewards after step t count, if a round ended in it; a number, or one per cluster."""
    if not config.horizon_s or rollout.passed_s is None:
        return config.discount
    return np.exp(-rollout.passed_s[t] / config.horizon_s)


def _by_edit(rollout: Rollout, value: NDArray[Any], acts: Bools, config: PPOConfig) -> NDArray[Any]:
    """The advantage of every edit: what it and later ones of its round add for the same job."""
    potential = rollout.potential
    assert potential is not None
    job = rollout.decisions["job"].reshape(acts.shape)
    # The last column is for no job; rounds that go on after the rollout are judged by their value.
    later = np.repeat(np.array(rollout.last.value)[:, None], job.max() + 2, 1)
    gain = np.zeros_like(rollout.reward)
    for t in reversed(range(len(gain))):
        over, each = rollout.over[t], np.flatnonzero(acts[t])
        later[over] = 0.0
        # The edit that ends a round may also have given a task: the last one that the last job
        # could have. The potential after that edit was taken before time passed.
        ended = potential[t] if rollout.potential_after is None else rollout.potential_after[t]
        added = (np.where(over, ended, potential[t + 1]) - potential[t]) * config.reward_scale
        own = added[each] + config.inside * later[each, job[t, each]]
        later[each, job[t, each]] = own
        gain[t, each] = own - value[t, each]
    return gain


def _others_by_time(gain: NDArray[Any], at_s: Floats, trace: Ints, acts: Bools) -> NDArray[Any]:
    """For every step (T, B), the mean advantage of the other clusters that replay its trace.

    Of each, the last step that is not later counts: where rounds are not slots, clusters have
    theirs at different times. What the arrivals do to the advantage is the same for all of them.
    """
    total, count = np.zeros_like(gain), np.zeros(gain.shape)
    for name in np.unique(trace):
        here = (trace == name) & acts
        plays = [(b, np.flatnonzero(here[:, b])) for b in range(trace.shape[1])]
        plays = [(b, steps) for b, steps in plays if len(steps)]
        for b, steps in plays:
            for other, theirs in plays:
                if other != b:
                    before = np.searchsorted(at_s[theirs, other], at_s[steps, b], "right") - 1
                    known = before >= 0
                    total[steps[known], b] += gain[theirs[before[known]], other]
                    count[steps[known], b] += 1
    found: NDArray[Any] = total / np.maximum(count, 1)
    return found


def _others(mean: NDArray[Any], inputs: Ints, acts: Bools) -> NDArray[Any]:
    """For every step (T, B), the mean advantage of other clusters at the same point of the trace.

    That mean depends on the arrivals, which no action changes, and not on the cluster's own
    actions.
    """
    _, key = np.unique(inputs, return_inverse=True)
    key = key.reshape(inputs.shape)
    size = np.bincount(key.ravel(), acts.ravel()).astype(np.int64)
    total = np.bincount(key.ravel(), (mean * acts).ravel())
    found: NDArray[Any] = (total[key] - mean) / np.maximum(size[key] - 1, 1) * (size[key] > 1)
    return found
