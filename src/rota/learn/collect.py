"""Rollouts: a batch of clusters played for some steps.

What happens to a cluster at a step has the axes (T, B). Decisions are kept flat, in the order in
which they were taken: step by step, cluster by cluster, and job by job where jobs are followed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.errors import TrainingError
from rota.learn.inference import infer, infer_both, infer_values, needs_inner
from rota.learn.states import Allowed, Decisions, States, begins_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rota.core.types import Bools, Floats, Ints
    from rota.learn.inference import Critic, Network
    from rota.learn.rollout_env import Choice, Last, RolloutEnv, Turn

_AT_ONCE: Final = 4096
"""States that are valued in one pass: enough to keep a core busy, few enough for its cache."""


@dataclass
class Cut:
    """States that nothing in a rollout follows, of K clusters, and what they are worth."""

    which: Ints  # (K,) the clusters
    cluster: Ints  # (n,) that of each value: one of each where steps are followed
    value: NDArray[Any]  # (n,)
    job: Ints | None = None  # (n,) where jobs are followed
    alive: Bools | None = None  # (K, J)
    potential: Floats | None = None  # (K,)


@dataclass
class Rollout:
    """T steps of B clusters: S = T · B states, with D decisions."""

    seen: States
    decisions: Decisions  # with the columns "action", "log_prob" and, if they are known, "job"
    value: NDArray[Any]  # (D,) as the critic gave it
    last: Cut  # after the last step
    reward: NDArray[Any]  # (T, B)
    over: Bools  # (T, B)
    done: Bools  # (T, B)
    inputs: Ints  # (T, B)
    judged: States | None = None  # what the critic saw; None: what the network saw
    agent: Ints | None = None  # (T, B) the agent that acted; None: there is one
    gains: NDArray[Any] | None = None  # (T, B, J) each job's part of the reward
    potential: Floats | None = None  # (T + 1, B) the rounds' potential before each step
    potential_after: Floats | None = None  # (T, B) and after its edit, before time passed
    at_s: Floats | None = None  # (T, B) the time of each step
    passed_s: Floats | None = None  # (T, B) the time that passed in each step
    trace: Ints | None = None  # (T, B) equal numbers where the same arrivals are replayed
    cost: NDArray[Any] | None = None  # in the form of the decisions' flags, if it was foreseen
    cuts: Mapping[int, Cut] = field(default_factory=dict)
    """By step; an episode that is `done` without a cut has come to its end."""


def play(
    env: RolloutEnv, network: Network, critic: Critic, steps: int, rng: np.random.Generator
) -> Rollout:
    """Let the network play `steps` steps, with actions drawn by its probabilities."""
    keep = _Keeper(steps, network, critic)
    for _ in range(steps):
        seen, judged, value = env.observe(), env.judged(), None
        if keep.values:
            logits, value = infer_both(network, critic, seen, judged)
        else:
            logits = infer(network, seen)
        choice = env.choose(logits, rng)
        keep.before(seen, judged, value, choice, env.inputs(), env.costs())
        keep.after(env.step(choice.actions))
    final, judged = env.observe(), env.judged()
    alive = np.array(env.alive()) if keep.follows_jobs else None
    return keep.all(final, judged, alive, env)


class _Keeper:
    """Collects a rollout, step by step: tables are made at the first one, lists grow."""

    def __init__(self, steps: int, network: Network, critic: Critic) -> None:
        self._steps, self._t = steps, 0
        self._network, self._critic = network, critic
        self.values = needs_inner(critic)
        """Whether values are wanted at every step."""
        self.follows_jobs = False
        self._tables: dict[str, NDArray[Any]] = {}
        self._lists: dict[str, list[NDArray[Any]]] = {}
        self._lasts: dict[int, Last] = {}

    def _put(self, name: str, array: NDArray[Any], more: int = 0) -> None:
        if name not in self._tables:
            self._tables[name] = np.empty((self._steps + more, *array.shape), array.dtype)
        self._tables[name][self._t] = array

    def _add(self, name: str, array: NDArray[Any]) -> None:
        self._lists.setdefault(name, []).append(array.copy())

    def _look(self, prefix: str, seen: States) -> None:
        for name, array in seen.arrays.items():
            (self._add if name in seen.lists else self._put)(f"{prefix}{name}", array)

    def before(
        self, seen: States, judged: States | None, value: NDArray[Any] | None, choice: Choice,
        inputs: Ints, cost: NDArray[Any] | None,
    ) -> None:  # fmt: skip
        """Keep the state and the decisions of this step."""
        self.follows_jobs = "rows" in seen.arrays
        self._look("seen.", seen)
        if judged is not None:
            self._look("judged.", judged)
        keep = self._add if self.follows_jobs else self._put
        if value is not None:
            keep("value", value)
        keep("action", choice.action)
        keep("log_prob", choice.log_prob)
        if choice.job is not None:
            keep("job", choice.job)
        if choice.allowed.begins is None:
            keep("flags", choice.allowed.flags)
        else:
            self._add("flags", choice.allowed.flags)
            self._add("options", np.diff(choice.allowed.begins))
        self._put("inputs", inputs)
        if cost is not None:
            begins = choice.allowed.begins
            listed = None if begins is None else np.arange(cost.shape[1]) < np.diff(begins)[:, None]
            keep("cost", cost) if listed is None else self._add("cost", cost[listed])

    def after(self, turn: Turn) -> None:
        """Keep the result of this step."""
        if not np.isfinite(turn.reward).all():
            raise TrainingError(
                "A reward is not finite; look at the scenario's traces and at world.reward."
            )
        if turn.gains is None and self.follows_jobs:
            raise TrainingError("Jobs are followed by their gains, which the environment lacks.")
        self._put("reward", turn.reward.astype(np.float32))
        self._put("over", turn.over)
        self._put("done", turn.done)
        if turn.gains is not None:
            self._put("gains", turn.gains.astype(np.float32))
        if turn.potential is not None:
            self._put("potential", turn.potential, 1)
        for name in ("potential_after", "at_s", "passed_s", "trace"):
            if getattr(turn, name) is not None:
                self._put(name, getattr(turn, name))
        if turn.last is not None:
            self._lasts[self._t] = turn.last
        self._t += 1

    def all(
        self, final: States, judged: States | None, alive: Bools | None, env: RolloutEnv
    ) -> Rollout:
        """The rollout; the critic values the last states, and all others if not done yet."""
        seen = self._states("seen.", final)
        looked = None if judged is None else self._states("judged.", judged)
        decisions = self._decisions(seen)
        tables = self._tables
        if "potential" in tables:
            tables["potential"][-1] = env.potential()
        value = self._column("value") if self.values else self._all_values(seen, looked)
        return Rollout(
            seen=seen,
            decisions=decisions,
            value=value,
            last=self._cut(np.arange(env.batch), final, judged, alive, None),
            judged=looked,
            agent=tables.get("seen.agent"),
            cuts={
                t: self._cut(last.cluster, last.seen, last.judged, last.alive, last.potential)
                for t, last in self._lasts.items()
            },
            reward=tables["reward"],
            over=tables["over"],
            done=tables["done"],
            inputs=tables["inputs"],
            gains=tables.get("gains"),
            potential=tables.get("potential"),
            potential_after=tables.get("potential_after"),
            at_s=tables.get("at_s"),
            passed_s=tables.get("passed_s"),
            trace=tables.get("trace"),
            cost=self._column("cost") if "cost" in tables | self._lists else None,
        )

    def _column(self, name: str) -> NDArray[Any]:
        """What was kept of all steps, one after the other."""
        if name in self._lists:
            return np.concatenate(self._lists[name])
        table = self._tables[name]
        return table.reshape(-1, *table.shape[2:])

    def _states(self, prefix: str, like: States) -> States:
        return States({n: self._column(f"{prefix}{n}") for n in like.arrays}, like.lists)

    def _decisions(self, seen: States) -> Decisions:
        columns = {name: self._column(name) for name in ("action", "log_prob")}
        if "job" in self._tables | self._lists:
            columns["job"] = self._column("job")
        begins = begins_of((seen["rows"] >= 0).sum(1)) if self.follows_jobs else None
        of_options = begins_of(self._column("options")) if "options" in self._lists else None
        return Decisions(Allowed(self._column("flags"), of_options), columns, begins)

    def _all_values(self, seen: States, judged: States | None) -> NDArray[Any]:
        """The values of a whole rollout, a few thousand states at a time."""
        batch = self._tables["over"].shape[1]
        size, count, found = max(1, _AT_ONCE // batch) * batch, len(seen), []
        for first in range(0, count, size):
            end = min(first + size, count)
            part = None if judged is None else judged.between(first, end)
            found.append(infer_values(self._network, self._critic, seen.between(first, end), part))
        return np.concatenate(found)

    def _cut(
        self, which: Ints, seen: States, judged: States | None, alive: Bools | None,
        potential: Floats | None,
    ) -> Cut:  # fmt: skip
        """States that nothing follows, with the critic's values."""
        value = infer_values(self._network, self._critic, seen, judged)
        if not self.follows_jobs:
            return Cut(which, which, value, None, alive, potential)
        at, column = (seen["rows"] >= 0).nonzero()
        return Cut(which, which[at], value, seen["rows"][at, column], alive, potential)
