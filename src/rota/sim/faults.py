"""What goes wrong: nodes that go down and come back, jobs that crash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from rota.errors import ConfigError
from rota.sim.state import FAULT

if TYPE_CHECKING:
    from rota.core.types import Floats, Ints, Records


MOST_FAULTS: Final = 1e6
"""All failures of a run are drawn beforehand; so many take 0.2 GB."""
_DRAWS: Final = 1 << 19
"""Failures that are drawn at a time: what bounds the memory."""


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
                f"than {MOST_FAULTS:g}; raise it, so that nodes last longer."
            )
        each = int(1.1 * expected / max(1, nodes)) + 4  # enough for most nodes at the first draw
        count = max(1, _DRAWS // each)
        parts = [
            self._of_some(
                np.arange(first, min(first + count, nodes)), begin_s, horizon_s, each, rng
            )
            for first in range(0, nodes, count)
        ]
        rows = np.concatenate([*parts, np.zeros(0, FAULT)])
        return rows[rows["time_s"].argsort(kind="stable")]

    def _of_some(
        self, node: Ints, begin_s: float, horizon_s: float, each: int, rng: np.random.Generator
    ) -> Records:
        """Failures and repairs of these nodes (n,), in blocks of `each` failures per node."""
        found = [np.zeros(0, FAULT)]
        now_s = np.full(len(node), begin_s)
        most = _DRAWS // max(1, len(node))
        while len(node):
            lasts_s = rng.exponential(self.node_mtbf_s, (len(node), min(each, most) or 1))
            repair_s = rng.exponential(self.node_repair_s, lasts_s.shape)
            spans_s = np.stack([lasts_s, repair_s], 2).reshape(len(node), -1)
            spans_s[:, 0] += now_s
            down_s, up_s = np.moveaxis(spans_s.cumsum(1).reshape(*lasts_s.shape, 2), 2, 0)
            due = down_s <= horizon_s
            rows = np.zeros((2, due.sum()), FAULT)
            rows["time_s"], rows["up"] = (down_s[due], up_s[due]), [[False], [True]]
            rows["node"] = np.broadcast_to(node[:, None], due.shape)[due]
            found.append(rows.ravel())
            more = due[:, -1]  # not at the horizon yet
            node, now_s = node[more], up_s[more, -1]
        return np.concatenate(found)

    def of_jobs(self, jobs: int, rng: np.random.Generator) -> Floats:
        """Run time up to each failure (J, retries + 1) of that many jobs; (J, 0) if never."""
        if not np.isfinite(self.job_mtbf_s):
            return np.zeros((jobs, 0))
        return rng.exponential(self.job_mtbf_s, (jobs, self.retries + 1))
