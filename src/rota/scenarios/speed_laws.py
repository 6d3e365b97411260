"""From a scenario's settings to speed curves and contention on its cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core.speed import PAIRS, Curves
from rota.errors import ConfigError, RotaError
from rota.plugins import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from rota.core.cluster import Cluster
    from rota.core.learning import LearningCurves
    from rota.core.speed import Contention
    from rota.plugins import Plugin

    Settings = Mapping[str, Mapping[str, Any]]
    SpeedModel = Callable[[Settings, Cluster, Path | None], Curves]


BY_NODES: Final = ("preset", "daily")
"""Kinds of workloads whose jobs have no servers."""


def _ps(settings: Settings, _cluster: Cluster, _data: Path | None) -> Curves:
    from rota.perf.ps import ps_curves
    from rota.traces.dl2_jobs import MODELS

    most = settings["workload"].get("max_each", 16)
    return ps_curves(MODELS, most, most)


def _dl2_measured(settings: Settings, _cluster: Cluster, data: Path | None) -> Curves:
    from rota.perf.published import dl2_measured

    return dl2_measured(data, settings["workload"].get("max_each", 16))


def _dl2_clean(settings: Settings, _cluster: Cluster, data: Path | None) -> Curves:
    from rota.perf.published import dl2_clean

    return dl2_clean(data, settings["workload"].get("max_each", 16))


def _deepshare(settings: Settings, cluster: Cluster, _data: Path | None) -> Curves:
    return _deepshare_curves(settings, cluster, single_node=settings["speed"]["single_node"])


def _deepshare_curves(settings: Settings, cluster: Cluster, *, single_node: bool) -> Curves:
    from rota.perf.sharing import deepshare_curves

    largest = settings["workload"].get("largest_gang", 8)
    most_nodes = max(4, min(len(cluster), largest))
    return deepshare_curves(max_nodes=most_nodes, max_gpus=largest, single_node=single_node)


def _deepshare_measured(_settings: Settings, _cluster: Cluster, data: Path | None) -> Curves:
    from rota.perf.published import deepshare_measured

    return deepshare_measured(data)[0]


def _all_reduce(settings: Settings, cluster: Cluster, _data: Path | None) -> Curves:
    from rota.perf.allreduce import allreduce_curves

    return allreduce_curves(gpu_types=cluster.gpu_types, **_sizes(settings, cluster))


def _gavel(settings: Settings, cluster: Cluster, _data: Path | None) -> Curves:
    from rota.perf.hetero import gavel_curves

    return gavel_curves(gpu_types=cluster.gpu_types, **_sizes(settings, cluster))


def _profile(settings: Settings, cluster: Cluster, _data: Path | None) -> Curves:
    from rota.perf.job_laws import read_laws

    sizes, path = _sizes(settings, cluster), settings["speed"]["profile"]
    laws = read_laws(path)
    for name, law in laws.models.items():
        if law.gpus_per_worker != 1:  # jobs of scenarios have one GPU each worker
            raise ConfigError(
                f"[speed] profile = {path!r}: job {name!r} was measured with gpus_per_worker = "
                f"{law.gpus_per_worker}, and in scenarios a worker has one GPU; profile without "
                "it, into another --out."
            )
    return laws.curves(sizes["max_nodes"], sizes["max_gpus"])


def _sizes(settings: Settings, cluster: Cluster) -> dict[str, Any]:
    largest = settings["workload"].get("largest_gang", cluster.total_gpus)
    return {"max_nodes": min(len(cluster), largest), "max_gpus": largest}


FITTED: Final[Mapping[str, SpeedModel]] = {
    "ps": _ps, "dl2-measured": _dl2_measured, "dl2-clean": _dl2_clean, "deepshare": _deepshare,
    "deepshare-measured": _deepshare_measured, "all-reduce": _all_reduce, "gavel": _gavel,
    "profile": _profile,
}  # fmt: skip
"""Our speed models: tables as wide as the scenario's jobs may grow."""


def _plugged(make: Any, plugin: Plugin) -> SpeedModel:
    """A function of another package that takes a cluster and the most workers of a job."""
    if not callable(make):
        raise TypeError(f"{make!r} is no function that returns rota.core.speed.Curves")

    def model(settings: Settings, cluster: Cluster, _data: Path | None) -> Curves:
        workload = settings["workload"]
        by_servers = workload["kind"] not in BY_NODES
        most = workload["max_each"] if by_servers else _sizes(settings, cluster)["max_gpus"]
        who = f"The speed model {plugin.name!r} of package {plugin.package!r}"
        try:
            curves = make(cluster, most)
        except RotaError:
            raise
        except Exception as error:
            raise ConfigError(f"{who} failed: {type(error).__name__}: {error}.") from error
        if not isinstance(curves, Curves):
            raise ConfigError(f"{who} gave {type(curves).__name__} in place of Curves.")
        if curves.by_nodes == by_servers:
            needs = "servers" if by_servers else "nodes"
            raise ConfigError(
                f"{who} does not give speeds by {needs}, which jobs of [workload] kind = "
                f"{workload['kind']!r} need."
            )
        across = most if by_servers else min(len(cluster), most)
        if curves.speed.shape[2] <= across or curves.speed.shape[3] <= most:
            raise ConfigError(
                f"{who} ends at {tuple(n - 1 for n in curves.speed.shape[2:])}; jobs here may "
                f"have ({across}, {most})."
            )
        return curves

    return model


SPEED_MODELS: Final = Registry("rota.speed_models", "speed model", [lambda: FITTED], _plugged)
"""What [speed] family of a scenario may name, beside `trace`."""


def learning_of(wanted: Mapping[str, Any]) -> LearningCurves | None:
    """How accurate the scenario's models become, if it says."""
    if wanted["curves"] == "none":
        return None
    from rota.perf.learning_curves import shipped_learning

    return shipped_learning(pause_s=wanted["pause_s"])


def curves_of(settings: Settings, cluster: Cluster, data: Path | None) -> Curves | None:
    """The speeds of the scenario's models on the types of its cluster; None: as the trace says."""
    speed = settings["speed"]
    if speed["family"] == "trace":
        return None
    curves = SPEED_MODELS.get(speed["family"])(settings, cluster, data)
    if len(curves.gpu_types) == 1:  # measured on one type, taken to hold for whatever there is
        same = np.repeat(curves.speed, len(cluster.gpu_types), axis=1)
        curves = replace(curves, gpu_types=cluster.gpu_types, speed=same)
    if "max_tasks" in speed:
        curves = _within(curves, speed["max_tasks"])
    return curves.on(cluster.gpu_types)


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
    elif wanted["model"] == "ranks" and settings["speed"]["family"] == "profile":
        from rota.perf.job_laws import read_laws

        assert curves is not None
        found = read_laws(settings["speed"]["profile"]).contention(curves.names)
    else:
        found = _contention(settings, cluster, curves)
    if found is not None and "floor" in wanted:
        found = found._replace(floor=wanted["floor"])
    return found


def _contention(settings: Settings, cluster: Cluster, curves: Curves | None) -> Contention | None:
    wanted = settings["contention"]
    if wanted["model"] in ("pairs", "ranks"):
        from rota.perf.sharing import rank_contention

        assert curves is not None  # settings without models to share links are refused
        ranks = rank_contention(curves)
        return _as_pairs(ranks) if wanted["model"] == "pairs" else ranks
    if wanted["model"] == "links":
        from rota.perf.sharing import link_contention, talk_of

        talk = None
        if settings["speed"]["family"] == "deepshare":  # by its law, also if jobs must span nodes
            talk = talk_of(_deepshare_curves(settings, cluster, single_node=True))
        return link_contention(
            curves, cluster, wanted["uplink_gbps"], wanted["spine_gbps"], talk=talk
        )
    if wanted["model"] == "machines":
        from rota.perf.colocation import machine_contention

        return machine_contention(curves, strength=wanted["strength"])
    return None


def _as_pairs(ranks: Contention) -> Contention:
    """Only the worst co-runner counts, as DeepShare has it, but by the fitted coefficients."""
    ratio = np.clip(1.0 - np.outer(ranks.hurt, ranks.harm), 0.0, 1.0)
    return ranks._replace(mode=PAIRS, ratio=ratio)
