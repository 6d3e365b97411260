"""Speed tables of published simulators, rebuilt from their measurements, defects included.

They read the measured tables that ship, or those of a data folder, and exist to repeat published
numbers; scenarios of our own use fits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from rota.core.speed import PAIRS, Contention, Curves
from rota.perf import profiles
from rota.perf.interpolate import near_points, through_points

if TYPE_CHECKING:
    from pathlib import Path

    from rota.core.types import Floats
    from rota.perf.profile_file import Profile

CLEAN_LIMIT: Final = 24
"""Servers and workers of the largest runs: beyond it the table was never measured."""
CLEAN_SMOOTHING: Final = 0.5
DEEPSHARE_FLOOR: Final = 0.35


def dl2_measured(data: Path | None = None, size: int = 16) -> Curves:
    """DL2's own speed function: radial interpolation through all rows, failed runs as speed 0."""
    table = profiles.dl2(data, keep_failed=True)
    grid = _grid(size)
    speed = []
    for model in profiles.DL2_MODELS:
        points, values = _points(table.some(model=model))
        surface = through_points(points, values, grid).reshape(size + 1, size + 1)
        surface[0, :] = surface[:, 0] = 0.0
        speed.append(np.maximum(surface, 0.0))
    return _ps_curves(table, speed)


def dl2_clean(data: Path | None = None, size: int = CLEAN_LIMIT) -> Curves:
    """DL2's measurements without failed runs, lightly smoothed, nothing beyond what was run."""
    table = profiles.dl2(data, drop_failed=True)
    grid = _grid(size)
    inside = (grid.min(axis=1) >= 1) & (grid.sum(axis=1) <= CLEAN_LIMIT)
    speed = []
    for model in profiles.DL2_MODELS:
        points, values = _points(table.some(model=model))
        surface = near_points(points, values, grid, smoothing=CLEAN_SMOOTHING)
        surface = np.where(inside, np.maximum(surface, 0.0), 0.0)
        speed.append(surface.reshape(size + 1, size + 1))
    return _ps_curves(table, speed)


def _grid(size: int) -> Floats:
    servers, workers = np.indices((size + 1, size + 1), np.float64)
    return np.stack([servers.ravel(), workers.ravel()], axis=1)


def _points(rows: Profile) -> tuple[Floats, Floats]:
    points = np.stack([rows["num_ps"], rows["num_workers"]], axis=1).astype(np.float64)
    return points, rows["sum_worker_speed"]


def _ps_curves(table: Profile, speed: list[Floats]) -> Curves:
    rows = [table.of(model=model) for model in profiles.DL2_MODELS]
    measured = np.array([[r["num_ps"].max(), r["num_workers"].max()] for r in rows], np.int64)
    return Curves(profiles.DL2_MODELS, ("gpu",), np.stack(speed)[:, None], False, measured)


def deepshare_measured(data: Path | None = None) -> tuple[Curves, Contention]:
    """DeepShare's isolated speeds and pairwise ratios, measured placements only.

    A placement that was not measured has speed 0: one node, three nodes, or two nodes per GPU.
    """
    alone = profiles.deepshare_isolated(data)
    models, sizes = profiles.DEEPSHARE_MODELS, profiles.DEEPSHARE_MEASURED
    speed = np.zeros((len(models), 1, 5, 9))
    kind = np.full((len(models) + 1, 5, 9), -1, np.int64)
    for c, model in enumerate(models):
        for k, (gpus, nodes) in enumerate(sizes):
            row = alone.of(model=model, num_gpus=gpus, num_nodes=nodes)
            if len(row) != 1:
                raise profiles.missing_row(alone.file, model, gpus, nodes, len(row))
            speed[c, 0, nodes, gpus] = row["samples_per_s"][0]
            kind[c, nodes, gpus] = c * len(sizes) + k
    measured = np.tile([4, 8], (len(models), 1))
    curves = Curves(models, ("gpu",), speed, by_nodes=True, measured=measured)
    none = np.zeros(len(models) * len(sizes))
    return curves, Contention(
        PAIRS, kind, profiles.deepshare_ratios(data), none, none, DEEPSHARE_FLOOR, none, none,
        np.zeros(0), np.zeros(0), np.inf,
    )  # fmt: skip


def deepshare_work(data: Path | None = None) -> dict[tuple[str, int], float]:
    """Samples in a whole job, by model and GPUs."""
    rows = profiles.deepshare_samples(data)
    return {
        (str(model), int(gpus)): float(samples)
        for model, gpus, samples in zip(
            rows["model"], rows["num_gpus"], rows["total_samples"], strict=True
        )
    }
