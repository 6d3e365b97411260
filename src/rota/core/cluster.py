"""The machines: flat columns, one entry per node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rota.core.layout import NODE
from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core.types import Floats, Ints, Records


@dataclass(frozen=True)
class Cluster:
    """What a cluster consists of; it says nothing about jobs."""

    gpus: Ints  # (N,)
    names: tuple[str, ...] = ()
    """One per node; `node-0`, `node-1`, … if left out."""
    gpu_types: tuple[str, ...] = ("gpu",)
    type: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # (N,) into gpu_types
    rack: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # (N,)
    cpus: Floats = field(default_factory=lambda: np.zeros(0))  # (N,) inf: not counted
    memory_gb: Floats = field(default_factory=lambda: np.zeros(0))  # (N,) inf: not counted
    link_gbps: Floats = field(default_factory=lambda: np.zeros(0))  # (N,) NIC bandwidth
    price_per_gpu_h: Floats = field(default_factory=lambda: np.zeros(0))  # (N,)

    def __post_init__(self) -> None:
        n = len(self.gpus)
        if n == 0:
            raise ConfigError("A cluster needs at least one node; got none.")
        defaults = {"type": 0, "rack": 0, "cpus": np.inf, "memory_gb": np.inf,
                    "link_gbps": 100.0, "price_per_gpu_h": 0.0}  # fmt: skip
        for name in ("gpus", *defaults):
            given = getattr(self, name)
            dtype = np.int64 if name in ("gpus", "type", "rack") else np.float64
            # A copy, so that freezing it does not freeze an array of the caller's.
            column = np.array(given, dtype) if len(given) else np.full(n, defaults[name], dtype)
            if len(column) != n:
                raise ConfigError(f"Cluster.{name} has {len(column)} entries for {n} nodes.")
            column.flags.writeable = False
            object.__setattr__(self, name, column)
        if not self.names:
            object.__setattr__(self, "names", tuple(f"node-{i}" for i in range(n)))
        self._check()

    def _check(self) -> None:
        if len(self.names) != len(self.gpus) or len(set(self.names)) != len(self.names):
            raise ConfigError("Cluster.names needs one distinct name per node.")
        for name in ("gpus", "cpus", "memory_gb", "link_gbps", "price_per_gpu_h"):
            column = np.asarray(getattr(self, name), np.float64)
            bad = np.flatnonzero(~(column >= 0))
            if bad.size:
                node = self.names[int(bad[0])]
                raise ConfigError(
                    f"Node {node!r} has {name}={column[bad[0]]}; it must be 0 or more."
                )
        if int(self.gpus.max()) > MAX_GPUS_PER_NODE:
            raise ConfigError(
                f"Node {self.names[int(self.gpus.argmax())]!r} has {self.gpus.max()} GPUs; "
                f"at most {MAX_GPUS_PER_NODE} are supported."
            )
        if (self.rack < 0).any():
            node = self.names[int((self.rack < 0).argmax())]
            raise ConfigError(f"Node {node!r} is in rack {self.rack.min()}; racks count from 0.")
        if int(self.rack.max()) >= MAX_RACKS:
            raise ConfigError(
                f"Node {self.names[int(self.rack.argmax())]!r} is in rack {self.rack.max()}; "
                f"number racks below {MAX_RACKS:,}."
            )
        if not ((self.type >= 0) & (self.type < len(self.gpu_types))).all():
            raise ConfigError(f"Cluster.type must index gpu_types {self.gpu_types}.")

    @classmethod
    def uniform(
        cls, nodes: int, gpus: int = 8, *, gpu_type: str = "gpu", per_rack: int = 16,
        cpus: float = np.inf, memory_gb: float = np.inf,
    ) -> Cluster:  # fmt: skip
        """`nodes` equal nodes, `per_rack` of them in a rack."""
        if nodes < 1 or gpus < 1 or per_rack < 1:
            raise ConfigError(
                "A cluster needs nodes, gpus and per_rack of at least 1; "
                f"got {nodes}, {gpus}, {per_rack}."
            )
        return cls(
            gpus=np.full(nodes, gpus, np.int64),
            gpu_types=(gpu_type,),
            rack=np.arange(nodes, dtype=np.int64) // per_rack,
            cpus=np.full(nodes, cpus),
            memory_gb=np.full(nodes, memory_gb),
        )

    def __len__(self) -> int:
        return len(self.gpus)

    @property
    def total_gpus(self) -> int:
        """GPUs of all nodes together."""
        return int(self.gpus.sum())

    def type_code(self, gpu_type: str) -> int:
        """The index of `gpu_type`, or −2, which no node matches, if there is none."""
        return self.gpu_types.index(gpu_type) if gpu_type in self.gpu_types else -2

    def empty(self) -> Records:
        """Node records (N,) with everything free and up."""
        nodes = np.zeros(len(self), NODE)
        nodes["gpus"] = nodes["free"] = self.gpus
        nodes["type"], nodes["rack"], nodes["up"] = self.type, self.rack, True
        nodes["cpus"] = nodes["free_cpus"] = self.cpus
        nodes["memory_gb"] = nodes["free_memory_gb"] = self.memory_gb
        nodes["price_per_gpu_h"] = self.price_per_gpu_h
        return nodes

    def describe(self) -> str:
        """A few words for a headline, such as `16 nodes × 8 GPUs`."""
        counts: Sequence[int] = np.unique(self.gpus).tolist()
        each = str(counts[0]) if len(counts) == 1 else f"{counts[0]}–{counts[-1]}"
        return f"{len(self)} node{'s' * (len(self) != 1)} × {each} GPU{'s' * (each != '1')}"


MAX_RACKS = 1_000_000
"""What racks have is kept in arrays by their number."""
MAX_GPUS_PER_NODE = 65_536
"""One node may stand for a whole pool; the index of free nodes has a row per number of GPUs."""
