"""MOSA, a baseline of DAS: simulated annealing for time and fee at once, as a policy.

DAS does not say which of the methods of this name it compares with; this is the common core of
them, with an archive of all schedules that no other one beats in both time and fee.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from rota.policies.published.key_search import SEARCH_SETTINGS, KeySearch
from rota.policies.published.mosa_kernels import MOST_KEPT_POINTS, MOVE_DRAWS, Annealing, anneal
from rota.policies.settings import PolicyEntry

if TYPE_CHECKING:
    from rota.core.types import Floats
    from rota.policies.published.key_decoding_kernels import Decoded, KeyedQueue


@dataclass(frozen=True)
class ArchiveAnnealing(KeySearch):
    """Start jobs as one of the archive's schedules says; never stop or move one.

    Time and fee count from the least in the archive, 0, to the most, 1. So a weight of 0.5 takes
    the knee: the point farthest from the line between both ends.
    """

    name: str = "mosa"

    def best(
        self, queue: KeyedQueue, decoded: Decoded, first: Floats, rng: np.random.Generator
    ) -> Floats:
        """The candidate of the archive that the weight picks."""
        memory = new_archive(first.shape[1])
        anneal(queue, decoded, memory, first, rng.random((self.evals, MOVE_DRAWS)))
        count = int(memory.filled[0])
        found: Floats = memory.kept[picked(memory.point[:count], self.weight)]
        return found


def new_archive(numbers: int) -> Annealing:
    """Memory for candidates of that many numbers."""
    now, trial = np.zeros((2, numbers))
    kept, point = np.zeros((MOST_KEPT_POINTS, numbers)), np.zeros((MOST_KEPT_POINTS, 2))
    return Annealing(now, trial, kept, point, np.zeros(1, np.int64))


def picked(point: Floats, weight: float) -> int:
    """Which point of (K, 2), time and fee, has the least weighted sum; the fastest of equals."""
    least, most = point.min(axis=0), point.max(axis=0)
    part = (point - least) / np.maximum(most - least, 1e-300)
    score = (1.0 - weight) * part[:, 0] + weight * part[:, 1]
    return int(np.lexsort((point[:, 0], score))[0])


POLICIES: Final = {
    "mosa": PolicyEntry(
        "Simulated annealing with an archive for order and nodes; time and fee.",
        "MOSA: multi-objective simulated annealing, after DAS, KDD 2023", ArchiveAnnealing,
        SEARCH_SETTINGS),
}  # fmt: skip
