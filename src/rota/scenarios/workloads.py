"""From a scenario's settings to the jobs of one seed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.errors import ConfigError
from rota.traces import daily_jobs, deepshare_jobs, dl2_jobs
from rota.traces.presets import PRESETS
from rota.traces.synthetic import generate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.core.cluster import Cluster
    from rota.core.speed import Curves
    from rota.traces.trace import Trace


def draw_jobs(
    name: str,
    wanted: Mapping[str, Any],
    seed: int,
    cluster: Cluster,
    curves: Curves | None,
    *,
    alike: bool = False,
) -> Trace:
    """The jobs of a seed; their work is measured by `curves`, where the kind of job has any.

    With `alike` presets draw all models of `curves` equally often, whatever they are called.
    """
    options = {key: value for key, value in wanted.items() if key not in ("kind", "max_each")}
    if wanted["kind"] == "preset":
        return _preset(name, options, seed, cluster, curves, alike=alike)
    if wanted["kind"] == "daily":
        plan = daily_jobs.Days(**options)
        return daily_jobs.elastic_days(plan, cluster.total_gpus, np.random.default_rng(seed), name)
    assert curves is not None  # settings without speeds for these kinds are refused
    if wanted["kind"] == "deepshare":
        gangs = deepshare_jobs.GangWorkload(gpus=cluster.total_gpus, **options)
        table = _rows(curves, deepshare_jobs.MODELS)
        return deepshare_jobs.gangs(gangs, table, np.random.default_rng(seed), name)
    speeds = _dl2_speeds(curves, wanted["max_each"], extrapolate=wanted.get("units") == "batches")
    if wanted["kind"] == "dl2":
        return dl2_jobs.slotted(dl2_jobs.Slots(**options), speeds, seed, name)
    return dl2_jobs.poisson(dl2_jobs.Stream(**options), speeds, np.random.default_rng(seed), name)


def _rows(curves: Curves, models: tuple[str, ...]) -> Any:
    """Speeds (models, A, W) on the fastest GPU type."""
    missing = [model for model in models if curves.index(model) < 0]
    if missing:
        raise ConfigError(f"There are no speeds for model {missing[0]!r}.")
    return curves.speed[[curves.index(model) for model in models]].max(axis=1)


def _dl2_speeds(curves: Curves, most: int, *, extrapolate: bool) -> dl2_jobs.KindSpeeds:
    """Speeds at the requested size, and how far each kind may grow: not beyond what was measured,
    unless the original's slips are wanted."""
    table = _rows(curves, dl2_jobs.MODELS)
    reach = np.full((len(dl2_jobs.MODELS), 2), most)
    if not extrapolate:
        reach = np.minimum(reach, curves.measured[[curves.index(m) for m in dl2_jobs.MODELS]])
    return dl2_jobs.KindSpeeds(
        reference=table[:, dl2_jobs.REQUEST, dl2_jobs.REQUEST],
        most_servers=reach[:, 0],
        most_workers=reach[:, 1],
    )


def _preset(
    name: str,
    options: dict[str, Any],
    seed: int,
    cluster: Cluster,
    curves: Curves | None,
    *,
    alike: bool,
) -> Trace:
    """Jobs of a calibrated generator, with gangs that the cluster can hold."""
    usual, largest = PRESETS[options.pop("preset")], options.pop("largest_gang", None)
    fits = min(largest or cluster.total_gpus, cluster.total_gpus)
    sizes = tuple((size, weight) for size, weight in usual.workload.sizes if size <= fits)
    workload = replace(
        usual.workload,
        name=name,
        total_gpus=cluster.total_gpus,
        sizes=sizes,
        offered=True,
        **options,
    )
    rng = np.random.default_rng(seed)
    trace = generate(workload, rng)
    families = () if alike else workload.models
    return trace if curves is None else _with_curves(trace, families, curves, rng)


def _with_curves(
    trace: Trace, families: Sequence[tuple[str, float]], curves: Curves, rng: np.random.Generator
) -> Trace:
    """The trace with models that have a speed at each job's size, wherever it is placed.

    A family of the preset, such as ResNet-18, stands for all batch sizes it was measured with.
    Without any of these families among them, all curves are drawn alike.
    """
    share = np.zeros(len(curves.names))
    for family, weight in families:
        own = [c for c, model in enumerate(curves.names) if model.partition(" (")[0] == family]
        share[own] = weight / max(1, len(own))
    if not share.any():
        share[:] = 1.0
    model = np.full(len(trace), -1)
    for size in np.unique(trace.num_gpus).tolist():
        spans = slice(1, min(size, curves.speed.shape[2] - 1) + 1)
        runs = share * (curves.speed[:, :, spans, size] > 0).all(axis=(1, 2))
        if not runs.any():
            raise ConfigError(
                f"No model of the preset has a speed on {size} GPUs; lower [workload] largest_gang."
            )
        mine = trace.num_gpus == size
        model[mine] = rng.choice(len(runs), int(mine.sum()), p=runs / runs.sum())
    model.flags.writeable = False
    return replace(trace, model=model, models=curves.names)
