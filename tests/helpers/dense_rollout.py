"""Rollouts and advantages written as tables (T, B), or (T, B, W) where jobs are followed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from rota.learn.advantages import advantages
from rota.learn.collect import Cut, Rollout
from rota.learn.states import Allowed, Decisions, States, begins_of
from rota.systems.agents import EDITOR, LearnedAgent

FOLLOWS_JOBS = (LearnedAgent(name="toy", follows="jobs"),)


def dense_rollout(
    *, seen: dict[str, Any], live: Any, action: Any, mask: Any, log_prob: Any, value: Any,
    reward: Any, over: Any, rows: Any = None, job: Any = None, gains: Any = None,
    alive: Any = None, **more: Any,
) -> Rollout:  # fmt: skip
    """A rollout; `value` and `rows` have one step more. Without gains, `reward` is of each row."""
    t, b = over.shape
    shown = {name: array.reshape(t * b, *array.shape[2:]) for name, array in seen.items()}
    shown.setdefault("number", np.arange(t * b))
    columns = {"action": action[live], "log_prob": log_prob[live]}
    begins = None
    if rows is not None:
        shown["rows"] = rows[:-1].reshape(t * b, -1)
        columns["job"], begins = rows[:-1][live], begins_of(live.reshape(t * b, -1).sum(1))
        if gains is None:
            gains = np.zeros((t, b, int(rows.max()) + 1))
            step, cluster, _ = live.nonzero()
            gains[step, cluster, columns["job"]] = reward[live]
        reward = gains.sum(2)
    elif job is not None:
        columns["job"] = job.ravel()
    return Rollout(
        seen=States(shown), decisions=Decisions(Allowed(mask[live]), columns, begins),
        value=value[:-1][live], last=last_of(value[-1], None if rows is None else rows[-1], alive),
        reward=reward, over=over, gains=gains, **more,
    )  # fmt: skip


def last_of(value: Any, rows: Any, alive: Any = None) -> Cut:
    """The states after a rollout, and what they are worth, (B,) or (B, W)."""
    every = np.arange(len(value))
    if rows is None:
        return Cut(every, every, value)
    cluster, row = (rows >= 0).nonzero()
    return Cut(every, cluster, value[cluster, row], rows[cluster, row], alive)


def dense_advantages(rollout: Rollout, value: Any, config: Any) -> tuple[Any, Any]:
    """Advantages and targets as tables, from values with one step more."""
    last = replace(rollout.last, value=value[-1].ravel())
    live, agents = live_of(rollout), EDITOR
    if "rows" in rollout.seen.arrays:
        agents = FOLLOWS_JOBS
        count = len(rollout.last.cluster)  # of the only cluster, in its first rows
        last = replace(rollout.last, value=value[-1].ravel()[:count])
    found = advantages(replace(rollout, last=last), value[:-1][live], config, agents)
    tables = [np.zeros(live.shape, np.float32) for _ in found]
    for table, flat in zip(tables, found, strict=True):
        table[live] = flat
    return tables[0], tables[1]


def live_of(rollout: Rollout) -> Any:
    """Which decisions there were, as a table."""
    t, b = rollout.over.shape
    if "rows" not in rollout.seen.arrays:
        return np.ones((t, b), np.bool_)
    return rollout.seen["rows"].reshape(t, b, -1) >= 0
