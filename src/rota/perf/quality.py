"""How good the fits are where they did not look: whole configurations held out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rota.perf import profiles
from rota.perf.allreduce import fit_allreduce
from rota.perf.arena import arena_features, arena_names, fit_arena
from rota.perf.goodput import fit_noise, whole_job
from rota.perf.hetero import fit_gains, gavel_speed
from rota.perf.ps import fit_ps

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rota.core.types import Bools, Floats, Ints
    from rota.perf.profiles import Steps


def held_out(groups: Ints, predict: Callable[[Bools, Bools], Floats]) -> Floats:
    """Predictions for every row by a fit that has not seen the row's group.

    groups   (R,)  rows of one configuration share a number
    predict        fits the rows of the first mask and predicts those of the second
    """
    predicted = np.empty(len(groups))
    for group in np.unique(groups):
        out = groups == group
        predicted[out] = predict(~out, out)
    return predicted


def relative_error(predicted: Floats, measured: Floats) -> Floats:
    """How far off each prediction is, as part of what was measured."""
    return np.asarray(np.abs(predicted / measured - 1))


def explained(predicted: Floats, measured: Floats) -> float:
    """R²: the part of the variance that the predictions account for."""
    around = np.square(measured - measured.mean()).sum()
    return float(1 - np.square(measured - predicted).sum() / around)


def ps_errors(data: Path | None = None) -> dict[str, Floats]:
    """Errors of each parameter-server model, every (servers, workers) held out in turn."""
    errors = {}
    for name in profiles.DL2_MODELS:
        rows = profiles.dl2(data, drop_failed=True).of(model=name)
        p, w, speed = rows["num_ps"], rows["num_workers"], rows["sum_worker_speed"]
        batch = float(rows["total_batch_size"][0])

        def predict(
            fit: Bools, out: Bools, p: Ints = p, w: Ints = w, s: Floats = speed, M: float = batch
        ) -> Floats:
            return fit_ps(p[fit], w[fit], s[fit], M).speed(p[out], w[out])

        errors[name] = relative_error(held_out(p * 1000 + w, predict), speed)
    return errors


def allreduce_errors(steps: Steps) -> Floats:
    """Errors of an all-reduce model, every (nodes, GPUs) held out with all its batch sizes."""
    whole = fit_allreduce(steps)

    def predict(fit: Bools, out: Bools) -> Floats:
        model = fit_allreduce(steps.where(fit), start=whole)
        return model.step_s(steps.nodes[out], steps.gpus[out], steps.batch[out])

    return relative_error(held_out(steps.nodes * 1000 + steps.gpus, predict), steps.step_s)


def efficiency_errors(data: Path) -> dict[str, Floats]:
    """Errors of the progress per sample that gradient noise predicts, one per batch size."""
    rows = profiles.pollux_convergence(data)
    errors = {}
    for name in profiles.POLLUX_MODELS:
        runs = rows.of(application=name)
        sizes = np.unique(runs["batch_size"])
        ends = [runs.of(batch_size=int(size)) for size in sizes]
        gain = np.array([end["progress"][-1] / end["iteration"][-1] for end in ends])
        own = float(sizes[0])
        predicted = whole_job(fit_noise(runs), own, sizes)
        errors[name] = relative_error(predicted, gain * own / sizes)
    return errors


def gavel_errors(data: Path, gpu: str) -> Floats:
    """Errors on 2, 4 and 8 GPUs, together and spread, every row held out in turn."""
    rows = profiles.gavel_solo(data, drop_failed=True).of(gpu=gpu)
    errors: list[float] = []
    for family in profiles.GAVEL_FAMILIES:
        own = rows.of(job_type=family)
        for k in np.flatnonzero(own["num_gpus"] > 1):
            gains = fit_gains(own.where(np.arange(len(own)) != k))
            batch, gpus = own["batch_size"][k], own["num_gpus"][[k]].astype(np.float64)
            one = own.of(batch_size=batch, num_gpus=1)["steps_per_s"][0]
            place = "together" if own["consolidated"][k] else "spread"
            speed = gavel_speed(one, gains[place], int(batch), gpus)
            errors.append(abs(float(speed[0]) / own["steps_per_s"][k] - 1))
    return np.array(errors)


def arena_errors(data: Path) -> Floats:
    """Errors on Arena's table, every row held out in turn."""
    rows = profiles.arena(data)
    A = arena_features(rows, sorted(set(arena_names(rows))))
    speed = rows["global_batch_size"] / rows["iter_s"]

    def predict(fit: Bools, out: Bools) -> Floats:
        return np.asarray(np.exp(A[out] @ fit_arena(A[fit], speed[fit])))

    return relative_error(held_out(np.arange(len(rows)), predict), speed)
