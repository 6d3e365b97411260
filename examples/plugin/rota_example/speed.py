"""A speed model: how fast each model trains, by the nodes that a job spans and its workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rota.core.speed import Curves

if TYPE_CHECKING:
    from rota.core import Cluster

SERIAL = {"ResNet-50": 0.02, "LM": 0.1}
"""The part of a step that more workers do not make shorter (Amdahl's law)."""


def curves(cluster: Cluster, most_workers: int) -> Curves:
    """Speeds up to `most_workers`; every node more that a job spans costs it 5 %."""
    nodes = min(len(cluster), most_workers)
    workers = np.arange(1, most_workers + 1)
    speed = np.zeros((len(SERIAL), 1, nodes + 1, most_workers + 1))
    for c, serial in enumerate(SERIAL.values()):
        for n in range(1, nodes + 1):
            speed[c, 0, n, 1:] = 0.95 ** (n - 1) / (serial + (1 - serial) / workers)
    measured = np.full((len(SERIAL), 2), (nodes, most_workers))
    # One GPU type stands for all that a cluster has.
    return Curves(tuple(SERIAL), cluster.gpu_types[:1], speed, by_nodes=True, measured=measured)
