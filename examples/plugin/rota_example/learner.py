"""A learner: PPO with settings of its own, in a table `[slow_ppo]` of a recipe."""

from __future__ import annotations

from dataclasses import dataclass

from rota.learn.learners import Learner
from rota.learn.ppo import PPO, PPOConfig


@dataclass(frozen=True, kw_only=True)
class SlowConfig(PPOConfig):
    """PPO that takes smaller steps."""

    learning_rate: float = 1e-4


LEARNER = Learner("slow-ppo", "PPO that takes smaller steps.", "slow_ppo", SlowConfig, PPO)
