"""Gymnasium environments: lenses, one cluster, many clusters at once, and policies by a lens."""

from rota.envs.book import Book
from rota.envs.lens import Lens
from rota.envs.lens_policy import Actor, LensPolicy
from rota.envs.perfect_copy import PerfectCopy
from rota.envs.rewards import Reward
from rota.envs.single import SchedEnv
from rota.envs.vector import BatchEnv
from rota.envs.view import View
from rota.envs.world_pool import WorldPool

__all__ = [
    "Actor", "BatchEnv", "Book", "Lens", "LensPolicy", "PerfectCopy", "Reward", "SchedEnv", "View",
    "WorldPool",
]  # fmt: skip
