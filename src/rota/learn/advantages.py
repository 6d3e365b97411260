"""Advantages of a rollout's decisions, for PPO.

They differ from the textbook in these points:
- Time passes only when a round ends. Inside a round nothing is discounted; between rounds both
  `discount` and `trace` apply, so `discount = 0` makes every round a bandit problem. Where rounds
  are not slots, a discount per round would favour what makes rounds short: `horizon_s` discounts
  by time instead.
- In a one-pass system every job has its own value and its own temporal difference, and is
  followed by its number over rounds. A reward that a job brings while it is outside of the window
  counts for the last decision about it. `credit = "own"` judges a job's decisions by its own
  future rewards, `"team"` by the sum over the jobs that were in the window. Jobs that enter the
  window later count in neither, which removes the noise of arrivals. Rewards of jobs that were
  never in the window during a rollout count for the team in that round.
- An episode that is cut short is continued by the network's value of its last state.
- Where several clusters replay the same arrivals, the mean advantage of the others at the same
  time, or just before it, is subtracted (input-dependent baseline: Mao et al., 2019).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rota.learn.descent import is_free

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rota.core.types import Bools, Floats, Ints
    from rota.learn.collect import Rollout
    from rota.learn.ppo import PPOConfig


def advantages(
    rollout: Rollout, value: NDArray[Any], config: PPOConfig
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The normalised advantage of every decision, and the target of its value.

    Both have the shape of `live`; `value` is in units of reward and has one step more.
    """
    reward = rollout.reward * config.reward_scale
    if rollout.rows is None:
        find = _by_edit if config.shaped and config.credit == "own" else _by_step
        gain = find(rollout, reward, value, config)
        target = gain + value[:-1]
    else:
        own, team = _by_job(rollout, rollout.rows, value, config)
        target = own + value[:-1]
        gain = own if config.credit == "own" else np.broadcast_to(team[..., None], own.shape).copy()
    if config.same_inputs and config.horizon_s and rollout.at_s is not None:
        assert rollout.trace is not None
        gain -= _others_by_time(gain, rollout.at_s, rollout.trace)
    elif config.same_inputs:
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
    potential = rollout.potential
    for t in reversed(range(len(reward))):
        discount = np.where(rollout.over[t], _discount(rollout, config, t), 1.0)
        trace = np.where(rollout.over[t], config.trace, config.inside)
        done, cut = rollout.done[t], rollout.cuts.get(t)
        later = np.where(done, 0.0, value[t + 1])
        if cut is not None:
            later[cut.cluster] = cut.value
        if potential is not None:
            potential_after = np.where(done, 0.0, potential[t + 1])
            if cut is not None and cut.potential is not None:
                potential_after[cut.cluster] = cut.potential
            reward[t] += config.reward_scale * (discount * potential_after - potential[t])
        difference = reward[t] + discount * later - value[t]
        gain[t] = after = difference + discount * trace * np.where(done, 0.0, after)
    return gain


def _discount(rollout: Rollout, config: PPOConfig, t: int) -> Any:
    """What rewards after step t count, if a round ended in it; a number, or one per cluster."""
    if not config.horizon_s or rollout.passed_s is None:
        return config.discount
    return np.exp(-rollout.passed_s[t] / config.horizon_s)


def _by_edit(
    rollout: Rollout, reward: NDArray[Any], value: NDArray[Any], config: PPOConfig
) -> NDArray[Any]:
    """The advantage of every edit: what it and later ones of its round add for the same job."""
    potential, job = rollout.potential, rollout.job
    assert potential is not None
    assert job is not None
    each = np.arange(reward.shape[1])
    # The last column is for no job; rounds that go on after the rollout are judged by their value.
    later = np.repeat(value[-1][:, None], job.max() + 2, 1)
    gain = np.zeros_like(reward)
    for t in reversed(range(len(reward))):
        over = rollout.over[t]
        later[over] = 0.0
        # The edit that ends a round may also have given a task: the last one that the last job
        # could have. The potential after that edit was taken before time passed.
        ended = potential[t] if rollout.potential_after is None else rollout.potential_after[t]
        own = (np.where(over, ended, potential[t + 1]) - potential[t]) * config.reward_scale
        own += config.inside * later[each, job[t]]
        later[each, job[t]] = own
        gain[t] = own - value[t]
    return gain


def _by_job(
    rollout: Rollout, rows: Ints, value: NDArray[Any], config: PPOConfig
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The advantage of every job by its own rewards, (T, B, W), and of all together, (T, B).

    A job may be outside of the window in some rounds: their rewards belong to the decision before
    them. If a job that has not ended is outside when the rollout ends, its future rewards are not
    known, and the advantage of its last decision is 0.
    """
    found = _gains_of(rollout, rows) if rollout.gains is None else rollout.gains
    gains = found.astype(np.float64) * config.reward_scale
    steps, batch, jobs = gains.shape
    own, team = np.zeros_like(value[:-1]), _never_seen(gains, rows, rollout)
    # By job, and one column more for places without one.
    later, chain = np.zeros((2, batch, jobs + 1))
    known = np.ones((batch, jobs + 1), np.bool_)
    each, alive = np.arange(batch)[:, None], rollout.alive

    def go_on_from(cluster: Ints, rows: Ints, value: NDArray[Any], alive: Bools | None) -> None:
        later[cluster], chain[cluster], known[cluster] = 0.0, 0.0, True
        if alive is not None and config.discount > 0:
            known[cluster, :jobs] = ~alive
        later[cluster[:, None], rows], known[cluster[:, None], rows] = value, True

    go_on_from(each[:, 0], rows[steps], value[steps], alive)
    for t in reversed(range(steps)):
        done, cut = rollout.done[t], rollout.cuts.get(t)
        later[done], chain[done], known[done] = 0.0, 0.0, True
        if cut is not None and cut.rows is not None:
            go_on_from(cut.cluster, cut.rows, cut.value, cut.alive)
        live, shown = rollout.live[t], (each, rows[t])
        gain = np.append(gains[t], np.zeros((batch, 1)), 1)
        difference = gain[shown] + config.discount * later[shown] - value[t]
        judged = difference + config.discount * config.trace * chain[shown]
        own[t] = np.where(live & known[shown], judged, 0.0)
        team[t] += own[t].sum(1)
        later[:] = gain + config.discount * later
        chain *= config.discount
        later[shown], chain[shown], known[shown] = value[t], own[t], True
    return own, team


def _gains_of(rollout: Rollout, rows: Ints) -> NDArray[Any]:
    """Each job's part of the reward (T, B, J), where only jobs in the window have one."""
    steps, batch = rows.shape[0] - 1, rows.shape[1]
    gains = np.zeros((steps, batch, int(rows.max(initial=0)) + 2))
    t, b = np.arange(steps)[:, None, None], np.arange(batch)[None, :, None]
    gains[t, b, rows[:-1]] = rollout.reward
    return gains[..., :-1]


def _never_seen(gains: NDArray[Any], rows: Ints, rollout: Rollout) -> NDArray[Any]:
    """The rewards (T, B) of jobs before the first decision about them in the rollout."""
    steps, batch, jobs = gains.shape
    each, seen = np.arange(batch)[:, None], np.zeros((batch, jobs + 1), np.bool_)
    brought = np.zeros((steps, batch))
    for t in range(steps):
        seen[each, rows[t]] = True
        brought[t] = (gains[t] * ~seen[:, :jobs]).sum(1)
        seen[rollout.done[t]] = False
    return brought


def _others_by_time(gain: NDArray[Any], at_s: Floats, trace: Ints) -> NDArray[Any]:
    """For every step (T, B), the mean advantage of the other clusters that replay its trace.

    Of each, the last step that is not later counts: where rounds are not slots, clusters have
    theirs at different times. What the arrivals do to the advantage is the same for all of them.
    """
    total, count = np.zeros_like(gain), np.zeros(gain.shape)
    for name in np.unique(trace):
        plays = [(b, np.flatnonzero(trace[:, b] == name)) for b in range(trace.shape[1])]
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


def _subtract_others(gain: NDArray[Any], inputs: Ints, live: Bools) -> None:
    """Subtract from every advantage the mean of the other clusters' at the same point of the trace.

    That mean depends on the arrivals, which no action changes, and not on the cluster's own
    actions.
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
