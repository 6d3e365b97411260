"""Hand-made moments for policies of elastic jobs: curves, jobs, what a decision gives."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st

from rota.core import Cluster, Job, Snapshot
from rota.core.jobs import JobTable
from rota.core.speed import Curves

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core import Decision


def curves_of(*tables: Sequence[Sequence[float]], by_nodes: bool = False) -> Curves:
    """Curves from tables of speed by servers (or nodes) and workers, both counted from 1."""
    high, wide = (max(np.shape(table)[axis] for table in tables) for axis in (0, 1))
    speed = np.zeros((len(tables), 1, high + 1, wide + 1))
    for curve, table in enumerate(tables):
        rows, columns = np.shape(table)
        speed[curve, 0, 1 : rows + 1, 1 : columns + 1] = table
    names = tuple(f"model-{k}" for k in range(len(tables)))
    return Curves(names, ("gpu",), speed, by_nodes, np.full((len(tables), 2), max(high, wide)))


def along_workers(*speeds: Sequence[float]) -> Curves:
    """Curves of jobs whose speed depends on workers alone (speed on one node as on many)."""
    return curves_of(*([speed] for speed in speeds), by_nodes=True)


def worker_job(curve: int, most: int, left_s: float = 100.0, **more: Any) -> Job:
    """A job of 1 to `most` workers with a GPU each."""
    return Job(workers=1, max_workers=most, curve=curve, estimate_s=left_s, **more)


def ps_job(curve: int, most: int, left_s: float = 100.0, **more: Any) -> Job:
    """A job of DL2's kind: 2 CPUs per task, a GPU per worker, up to `most` of each."""
    return Job(**{
        "workers": 1, "max_workers": most, "servers": 1, "max_servers": most,
        "cpus_per_worker": 2.0, "cpus_per_server": 2.0, "curve": curve, "estimate_s": left_s,
        **more,
    })  # fmt: skip


def dl2_nodes(count: int) -> Cluster:
    """Nodes that hold four tasks of 2 CPUs, two of them with a GPU."""
    return Cluster.uniform(count, 2, cpus=8)


def sizes(decision: Decision) -> list[tuple[int, int]]:
    """(servers, workers) of every job."""
    return [
        (sum(s for _, _, s in share), sum(w for _, w, _ in share))
        for share in map(decision.share, range(len(decision.uid)))
    ]


@st.composite
def moments(draw: st.DrawFn) -> Snapshot:
    """Jobs of DL2's kind and others, with any curves, on a few nodes; some of them run."""
    high = draw(st.integers(1, 4))
    speed = st.lists(
        st.lists(st.integers(0, 20), min_size=high, max_size=high), min_size=high, max_size=high
    )
    count = draw(st.integers(1, 3))
    curves = curves_of(*(draw(speed) for _ in range(count)))
    cluster = dl2_nodes(draw(st.integers(1, 4)))
    jobs = []
    for _ in range(draw(st.integers(1, 6))):
        left_s = draw(st.sampled_from([np.nan, np.inf, 1e-3, 10.0, 500.0, 1e6]))
        gpus = draw(st.sampled_from([0, 1, 1, 2]))
        most = draw(st.integers(1, 5))
        jobs.append(ps_job(draw(st.integers(-1, count - 1)), most, left_s, gpus_per_worker=gpus))
    return Snapshot.of(cluster, jobs, time_s=0.0, curves=curves)


def with_left(snapshot: Snapshot, left_s: Sequence[float]) -> Snapshot:
    """The same moment with this much work left."""
    rows = snapshot.jobs.rows.copy()
    rows["remaining_s"] = left_s
    return replace(snapshot, jobs=JobTable(rows))


def played(snapshot: Snapshot, decision: Decision, left_s: Sequence[float]) -> Snapshot:
    """The moment after a decision was carried out, with this much work left."""
    rows, nodes = snapshot.jobs.rows.copy(), snapshot.cluster.empty()
    entries: list[tuple[int, int, int]] = []
    for job, row in enumerate(rows):
        share = decision.share(job)
        row["status"], row["share_at"], row["share_len"] = bool(share), len(entries), len(share)
        row["held_workers"] = sum(w for _, w, _ in share)
        row["held_servers"] = sum(s for _, _, s in share)
        row["since_s"] = snapshot.time_s
        row["remaining_s"] = left_s[job]
        entries += share
        for node, w, s in share:
            nodes["free"][node] -= w * row["gpus_per_worker"]
            nodes["free_cpus"][node] -= w * row["cpus_per_worker"] + s * row["cpus_per_server"]
    return Snapshot(
        snapshot.time_s + 1, snapshot.cluster, JobTable(rows), nodes,
        np.array(entries, snapshot.shares.dtype), snapshot.curves,
    )  # fmt: skip
