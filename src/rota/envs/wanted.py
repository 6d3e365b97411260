"""A teacher's decision, as lenses read it to find the actions that lead there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rota.core.layout import SHARE
from rota.core.types import Ints, Records  # noqa: TC001, kernels read the annotations

if TYPE_CHECKING:
    from rota.core.decision import Decision


class Wanted(NamedTuple):
    """What every job of a batch of clusters shall hold; row j is job j of the view."""

    workers: Ints  # (B, J)
    servers: Ints  # (B, J)
    at: Ints  # (B, J) job j's share is shares[b, at : at + length], by node
    length: Ints  # (B, J)
    shares: Records  # (B, S) SHARE

    @classmethod
    def counts(cls, workers: Ints, servers: Ints) -> Wanted:
        """Numbers of tasks (B, J) alone, for a lens that counts."""
        none = np.zeros_like(workers)
        return cls(workers, servers, none, none, np.zeros((len(workers), 0), SHARE))

    @classmethod
    def of(cls, decision: Decision) -> Wanted:
        """The decision for one cluster, as a batch of one."""
        rows = np.arange(len(decision.uid))
        return nothing(1, len(rows)).with_round(0, rows, decision)

    def with_round(self, b: int, rows: Ints, decision: Decision) -> Wanted:
        """Cluster b is to do this; `rows` are the rows of the decision's jobs. Arrays may grow."""
        shares, used = self.shares, int(decision.length.sum())
        if used > shares.shape[1]:
            shares = np.zeros((len(self.at), 2 * used), SHARE)
            shares[:, : self.shares.shape[1]] = self.shares
        for array in (self.workers, self.servers, self.at, self.length):
            array[b] = 0
        end = 0
        for k, row in enumerate(rows.tolist()):
            begin, many = int(decision.at[k]), int(decision.length[k])
            share = decision.shares[begin : begin + many]
            shares[b, end : end + many] = share
            self.at[b, row], self.length[b, row] = end, many
            self.workers[b, row] = share["workers"].sum()
            self.servers[b, row] = share["servers"].sum()
            end += many
        return self._replace(shares=shares)


def nothing(batch: int, jobs: int) -> Wanted:
    """No job shall hold anything."""
    workers, servers, at, length = np.zeros((4, batch, jobs), np.int64)
    return Wanted(workers, servers, at, length, np.zeros((batch, 0), SHARE))
