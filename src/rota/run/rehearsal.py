"""A policy's first rounds, played before any job waits for them.

What a policy imports, loads and compiles when it is first asked may take seconds, and longer where
nothing is compiled yet. A daemon has that behind it before it takes a job.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rota.core.jobs import Job, JobTable
from rota.core.snapshot import Snapshot
from rota.perf.estimate import Estimator
from rota.run.guard import Guard, Guarded

if TYPE_CHECKING:
    from rota.core.cluster import Cluster
    from rota.core.seams import Policy

_ROUND_S: Final = 10.0
_MOST_S: Final = 600.0
"""To compile a kernel takes seconds, a minute on a slow machine."""


def rehearse(policy: Policy, cluster: Cluster) -> None:
    """Have a policy decide about made-up jobs; make a new one for real jobs afterwards.

    There are none, they wait, one runs, and its speed has been seen.
    """
    estimator = Estimator(by_nodes=True)
    guarded = Guarded(policy, Guard(fallback=None, deadline_s=_MOST_S))
    for number in range(1, 5):
        # What is wrong with it will be told when it matters.
        guarded.rule(estimator.see(_scene(cluster, number)), number)


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
