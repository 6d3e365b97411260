"""Up to which sizes curves are estimated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from rota.core.snapshot import Snapshot
    from rota.core.types import Ints

MORE_WORKERS: Final = 1024
MORE_SERVERS: Final = 64
"""Curves end where a job has this many more than it asks for, whatever its limits say."""
MOST_POINTS: Final = 1 << 23
"""Of all curves together (8 bytes each); where they were more, curves end sooner, and jobs that are
larger than these have none."""


def reach(snapshot: Snapshot, before: tuple[int, int], *, by_nodes: bool) -> tuple[int, int]:
    """The shape (A, W) of curves for the jobs of a snapshot, if it was `before` until now.

    They reach to every size that the jobs can have, unless that makes too many points; and they
    are not made smaller for a few jobs less.
    """
    rows, nodes = snapshot.jobs.rows, len(snapshot.cluster)
    servers = np.minimum(rows["max_servers"], rows["servers"] + MORE_SERVERS)
    most_a = max(1, int(np.maximum(servers, rows["held_servers"]).max(initial=1)))
    more = int(servers.max(initial=0))

    def across(W: int) -> int:
        """By nodes, servers may sit on nodes of their own."""
        return 1 + (min(nodes, W - 1 + more) if by_nodes else most_a)

    need = 1 + int(_most_workers(snapshot).max(initial=1))
    A, W = max(across(need), before[0]), max(need, before[1])
    points = MOST_POINTS // max(1, len(rows) * len(snapshot.cluster.gpu_types))
    if points < A * W:
        A, W = across(need), need
        while points < A * W and W > 2:
            W -= max(1, W // 8)
            A = across(W)
    return A, W


def _most_workers(snapshot: Snapshot) -> Ints:
    """The most workers each job (J,) can have: its limit, or less where there is no room."""
    rows, cluster = snapshot.jobs.rows, snapshot.cluster
    room = rows["workers"] + float(MORE_WORKERS)
    for name, has in (("gpus", cluster.gpus), ("cpus", cluster.cpus)):
        each = rows[f"{name}_per_worker"]
        with np.errstate(divide="ignore", invalid="ignore"):
            np.minimum(room, np.where(each > 0, has.sum() / each + 1e-9, np.inf), out=room)
    known = np.maximum(rows["workers"], rows["held_workers"])
    most: Ints = np.maximum(np.minimum(rows["max_workers"], room), known).astype(np.int64)
    return most
