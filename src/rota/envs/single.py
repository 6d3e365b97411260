"""One cluster as an ordinary gymnasium environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from rota.envs.vector import BatchEnv

if TYPE_CHECKING:
    from rota.core.types import Bools
    from rota.envs.lens import Arrays, Lens
    from rota.envs.rewards import Reward
    from rota.envs.world_pool import WorldPool


class SchedEnv(gymnasium.Env[Any, Any]):
    """A batch of one without automatic reset, for learners of other libraries.

    Each `reset` draws a world from the pool; `options={"entry": k}` takes the k-th. Observations
    are copies, so they may be kept. The mask of allowed actions is in `info["mask"]`;
    `action_masks()` returns it flat, as sb3-contrib's MaskablePPO expects.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        pool: WorldPool,
        lens: Lens,
        reward: Reward | str = "jobs",
        *,
        max_rounds: int = 100_000,
    ) -> None:
        self.batch = BatchEnv(
            pool, lens, reward, 1, entries=np.zeros((1, 1), np.int64), max_rounds=max_rounds,
            autoreset=False,
        )  # fmt: skip
        self.observation_space, self.action_space = lens.observation_space, lens.action_space
        self._mask: Bools = np.zeros(lens.mask_shape, np.bool_)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Arrays, dict[str, Any]]:
        """Begin an episode in a world drawn from the pool."""
        super().reset(seed=seed)
        entry = (options or {}).get("entry")
        if entry is None:
            entry = self.np_random.integers(len(self.batch.pool))
        obs, info = self.batch.begin(np.array([[entry]]))
        return self._one(obs), self._info(info)

    def step(self, action: Any) -> tuple[Arrays, float, bool, bool, dict[str, Any]]:
        """One edit; an action that is not allowed ends the round or does nothing."""
        obs, reward, terminated, truncated, info = self.batch.step(np.asarray(action)[None])
        return (
            self._one(obs), float(reward[0]), bool(terminated[0]), bool(truncated[0]),
            self._info(info),
        )  # fmt: skip

    def action_masks(self) -> Bools:
        """The flat mask of the actions that are allowed now."""
        return self._mask.ravel()

    def _one(self, obs: Arrays) -> Arrays:
        return {name: part[0].copy() for name, part in obs.items()}

    def _info(self, info: dict[str, Any]) -> dict[str, Any]:
        self._mask = info["mask"][0].copy()
        one: dict[str, Any] = {
            "mask": self._mask, "rows": info["rows"][0].copy(), "closed": bool(info["closed"][0]),
            "gains": info["gains"][0].copy(),
        }  # fmt: skip
        if "episode" in info:
            one["outcome"] = {name: part[0].copy() for name, part in info["episode"].items()}
        return one
