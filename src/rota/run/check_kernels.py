"""Checking decisions where there are thousands a second: `Decision.check`, compiled.

Independent of whoever wrote the decision: what its shares take is added up from nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rota.core.layout import JOB, NODE, SHARE, SLACK
from rota.jit import direct, kernel

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.core.decision import Decision
    from rota.core.snapshot import Snapshot
    from rota.core.types import Floats, Ints, Records


@kernel
def adds_up(
    rows: Records, nodes: Records, uid: Ints, at: Ints, length: Ints, shares: Records, left: Floats
) -> bool:
    """Whether a decision can surely be carried out; `left` (3, N) is scratch."""
    for n in range(nodes.size):
        left[0, n] = nodes[n]["gpus"]
        left[1, n] = nodes[n]["cpus"] + SLACK
        left[2, n] = nodes[n]["memory_gb"] + SLACK
    for j in range(rows.size):
        job, first, count = rows[j], at[j], length[j]
        if uid[j] != job["uid"]:
            return False
        if count == 0:
            continue
        if count < 0 or first < 0 or first > shares.size - count:
            return False
        workers, servers = 0, 0
        for k in range(first, first + count):
            n, w, s = shares[k]["node"], shares[k]["workers"], shares[k]["servers"]
            if n < 0 or n >= nodes.size or w < 0 or s < 0 or not nodes[n]["up"]:
                return False
            if job["gpu_type"] != -1 and job["gpu_type"] != nodes[n]["type"] and w > 0:
                return False
            workers, servers = workers + w, servers + s
            left[0, n] -= w * job["gpus_per_worker"]
            left[1, n] -= w * job["cpus_per_worker"] + s * job["cpus_per_server"]
            left[2, n] -= w * job["memory_gb_per_worker"] + s * job["memory_gb_per_server"]
            if left[0, n] < 0.0 or left[1, n] < 0.0 or left[2, n] < 0.0:
                return False
        if workers < max(1, job["min_workers"]) or workers > job["max_workers"]:
            return False
        if servers < job["min_servers"] or servers > job["max_servers"]:
            return False
    return True


class Check:
    """`Decision.check` for a loop of many rounds; what is doubtful is left to that."""

    def __init__(self) -> None:
        self._adds_up: Callable[..., bool] | None = None
        self._left = np.zeros((3, 0))

    def __call__(self, decision: Decision, snapshot: Snapshot) -> None:
        """Raise a DecisionError unless the cluster can carry the decision out."""
        if not self._is_sound(decision, snapshot):
            decision.check(snapshot)

    def _is_sound(self, decision: Decision, snapshot: Snapshot) -> bool:
        rows, nodes, size = snapshot.jobs.rows, snapshot.nodes, len(snapshot.jobs.rows)
        at, length, shares = decision.at, decision.length, decision.shares
        # Compiled code takes arrays for what it is told they are.
        if not (
            decision.tunes == {} == decision.reasons
            and is_plain(decision.uid, np.int64, size)
            and is_plain(at, np.int64, size) and at.flags.c_contiguous
            and is_plain(length, np.int64, size) and length.flags.c_contiguous
            and is_plain(shares, SHARE, len(shares)) and shares.flags.c_contiguous
        ):  # fmt: skip
            return False
        if self._left.shape[1] != len(nodes):
            self._left = np.zeros((3, len(nodes)))
        if self._adds_up is None:
            # Not by these arrays: a column of one record looks contiguous, and the next is not.
            two, ints = np.zeros(2, JOB), np.zeros(2, np.int64)
            self._adds_up = direct(
                adds_up, two, np.zeros(2, NODE), two["uid"], ints, ints, np.zeros(2, SHARE),
                self._left,
            )  # fmt: skip
        return self._adds_up(rows, nodes, decision.uid, at, length, shares, self._left)


def is_plain(array: object, kind: object, size: int) -> bool:
    """Whether this is an array of so many of a kind."""
    return type(array) is np.ndarray and array.dtype == kind and array.shape == (size,)
