"""What learners learn from: a batch of clusters played for a while, kept in flat arrays.

A *decision* is one choice of one action. A system that edits step by step takes one per cluster
and step; a one-pass system takes one per job, W at most, and the arrays get an axis more. All
that is kept of a rollout has the axes (T, B) or (T, B, W), and `live` tells which decisions
there were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch

from rota.errors import TrainingError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rota.core.types import Bools, Floats, Ints

Observation: TypeAlias = "Mapping[str, NDArray[Any]]"
"""Arrays with the batch in front. "who" (B, W) numbers the jobs, −1 where there is none."""


class Turn(NamedTuple):
    """What one step brought."""

    reward: Floats
    """(B,), or (B, W) where every job has its own."""
    over: Bools
    """(B,) The round ended, so that time passed."""
    done: Bools
    """(B,) The episode ended; what is observed next belongs to another."""
    job: Ints | None = None
    """(B,) Whose decision it was, −1: nobody's; where a cluster takes one at a time."""
    gains: Floats | None = None
    """(B, J) Each job's part of the reward."""
    promise: Floats | None = None
    """(B,) What the rounds promised before the step."""


class Games(Protocol):
    """A batch of clusters, as a learner plays them. Its arrays may be reused: copy to keep."""

    batch: int

    def observe(self) -> Observation:
        """Where every cluster stands."""
        ...

    def choose(self, logits: NDArray[Any], chance: NDArray[Any] | None) -> Choice:
        """Actions by these logits among what is allowed: drawn with `chance`, else the best.

        logits  (B, A) or (B, W, A); chance (B,) or (B, W), uniform in [0, 1)
        """
        ...

    def step(self, actions: NDArray[Any]) -> Turn:
        """Carry them out."""
        ...

    def promise(self) -> Floats:
        """(B,) The reward that the rounds promise as they stand."""
        ...

    def inputs(self) -> Ints:
        """(B,) Equal where the same arrivals are replayed at the same time of the episode."""
        ...


class Choice(NamedTuple):
    """Actions, what else was allowed, and how likely they were."""

    action: Ints  # (B,) or (B, W); −1 where nothing was allowed
    mask: Bools  # (B, A) or (B, W, A)
    log_prob: NDArray[Any]  # (B,) or (B, W)


class Network(Protocol):
    """Maps observations to one row of logits and one value per decision that is to be taken."""

    def __call__(self, seen: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (n, A) and values (n,); n runs over the live decisions, batch by batch."""
        ...


@dataclass
class Rollout:
    """T steps of B clusters."""

    seen: dict[str, NDArray[Any]]  # (T, B, …)
    live: Bools  # (T, B) or (T, B, W), as all that follows
    action: Ints
    mask: Bools  # (…, A)
    log_prob: NDArray[Any]
    value: NDArray[Any]  # as the network gave it; one step more than the rest
    reward: NDArray[Any]
    who: Ints | None  # (T + 1, B, W); None where decisions belong to no job
    over: Bools  # (T, B)
    done: Bools  # (T, B)
    inputs: Ints  # (T, B)
    job: Ints | None = None  # (T, B) whose decision it was, −1: the end; None where nobody told
    gains: NDArray[Any] | None = None  # (T, B, J) each job's part of the reward
    promise: Floats | None = None  # (T + 1, B) what rounds promised before each step

    @property
    def decisions(self) -> int:
        """How many there were."""
        return int(self.live.sum())


def live_decisions(seen: Observation, batch: int) -> Bools:
    """Which decisions an observation calls for."""
    return seen["who"] >= 0 if "who" in seen else np.ones(batch, np.bool_)


def look(
    network: Network, seen: Observation, batch: int
) -> tuple[NDArray[Any], NDArray[Any], Bools]:
    """Logits (…, A), values (…) and which of them are live; the others are 0."""
    live = live_decisions(seen, batch)
    with torch.inference_mode():
        logits, value = network({name: torch.from_numpy(array) for name, array in seen.items()})
    flat_logits, flat_value = logits.numpy(), value.numpy()
    if live.ndim == 1:
        return flat_logits, flat_value, live
    full = np.zeros((*live.shape, flat_logits.shape[-1]), np.float32)
    full[live] = flat_logits
    values = np.zeros(live.shape, np.float32)
    values[live] = flat_value
    return full, values, live


def play(games: Games, network: Network, steps: int, rng: np.random.Generator) -> Rollout:
    """Let the network play `steps` steps, choosing at random as likely as it says."""
    keep = _Keeper(steps)
    for _ in range(steps):
        seen = games.observe()
        logits, value, live = look(network, seen, games.batch)
        choice = games.choose(logits, rng.random(live.shape, np.float32))
        keep.before(seen, live, value, choice, games.inputs())
        keep.after(games.step(choice.action))
    seen = games.observe()
    _, value, live = look(network, seen, games.batch)
    rollout = keep.all(seen, value)
    if rollout.promise is not None:
        rollout.promise[-1] = games.promise()
    return rollout


class _Keeper:
    """Collects a rollout, step by step, in arrays that are made at the first one."""

    def __init__(self, steps: int) -> None:
        self._steps, self._t = steps, 0
        self._kept: dict[str, NDArray[Any]] = {}

    def _put(self, name: str, array: NDArray[Any], more: int = 0) -> None:
        if name not in self._kept:
            self._kept[name] = np.zeros((self._steps + more, *array.shape), array.dtype)
        self._kept[name][self._t] = array

    def before(
        self, seen: Observation, live: Bools, value: NDArray[Any], choice: Choice, inputs: Ints
    ) -> None:
        """What was seen and chosen at this step."""
        for name, array in seen.items():
            self._put(f"seen.{name}", array, int(name == "who"))
        self._put("live", live)
        self._put("value", value, 1)
        self._put("action", choice.action)
        self._put("mask", choice.mask)
        self._put("log_prob", choice.log_prob)
        self._put("inputs", inputs)

    def after(self, turn: Turn) -> None:
        """What it brought."""
        live = self._kept["live"][self._t]
        reward = turn.reward if turn.reward.shape == live.shape else _shared(turn.reward, live)
        if not np.isfinite(reward).all():
            raise TrainingError("A reward is not finite; look at the scenario and the reward.")
        self._put("reward", reward.astype(np.float32))
        self._put("over", turn.over)
        self._put("done", turn.done)
        if turn.job is not None:
            self._put("job", turn.job)
        if turn.gains is not None:
            self._put("gains", turn.gains.astype(np.float32))
        if turn.promise is not None:
            self._put("promise", turn.promise, 1)
        self._t += 1

    def all(self, seen: Observation, value: NDArray[Any]) -> Rollout:
        """The whole; the last observation gives values to go on from."""
        kept = self._kept
        kept["value"][-1] = value
        who = kept.get("seen.who")
        if who is not None:
            who[-1] = seen["who"]
        return Rollout(
            seen={
                name.removeprefix("seen."): array[: self._steps]
                for name, array in kept.items()
                if name.startswith("seen.")
            },
            who=who,
            job=kept.get("job"),
            gains=kept.get("gains"),
            promise=kept.get("promise"),
            **{
                name: kept[name]
                for name in ("live", "action", "mask", "log_prob", "value", "reward", "over",
                             "done", "inputs")
            },
        )  # fmt: skip


def _shared(reward: Floats, live: Bools) -> NDArray[Any]:
    """A cluster's reward dealt to its jobs in equal parts."""
    dealt: NDArray[Any] = reward[:, None] * live / np.maximum(live.sum(1), 1)[:, None]
    return dealt
