"""The gymnasium face: lenses, one cluster, many clusters at once, and policies made of lenses."""

from rota.envs.book import Book
from rota.envs.copied import Copied
from rota.envs.deploy import Actor, LensPolicy
from rota.envs.lens import Lens
from rota.envs.pool import Pool
from rota.envs.rewards import Reward
from rota.envs.single import SchedEnv
from rota.envs.vector import BatchEnv
from rota.envs.view import View

__all__ = [
    "Actor", "BatchEnv", "Book", "Copied", "Lens", "LensPolicy", "Pool", "Reward", "SchedEnv",
    "View",
]  # fmt: skip
