"""Many clusters at once: a gymnasium vector environment whose every step is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rota.core.jobs import JobTable
from rota.core.layout import JOB, RUNNING, SHARE
from rota.core.snapshot import Snapshot
from rota.envs.book import new_book
from rota.envs.lens import Caller, new_arrays
from rota.envs.pool import words_of
from rota.envs.promise_kernels import promise
from rota.envs.rewards import Reward, new_score
from rota.envs.round_kernels import Deal, Ends, begin_episodes, close_round
from rota.envs.view import view_of_state
from rota.errors import ConfigError, PolicyError
from rota.sim.replay_kernels import observe
from rota.sim.state import one_of_batch
from rota.sim.world import seen_contention, seen_curves

if TYPE_CHECKING:
    from rota.core.types import Bools, Floats, Ints
    from rota.envs.lens import Arrays, Lens
    from rota.envs.pool import Pool
    from rota.scenarios.scenario import World

SAMPLED = 4096
"""Episodes for which entries of the pool are drawn in advance."""


class BatchEnv(VectorEnv[Any, Any, Any]):
    """B clusters, each playing one world of a pool after the other.

    A step is one edit of a round in every cluster. When the lens ends the round, the tasks are
    packed onto nodes, the simulator goes on to the next decision and the reward falls due. A
    cluster whose jobs have all ended begins its next episode within the same step.

    Observations, rewards and infos are written into the same arrays at every step: copy what
    must last. `info` holds:

    - `mask` (B, …): which actions are allowed;
    - `rows` (B, W): the job that each row of the observation shows, −1: none;
    - `closed` (B,): whether a round ended in this step;
    - `gains` (B, J): each job's part of the reward;
    - `promised` (B,), if asked for: what the rounds promised after the edit, before time passed;
    - `_episode` (B,): whether an episode ended, and if any did `episode`, how it went; its mean
      JCT is infinite if a job was left unfinished;
    - `final_obs`, if asked for and any ended: the observations before the next episode; with it
      `final_rows` (B, W), `final_alive` (B, J), and `final_promise` (B,) where promises are told.
    """

    def __init__(
        self,
        pool: Pool,
        lens: Lens,
        reward: Reward | str = "jobs",
        batch: int = 256,
        *,
        deal: str | Ints = "cycle",
        seed: int = 0,
        max_rounds: int = 100_000,
        masks: bool = True,
        promises: bool = False,
        final_obs: bool | Literal["cut"] = False,
        autoreset: bool = True,
    ) -> None:
        """Let `batch` clusters play.

        `deal` says which entries of the pool they play: `cycle`, cluster b the entries b, b + B,
        …; `sample`, random ones; or an array (B, K) of entries by episode. Without `masks` the
        mask is left as it is, for learners to whom the lens tells what is allowed. `promises`
        tells what rounds promise after every edit. `final_obs="cut"` gives final observations
        only when an episode was truncated: what comes after the others is worth nothing.
        """
        if batch < 1:
            raise ConfigError(f"batch={batch} must be 1 or more.")
        self.num_envs, self.pool, self.lens = batch, pool, lens
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space = lens.observation_space
        self.single_action_space = lens.action_space
        self.observation_space = batch_space(self.single_observation_space, batch)
        self.action_space = batch_space(self.single_action_space, batch)
        self._reward = Reward(kind=reward) if isinstance(reward, str) else reward
        self._deal, self._seed, self._max_rounds = deal, seed, max_rounds
        self._masks, self._final_obs, self._autoreset = masks, final_obs, autoreset
        self._promises = promises
        self.state = pool.new_state(batch)
        self.view = view_of_state(self.state)
        self.book = new_book(batch, pool.jobs, lens.window)
        self.score = new_score(self._reward, batch, pool.jobs, pool.slot_s)
        self.deal = Deal(_hands(deal, batch, len(pool), seed), *np.zeros((2, batch), np.int64))
        self.ends = _no_ends(batch, pool.jobs)
        self._words, self._source = words_of(self.state), words_of(pool.state)
        self._obs = new_arrays(lens.observation_space, batch)
        self._mask = np.zeros((batch, *lens.mask_shape), np.bool_)
        self._actions = np.zeros((batch, *(lens.action_space.shape or ())), np.int64)
        self._ended = np.zeros(batch, np.bool_)
        self._done = np.zeros(batch, np.bool_)
        self._every = np.ones(batch, np.bool_)
        self._home = np.full(batch, pool, object)
        """The pools that the present episodes are from."""
        self._promise, self._promised = np.zeros(batch), np.zeros(batch)
        self._run = Caller()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Arrays, dict[str, Any]]:
        """Begin the first episode of every cluster anew; a seed draws other entries."""
        del options
        if seed is not None:
            self._seed = int(seed)
        return self.begin(self._deal)

    def begin(self, deal: str | Ints) -> tuple[Arrays, dict[str, Any]]:
        """The same with other entries of the pool dealt, from now on."""
        hands = _hands(deal, self.num_envs, len(self.pool), self._seed)
        self.deal = Deal(hands, np.zeros_like(self.deal.next), np.zeros_like(self.deal.entry))
        self._deal = deal
        self._done[:] = True
        self._begin_flagged()
        self.lens.open(self.view, self.book, self._done)
        self._done[:] = False
        self._ended[:] = False
        self.score.gains[:] = 0.0
        if self._promises:
            self._promise_of(self._every, self._promise)
        return self._look(), self._info()

    def step(self, actions: Any) -> tuple[Arrays, Floats, Bools, Bools, dict[str, Any]]:
        """One edit per cluster."""
        lens, view, book = self.lens, self.view, self.book
        self._actions[...] = actions
        lens.act(view, book, self._actions, self._ended)
        if self._promises:
            self._promise_of(self._every, self._promised)
        over = self._run(
            close_round, self.state, view, book, self._ended, self.score, self.deal, self.ends,
            self._max_rounds,
        )  # fmt: skip
        np.logical_or(self.ends.terminated, self.ends.truncated, out=self._done)
        if over and self.state.clock["overfull"].any():
            raise PolicyError(
                "Packing has given tasks of a round room that a node did not have, which is a "
                "defect of ours; please report this, with the scenario and the seed."
            )
        wanted = self._done if self._final_obs is True else self.ends.truncated
        final = self._final() if over and self._final_obs and wanted.any() else {}
        if over and self._autoreset:
            self._begin_flagged()
        lens.open(view, book, self._ended)
        if self._promises:
            self._promise[:] = self._promised
            self._promise_of(self._ended, self._promise)
        obs, info = self._look(), {**self._info(), **final}
        if over:
            info["episode"] = self._episode()
        return obs, self.ends.reward, self.ends.terminated, self.ends.truncated, info

    def swap(self, pool: Pool) -> None:
        """Take the episodes to come from another pool; those being played go on."""
        source = words_of(pool.state)
        if [part.shape[1:] for part in source] != [part.shape[1:] for part in self._source]:
            raise ConfigError(
                f"The new pool's worlds are of another size ({pool.jobs} jobs on "
                f"{len(pool.cluster)} nodes) than the environment's ({self.pool.jobs} on "
                f"{len(self.pool.cluster)}); make a new environment for them."
            )
        if len(pool) != len(self.pool):
            raise ConfigError(
                f"The new pool has {len(pool)} worlds, the old one {len(self.pool)}; draw as many."
            )
        self.pool, self._source = pool, source
        for name in ("shares", "spare"):
            old, wanted = getattr(self.state, name), getattr(pool.state, name).shape[1]
            if wanted > old.shape[1]:
                new = np.zeros((self.num_envs, wanted), old.dtype)
                new[:, : old.shape[1]] = old
                self.state = self.state._replace(**{name: new})

    def keep(self, which: Ints) -> tuple[Arrays, dict[str, Any]]:
        """Go on with these clusters only, as far as they have come; the others are forgotten."""

        def some(parts: Any) -> Any:
            return type(parts)._make(x[which] if isinstance(x, np.ndarray) else x for x in parts)

        state = self.state
        net = state.net
        if net is not None:
            net = some(net._replace(traffic=None))._replace(traffic=some(net.traffic))
        arrays = [part[which] for part in state[:-2]]
        self.state = type(state)._make([*arrays, state.speed, net])
        self.view, self._words = view_of_state(self.state), words_of(self.state)
        self.book, self.score, self.deal, self.ends = map(
            some, (self.book, self.score, self.deal, self.ends)
        )
        self.num_envs = len(which)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._obs = {name: array[which] for name, array in self._obs.items()}
        for name in ("_mask", "_actions", "_ended", "_done", "_every", "_home", "_promise",
                     "_promised"):  # fmt: skip
            setattr(self, name, getattr(self, name)[which])
        return self._obs, self._info()

    def snapshot(self, b: int) -> Snapshot:
        """What there is to see of cluster b at the beginning of its round, as its world has it.

        Policies are shown more: `rota.envs.seats` knows what each of them may know.
        """
        world, seed = self.world(b)
        s = one_of_batch(self.state, b)
        clock = s.clock[0]
        rows, shares = np.empty(int(clock["live"]), JOB), np.empty(int(clock["used"]), SHARE)
        used = observe(s, rows, shares)
        return Snapshot(
            float(clock["now_s"]), world.cluster, JobTable(rows), s.nodes.copy(), shares[:used],
            seen_curves(world.physics, world.cluster, seed), seen_contention(world.physics),
        )  # fmt: skip

    def world(self, b: int) -> tuple[World, int]:
        """The world that cluster b plays in, and its seed."""
        pool, entry = self._home[b], int(self.deal.entry[b])
        return pool.worlds[entry], int(pool.seeds[entry])

    def promise(self) -> Floats:
        """(B,) The progress that the rounds, as written so far, would bring within one slot.

        Summed over jobs, as the reward `progress`; it knows true speeds, so it is for learning
        only. The same array at every call.
        """
        if not self._promises:  # else they are known already
            self._promise_of(self._every, self._promise)
        return self._promise

    def _promise_of(self, which: Bools, out: Floats) -> None:
        self._run(promise, self.state, self.view, self.book, self.score.unit_s, which, out)

    def _final(self) -> dict[str, Any]:
        """Where the clusters stand whose episode ends, as if a round began there."""
        obs = new_arrays(self.lens.observation_space, self.num_envs)
        self.lens.open(self.view, self.book, self._done)
        self.lens.encode(self.view, self.book, obs)
        info = {
            "final_obs": obs, "_final_obs": self._done.copy(),
            "final_rows": self.book.rows.copy(), "final_alive": self.alive(),
        }  # fmt: skip
        if self._promises:
            promise = np.zeros(self.num_envs)
            self._promise_of(self._done, promise)
            info["final_promise"] = promise
        return info

    def alive(self) -> Bools:
        """(B, J) Which jobs wait or run."""
        here = np.arange(self.pool.jobs) < self.state.clock["arrived"]  # the rest is padding
        found: Bools = here & (self.state.jobs["status"] <= RUNNING)
        return found

    def _begin_flagged(self) -> None:
        self._home[self._done] = self.pool
        self._run(
            begin_episodes, self.state, self.view, self._words, self._source, self._done,
            self.score, self.deal,
        )  # fmt: skip

    def _look(self) -> Arrays:
        self.lens.encode(self.view, self.book, self._obs)
        if self._masks:
            self.lens.mask(self.view, self.book, self._mask)
        return self._obs

    def _info(self) -> dict[str, Any]:
        info = {
            "mask": self._mask, "rows": self.book.rows, "closed": self._ended,
            "gains": self.score.gains, "_episode": self._done,
        }  # fmt: skip
        return {**info, "promised": self._promised} if self._promises else info

    def _episode(self) -> dict[str, Any]:
        """How the episodes went that ended in this step; other entries are old."""
        ends = self.ends
        return {
            "jct_s": ends.jct_s, "unfinished": ends.unfinished,
            "makespan_s": ends.makespan_s, "resizes": ends.resizes, "moves": ends.moves,
            "rounds": ends.rounds, "return": ends.total,
            "entry": ends.played, "jcts_s": ends.jcts_s,
        }  # fmt: skip


def _hands(deal: str | Ints, batch: int, entries: int, seed: int) -> Ints:
    """Which entries of the pool the clusters play, by episode (B, K)."""
    if isinstance(deal, str):
        if deal == "cycle":
            return (np.arange(batch)[:, None] + batch * np.arange(entries)) % entries
        if deal == "sample":
            return np.random.default_rng(seed).integers(0, entries, (batch, SAMPLED))
        raise ConfigError(f"deal={deal!r}: say 'cycle', 'sample', or which entries (B, K).")
    hands = np.array(deal, np.int64)
    if hands.ndim != 2 or len(hands) != batch or hands.min() < 0 or hands.max() >= entries:
        raise ConfigError(
            f"deal of shape {hands.shape} must be ({batch}, K) entries of a pool of {entries}."
        )
    return hands


def _no_ends(batch: int, jobs: int) -> Ends:
    def zeros(kind: type = float) -> Any:
        return np.zeros(batch, kind)

    return Ends(
        reward=zeros(), terminated=zeros(bool), truncated=zeros(bool), jct_s=zeros(),
        unfinished=zeros(int), makespan_s=zeros(), resizes=zeros(int), moves=zeros(int),
        rounds=zeros(int),
        total=zeros(), played=zeros(int), jcts_s=np.full((batch, jobs), np.nan),
    )  # fmt: skip
