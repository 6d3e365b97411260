"""Two tiny envs with known best play, to see learners learn in a second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from rota.learn.replay_memory import Played
from rota.learn.rollout_env import Choice, Turn
from rota.learn.states import Allowed, Decisions, States
from rota.systems.agents import LearnedAgent
from rota.systems.choice_kernels import GREEDY, pick_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS = 4
"""Kinds of situations, and as many actions: the right action is the one of the same number."""


FOLLOWER = (LearnedAgent(name="toy", follows="jobs"),)
"""Who decides in a game of jobs."""
NUMBERS = 128
"""A job's number is unique among so many of its cluster."""


def chosen(logits: Any, mask: Any, luck: Any) -> tuple[Any, Any]:
    n = len(logits)
    action, log_prob = np.zeros(n, np.int64), np.zeros(n, np.float32)
    luck = np.full(n, GREEDY, np.float32) if luck is None else luck
    pick_rows(logits, mask, luck, action, log_prob)
    return action, log_prob


class Steps:
    """One decision per step; a round has two of them, an episode five rounds.

    Only the second decision of a round is paid for, with 1 for each that was right.
    """

    def __init__(self, batch: int, rng: np.random.Generator, *, same: bool = False) -> None:
        self.batch, self._rng, self._same = batch, rng, same
        self.step_number = 0
        self.right = np.zeros(batch)
        self._draw()

    def _draw(self) -> None:
        self.kind = self._rng.integers(0, KINDS, self.batch)
        if self._same:
            self.kind[:] = self.kind[0]

    def observe(self) -> States:
        return States({"kind": np.eye(KINDS, dtype=np.float32)[self.kind]})

    def judged(self) -> None:
        return None

    def costs(self) -> Any:
        return None

    def choose(self, logits: Any, rng: Any) -> Choice:
        mask = np.ones((self.batch, KINDS + 1), np.bool_)
        mask[:, KINDS] = False  # never allowed
        luck = None if rng is None else rng.random(self.batch, np.float32)
        action, log_prob = chosen(logits, mask, luck)
        return Choice(action, Allowed(mask), action, log_prob)

    def step(self, actions: Any) -> Turn:
        assert (actions < KINDS).all()
        self.right += actions == self.kind
        self.step_number += 1
        over = self.step_number % 2 == 0
        reward = self.right.copy() if over else np.zeros(self.batch)
        if over:
            self.right[:] = 0
        done = self.step_number % 10 == 0
        self._draw()
        return Turn(reward, np.full(self.batch, over), np.full(self.batch, done))

    def inputs(self) -> Any:
        return np.full(self.batch, self.step_number)


class Jobs:
    """One decision per job and round; a job wants the action of its kind, and units of room.

    Action a takes a units of 6; a job that got its own kind leaves, others leave half the time.
    """

    room, window = 6, 3

    def __init__(self, batch: int, rng: np.random.Generator) -> None:
        self.batch, self._rng = batch, rng
        self.rows = np.full((batch, self.window), -1)
        self.kind = np.zeros((batch, self.window), np.int64)
        self.count, self.round = np.zeros(batch, np.int64), 0
        self._arrive()

    def _arrive(self) -> None:
        new = (self.rows < 0) & (self._rng.random(self.rows.shape) < 0.8)
        self.kind[new] = self._rng.integers(0, 3, new.sum())
        numbers = self.count[:, None] + np.cumsum(new, 1) - 1
        self.rows[new] = numbers[new] % NUMBERS
        self.count += new.sum(1)

    def observe(self) -> States:
        kinds = np.eye(KINDS, dtype=np.float32)[self.kind] * (self.rows >= 0)[..., None]
        return States({"rows": self.rows.copy(), "kind": kinds})

    def judged(self) -> None:
        return None

    def costs(self) -> Any:
        return None

    def alive(self) -> Any:
        alive = np.zeros((self.batch, NUMBERS), np.bool_)
        cluster, row = (self.rows >= 0).nonzero()
        alive[cluster, self.rows[cluster, row]] = True
        return alive

    def choose(self, logits: Any, rng: Any) -> Choice:
        left, live = np.full(self.batch, self.room), self.rows >= 0
        scores = np.zeros((*live.shape, KINDS), np.float32)
        scores[live] = logits
        chance = None if rng is None else rng.random(live.shape, np.float32)
        found = []
        for w in range(self.window):
            mask = np.arange(KINDS)[None] <= left[:, None]
            luck = None if chance is None else chance[:, w]
            one = chosen(np.ascontiguousarray(scores[:, w]), mask, luck)
            left -= np.where(live[:, w], one[0], 0)
            found.append((*one, mask))
        actions, log_prob, allowed = (np.stack(parts, 1) for parts in zip(*found, strict=True))
        return Choice(
            actions, Allowed(allowed[live]), actions[live], log_prob[live], self.rows[live]
        )

    def step(self, actions: Any) -> Turn:
        live = self.rows >= 0
        assert (np.where(live, actions, 0).sum(1) <= self.room).all()
        right = (actions == self.kind) & live
        leaves = right | (live & (self._rng.random(live.shape) < 0.5))
        gains = np.zeros((self.batch, NUMBERS))
        cluster, row = (live & ~right).nonzero()
        gains[cluster, self.rows[cluster, row]] = -1.0
        self.rows[leaves] = -1
        self.round += 1
        self._arrive()
        every = np.ones(self.batch, np.bool_)
        return Turn(gains.sum(1), every, every & (self.round % 20 == 0), gains)

    def inputs(self) -> Any:
        return np.arange(self.batch)


class Small(nn.Module):
    """A network for either game."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        self.body = nn.Linear(KINDS, 16)
        self.logits = nn.Linear(16, actions)

    def forward(self, seen: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        kind = seen["kind"][seen["rows"] >= 0] if "rows" in seen else seen["kind"]
        hidden = torch.relu(self.body(kind))
        return self.logits(hidden), hidden


class Worth(nn.Module):
    """Its critic."""

    needs_inner = True

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Linear(16, 1)

    def forward(self, _seen: Any, hidden: torch.Tensor) -> torch.Tensor:
        value: torch.Tensor = self.value(hidden).squeeze(-1)
        return value


def two_states(mask: Any) -> Played:
    """Two states of kinds 0 and 1, in which these actions were right, for 1 and for 3."""
    columns = {"action": np.array([0, 1]), "reward": np.array([1.0, 3.0], np.float32)}
    seen = States({"kind": np.eye(KINDS, dtype=np.float32)[:2]})
    return Played(seen, None, Decisions(Allowed(mask), columns))
