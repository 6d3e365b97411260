"""Speed on GPUs of several types, alone: the jobs of Gavel (Narayanan et al., 2020)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core.speed import Curves
from rota.perf.shipped import chosen, shipped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core.types import Floats
    from rota.perf.sheet import Profile

TYPICAL: Final = "typical"


def fit_power(gpus: Floats, speed: Floats) -> tuple[float, float]:
    """Level and exponent of level · gpus^exponent, in logarithms."""
    A = np.stack([np.ones(len(gpus)), np.log(gpus)], axis=1)
    level, exponent = np.linalg.lstsq(A, np.log(speed), rcond=None)[0]
    return float(np.exp(level)), float(exponent)


def fit_gavel(rows: Profile) -> dict[str, Any]:
    """What is kept of one job type on one GPU type.

    `one` is the speed on one GPU; several GPUs on one server run at `together` = (level, exponent),
    level · gpus^exponent relative to one GPU, and spread over servers at `spread` likewise.
    """
    single = rows.of(num_gpus=1)["steps_per_s"]
    one = float(np.exp(np.mean(np.log(single))))
    record: dict[str, Any] = {"one": one}
    for name, flag in (("together", 1), ("spread", 0)):
        some = rows.of(consolidated=flag)
        some = some.where(some["num_gpus"] > 1)
        if len(some) >= 2:
            record[name] = list(fit_power(some["num_gpus"], some["steps_per_s"] / one))
    return record


def gavel_speed(record: dict[str, Any], typical: dict[str, Any], gpus: Floats) -> Floats:
    """Speed on so many GPUs, (2, G): on one server, and spread.

    Where a job was measured on one GPU only, it grows as the typical job of that GPU type does.
    """
    one = record["one"]
    rows = []
    for name in ("together", "spread"):
        level, exponent = record.get(name) or typical.get(name, (1.0, 1.0))
        rows.append(np.where(gpus <= 1, one, one * level * np.maximum(gpus, 1) ** exponent))
    return np.stack(rows)


def gavel_curves(
    models: Sequence[str] | None = None,
    gpu_types: Sequence[str] = ("k80", "p100", "v100"),
    max_nodes: int = 8,
    max_gpus: int = 8,
) -> Curves:
    """Steps per second by GPU type: one node is consolidated, two and more are spread alike."""
    known = shipped("gavel")
    types = chosen("GPU type in Gavel's table", gpu_types, known)
    names = chosen("Gavel job type", models, (name for name in known[types[0]] if name != TYPICAL))
    speed = np.zeros((len(names), len(types), max_nodes + 1, max_gpus + 1))
    n, g = np.arange(1, max_nodes + 1)[:, None], np.arange(1, max_gpus + 1)
    for c, name in enumerate(names):
        for t, gpu in enumerate(types):
            record = known[gpu][name]
            together, spread = gavel_speed(record, known[gpu][TYPICAL], g.astype(np.float64))
            fits = g <= record.get("most", max_gpus)
            speed[c, t, 1:, 1:] = np.where((g >= n) & fits, np.where(n == 1, together, spread), 0.0)
    several = [any("together" in known[gpu][name] for gpu in types) for name in names]
    measured = np.array([[8, 8] if many else [1, 1] for many in several], np.int64)
    return Curves(names, types, speed, by_nodes=True, measured=measured)
