"""Speed on GPUs of several types, alone: the jobs of Gavel (Narayanan et al., 2020).

A job type has its speed on one GPU of each type. What 2, 4 or 8 of them give it depends on its
family and its batch, on one server or spread: gain = e^(level + slope · log2 batch). There is a law
for each count because no law of the count holds: for many jobs four V100s of one server are
slower than two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core.speed import Curves
from rota.perf.shipped import chosen, shipped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core.types import Floats
    from rota.perf.profile_file import Profile

COUNTS: Final = (2, 4, 8)
PLACES: Final = ("together", "spread")
TYPICAL: Final = "typical"
"""Stands for families that ran on one GPU only: the median gains of the others."""


def job_name(family: str, batch: str) -> str:
    """A job type as Gavel writes it in its tables of pairs."""
    return f"{family} (batch size {batch})" if batch else family


def fit_gains(rows: Profile) -> dict[str, list[list[float]]]:
    """(level, slope) by place and count, from the rows of one family on one GPU type.

    Empty where the family ran on one GPU only.
    """
    alone = rows.of(num_gpus=1, consolidated=1)
    one = dict(zip(alone["batch_size"].tolist(), alone["steps_per_s"].tolist(), strict=True))
    gains = {}
    for flag, place in ((1, "together"), (0, "spread")):
        some = [rows.of(consolidated=flag, num_gpus=count) for count in COUNTS]
        if all(map(len, some)):
            gains[place] = [_gain(few, one) for few in some]
    return gains


def _gain(rows: Profile, one: dict[str, float]) -> list[float]:
    batch = rows["batch_size"].tolist()
    gain = rows["steps_per_s"] / np.array([one[size] for size in batch])
    A = np.stack([np.ones(len(batch)), np.log2([float(size) for size in batch])], axis=1)
    level, slope = np.linalg.lstsq(A, np.log(gain), rcond=None)[0]
    return [float(level), float(slope)]


def gavel_speed(one: float, gains: Sequence[Sequence[float]], batch: int, gpus: Floats) -> Floats:
    """Speed on `gpus` GPUs; between the counts that ran it is a power of the count.

    Beyond the largest it goes on as it went on average from one GPU to there.
    """
    steps = [level + slope * np.log2(max(batch, 1)) for level, slope in gains]
    ran = np.log([1, *COUNTS])
    log_gain = np.interp(np.log(gpus), ran, [0.0, *steps])
    far = steps[-1] / ran[-1] * np.log(gpus)
    return np.asarray(one * np.exp(np.where(gpus > COUNTS[-1], far, log_gain)))


def gavel_curves(
    models: Sequence[str] | None = None,
    gpu_types: Sequence[str] = ("k80", "p100", "v100"),
    max_nodes: int = 8,
    max_gpus: int = 8,
) -> Curves:
    """Steps per second by GPU type: one node is consolidated, two and more are spread alike."""
    known = shipped("gavel")
    types = chosen("GPU type in Gavel's table", gpu_types, known)
    names = chosen("Gavel job type", models, known[types[0]]["jobs"])
    speed = np.zeros((len(names), len(types), max_nodes + 1, max_gpus + 1))
    n, g = np.arange(1.0, max_nodes + 1)[:, None], np.arange(1.0, max_gpus + 1)
    for c, name in enumerate(names):
        for t, gpu in enumerate(types):
            job = known[gpu]["jobs"][name]
            rows = [_speed(known[gpu], name, place, g) for place in PLACES]
            runs = (g >= n) & (g <= job.get("most", max_gpus))
            speed[c, t, 1:, 1:] = np.where(runs, np.where(n == 1, *rows), 0.0)
    scaled = [any(_family(name) in known[gpu]["gains"] for gpu in types) for name in names]
    measured = np.array([[8, 8] if many else [1, 1] for many in scaled], np.int64)
    return Curves(names, types, speed, by_nodes=True, measured=measured)


def _family(name: str) -> str:
    return name.split(" (")[0]


def _speed(known: dict[str, Any], name: str, place: str, gpus: Floats) -> Floats:
    job, gains = known["jobs"][name], known["gains"]
    own = gains.get(_family(name), gains[TYPICAL])
    return gavel_speed(job["one"], own[place], job["batch"], gpus)
