"""A policy's first rounds, played before any job waits for them.

What a policy imports, loads and compiles when it is first asked may take seconds, and longer where
nothing is compiled yet. A daemon has that behind it before it takes a job.
"""

from __future__ import annotations

from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Final

from rota.core.jobs import Job, JobTable
from rota.core.snapshot import Snapshot
from rota.perf.estimate import Estimator
from rota.run.guard import Guard, Guarded

if TYPE_CHECKING:
    from rota.core.cluster import Cluster
    from rota.core.seams import Policy

_ROUND_S: Final = 10.0
_COMPILING_S: Final = 300.0
"""For all rounds of a policy that compiles; one kernel takes seconds, a minute at most."""


def rehearse(policy: Policy, cluster: Cluster, deadline_s: float) -> None:
    """Have a policy decide about made-up jobs; make a new one for real jobs afterwards.

    There are none, they wait, one runs, and its speed has been seen. It ends with the first round
    that fails. All rounds together take no longer than the deadline of one real round, except
    those of a policy that compiles.
    """
    estimator = Estimator(by_nodes=True)
    ends_s = monotonic() + (max(deadline_s, _COMPILING_S) if _compiles(policy) else deadline_s)
    for number in range(1, 5):
        snapshot = estimator.see(_scene(cluster, number))
        left_s = ends_s - monotonic()
        # What is wrong with it will be told when it matters.
        if left_s <= 0 or Guarded(policy, Guard(deadline_s=left_s)).rule(snapshot, number).trouble:
            return


def _compiles(policy: Policy) -> bool:
    """Whether a policy's first rounds may wait for the compiler: it says so, or it is rota's."""
    return bool(getattr(policy, "compiles", type(policy).__module__.startswith("rota.")))


def _scene(cluster: Cluster, number: int) -> Snapshot:
    jobs = [
        Job(workers=1, model=0, estimate_s=600.0, restart_s=1.0, resize_s=0.1, max_workers=2),
        Job(workers=1, model=1, estimate_s=600.0, max_workers=2),
        Job(workers=1, submit_s=1.0),
    ]
    begun_s, now_s = 3 * _ROUND_S, number * _ROUND_S
    held = {0: [(int(cluster.gpus.argmax()), 1)]} if now_s >= begun_s else {}
    scene = Snapshot.of(cluster, jobs if number > 1 else [], held, time_s=now_s)
    rows = scene.jobs.rows.copy()
    for row in rows[: len(held)]:
        row["since_s"] = row["started_s"] = row["resume_s"] = begun_s
        row["progress_s"] = now_s - begun_s
        row["remaining_s"] = row["estimate_s"] - row["progress_s"]
    return replace(scene, jobs=JobTable(rows))
