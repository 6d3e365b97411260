"""What learners learn from: a batch of clusters played for a while, kept in flat arrays.

A *decision* is one choice of one action. A system that edits step by step takes one per cluster
and step; a one-pass system takes one per job, W at most, and the arrays get an axis more. All
that is kept of a rollout has the axes (T, B) or (T, B, W), and `live` tells which decisions
there were.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, TypeGuard

import numpy as np
import torch

from rota.errors import TrainingError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rota.core.types import Bools, Floats, Ints

_AT_ONCE: Final = 4096
"""States that are valued in one pass: enough to keep a core busy, few enough for its cache."""
Observation: TypeAlias = "Mapping[str, NDArray[Any]]"
"""Arrays with the batch in front. "who" (B, W) numbers the jobs, −1 where there is none."""


class Last(NamedTuple):
    """Where K clusters stood when their episode was cut short, with work still to do."""

    cluster: Ints  # (K,)
    seen: Observation  # (K, …)
    alive: Bools | None = None  # (K, J) jobs that had not ended
    promise: Floats | None = None  # (K,)


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
    promised: Floats | None = None
    """(B,) The same after the edit, before time passed."""
    last: Last | None = None
    """The episodes that were cut short instead of coming to their end."""


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

    def alive(self) -> Bools:
        """(B, J) Which jobs have come and not ended; only of games that tell gains."""
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
    """Maps observations to one row of logits and one value per decision that is to be taken.

    One whose values have a body of their own may offer the two apart, `act(seen)` and
    `judge(seen)`; then values are worked out once per rollout, and not at all for greedy play.
    """

    def __call__(self, seen: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (n, A) and values (n,); n runs over the live decisions, batch by batch."""
        ...


class Apart(Protocol):
    """A network that gives logits and values apart."""

    def act(self, seen: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Logits (n, A)."""
        ...

    def judge(self, seen: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Values (n,)."""
        ...


@dataclass
class Cut:
    """Episodes that were cut short at one step: what the rest of them would have been worth."""

    cluster: Ints  # (K,)
    value: NDArray[Any]  # (K,) or (K, W)
    who: Ints | None = None  # (K, W)
    alive: Bools | None = None  # (K, J)
    promise: Floats | None = None  # (K,)


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
    promised: Floats | None = None  # (T, B) and after it, before time passed
    alive: Bools | None = None  # (B, J) which jobs have not ended when it is over
    cuts: Mapping[int, Cut] = field(default_factory=dict)
    """By step; an episode that is `done` without being cut has come to its end."""

    @property
    def decisions(self) -> int:
        """How many there were."""
        return int(self.live.sum())


def live_decisions(seen: Observation, batch: int) -> Bools:
    """Which decisions an observation calls for."""
    return seen["who"] >= 0 if "who" in seen else np.ones(batch, np.bool_)


def is_apart(network: Any) -> TypeGuard[Apart]:
    """Whether it does; faster than asking whether it is an instance of the protocol."""
    return hasattr(network, "act") and hasattr(network, "judge")


class Inputs(Protocol):
    """Many observations in a form from which a network takes some at a time."""

    def take(self, rows: torch.Tensor) -> Any:
        """Those of these rows, as the network takes them in."""
        ...


class _Plain(dict[str, torch.Tensor]):
    """Observations as they are."""

    def take(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        return {name: array[rows] for name, array in self.items()}


def inputs_of(network: Any, seen: Mapping[str, torch.Tensor]) -> Inputs:
    """Observations (n, …) in the network's own form, if it has one: `inputs(seen)`."""
    found: Inputs = network.inputs(seen) if hasattr(network, "inputs") else _Plain(seen)
    return found


def look(
    network: Network, seen: Observation, batch: int
) -> tuple[NDArray[Any], NDArray[Any] | None, Bools]:
    """Logits (…, A), values (…) and which of them are live; the others are 0.

    A network that gives values apart from logits gives none here.
    """
    live = live_decisions(seen, batch)
    tensors = {name: torch.from_numpy(array) for name, array in seen.items()}
    with torch.inference_mode():
        if is_apart(network):
            return _spread(network.act(tensors), live), None, live
        logits, value = network(tensors)
    return _spread(logits, live), _spread(value, live), live


def judge(network: Network, seen: Observation, batch: int) -> NDArray[Any]:
    """Values alone, as `look` gives them."""
    tensors = {name: torch.from_numpy(array) for name, array in seen.items()}
    with torch.inference_mode():
        value = network.judge(tensors) if is_apart(network) else network(tensors)[1]
    return _spread(value, live_decisions(seen, batch))


def _spread(flat: torch.Tensor, live: Bools) -> NDArray[Any]:
    """What was computed for the live decisions, 0 for the others."""
    if live.ndim == 1:
        array: NDArray[Any] = flat.numpy()
        return array
    full = np.zeros((*live.shape, *flat.shape[1:]), np.float32)
    full[live] = flat.numpy()
    return full


def play(games: Games, network: Network, steps: int, rng: np.random.Generator) -> Rollout:
    """Let the network play `steps` steps, choosing at random as likely as it says."""
    keep = _Keeper(steps)
    for _ in range(steps):
        seen = games.observe()
        logits, value, live = look(network, seen, games.batch)
        choice = games.choose(logits, rng.random(live.shape, np.float32))
        keep.before(seen, live, value, choice, games.inputs())
        keep.after(games.step(choice.action))
    rollout = keep.all(games.observe(), network)
    if rollout.promise is not None:
        rollout.promise[-1] = games.promise()
    if rollout.who is not None and rollout.gains is not None:
        rollout.alive = np.array(games.alive())
    return rollout


class _Keeper:
    """Collects a rollout, step by step, in arrays that are made at the first one."""

    def __init__(self, steps: int) -> None:
        self._steps, self._t = steps, 0
        self._kept: dict[str, NDArray[Any]] = {}
        self._lasts: dict[int, Last] = {}

    def _put(self, name: str, array: NDArray[Any], more: int = 0) -> None:
        if name not in self._kept:
            self._kept[name] = np.empty((self._steps + more, *array.shape), array.dtype)
        self._kept[name][self._t] = array

    def before(
        self, seen: Observation, live: Bools, value: NDArray[Any] | None, choice: Choice,
        inputs: Ints,
    ) -> None:  # fmt: skip
        """What was seen and chosen at this step."""
        for name, array in seen.items():
            self._put(f"seen.{name}", array, int(name == "who"))
        self._put("live", live)
        if value is not None:
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
        if turn.promised is not None:
            self._put("promised", turn.promised)
        if turn.last is not None:
            self._lasts[self._t] = turn.last
        self._t += 1

    def all(self, final: Observation, network: Network) -> Rollout:
        """The whole; the network values the last observation, and all others if it has not yet."""
        kept = self._kept
        seen = {
            name.removeprefix("seen."): array[: self._steps]
            for name, array in kept.items()
            if name.startswith("seen.")
        }
        batch = kept["live"].shape[1]
        if "value" not in kept:
            kept["value"] = np.zeros((self._steps + 1, *kept["live"].shape[1:]), np.float32)
            kept["value"][:-1] = _judge_all(network, seen, kept["live"].shape)
        kept["value"][-1] = judge(network, final, batch)
        who = kept.get("seen.who")
        if who is not None:
            who[-1] = final["who"]
        return Rollout(
            seen=seen,
            who=who,
            job=kept.get("job"),
            gains=kept.get("gains"),
            promise=kept.get("promise"),
            promised=kept.get("promised"),
            cuts={t: _cut(network, last) for t, last in self._lasts.items()},
            **{
                name: kept[name]
                for name in ("live", "action", "mask", "log_prob", "value", "reward", "over",
                             "done", "inputs")
            },
        )  # fmt: skip


def _judge_all(network: Network, seen: Observation, shape: tuple[int, ...]) -> NDArray[Any]:
    """The values of a whole rollout (T, B, …), a few thousand states at a time."""
    steps, batch = shape[:2]
    rows = max(1, _AT_ONCE // batch)
    values = np.zeros(shape, np.float32)
    for t in range(0, steps, rows):
        part = {
            name: array[t : t + rows].reshape(-1, *array.shape[2:]) for name, array in seen.items()
        }
        some = values[t : t + rows]
        some[...] = judge(network, part, len(some) * batch).reshape(some.shape)
    return values


def _cut(network: Network, last: Last) -> Cut:
    """What the network makes of the states in which episodes were cut short."""
    value = judge(network, last.seen, len(last.cluster))
    return Cut(last.cluster, value, last.seen.get("who"), last.alive, last.promise)


def _shared(reward: Floats, live: Bools) -> NDArray[Any]:
    """A cluster's reward dealt to its jobs in equal parts."""
    dealt: NDArray[Any] = reward[:, None] * live / np.maximum(live.sum(1), 1)[:, None]
    return dealt
