"""MALO, a baseline of DAS: ant-lion optimiser with differential evolution, as a policy.

After Abualigah and Diabat, "A novel hybrid antlion optimization algorithm for multi-objective task
scheduling problems in cloud computing environments" (Cluster Computing, 2021). Their program is not
public: the encoding, the objective and all numbers here are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from rota.policies.published.key_search import SEARCH_SETTINGS, KeySearch
from rota.policies.published.malo_kernels import EXTRA_DRAWS, LIONS, Colony, hunt
from rota.policies.settings import PolicyEntry

if TYPE_CHECKING:
    from rota.core.types import Floats
    from rota.policies.published.key_decoding_kernels import Decoded, KeyedQueue


@dataclass(frozen=True)
class AntLions(KeySearch):
    """Start jobs as the best of `evals` schedules says; never stop or move one.

    The score is (1 − weight) × mean time until done + weight × mean fee, both relative to those of
    the jobs in order of arrival.
    """

    name: str = "malo"

    def best(
        self, queue: KeyedQueue, decoded: Decoded, first: Floats, rng: np.random.Generator
    ) -> Floats:
        """The best candidate that was tried."""
        draws = rng.random((self.evals, first.shape[1] + EXTRA_DRAWS))
        colony = new_colony(first)
        hunt(queue, decoded, colony, len(first), self.weight, draws)
        return colony.elite


def new_colony(first: Floats) -> Colony:
    """Memory for a search that begins with these candidates (K, D)."""
    lions = np.zeros((LIONS, first.shape[1]))
    lions[: len(first)] = first
    ant, elite = np.zeros((2, first.shape[1]))
    return Colony(lions, np.zeros(LIONS), ant, elite, np.zeros(2))


POLICIES: Final = {
    "malo": PolicyEntry(
        "Ant-lion search with differential evolution for order and nodes; time and fee.",
        "MALO: ant-lion + differential evolution, after DAS, KDD 2023", AntLions, SEARCH_SETTINGS),
}  # fmt: skip
