"""Speed of large models on four GPU types under their best parallelism, after Arena.

Each model, size and batch was run on a handful of placements, too few for a curve of its own. So
samples/s = level of the job · rate · gpus^by_gpus · nodes^by_nodes, where the last three belong to
the GPU type and the family of models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core.speed import Curves
from rota.perf.profiles import ARENA_FAMILIES, ARENA_GPUS
from rota.perf.shipped import chosen, shipped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core.types import Floats
    from rota.perf.profile_file import Profile

_RIDGE: Final = 0.01
"""Pulls coefficients that few rows speak for towards 0, in logarithms."""


def arena_names(rows: Profile) -> list[str]:
    """A name for the model, size and batch of each row, (R,)."""
    columns = (rows[key] for key in ("model", "params", "global_batch_size"))
    return [f"{family}-{params}-b{batch}" for family, params, batch in zip(*columns, strict=True)]


def arena_features(rows: Profile, jobs: Sequence[str]) -> Floats:
    """Rows of the regression on the logarithm of samples/s, (R, jobs + 3 · types · families)."""
    job = np.eye(len(jobs))[[jobs.index(name) for name in arena_names(rows)]]
    types, families = len(ARENA_GPUS), len(ARENA_FAMILIES)
    block = [
        ARENA_GPUS.index(gpu) * families + ARENA_FAMILIES.index(family)
        for gpu, family in zip(rows["gpu"], rows["model"], strict=True)
    ]
    block_of = np.eye(types * families)[block]
    by_gpus = block_of * np.log(rows["num_gpus"])[:, None]
    by_nodes = block_of * np.log(rows["num_nodes"])[:, None]
    return np.concatenate([job, block_of, by_gpus, by_nodes], axis=1)


def fit_arena(features: Floats, speed: Floats) -> Floats:
    """The coefficients, by least squares on the logarithm with a light ridge."""
    normal = features.T @ features + _RIDGE * np.eye(features.shape[1])
    return np.asarray(np.linalg.solve(normal, features.T @ np.log(speed)))


def arena_record(rows: Profile, jobs: Sequence[str], theta: Floats) -> dict[str, Any]:
    """What `make fit` ships: levels, laws, and the GPU counts each job was run on."""
    types, families = len(ARENA_GPUS), len(ARENA_FAMILIES)
    laws = theta[len(jobs) :].reshape(3, types, families)
    names = np.array(arena_names(rows))
    record: dict[str, Any] = {"laws": {}, "jobs": {}}
    for t, gpu in enumerate(ARENA_GPUS):
        record["laws"][gpu] = {
            family: [float(np.exp(laws[0, t, f])), *(float(law[t, f]) for law in laws[1:])]
            for f, family in enumerate(ARENA_FAMILIES)
        }
    for k, name in enumerate(jobs):
        runs = rows.where(names == name)
        record["jobs"][name] = {
            "level": float(np.exp(theta[k])),
            "least": {gpu: int(runs.of(gpu=gpu)["num_gpus"].min())
                      for gpu in ARENA_GPUS if len(runs.of(gpu=gpu))},
            "measured": [int(runs["num_nodes"].max()), int(runs["num_gpus"].max())],
        }  # fmt: skip
    return record


def arena_curves(
    models: Sequence[str] | None = None,
    gpu_types: Sequence[str] = ARENA_GPUS,
    max_nodes: int = 8,
    max_gpus: int = 16,
) -> Curves:
    """Samples per second by nodes and GPUs.

    A job has speed 0 on fewer GPUs of a type than it was ever run on: it may not fit there.
    """
    known = shipped("arena")
    types = chosen("GPU type in Arena's table", gpu_types, ARENA_GPUS)
    names = chosen("Arena job", models, known["jobs"])
    n, g = np.arange(1, max_nodes + 1)[:, None], np.arange(1, max_gpus + 1)
    speed = np.zeros((len(names), len(types), max_nodes + 1, max_gpus + 1))
    for c, name in enumerate(names):
        job = known["jobs"][name]
        for t, gpu in enumerate(types):
            if gpu not in job["least"]:
                continue
            rate, by_gpus, by_nodes = known["laws"][gpu][name.split("-")[0]]
            law = job["level"] * rate * g**by_gpus * n**by_nodes
            speed[c, t, 1:, 1:] = np.where((g >= n) & (g >= job["least"][gpu]), law, 0.0)
    measured = np.array([known["jobs"][name]["measured"] for name in names], np.int64)
    return Curves(names, types, speed, by_nodes=True, measured=measured)
