"""Many clusters at once: a gymnasium vector environment whose steps are compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rota.core.jobs import JobTable
from rota.core.layout import JOB, RUNNING, SHARE
from rota.core.snapshot import Snapshot
from rota.envs.book import new_book, rows_of
from rota.envs.draft_batch import drafts_of_state
from rota.envs.episode_kernels import (
    EpisodePlan,
    begin_drafts,
    begin_episodes,
    close_placed_round,
    close_round,
)
from rota.envs.episode_setup import entries_by_episode, no_ends
from rota.envs.lens import new_arrays
from rota.envs.potential_kernels import potential
from rota.envs.rewards import Reward, new_score
from rota.envs.view import view_of_state
from rota.envs.world_pool import shown_laws, words_of
from rota.errors import ConfigError, PolicyError
from rota.jit_call import Caller
from rota.sim.replay_kernels import observe
from rota.sim.state import one_of_batch
from rota.sim.world import seen_contention, seen_curves

if TYPE_CHECKING:
    from rota.core.types import Bools, Floats, Ints
    from rota.envs.lens import Arrays, CriticLens, Lens
    from rota.envs.world_pool import WorldPool
    from rota.scenarios.scenario import World


class BatchEnv(VectorEnv[Any, Any, Any]):
    """B clusters, each of which plays one world of a pool after the other.

    A step is one edit of a round in every cluster. When the lens ends the round, the tasks are
    packed onto nodes, the simulator runs to the next decision and the reward is computed. A
    cluster whose jobs have all ended begins its next episode within the same step.

    Observations, rewards and infos are written into the same arrays at every step: copy them to
    keep them. `info` holds:

    - `mask` (B, …): which actions are allowed;
    - `rows` (B, W): the job that each row of the observation shows, −1: none;
    - `closed` (B,): whether a round ended in this step;
    - `gains` (B, J): each job's part of the reward;
    - `judged`, if asked for: what the lens shows a critic alone, arrays (B, …) by name;
    - `potential_after` (B,), if asked for: the potential after the edit, before time passed;
    - `_episode` (B,): whether an episode ended; if any did, `episode` says how it went. Its mean
      JCT is infinite if a job has not ended;
    - `final_obs`, if asked for and any ended: the observations before the next episode; with it
      `final_rows` (B, W), `final_alive` (B, J) and, if asked for, `final_potential` (B,) and
      `final_judged`.
    """

    def __init__(
        self,
        pool: WorldPool,
        lens: Lens,
        reward: Reward | str = "jobs",
        batch: int = 256,
        *,
        entries: str | Ints = "cycle",
        seed: int = 0,
        max_rounds: int = 100_000,
        masks: bool = True,
        potentials: bool = False,
        judged: bool = False,
        final_obs: bool | Literal["cut"] = False,
        autoreset: bool = True,
    ) -> None:
        """Make an environment of `batch` clusters.

        `entries` says which worlds of the pool they play: `cycle`, cluster b the worlds b, b + B,
        …; `sample`, random ones; or an array (B, K) of worlds by episode. Without `masks` the
        mask is not filled, for learners that learn from the lens itself what is allowed.
        `potentials` computes the rounds' potential after every edit. `judged` lets the lens write
        what it shows a critic alone; it must be a `CriticLens`. `final_obs="cut"` gives final
        observations only of truncated episodes: after the others there is nothing to value.
        """
        if batch < 1:
            raise ConfigError(f"batch={batch} must be 1 or more.")
        if potentials and lens.places:
            raise ConfigError("Potentials are of numbers of tasks; a lens that places has none.")
        self.num_envs, self.pool, self.lens = batch, pool, lens
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space = lens.observation_space
        self.single_action_space = lens.action_space
        self.observation_space = batch_space(self.single_observation_space, batch)
        self.action_space = batch_space(self.single_action_space, batch)
        self._reward = Reward(kind=reward) if isinstance(reward, str) else reward
        self._entries, self._seed, self._max_rounds = entries, seed, max_rounds
        self._masks, self._final_obs, self._autoreset = masks, final_obs, autoreset
        self._potentials = potentials
        self.state = pool.new_state(batch)
        self._laws = shown_laws(pool) if lens.places else None
        self.view = view_of_state(self.state, self._laws)
        drafts, own = None, None
        if lens.places:
            drafts, own = drafts_of_state(self.state), lens.memory(self.view)
        self.book = new_book(batch, pool.jobs, lens.window, drafts, own)
        self._close = close_placed_round if lens.places else close_round
        self.score = new_score(self._reward, batch, pool.jobs, pool.slot_s)
        self.book = self.book._replace(dollar_s=self.score.dollar_s)
        self._dollars = self._reward.dollars(pool.seeds)
        found = entries_by_episode(entries, batch, len(pool), seed)
        self.plan = EpisodePlan(found, *np.zeros((2, batch), np.int64))
        self.ends = no_ends(batch, pool.jobs)
        self._words, self._source = words_of(self.state), words_of(pool.state)
        self._obs = new_arrays(lens.observation_space, batch)
        self._mask = np.zeros((batch, *lens.mask_shape), np.bool_)
        self._judge = cast("CriticLens", lens) if judged else None
        self._judged = new_arrays(self._judge.critic_space, batch) if self._judge else {}
        self._actions = np.zeros((batch, *(lens.action_space.shape or ())), np.int64)
        self._ended = np.zeros(batch, np.bool_)
        self._done = np.zeros(batch, np.bool_)
        self._every = np.ones(batch, np.bool_)
        self._home = np.full(batch, pool, object)
        """For each cluster, the pool that its present episode is from."""
        self._potential, self._potential_after = np.zeros(batch), np.zeros(batch)
        self._run = Caller()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Arrays, dict[str, Any]]:
        """Begin the first episode of every cluster again; a seed draws other pool entries."""
        del options
        if seed is not None:
            self._seed = int(seed)
        return self.begin(self._entries)

    def begin(self, entries: str | Ints) -> tuple[Arrays, dict[str, Any]]:
        """Begin again, and play these pool entries from now on."""
        found = entries_by_episode(entries, self.num_envs, len(self.pool), self._seed)
        self.plan = EpisodePlan(
            found, np.zeros_like(self.plan.begun), np.zeros_like(self.plan.entry)
        )
        self._entries = entries
        self._done[:] = True
        self._begin_flagged()
        self._open(self._done)
        self._done[:] = False
        self._ended[:] = False
        self.score.gains[:] = 0.0
        if self._potentials:
            self._potential_of(self._every, self._potential)
        return self._look(), self._info()

    def step(self, actions: Any) -> tuple[Arrays, Floats, Bools, Bools, dict[str, Any]]:
        """One edit per cluster."""
        lens, view, book = self.lens, self.view, self.book
        self._actions[...] = actions
        lens.act(view, book, self._actions, self._ended)
        if self._potentials:
            self._potential_of(self._every, self._potential_after)
        over = self._run(
            self._close, self.state, view.live, view.now_s,
            book.drafts.used if lens.places else book, self._ended, self.score, self.plan,
            self.ends, self._max_rounds,
        )  # fmt: skip
        np.logical_or(self.ends.terminated, self.ends.truncated, out=self._done)
        if over and self.state.clock["overfull"].any():
            raise PolicyError(
                "Packing put more tasks on a node than it has room for. This is a defect of rota; "
                "please report it, with the scenario and the seed."
            )
        wanted = self._done if self._final_obs is True else self.ends.truncated
        final = self._final() if over and self._final_obs and wanted.any() else {}
        if over and self._autoreset:
            self._begin_flagged()
        self._open(self._ended)
        if self._potentials:
            self._potential[:] = self._potential_after
            self._potential_of(self._ended, self._potential)
        obs, info = self._look(), {**self._info(), **final}
        if over:
            info["episode"] = self._episode()
        return obs, self.ends.reward, self.ends.terminated, self.ends.truncated, info

    def swap(self, pool: WorldPool) -> None:
        """Take future episodes from another pool; those being played continue."""
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
        self._dollars = self._reward.dollars(pool.seeds)
        for name in ("shares", "spare"):
            old, wanted = getattr(self.state, name), getattr(pool.state, name).shape[1]
            if wanted > old.shape[1]:
                new = np.zeros((self.num_envs, wanted), old.dtype)
                new[:, : old.shape[1]] = old
                self.state = self.state._replace(**{name: new})
        self._bind_drafts()

    def keep(self, which: Ints) -> tuple[Arrays, dict[str, Any]]:
        """Continue with these clusters only, from where they are; drop the others."""

        def some(parts: Any) -> Any:
            return type(parts)._make(x[which] if isinstance(x, np.ndarray) else x for x in parts)

        state = self.state
        net, breakdowns = state.net, state.breakdowns
        if breakdowns is not None:
            breakdowns = some(breakdowns)
        if net is not None:
            net = some(net._replace(traffic=None))._replace(traffic=some(net.traffic))
        arrays = [part[which] for part in state[:-3]]
        self.state = type(state)._make([*arrays, state.speed, breakdowns, net])
        self.view, self._words = view_of_state(self.state, self._laws), words_of(self.state)
        self.book, self.score, self.plan, self.ends = map(
            some, (self.book, self.score, self.plan, self.ends)
        )
        self.book = self.book._replace(
            own=rows_of(self.book.own, which), dollar_s=self.score.dollar_s
        )
        used = None if self.book.drafts is None else self.book.drafts.used[which]
        self._bind_drafts(used)
        self.num_envs = len(which)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._obs = {name: array[which] for name, array in self._obs.items()}
        self._judged = {name: array[which] for name, array in self._judged.items()}
        for name in ("_mask", "_actions", "_ended", "_done", "_every", "_home", "_potential",
                     "_potential_after"):  # fmt: skip
            setattr(self, name, getattr(self, name)[which])
        return self._obs, self._info()

    def snapshot(self, b: int) -> Snapshot:
        """Cluster b at the beginning of its round, as its world shows it.

        What a certain policy is shown may differ: see `rota.envs.episode_policy`.
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
        pool, entry = self._home[b], int(self.plan.entry[b])
        return pool.worlds[entry], int(pool.seeds[entry])

    def potential(self) -> Floats:
        """(B,) The progress that the rounds, as written so far, would make within one slot.

        It is summed over jobs, as is the reward `progress`. It uses true speeds, so it is for
        learning only. Every call returns the same array.
        """
        if not self._potentials:  # else every step has computed them
            self._potential_of(self._every, self._potential)
        return self._potential

    def _potential_of(self, which: Bools, out: Floats) -> None:
        self._run(potential, self.state, self.view, self.book, self.score.unit_s, which, out)

    def _final(self) -> dict[str, Any]:
        """The last state of the clusters whose episode ends, observed as if a round began."""
        obs = new_arrays(self.lens.observation_space, self.num_envs)
        self._open(self._done)
        self.lens.encode(self.view, self.book, obs)
        info: dict[str, Any] = {
            "final_obs": obs, "_final_obs": self._done.copy(),
            "final_rows": self.book.rows.copy(), "final_alive": self.alive(),
        }  # fmt: skip
        if self._judge is not None:
            info["final_judged"] = new_arrays(self._judge.critic_space, self.num_envs)
            self._judge.encode_critic(self.state, self.view, self.book, info["final_judged"])
        if self._potentials:
            potential = np.zeros(self.num_envs)
            self._potential_of(self._done, potential)
            info["final_potential"] = potential
        return info

    def alive(self) -> Bools:
        """(B, J) Which jobs wait or run."""
        here = np.arange(self.pool.jobs) < self.state.clock["arrived"]  # the rest is padding
        found: Bools = here & (self.state.jobs["status"] <= RUNNING)
        return found

    def _open(self, which: Bools) -> None:
        """Begin the rounds of the clusters flagged in `which`."""
        if self.lens.places:
            self._run(begin_drafts, self.state, which, self.book.drafts.used)
        self.lens.open(self.view, self.book, which)

    def _bind_drafts(self, used: Ints | None = None) -> None:
        """Let the book's drafts be those of the state, whose memory is another now."""
        if self.lens.places:
            drafts = drafts_of_state(self.state)
            drafts.used[:] = self.book.drafts.used if used is None else used
            self.book = self.book._replace(drafts=drafts)

    def _begin_flagged(self) -> None:
        self._home[self._done] = self.pool
        self._run(
            begin_episodes, self.state, self.view.live, self.view.now_s, self._words,
            self._source, self._done, self.score, self.plan,
        )  # fmt: skip
        self.score.dollar_s[self._done] = self._dollars[self.plan.entry[self._done]]

    def _look(self) -> Arrays:
        self.lens.encode(self.view, self.book, self._obs)
        if self._judge is not None:
            self._judge.encode_critic(self.state, self.view, self.book, self._judged)
        if self._masks:
            self.lens.mask(self.view, self.book, self._mask)
        return self._obs

    def _info(self) -> dict[str, Any]:
        info: dict[str, Any] = {
            "mask": self._mask, "rows": self.book.rows, "closed": self._ended,
            "gains": self.score.gains, "_episode": self._done,
        }  # fmt: skip
        if self._judge is not None:
            info["judged"] = self._judged
        return {**info, "potential_after": self._potential_after} if self._potentials else info

    def _episode(self) -> dict[str, Any]:
        """How the episodes went that ended in this step; the values of other clusters are old."""
        ends = self.ends
        return {
            "jct_s": ends.jct_s, "cost_s": ends.cost_s, "unfinished": ends.unfinished,
            "makespan_s": ends.makespan_s, "resizes": ends.resizes, "moves": ends.moves,
            "rounds": ends.rounds, "return": ends.total,
            "entry": ends.played, "jcts_s": ends.jcts_s,
        }  # fmt: skip
