"""How fast waiting jobs would run, as far as a snapshot tells, for the baselines of DAS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rota.perf.reference import reference_speeds
from rota.policies.gpu_types.type_pools import known_curves

if TYPE_CHECKING:
    from rota.core.snapshot import Snapshot
    from rota.core.types import Floats, Ints, Records

SLOWEST, FASTEST = 1e-6, 1e6
"""Paces beyond are not believed."""
LONGEST_S = 1e9
"""Nor are lengths."""
HOUR_S = 3600.0


def speeds(snapshot: Snapshot, jobs: Ints) -> Floats:
    """Speed of these jobs (J, T, A) on GPU type t over a nodes, the last also for more nodes.

    0 means that a job does not run there. Where nothing is known of a job, 1 everywhere: better a
    guess than a job that never starts. A is 2 at least.
    """
    curves, T = known_curves(snapshot), len(snapshot.cluster.gpu_types)
    curve = snapshot.jobs.curve[jobs]
    known = np.flatnonzero(curve >= 0)
    if curves is None or not len(known):
        return np.ones((len(jobs), T, 2))
    A, W = curves.speed.shape[2:]
    workers = np.minimum(snapshot.jobs.workers[jobs][known], W - 1)
    table = curves.speed[curve[known], :, :, workers]  # (K, T, A)
    if not curves.by_nodes:
        servers = np.minimum(snapshot.jobs.servers[jobs][known], A - 1)
        table = table[np.arange(len(known)), :, servers][:, :, None]
    speed = np.ones((len(jobs), T, max(2, A)))
    missing = speed.shape[2] - table.shape[2]
    found = np.pad(table, ((0, 0), (0, 0), (0, missing)), "edge")
    found[~(found[:, :, 1:] > 0.0).any(axis=(1, 2))] = 1.0
    speed[known] = found
    return speed


def paces(snapshot: Snapshot, jobs: Ints) -> Floats:
    """The same as pace: 1 is the best that the cluster can give a job (J, T, A)."""
    speed, curves = speeds(snapshot, jobs), known_curves(snapshot)
    unit = np.ones(len(jobs))
    known = np.flatnonzero(snapshot.jobs.curve[jobs] >= 0)
    if curves is not None and len(known):
        unit[known] = reference_speeds(snapshot.jobs.rows[jobs[known]], curves, snapshot.cluster)
    unit[~(unit > 0.0)] = 1.0
    with np.errstate(over="ignore"):
        pace = np.clip(speed / unit[:, None, None], SLOWEST, FASTEST)
    return np.where(speed > 0.0, pace, 0.0)


def kept_at_worst(snapshot: Snapshot, jobs: Ints) -> Floats:
    """The part of its best speed that each job has in its worst place (J,)."""
    speed = speeds(snapshot, jobs)[:, :, 1:]
    worst = np.where(speed > 0.0, speed, np.inf).min(axis=(1, 2))
    kept: Floats = worst / speed.max(axis=(1, 2))
    return kept


def most_per_node(pace: Floats, workers: Ints) -> Ints:
    """The most workers of each job on one node: all, unless it has a speed on more nodes only."""
    runs = (pace[:, :, 1:] > 0.0).any(axis=1)  # (J, A − 1)
    span = np.minimum(runs.argmax(axis=1) + 1, np.maximum(workers, 1))
    most: Ints = -(-workers // span)
    return most


def lengths_s(rows: Records) -> Floats:
    """Seconds that jobs still need at pace 1; an hour if that is unknown (J,)."""
    left_s = rows["remaining_s"]
    return np.clip(np.where(np.isnan(left_s), HOUR_S, left_s), 0.0, LONGEST_S)
