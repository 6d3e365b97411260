"""Batched environments as learners play them, and greedy play to the end for validation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.envs.deploy import MOST_EDITS
from rota.learn.rollout import Choice, Last, Turn, look
from rota.systems.choice_kernels import GREEDY, pick_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rota.core.types import Bools, Floats, Ints
    from rota.learn.rollout import Network, Observation

_MANY_LEFT = 0.9
"""Clusters that are over are played on while more than this part of a batch is not."""
_MIX = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64).view(np.int64)
"""Odd numbers that keep apart what `inputs` joins into one."""


@dataclass
class Episodes:
    """Episodes that ended, for the log."""

    count: int = 0
    jct_s: float = 0.0
    cut: int = 0
    """Those that were cut short; their JCT is infinite and left out."""

    def add(self, ended: NDArray[Any], jct_s: Floats) -> None:
        """Take in the clusters whose episode ended."""
        whole = ended & np.isfinite(jct_s)
        self.count += int(whole.sum())
        self.cut += int(ended.sum()) - int(whole.sum())
        self.jct_s += float(jct_s[whole].sum())

    def drain(self) -> tuple[float | None, int]:
        """The mean of their mean JCTs since the last call, and how many were cut short."""
        mean, cut = self.jct_s / self.count if self.count else None, self.cut
        self.count, self.jct_s, self.cut = 0, 0.0, 0
        return mean, cut


class EnvGames:
    """A `BatchEnv` as `Games`; `per_job` if its lens takes one decision per job.

    An `explorer` may overrule what is drawn at random. With `tell`, turns tell whose every
    decision was, and what every job gained ("gains") or what rounds promised ("promise").
    """

    def __init__(
        self, env: Any, *, per_job: bool, deal: Ints | None = None, explorer: Any = None,
        tell: str = "",
    ) -> None:  # fmt: skip
        self.batch = int(env.num_envs)
        self.env, self._per_job = env, per_job
        self.explorer, self._tell = explorer, tell
        self._lens, self._deal = env.lens, deal
        self.episodes = Episodes()
        self._episode = np.zeros(self.batch, np.int64)
        self._begin(*env.reset())

    def _begin(self, seen: Any, info: dict[str, Any]) -> None:
        """Memory for as many clusters as there are."""
        self._seen, self.info = seen, info
        shape = self.info["mask"].shape[:-1]
        self._action = np.zeros(shape, np.int64)
        self._log_prob = np.zeros(shape, np.float32)
        self._allowed = np.zeros(self.info["mask"].shape, np.bool_)
        self._greedy = np.full(shape, GREEDY, np.float32)

    def keep(self, which: Ints) -> None:
        """Go on with these clusters only."""
        self._begin(*self.env.keep(which))
        self.batch, self._episode = len(which), self._episode[which]
        self._deal = None if self._deal is None else self._deal[which]

    def observe(self) -> Observation:
        """The lens's observation, and for a one-pass lens whose job every row is."""
        if not self._per_job:
            return self._seen  # type: ignore[no-any-return]
        return {**self._seen, "who": self.info["rows"]}

    def choose(self, logits: NDArray[Any], chance: NDArray[Any] | None) -> Choice:
        """By the lens, which knows what the choice for one job leaves to the next."""
        if self._per_job:
            luck = np.zeros(self._action.shape) if chance is None else chance.astype(np.float64)
            self._lens.choose(
                self.env.view, self.env.book, logits, luck, chance is None, self._action,
                self._log_prob, self._allowed,
            )  # fmt: skip
            return Choice(self._action, self._allowed, self._log_prob)
        luck = self._greedy if chance is None else chance
        pick_rows(logits, self.info["mask"], luck, self._action, self._log_prob)
        if self.explorer is not None and chance is not None:
            self.explorer.overrule(
                self.env.book, self.info["mask"], logits, self._action, self._log_prob
            )
        return Choice(self._action, self.info["mask"], self._log_prob)

    def step(self, actions: NDArray[Any]) -> Turn:
        """One step of the environment; it begins the next episode by itself."""
        rows = self.info["rows"].copy() if self._per_job else None
        job = self._lens.jobs_of(self.env.book, actions) if self._tell else None
        promise = self.promise().copy() if self._tell == "promise" else None
        self._seen, reward, ended, cut, self.info = self.env.step(actions)
        if rows is not None:
            gains = np.take_along_axis(self.info["gains"], np.maximum(rows, 0), 1)
            reward = np.where(rows >= 0, gains, 0.0)
        over, done = np.array(self.info["closed"]), ended | cut
        if "episode" in self.info:
            self.episodes.add(self.info["_episode"], self.info["episode"]["jct_s"])
        self._episode += done
        gained = self.info["gains"] if self._per_job or self._tell == "gains" else None
        last = self._last(cut) if "final_obs" in self.info and cut.any() else None
        return Turn(reward, over, done, job, gained, promise, self.info.get("promised"), last)

    def _last(self, cut: NDArray[Any]) -> Last:
        """What was seen last of the episodes that were cut short."""
        cluster = np.flatnonzero(cut)
        seen = {name: array[cluster] for name, array in self.info["final_obs"].items()}
        if self._per_job:
            seen["who"] = self.info["final_rows"][cluster]
        promise = self.info.get("final_promise")
        return Last(
            cluster, seen, self.info["final_alive"][cluster],
            None if promise is None else promise[cluster],
        )  # fmt: skip

    def alive(self) -> Bools:
        """Which jobs wait or run."""
        alive: Bools = self.env.alive()
        return alive

    def follow(self, workers: Ints, servers: Ints) -> tuple[NDArray[Any], NDArray[Any]]:
        """The next actions towards giving every job (B, J) so much, and what was allowed."""
        script = np.zeros(self._action.shape, np.int64)
        self._lens.script(self.env.view, self.env.book, workers, servers, script)
        return script, self.info["mask"]

    def towards(self, workers: Ints, servers: Ints) -> NDArray[np.bool_]:
        """All actions (B, A) that lead towards giving every job so much."""
        right = np.zeros(self.info["mask"].shape, np.bool_)
        self._lens.towards(self.env.view, self.env.book, workers, servers, right)
        return right

    def promise(self) -> Floats:
        """What the rounds promise as they stand."""
        promised: Floats = self.env.promise()
        return promised

    def inputs(self) -> Ints:
        """Which trace, when, and which edit; every cluster its own where traces are not shared."""
        if self._deal is None:
            return np.arange(self.batch)
        entry = self._deal[np.arange(self.batch), self._episode % self._deal.shape[1]]
        clock = np.ascontiguousarray(self.env.view.now_s).view(np.int64)
        key: Ints = entry + clock * _MIX[0] + self.env.book.edits * _MIX[1]
        return key


def greedy_jct_s(
    make_env: Callable[[], Any], network: Network, *, per_job: bool
) -> NDArray[np.float64]:
    """The mean JCT of each trace when the network plays it once, always choosing the best.

    `make_env` gives an environment with one cluster per trace. A trace of which a job is left
    unfinished, because the environment cuts the episode short, nothing can happen in it any more,
    or a round has no end, counts as infinite.
    """
    games = EnvGames(make_env(), per_job=per_job)

    def choose() -> Choice:
        return games.choose(look(network, games.observe(), games.batch)[0], None)

    return _first_jct_s(games, choose, drops=True)


def uniform_jct_s(
    make_env: Callable[[], Any], rng: np.random.Generator, explorer: Any = None
) -> NDArray[np.float64]:
    """The same without a network: all allowed actions alike, unless the explorer overrules them.

    Only for systems that decide step by step.
    """
    games = EnvGames(make_env(), per_job=False, explorer=explorer)
    logits = np.zeros(games.info["mask"].shape, np.float32)
    return _first_jct_s(games, lambda: games.choose(logits, rng.random(games.batch, np.float32)))


def _first_jct_s(
    games: EnvGames, choose: Callable[[], Choice], *, drops: bool = False
) -> NDArray[np.float64]:
    """The mean JCT of the first episode of every cluster; infinite if it was not finished.

    With `drops`, clusters that are over are not played on, as soon as they are many.
    """
    found = np.full(games.batch, np.nan)
    played = np.arange(games.batch)  # by cluster, its place in `found`
    while np.isnan(found).any():
        games.step(choose().action)
        open_ = np.isnan(found[played])
        if "episode" in games.info:
            first = games.info["_episode"] & open_
            found[played[first]] = games.info["episode"]["jct_s"][first]
        found[played[open_ & (games.env.book.edits >= MOST_EDITS)]] = np.inf
        left = np.flatnonzero(np.isnan(found[played]))
        if drops and 0 < len(left) <= _MANY_LEFT * len(played):
            games.keep(left)
            played = played[left]
    return found
