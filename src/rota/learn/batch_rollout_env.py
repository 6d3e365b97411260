"""The batched environment as learners play it, and greedy play to the end for validation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.envs.lens_policy import MOST_EDITS
from rota.learn.inference import infer
from rota.learn.lens_reader import LensReader
from rota.learn.rollout_env import Last, Turn
from rota.learn.states import States
from rota.systems.agents import EDITOR

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rota.core.types import Bools, Floats, Ints
    from rota.envs.wanted import Wanted
    from rota.learn.inference import Network
    from rota.learn.rollout_env import Choice
    from rota.learn.states import Decisions
    from rota.systems.agents import LearnedAgent

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
    """A `BatchEnv` as `RolloutEnv`, for these agents.

    An `explorer` may replace actions that were drawn at random. With `tell`, choices contain the
    job of each decision, and turns each job's gain ("gains") or the rounds' potential
    ("potential"). `foresight` gives the cost of every action.
    """

    def __init__(
        self, env: Any, agents: tuple[LearnedAgent, ...] = EDITOR, *, entries: Ints | None = None,
        explorer: Any = None, tell: str = "", foresight: Callable[[], Floats] | None = None,
    ) -> None:  # fmt: skip
        self.batch = int(env.num_envs)
        self.batch_env, self.explorer, self._tell = env, explorer, tell
        self._foresight = foresight
        self._lens, self._entries = env.lens, entries
        self._reader = LensReader(env.lens, agents)
        self.episodes = Episodes()
        self._episode = np.zeros(self.batch, np.int64)
        self._seen, self.info = env.reset()

    def keep(self, which: Ints) -> None:
        """Continue with these clusters only."""
        self._seen, self.info = self.batch_env.keep(which)
        self.batch, self._episode = len(which), self._episode[which]
        self._entries = None if self._entries is None else self._entries[which]

    def observe(self) -> States:
        """What the lens shows."""
        return self._reader.states(self._seen, self.info["rows"])

    def judged(self) -> States | None:
        """What the lens shows the critic alone, if it does."""
        return States(self.info["judged"]) if "judged" in self.info else None

    def choose(self, logits: NDArray[Any], rng: np.random.Generator | None) -> Choice:
        """Choose options; an explorer may replace those that were drawn."""
        env, mask = self.batch_env, self.info["mask"]
        choice = self._reader.choose(env.view, env.book, self._seen, mask, logits, rng)
        if self.explorer is not None and rng is not None:
            self.explorer.overrule(env.book, mask, logits, choice.action, choice.log_prob)
        if self._tell and choice.job is None:
            choice = choice._replace(job=self._lens.jobs_of(env.book, choice.actions))
        return choice

    def decisions(self, actions: NDArray[Any], right: Bools | None = None) -> Decisions:
        """What these actions decide; `right` (B, A) flags all that a teacher might do."""
        rows = self.info["rows"]
        return self._reader.decisions(actions, self.info["mask"], self._seen, rows, right)

    def step(self, actions: NDArray[Any]) -> Turn:
        """One step of the environment, which begins the next episode by itself."""
        potential = self.potential().copy() if self._tell == "potential" else None
        view = self.batch_env.view
        before_s, trace = view.now_s.copy(), self._trace()
        self._seen, reward, ended, cut, self.info = self.batch_env.step(actions)
        over, done = np.array(self.info["closed"]), ended | cut
        if "episode" in self.info:
            self.episodes.add(self.info["_episode"], self.info["episode"]["jct_s"])
        self._episode += done
        gained = self._reader.follows_jobs or self._tell == "gains"
        last = self._last(cut) if "final_obs" in self.info and cut.any() else None
        passed_s = np.where(done, 0.0, view.now_s - before_s)  # then another episode's clock runs
        return Turn(
            reward, over, done, self.info["gains"] if gained else None, potential,
            self.info.get("potential_after"), before_s, passed_s, trace, last,
        )  # fmt: skip

    def _last(self, cut: NDArray[Any]) -> Last:
        """The last observations of the episodes that were cut short."""
        cluster, info = np.flatnonzero(cut), self.info
        seen = {name: array[cluster] for name, array in info["final_obs"].items()}
        judged = None
        if "final_judged" in info:
            judged = States({name: part[cluster] for name, part in info["final_judged"].items()})
        potential = info.get("final_potential")
        return Last(
            cluster, self._reader.states(seen, info["final_rows"][cluster]), judged,
            info["final_alive"][cluster], None if potential is None else potential[cluster],
        )  # fmt: skip

    def alive(self) -> Bools:
        """Which jobs wait or run."""
        alive: Bools = self.batch_env.alive()
        return alive

    def follow(self, wanted: Wanted) -> NDArray[Any]:
        """The next actions towards what a teacher wants."""
        script = np.zeros(self.info["mask"].shape[:-1], np.int64)
        self._lens.script(self.batch_env.view, self.batch_env.book, wanted, script)
        return script

    def towards(self, wanted: Wanted) -> NDArray[np.bool_]:
        """Flags (B, A) of all actions that lead towards what a teacher wants."""
        right = np.zeros(self.info["mask"].shape, np.bool_)
        self._lens.towards(self.batch_env.view, self.batch_env.book, wanted, right)
        return right

    def costs(self) -> Floats | None:
        """(B, A) What every action would lead to; None without foresight."""
        return None if self._foresight is None else self._foresight()

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
    make_env: Callable[[], Any], network: Network, agents: tuple[LearnedAgent, ...] = EDITOR
) -> NDArray[np.float64]:
    """The mean JCT of each trace when the network plays it once by its likeliest actions.

    If fees count in the reward, it is with what they are worth (`Reward.dollar_s`).

    `make_env` gives an environment with one cluster per trace. The JCT is infinite if a job does
    not end: because the episode is cut short, nothing more can happen, or a round does not end.
    """
    envs = BatchRolloutEnv(make_env(), agents)

    def choose() -> Choice:
        return envs.choose(infer(network, envs.observe()), None)

    return _first_jct_s(envs, choose, drops=True)


def uniform_jct_s(
    make_env: Callable[[], Any], rng: np.random.Generator, explorer: Any = None
) -> NDArray[np.float64]:
    """The same by random actions, each allowed one equally likely, unless an explorer replaces it.

    Only for systems that decide step by step.
    """
    envs = BatchRolloutEnv(make_env(), explorer=explorer)

    def choose() -> Choice:
        flags = envs.decisions(np.zeros(envs.batch, np.int64)).allowed.flags
        return envs.choose(np.zeros(flags.shape, np.float32), rng)

    return _first_jct_s(envs, choose)


def _first_jct_s(
    envs: BatchRolloutEnv, choose: Callable[[], Choice], *, drops: bool = False
) -> NDArray[np.float64]:
    """The mean JCT of the first episode of every cluster; infinite if a job did not end.

    With `drops`, clusters that are over are dropped from time to time.
    """
    found = np.full(envs.batch, np.nan)
    played = np.arange(envs.batch)  # by cluster, its place in `found`
    while np.isnan(found).any():
        envs.step(choose().actions)
        open_ = np.isnan(found[played])
        if "episode" in envs.info:
            first = envs.info["_episode"] & open_
            found[played[first]] = envs.info["episode"]["cost_s"][first]
        found[played[open_ & (envs.batch_env.book.edits >= MOST_EDITS)]] = np.inf
        left = np.flatnonzero(np.isnan(found[played]))
        if drops and 0 < len(left) <= _MANY_LEFT * len(played):
            envs.keep(left)
            played = played[left]
    return found
