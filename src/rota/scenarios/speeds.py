"""From a scenario's settings to speed curves and contention on its cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.core.speed import Curves
from rota.errors import ConfigError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rota.core.cluster import Cluster
    from rota.core.speed import Contention

    Settings = Mapping[str, Mapping[str, Any]]


def curves_of(settings: Settings, cluster: Cluster, data: Path | None) -> Curves | None:
    """The speeds of the scenario's models on the types of its cluster; None: as the trace says."""
    speed = settings["speed"]
    curves = _family(speed["family"], settings, cluster, data)
    if curves is None:
        return None
    if len(curves.gpu_types) == 1:  # measured on one type, taken to hold for whatever there is
        same = np.repeat(curves.speed, len(cluster.gpu_types), axis=1)
        curves = replace(curves, gpu_types=cluster.gpu_types, speed=same)
    if "max_tasks" in speed:
        curves = _within(curves, speed["max_tasks"])
    if speed.get("min_nodes", 1) > 1:
        spread = curves.speed.copy()
        spread[:, :, : speed["min_nodes"]] = 0.0
        curves = replace(curves, speed=spread)
    return curves.on(cluster.gpu_types)


def _family(
    family: str, settings: Settings, cluster: Cluster, data: Path | None
) -> Curves | None:
    """The table of a family, as wide as the scenario's jobs may grow."""
    if family == "ps":
        from rota.perf.ps import ps_curves
        from rota.traces.dl2_jobs import MODELS

        most = settings["workload"].get("max_each", 16)
        return ps_curves(MODELS, most, most)
    if family == "dl2-measured":
        from rota.perf.published import dl2_measured

        assert data is not None
        return dl2_measured(data, settings["workload"].get("max_each", 16))
    if family == "deepshare":
        from rota.perf.sharing import deepshare_curves

        return deepshare_curves()
    if family == "deepshare-measured":
        from rota.perf.published import deepshare_measured

        assert data is not None
        return deepshare_measured(data)[0]
    if family == "all-reduce":
        from rota.perf.allreduce import allreduce_curves

        return allreduce_curves(nodes=len(cluster), gpus_per_node=int(cluster.gpus.max()))
    if family == "gavel":
        from rota.perf.hetero import gavel_curves

        return gavel_curves(nodes=len(cluster), gpus_per_node=int(cluster.gpus.max()))
    return None


def _within(curves: Curves, most: int) -> Curves:
    """No speed that was not measured: more than `most` tasks run as fast as the best part of them.

    A job may hold more, if a policy gives it more; the surplus idles.
    """
    A, W = curves.speed.shape[2:]
    servers, workers = np.indices((A, W))
    inside = servers + workers <= most
    best = np.where(inside, curves.speed, 0.0)
    best = np.maximum.accumulate(np.maximum.accumulate(best, axis=2), axis=3)
    return replace(curves, speed=np.where(inside, curves.speed, best))


def contention_of(
    settings: Settings, cluster: Cluster, curves: Curves | None, data: Path | None
) -> Contention | None:
    """How jobs slow each other down on the cluster."""
    wanted = settings["contention"]
    if wanted["model"] == "none":
        return None
    if wanted["model"] == "pairs":
        from rota.perf.published import deepshare_measured

        assert data is not None
        found = deepshare_measured(data)[1]
        return found._replace(floor=wanted["floor"]) if "floor" in wanted else found
    from rota.perf import sharing

    options = {key: value for key, value in wanted.items() if key != "model"}
    if wanted["model"] == "ranks":
        if curves is None:
            raise ConfigError("[contention] model = 'ranks' needs models with speed curves.")
        return sharing.rank_contention(curves, **options)
    if wanted["model"] == "links":
        return sharing.link_contention(cluster, curves, **options)
    return sharing.machine_contention(cluster, curves, **options)


def reference_speed(curves: Curves, model: str, gpus: int) -> float:
    """Samples per second of a model on so many GPUs: over the best number of nodes."""
    c = curves.index(model)
    if c < 0:
        raise InputError(
            f"There are no speeds for model {model!r}; known are {', '.join(curves.names)}."
        )
    if gpus >= curves.speed.shape[3]:
        return 0.0
    return float(curves.speed[c, :, :, gpus].max())
