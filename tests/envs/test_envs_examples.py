"""Other people's learners take the environment as it is."""

from __future__ import annotations

import runpy
from typing import TYPE_CHECKING

import pytest

from rota.envs import SchedEnv, WorldPool
from rota.scenarios import load
from rota.systems.dl2.step_lens import StepByStep

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("sb3_contrib", reason="needs sb3-contrib: pip install 'rota[examples]'")


def test_maskable_ppo_learns_and_keeps_to_the_mask(pytestconfig: pytest.Config) -> None:
    path: Path = pytestconfig.rootpath / "examples" / "maskable_ppo.py"
    learner = runpy.run_path(str(path))["train"](300)
    assert learner.num_timesteps == 512  # whole rollouts of 256

    env = SchedEnv(WorldPool.draw(load("dl2-small"), [1000]), StepByStep())
    seen, _ = env.reset(seed=0)
    for _ in range(50):
        mask = env.action_masks()
        action, _ = learner.predict(seen, action_masks=mask, deterministic=True)
        assert mask[action]
        seen, *_ = env.step(action)
