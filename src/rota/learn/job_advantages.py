"""Advantages of decisions about jobs that are followed over rounds; see `rota.learn.advantages`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rota.core.types import Bools, Ints
    from rota.learn.collect import Cut, Rollout
    from rota.learn.ppo import PPOConfig


def by_job(
    rollout: Rollout, value: NDArray[Any], which: Ints, config: PPOConfig
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The advantages of the decisions `which` by their jobs' own rewards, and the team's, (T, B).

    A job may be outside of the window in some rounds: their rewards belong to the decision before
    them. If a job that has not ended is outside when the rollout ends, its future rewards are not
    known, and the advantage of its last decision is 0.
    """
    assert rollout.gains is not None
    gains = rollout.gains.astype(np.float64) * config.reward_scale
    steps, batch, jobs = gains.shape
    cluster, job = rollout.decisions.state[which], rollout.decisions["job"][which]
    begins = np.searchsorted(cluster, np.arange(steps + 1) * batch)
    cluster %= batch
    own, team = np.zeros(len(which), value.dtype), _never_seen(gains, cluster, job, begins, rollout)
    later, chain = np.zeros((2, batch, jobs))
    known = np.ones((batch, jobs), np.bool_)

    def go_on_from(cut: Cut) -> None:
        later[cut.which], chain[cut.which], known[cut.which] = 0.0, 0.0, True
        if cut.alive is not None and config.discount > 0:
            known[cut.which] = ~cut.alive
        later[cut.cluster, cut.job], known[cut.cluster, cut.job] = cut.value, True

    go_on_from(rollout.last)
    for t in reversed(range(steps)):
        done, cut = rollout.done[t], rollout.cuts.get(t)
        later[done], chain[done], known[done] = 0.0, 0.0, True
        if cut is not None:
            go_on_from(cut)
        over = rollout.over[t][:, None]
        discount = np.where(over, config.discount, 1.0)
        trace = discount * np.where(over, config.trace, config.inside)
        here = slice(begins[t], begins[t + 1])
        b, shown = cluster[here], (cluster[here], job[here])
        worth = value[which[here]]
        difference = gains[t][shown] + discount[b, 0] * later[shown] - worth
        judged = difference + trace[b, 0] * chain[shown]
        own[here] = np.where(known[shown], judged, 0.0)
        later = gains[t] + discount * later
        chain *= discount
        later[shown], chain[shown], known[shown] = worth, own[here], True
    return own, team + by_state(rollout, which, own).sum(1).reshape(steps, batch)


def by_state(rollout: Rollout, which: Ints, values: NDArray[Any]) -> NDArray[Any]:
    """Numbers of the decisions `which`, state by state in the rows of the window, (S, W)."""
    shown = rollout.seen["rows"] >= 0
    table = np.zeros(shown.shape, values.dtype)
    state, row = shown.nonzero()
    table[state[which], row[which]] = values
    return table


def _never_seen(
    gains: NDArray[Any], cluster: Ints, job: Ints, begins: Ints, rollout: Rollout
) -> NDArray[Any]:
    """The rewards (T, B) of jobs before the first decision about them in the rollout."""
    steps, batch, jobs = gains.shape
    seen: Bools = np.zeros((batch, jobs), np.bool_)
    brought = np.zeros((steps, batch))
    for t in range(steps):
        here = slice(begins[t], begins[t + 1])
        seen[cluster[here], job[here]] = True
        brought[t] = (gains[t] * ~seen).sum(1)
        seen[rollout.done[t]] = False
    return brought
