"""What goes wrong: nodes that go down and come back, jobs that crash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from rota.errors import ConfigError
from rota.sim.state import FAULT

if TYPE_CHECKING:
    from rota.core.types import Floats, Records


MOST_FAULTS: Final = 1e7
"""All failures of a run are drawn beforehand."""


@dataclass(frozen=True, kw_only=True)
class Faults:
    """How often nodes and jobs fail; the defaults never do."""

    node_mtbf_s: float = np.inf
    """Mean time from a node's return (or the start) to its next failure; exponential."""
    node_repair_s: float = 4 * 3600.0
    """Mean time until a failed node is back; exponential."""
    job_mtbf_s: float = np.inf
    """Mean run time of a job between failures of its own; exponential."""
    retries: int = 3
    """How often a job that failed by itself is tried again before it gives up."""

    def __post_init__(self) -> None:
        for name in ("node_mtbf_s", "node_repair_s", "job_mtbf_s"):
            value = getattr(self, name)
            if not value > 0:
                raise ConfigError(f"{name}={value} must be above 0.")
        if self.retries < 0:
            raise ConfigError(f"retries={self.retries} must be 0 or more.")

    @property
    def never(self) -> bool:
        """Whether nothing ever goes wrong."""
        return not (np.isfinite(self.node_mtbf_s) or np.isfinite(self.job_mtbf_s))

    def of_nodes(
        self, nodes: int, begin_s: float, horizon_s: float, rng: np.random.Generator
    ) -> Records:
        """All failures and repairs (F,) of that many nodes up to `horizon_s`, by time."""
        if not np.isfinite(self.node_mtbf_s):
            return np.zeros(0, FAULT)
        expected = nodes * (horizon_s - begin_s) / (self.node_mtbf_s + self.node_repair_s)
        if not expected < MOST_FAULTS:
            raise ConfigError(
                f"node_mtbf_s={self.node_mtbf_s:g} means about {expected:.2g} failures of "
                f"{nodes} nodes in the {horizon_s - begin_s:g} s that the trace may take, more "
                f"than {MOST_FAULTS:g}; let nodes last longer."
            )
        rows: list[tuple[float, int, bool]] = []
        for node in range(nodes):
            now_s = begin_s
            while True:
                now_s += rng.exponential(self.node_mtbf_s)
                if now_s > horizon_s:
                    break
                rows.append((now_s, node, False))
                now_s += rng.exponential(self.node_repair_s)
                rows.append((now_s, node, True))
        return np.array(sorted(rows), FAULT)

    def of_jobs(self, jobs: int, rng: np.random.Generator) -> Floats:
        """Run time up to each failure (J, retries + 1) of that many jobs; (J, 0) if never."""
        if not np.isfinite(self.job_mtbf_s):
            return np.zeros((jobs, 0))
        return rng.exponential(self.job_mtbf_s, (jobs, self.retries + 1))
