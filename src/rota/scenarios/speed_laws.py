"""From a scenario's settings to speed curves and contention on its cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.core.speed import PAIRS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rota.core.cluster import Cluster
    from rota.core.speed import Contention, Curves

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
    return curves.on(cluster.gpu_types)


def _family(family: str, settings: Settings, cluster: Cluster, data: Path | None) -> Curves | None:
    """The table of a family, as wide as the scenario's jobs may grow."""
    if family == "ps":
        from rota.perf.ps import ps_curves
        from rota.traces.dl2_jobs import MODELS

        most = settings["workload"].get("max_each", 16)
        return ps_curves(MODELS, most, most)
    if family in ("dl2-measured", "dl2-clean"):
        from rota.perf import published

        table = published.dl2_measured if family == "dl2-measured" else published.dl2_clean
        return table(data, settings["workload"].get("max_each", 16))
    if family == "deepshare":
        from rota.perf.sharing import deepshare_curves

        return deepshare_curves(
            max_nodes=max(4, len(cluster)), single_node=settings["speed"]["single_node"]
        )
    if family == "deepshare-measured":
        from rota.perf.published import deepshare_measured

        return deepshare_measured(data)[0]
    largest = settings["workload"].get("largest_gang", cluster.total_gpus)
    sizes = {"max_nodes": min(len(cluster), largest), "max_gpus": largest}
    if family == "all-reduce":
        from rota.perf.allreduce import allreduce_curves

        return allreduce_curves(gpu_types=cluster.gpu_types, **sizes)
    if family == "gavel":
        from rota.perf.hetero import gavel_curves

        return gavel_curves(gpu_types=cluster.gpu_types, **sizes)
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
    if wanted["model"] == "pairs" and settings["speed"]["family"] == "deepshare-measured":
        from rota.perf.published import deepshare_measured

        found: Contention | None = deepshare_measured(data)[1]
    else:
        found = _contention(wanted, cluster, curves)
    if found is not None and "floor" in wanted:
        found = found._replace(floor=wanted["floor"])
    return found


def _contention(
    wanted: Mapping[str, Any], cluster: Cluster, curves: Curves | None
) -> Contention | None:
    if wanted["model"] in ("pairs", "ranks"):
        from rota.perf.sharing import rank_contention

        assert curves is not None  # settings without models to share links are refused
        ranks = rank_contention(curves)
        return _as_pairs(ranks) if wanted["model"] == "pairs" else ranks
    if wanted["model"] == "links":
        from rota.perf.sharing import link_contention

        return link_contention(curves, cluster, wanted["uplink_gbps"], wanted["spine_gbps"])
    if wanted["model"] == "machines":
        from rota.perf.colocation import machine_contention

        return machine_contention(curves, strength=wanted["strength"])
    return None


def _as_pairs(ranks: Contention) -> Contention:
    """Only the worst co-runner counts, as DeepShare has it, but by the fitted coefficients."""
    ratio = np.clip(1.0 - np.outer(ranks.hurt, ranks.harm), 0.0, 1.0)
    return ranks._replace(mode=PAIRS, ratio=ratio)
