"""The gymnasium face: lenses, one cluster, many clusters at once, and policies made of lenses."""

from rota.envs.book import Book
from rota.envs.lens import Lens
from rota.envs.pool import Pool
from rota.envs.rewards import Reward
from rota.envs.vector import BatchEnv
from rota.envs.view import View

__all__ = ["BatchEnv", "Book", "Lens", "Pool", "Reward", "View"]
