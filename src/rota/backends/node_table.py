"""The nodes of a cluster that others run; they may come, go and change size."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import numpy as np

from rota.core.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.backends.driver import NodeSight
    from rota.core.plan import Share


class NodeTable:
    """Nodes by name and number; a number once given stays, whether or not the node does."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self.number = {name: k for k, name in enumerate(names)}
        self.cluster: Cluster | None = None
        self.up = np.zeros(0, np.bool_)
        self._seen: dict[str, NodeSight] = {}

    def see(self, nodes: Sequence[NodeSight]) -> tuple[list[str], bool]:
        """Take in all nodes; the names of those never seen before, and whether anything differs."""
        new = [node.name for node in nodes if node.name not in self.number]
        for name in new:
            self.number[name] = len(self.names)
            self.names.append(name)
        found = {node.name: node for node in nodes}
        if found == self._seen and self.cluster is not None:
            return new, False
        # One that is gone keeps what it had, so that what was on it still makes sense.
        self._seen, before = found, self._seen
        every = [found.get(name) or before.get(name) for name in self.names]
        gpus = [0 if one is None else one.gpus for one in every]
        types = sorted({one.gpu_type for one in every if one is not None and one.gpu_type})
        self.cluster = Cluster(
            gpus=np.array(gpus, np.int64),
            names=tuple(self.names),
            gpu_types=tuple(types) or ("gpu",),
            type=np.array(
                [types.index(one.gpu_type) if one and one.gpu_type else 0 for one in every]
            ),
            rack=np.array([0 if one is None else one.rack for one in every]),
            cpus=np.array([inf if one is None else one.cpus for one in every]),
            memory_gb=np.array([inf if one is None else one.memory_gb for one in every]),
        )
        self.up = np.array([name in found and found[name].up for name in self.names])
        return new, True

    def share(self, place: Sequence[tuple[str, int, int]]) -> Share:
        """A place by numbers; nodes that nobody has told of are left out."""
        found = [(self.number[name], w, s) for name, w, s in place if name in self.number]
        return tuple(sorted(found))

    def up_gpus(self) -> dict[int, int]:
        """GPUs of the nodes on which jobs can be started, by number."""
        assert self.cluster is not None
        return {k: int(g) for k, g in enumerate(self.cluster.gpus) if self.up[k]}
