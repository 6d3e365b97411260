"""Rollouts: a batch of clusters played for some steps, kept in flat arrays.

All arrays of a rollout have the axes (T, B), or (T, B, W) where a system takes one decision per
job; `live` says which decisions there were (see `rota.learn.inference`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.errors import TrainingError
from rota.learn.inference import infer, infer_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rota.core.types import Bools, Floats, Ints
    from rota.learn.inference import Network
    from rota.learn.rollout_env import Choice, Last, Observation, RolloutEnv, Turn

_AT_ONCE: Final = 4096
"""States that are valued in one pass: enough to keep a core busy, few enough for its cache."""


@dataclass
class Cut:
    """Episodes that were cut short at one step, and the value of their last states."""

    cluster: Ints  # (K,)
    value: NDArray[Any]  # (K,) or (K, W)
    rows: Ints | None = None  # (K, W)
    alive: Bools | None = None  # (K, J)
    potential: Floats | None = None  # (K,)


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
    rows: Ints | None  # (T + 1, B, W); None where decisions belong to no job
    over: Bools  # (T, B)
    done: Bools  # (T, B)
    inputs: Ints  # (T, B)
    job: Ints | None = None  # (T, B) the job of the decision, −1: the round's end; None: not known
    gains: NDArray[Any] | None = None  # (T, B, J) each job's part of the reward
    potential: Floats | None = None  # (T + 1, B) the rounds' potential before each step
    potential_after: Floats | None = None  # (T, B) and after its edit, before time passed
    at_s: Floats | None = None  # (T, B) the time of each step
    passed_s: Floats | None = None  # (T, B) the time that passed in each step
    trace: Ints | None = None  # (T, B) equal numbers where the same arrivals are replayed
    alive: Bools | None = None  # (B, J) which jobs have not ended after the last step
    cuts: Mapping[int, Cut] = field(default_factory=dict)
    """By step; an episode that is `done` without a cut has come to its end."""

    @property
    def decisions(self) -> int:
        """The number of live decisions."""
        return int(self.live.sum())


def play(env: RolloutEnv, network: Network, steps: int, rng: np.random.Generator) -> Rollout:
    """Let the network play `steps` steps, with actions drawn by its probabilities."""
    keep = _Keeper(steps)
    for _ in range(steps):
        seen = env.observe()
        logits, value, live = infer(network, seen, env.batch)
        choice = env.choose(logits, rng.random(live.shape, np.float32))
        keep.before(seen, live, value, choice, env.inputs())
        keep.after(env.step(choice.action))
    rollout = keep.all(env.observe(), network)
    if rollout.potential is not None:
        rollout.potential[-1] = env.potential()
    if rollout.rows is not None and rollout.gains is not None:
        rollout.alive = np.array(env.alive())
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
        """Keep the observation and the choice of this step."""
        for name, array in seen.items():
            self._put(f"seen.{name}", array, int(name == "rows"))
        self._put("live", live)
        if value is not None:
            self._put("value", value, 1)
        self._put("action", choice.action)
        self._put("mask", choice.mask)
        self._put("log_prob", choice.log_prob)
        self._put("inputs", inputs)

    def after(self, turn: Turn) -> None:
        """Keep the result of this step."""
        live = self._kept["live"][self._t]
        reward = turn.reward if turn.reward.shape == live.shape else _shared(turn.reward, live)
        if not np.isfinite(reward).all():
            raise TrainingError(
                "A reward is not finite; look at the scenario's traces and at world.reward."
            )
        self._put("reward", reward.astype(np.float32))
        self._put("over", turn.over)
        self._put("done", turn.done)
        if turn.job is not None:
            self._put("job", turn.job)
        if turn.gains is not None:
            self._put("gains", turn.gains.astype(np.float32))
        if turn.potential is not None:
            self._put("potential", turn.potential, 1)
        if turn.potential_after is not None:
            self._put("potential_after", turn.potential_after)
        for name in ("at_s", "passed_s", "trace"):
            if getattr(turn, name) is not None:
                self._put(name, getattr(turn, name))
        if turn.last is not None:
            self._lasts[self._t] = turn.last
        self._t += 1

    def all(self, final: Observation, network: Network) -> Rollout:
        """The rollout; the network values the last observation, and all others if not done yet."""
        kept = self._kept
        seen = {
            name.removeprefix("seen."): array[: self._steps]
            for name, array in kept.items()
            if name.startswith("seen.")
        }
        batch = kept["live"].shape[1]
        if "value" not in kept:
            kept["value"] = np.zeros((self._steps + 1, *kept["live"].shape[1:]), np.float32)
            kept["value"][:-1] = _all_values(network, seen, kept["live"].shape)
        kept["value"][-1] = infer_values(network, final, batch)
        rows = kept.get("seen.rows")
        if rows is not None:
            rows[-1] = final["rows"]
        return Rollout(
            seen=seen,
            rows=rows,
            job=kept.get("job"),
            gains=kept.get("gains"),
            potential=kept.get("potential"),
            potential_after=kept.get("potential_after"),
            at_s=kept.get("at_s"),
            passed_s=kept.get("passed_s"),
            trace=kept.get("trace"),
            cuts={t: _cut(network, last) for t, last in self._lasts.items()},
            **{
                name: kept[name]
                for name in ("live", "action", "mask", "log_prob", "value", "reward", "over",
                             "done", "inputs")
            },
        )  # fmt: skip


def _all_values(network: Network, seen: Observation, shape: tuple[int, ...]) -> NDArray[Any]:
    """The values of a whole rollout (T, B, …), a few thousand states at a time."""
    steps, batch = shape[:2]
    rows = max(1, _AT_ONCE // batch)
    values = np.zeros(shape, np.float32)
    for t in range(0, steps, rows):
        part = {
            name: array[t : t + rows].reshape(-1, *array.shape[2:]) for name, array in seen.items()
        }
        some = values[t : t + rows]
        some[...] = infer_values(network, part, len(some) * batch).reshape(some.shape)
    return values


def _cut(network: Network, last: Last) -> Cut:
    """The network's values of the states in which episodes were cut short."""
    value = infer_values(network, last.seen, len(last.cluster))
    return Cut(last.cluster, value, last.seen.get("rows"), last.alive, last.potential)


def _shared(reward: Floats, live: Bools) -> NDArray[Any]:
    """A cluster's reward, divided equally among its jobs."""
    dealt: NDArray[Any] = reward[:, None] * live / np.maximum(live.sum(1), 1)[:, None]
    return dealt
