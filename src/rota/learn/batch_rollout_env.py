"""The batched environment as learners play it, and greedy play to the end for validation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.envs.lens_policy import MOST_EDITS
from rota.learn.inference import infer
from rota.learn.rollout_env import Choice, Last, Turn
from rota.systems.choice_kernels import GREEDY, pick_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rota.core.types import Bools, Floats, Ints
    from rota.envs.wanted import Wanted
    from rota.learn.inference import Network
    from rota.learn.rollout_env import Observation

_MANY_LEFT = 0.9
"""Clusters that are over are dropped once at most this part of a batch is not over."""
_MIX = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64).view(np.int64)
"""Odd numbers by which `inputs` mixes several numbers into one."""


@dataclass
class Episodes:
    """Statistics of the episodes that ended, for the log."""

    count: int = 0
    jct_s: float = 0.0
    cut: int = 0
    """Episodes that were cut short; their JCT is infinite and not in the mean."""

    def add(self, ended: NDArray[Any], jct_s: Floats) -> None:
        """Count the clusters whose episode ended."""
        whole = ended & np.isfinite(jct_s)
        self.count += int(whole.sum())
        self.cut += int(ended.sum()) - int(whole.sum())
        self.jct_s += float(jct_s[whole].sum())

    def drain(self) -> tuple[float | None, int]:
        """The mean of the episodes' mean JCTs since the last call, and how many were cut short."""
        mean, cut = self.jct_s / self.count if self.count else None, self.cut
        self.count, self.jct_s, self.cut = 0, 0.0, 0
        return mean, cut


class BatchRolloutEnv:
    """A `BatchEnv` as `RolloutEnv`; `per_job` if its lens takes one decision per job.

    An `explorer` may replace actions that were drawn at random. With `tell`, turns contain the job
    of each decision, and each job's gain ("gains") or the rounds' potential ("potential").
    """

    def __init__(
        self, env: Any, *, per_job: bool, entries: Ints | None = None, explorer: Any = None,
        tell: str = "",
    ) -> None:  # fmt: skip
        self.batch = int(env.num_envs)
        self.batch_env, self._per_job = env, per_job
        self.explorer, self._tell = explorer, tell
        self._lens, self._entries = env.lens, entries
        self.episodes = Episodes()
        self._episode = np.zeros(self.batch, np.int64)
        self._begin(*env.reset())

    def _begin(self, seen: Any, info: dict[str, Any]) -> None:
        """Allocate memory for the present number of clusters."""
        self._seen, self.info = seen, info
        shape = self.info["mask"].shape[:-1]
        self._action = np.zeros(shape, np.int64)
        self._log_prob = np.zeros(shape, np.float32)
        self._allowed = np.zeros(self.info["mask"].shape, np.bool_)
        self._greedy = np.full(shape, GREEDY, np.float32)

    def keep(self, which: Ints) -> None:
        """Continue with these clusters only."""
        self._begin(*self.batch_env.keep(which))
        self.batch, self._episode = len(which), self._episode[which]
        self._entries = None if self._entries is None else self._entries[which]

    def observe(self) -> Observation:
        """The lens's observation, and for a one-pass lens the job of each row."""
        if not self._per_job:
            return self._seen  # type: ignore[no-any-return]
        return {**self._seen, "rows": self.info["rows"]}

    def choose(self, logits: NDArray[Any], chance: NDArray[Any] | None) -> Choice:
        """Choose actions; a one-pass lens does it itself, as one job's choice limits the next."""
        if self._per_job:
            luck = np.zeros(self._action.shape) if chance is None else chance.astype(np.float64)
            self._lens.choose(
                self.batch_env.view, self.batch_env.book, logits, luck, chance is None,
                self._action, self._log_prob, self._allowed,
            )  # fmt: skip
            return Choice(self._action, self._allowed, self._log_prob)
        luck = self._greedy if chance is None else chance
        pick_rows(logits, self.info["mask"], luck, self._action, self._log_prob)
        if self.explorer is not None and chance is not None:
            self.explorer.overrule(
                self.batch_env.book, self.info["mask"], logits, self._action, self._log_prob
            )
        return Choice(self._action, self.info["mask"], self._log_prob)

    def step(self, actions: NDArray[Any]) -> Turn:
        """One step of the environment, which begins the next episode by itself."""
        rows = self.info["rows"].copy() if self._per_job else None
        job = self._lens.jobs_of(self.batch_env.book, actions) if self._tell else None
        potential = self.potential().copy() if self._tell == "potential" else None
        view = self.batch_env.view
        before_s, trace = view.now_s.copy(), self._trace()
        self._seen, reward, ended, cut, self.info = self.batch_env.step(actions)
        if rows is not None:
            gains = np.take_along_axis(self.info["gains"], np.maximum(rows, 0), 1)
            reward = np.where(rows >= 0, gains, 0.0)
        over, done = np.array(self.info["closed"]), ended | cut
        if "episode" in self.info:
            self.episodes.add(self.info["_episode"], self.info["episode"]["jct_s"])
        self._episode += done
        gained = self.info["gains"] if self._per_job or self._tell == "gains" else None
        last = self._last(cut) if "final_obs" in self.info and cut.any() else None
        after = self.info.get("potential_after")
        passed_s = np.where(done, 0.0, view.now_s - before_s)  # then another episode's clock runs
        return Turn(
            reward, over, done, job, gained, potential, after, before_s, passed_s, trace, last
        )

    def _last(self, cut: NDArray[Any]) -> Last:
        """The last observations of the episodes that were cut short."""
        cluster = np.flatnonzero(cut)
        seen = {name: array[cluster] for name, array in self.info["final_obs"].items()}
        if self._per_job:
            seen["rows"] = self.info["final_rows"][cluster]
        potential = self.info.get("final_potential")
        return Last(
            cluster, seen, self.info["final_alive"][cluster],
            None if potential is None else potential[cluster],
        )  # fmt: skip

    def alive(self) -> Bools:
        """Which jobs wait or run."""
        alive: Bools = self.batch_env.alive()
        return alive

    def follow(self, wanted: Wanted) -> tuple[NDArray[Any], NDArray[Any]]:
        """The next actions towards what a teacher wants, and what was allowed."""
        script = np.zeros(self._action.shape, np.int64)
        self._lens.script(self.batch_env.view, self.batch_env.book, wanted, script)
        return script, self.info["mask"]

    def towards(self, wanted: Wanted) -> NDArray[np.bool_]:
        """Flags (B, A) of all actions that lead towards what a teacher wants."""
        right = np.zeros(self.info["mask"].shape, np.bool_)
        self._lens.towards(self.batch_env.view, self.batch_env.book, wanted, right)
        return right

    def potential(self) -> Floats:
        """(B,) The potential of the rounds as written so far."""
        found: Floats = self.batch_env.potential()
        return found

    def _trace(self) -> Ints:
        """A number of the trace; of the cluster, where traces are not shared."""
        if self._entries is None:
            return np.arange(self.batch)
        entry: Ints = self._entries[np.arange(self.batch), self._episode % self._entries.shape[1]]
        return entry

    def inputs(self) -> Ints:
        """A number of trace, time and edit; or of the cluster, where traces are not shared."""
        entry = self._trace()
        if self._entries is None:
            return entry
        clock = np.ascontiguousarray(self.batch_env.view.now_s).view(np.int64)
        key: Ints = entry + clock * _MIX[0] + self.batch_env.book.edits * _MIX[1]
        return key


def greedy_jct_s(
    make_env: Callable[[], Any], network: Network, *, per_job: bool
) -> NDArray[np.float64]:
    """The mean JCT of each trace when the network plays it once by its likeliest actions.

    `make_env` gives an environment with one cluster per trace. The JCT is infinite if a job does
    not end: because the episode is cut short, nothing more can happen, or a round does not end.
    """
    envs = BatchRolloutEnv(make_env(), per_job=per_job)

    def choose() -> Choice:
        return envs.choose(infer(network, envs.observe(), envs.batch)[0], None)

    return _first_jct_s(envs, choose, drops=True)


def uniform_jct_s(
    make_env: Callable[[], Any], rng: np.random.Generator, explorer: Any = None
) -> NDArray[np.float64]:
    """The same by random actions, each allowed one equally likely, unless an explorer replaces it.

    Only for systems that decide step by step.
    """
    envs = BatchRolloutEnv(make_env(), per_job=False, explorer=explorer)
    logits = np.zeros(envs.info["mask"].shape, np.float32)
    return _first_jct_s(envs, lambda: envs.choose(logits, rng.random(envs.batch, np.float32)))


def _first_jct_s(
    envs: BatchRolloutEnv, choose: Callable[[], Choice], *, drops: bool = False
) -> NDArray[np.float64]:
    """The mean JCT of the first episode of every cluster; infinite if a job did not end.

    With `drops`, clusters that are over are dropped from time to time.
    """
    found = np.full(envs.batch, np.nan)
    played = np.arange(envs.batch)  # by cluster, its place in `found`
    while np.isnan(found).any():
        envs.step(choose().action)
        open_ = np.isnan(found[played])
        if "episode" in envs.info:
            first = envs.info["_episode"] & open_
            found[played[first]] = envs.info["episode"]["jct_s"][first]
        found[played[open_ & (envs.batch_env.book.edits >= MOST_EDITS)]] = np.inf
        left = np.flatnonzero(np.isnan(found[played]))
        if drops and 0 < len(left) <= _MANY_LEFT * len(played):
            envs.keep(left)
            played = played[left]
    return found
