"""What a lens reads: the waiting and running jobs of a batch of clusters, simulated or real."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rota.core.types import Floats, Ints, Records

if TYPE_CHECKING:
    from rota.core.snapshot import Snapshot
    from rota.policies.contention.spread_kernels import PlacementTables
    from rota.sim.state import State


class View(NamedTuple):
    """A batch of clusters as a lens reads them; the same from the simulator and from a snapshot.

    The jobs' progress is not brought up to now: use `rota.ledger.work_kernels.remaining` and the
    functions beside it.
    """

    jobs: Records  # (B, J) JOB
    order: Ints  # (B, J) the first `live` are the waiting and running jobs, by submission
    live: Ints  # (B,)
    now_s: Floats  # (B,)
    nodes: Records  # (B, N) NODE
    laws: Any = None  # PlacementTables: speed and contention as policies are shown them


def view_of_state(state: State, laws: PlacementTables | None = None) -> View:
    """A view of the simulator's memory; code that lets time pass must update `live` and `now_s`."""
    clock = state.clock[:, 0]
    live, now_s = clock["live"].copy(), clock["now_s"].copy()
    return View(state.jobs, state.order, live, now_s, state.nodes, laws)


def view_of_snapshot(
    snapshot: Snapshot, laws: PlacementTables | None = None, room: int = 0
) -> View:
    """One real or simulated cluster, as a batch of one; with `room` for so many jobs or more."""
    jobs = len(snapshot.jobs)
    # Copies, because compiled code tells read-only arrays from others.
    rows = np.zeros((1, max(jobs, room)), snapshot.jobs.rows.dtype)
    rows[0, :jobs] = snapshot.jobs.rows
    order = np.arange(rows.size, dtype=np.int64)[None]
    nodes = snapshot.nodes.copy()[None]
    now_s = np.array([snapshot.time_s], np.float64)
    return View(rows, order, np.array([jobs]), now_s, nodes, laws)
