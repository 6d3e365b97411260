"""Durations of jobs whose log gives work instead of time, from the shipped speed models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core.types import Bools, Floats
    from rota.traces.log_sheet import Sheet

GAVEL_GPU: Final = "v100"
POLLUX_GPUS_PER_NODE: Final = 4


def _refuse_unknown(sheet: Sheet, field: str, names: Sequence[str], known: Sequence[str]) -> Bools:
    """Refuse models without a speed; returns which are known (J,)."""
    found = np.array([name in known for name in names])
    sheet.refuse(~found, field, names, f"has no speed model; known are {', '.join(known)}")
    return found


def gavel_lengths(sheet: Sheet, job_type: Sequence[str], gpus: Floats, steps: Floats) -> Floats:
    """Seconds on V100s of one machine, as far as they fit on one."""
    from rota.perf.hetero import gavel_curves

    curves = gavel_curves(gpu_types=(GAVEL_GPU,))
    found = _refuse_unknown(sheet, "job_type", job_type, curves.names)
    rows = np.array([max(0, curves.index(name)) for name in job_type])
    w = np.clip(gpus, 1, curves.speed.shape[3] - 1).astype(np.int64)
    a = np.where(gpus > 8, 2, 1)
    speed = np.where(found, curves.speed[rows, 0, a, w], 1.0)
    speed = np.where(speed > 0, speed, curves.speed[rows, 0, :, w].max(axis=1))
    return np.asarray(steps / speed)


def deepshare_lengths(sheet: Sheet, model: Sequence[str], gpus: Floats, samples: Floats) -> Floats:
    """Seconds alone, at the mean speed over two and four nodes, as DeepShare counts work."""
    from rota.perf.sharing import deepshare_curves

    curves = deepshare_curves()
    found = _refuse_unknown(sheet, "model", model, curves.names)
    rows = np.array([max(0, curves.index(name)) for name in model])
    w = np.clip(gpus, 1, curves.speed.shape[3] - 1).astype(np.int64)
    over = curves.speed[rows, 0, :, w]  # (J, A); 0 where the gang cannot be spread so
    speed = over.sum(axis=1) / np.maximum(1, (over > 0).sum(axis=1))
    speed = np.where(found, speed, 1.0)
    sheet.refuse(speed <= 0, "num_gpus", gpus, "GPUs: DeepShare's speeds begin at 2 GPUs")
    return np.asarray(samples / np.maximum(speed, 1e-300))


def pollux_lengths(
    sheet: Sheet, model: Sequence[str], gpus: Floats, batch: Floats
) -> tuple[Floats, Floats]:
    """Seconds on T4 nodes of four with the given batch, and samples of the model's own batch."""
    from rota.perf.allreduce import goodput_at
    from rota.perf.goodput import total_samples
    from rota.perf.shipped import shipped

    known = tuple(shipped("goodput"))
    found = _refuse_unknown(sheet, "application", model, known)
    sound = found & (gpus >= 1) & (batch >= 1)
    seconds, samples = np.ones(len(model)), np.ones(len(model))
    for name in known:
        rows = sound & (np.array(model) == name)
        nodes = np.ceil(gpus[rows] / POLLUX_GPUS_PER_NODE)
        samples[rows] = total_samples(name)
        seconds[rows] = samples[rows] / goodput_at(name, "t4", nodes, gpus[rows], batch[rows])
    return seconds, samples
