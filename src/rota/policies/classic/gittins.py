"""The Gittins index of attained service, from a history of how much service jobs needed.

Serving the job with the highest index minimises the mean completion time on one server when
only the distribution of service times is known (Gittins, 1979; used for GPU clusters by
Tiresias, NSDI 2019).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rota.errors import ConfigError

if TYPE_CHECKING:
    from rota.core.types import Floats


def gittins_table(needed: Floats, classes: int = 64) -> tuple[Floats, Floats]:
    """Limits of attained service (K,) and the index in each class between them (K + 1,).

    `needed` are past jobs' total service. The index of a job that has had a is the largest
    probability per unit of service of finishing soon:
    max over x > a of P(a < S ≤ x) / E[min(S, x) − a; S > a].
    Limits are evenly spaced in the logarithm of service, from the least to the most needed.
    """
    service = np.sort(np.asarray(needed, np.float64))
    if not service.size or not service[0] > 0:
        raise ConfigError("A Gittins index needs a history of jobs with service times above 0.")
    limits = np.unique(np.geomspace(service[0], service[-1], classes))
    limits = limits[limits < service[-1]]  # no job has had more than was ever needed
    sums = np.concatenate(([0.0], service.cumsum()))
    index = np.array([_index(service, sums, a) for a in np.concatenate(([0.0], limits))])
    return limits, index


def _index(service: Floats, sums: Floats, a: float) -> float:
    n, first = len(service), int(np.searchsorted(service, a, side="right"))
    ends = np.arange(first, n)
    finished = ends - first + 1
    spent = sums[ends + 1] - sums[first] - a * finished + (n - 1 - ends) * (service[ends] - a)
    return float((finished / spent).max())
