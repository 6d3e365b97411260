"""Small worlds in which every policy must keep the contract."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from rota.core.cluster import Cluster
from rota.core.speed import RANKS, Curves, no_contention
from rota.perf.learning_curves import learning_curves
from rota.perf.physics import Physics
from rota.scenarios.scenario import World
from rota.sim.faults import Faults
from rota.sim.setup import Conditions
from rota.traces.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable


Plain: TypeAlias = tuple[Cluster, Trace, Conditions]
WithPhysics: TypeAlias = tuple[Cluster, Trace, Conditions, Physics]
MODELS: Final = ("wide", "deep", "odd")


def _trace(
    rng: np.random.Generator, jobs: int, sizes: list[int], every_s: float = 60.0, **columns: Any
) -> Trace:
    """Jobs of a minute to an hour, some of which arrive at the same time."""
    gaps_s = np.where(rng.random(jobs) < 0.3, 0.0, rng.exponential(every_s, jobs)).round()
    return Trace.build(
        "contract",
        submit_s=gaps_s.cumsum(),
        duration_s=np.exp(rng.uniform(np.log(60), np.log(3600), jobs)).round(),
        num_gpus=rng.choice(sizes, jobs),
        **columns,
    )


def _rigid(rng: np.random.Generator) -> Plain:
    return Cluster.uniform(3, 4), _trace(rng, 24, [1, 1, 2, 4, 8]), Conditions()


def _one_gpu(rng: np.random.Generator) -> Plain:
    return Cluster.uniform(1, 1), _trace(rng, 10, [1]), Conditions()


def _elastic(rng: np.random.Generator) -> Plain:
    sizes = rng.integers(1, 5, 20)
    trace = Trace.build(
        "contract",
        submit_s=np.sort(rng.integers(0, 1200, 20)),
        duration_s=rng.integers(60, 1800, 20),
        num_gpus=sizes,
        min_workers=np.maximum(1, sizes // 2),
        max_workers=2 * sizes,
    )
    return Cluster.uniform(3, 4), trace, Conditions(restart_s=10)


def _gpu_types(rng: np.random.Generator) -> Plain:
    cluster = Cluster(
        gpus=np.array([4, 4, 2, 2]), gpu_types=("old", "new"), type=np.array([0, 0, 1, 1])
    )
    wanted = rng.choice(["", "old", "new"], 20)
    return cluster, _trace(rng, 20, [1, 2], gpu_type=wanted), Conditions()


def _cpus_and_memory(rng: np.random.Generator) -> Plain:
    """Small jobs that run out of CPUs or memory, between gangs that only want GPUs."""
    cluster = Cluster.uniform(2, 4, cpus=8, memory_gb=64)
    small = rng.random(24) < 0.7
    trace = Trace.build(
        "contract",
        submit_s=np.sort(rng.integers(0, 1200, 24)),
        duration_s=rng.integers(60, 1800, 24),
        num_gpus=np.where(small, 1, rng.choice([2, 4, 8], 24)),
        cpus_per_worker=np.where(small, rng.choice([0.0, 2.5, 5.0, 6.0], 24), 0.0),
        memory_gb_per_worker=np.where(small, rng.choice([0.0, 4.0, 40.0], 24), 0.0),
    )
    return cluster, trace, Conditions()


def _servers(rng: np.random.Generator) -> Plain:
    trace = _trace(
        rng, 16, [1, 2, 4, 8], num_servers=rng.integers(0, 3, 16), cpus_per_server=np.full(16, 1.0)
    )
    return Cluster.uniform(3, 4, cpus=32), trace, Conditions()


def _failures(rng: np.random.Generator) -> Plain:
    faults = Faults(node_mtbf_s=3000, node_repair_s=300, job_mtbf_s=4000, retries=2)
    when = Conditions(restart_s=20, checkpoint_s=300, faults=faults)
    return Cluster.uniform(3, 4), _trace(rng, 20, [1, 2, 4, 8]), when


def _restart_cost(rng: np.random.Generator) -> Plain:
    return Cluster.uniform(3, 4), _trace(rng, 24, [1, 1, 2, 4, 8]), Conditions(restart_s=60)


def _two_costs(rng: np.random.Generator) -> Plain:
    """Elastic jobs that resize for little, and rigid ones that move for nothing."""
    cluster, trace, _ = _elastic(rng)
    low, high = trace.min_workers.copy(), trace.max_workers.copy()
    asked, costs = trace.num_gpus, np.full(len(trace), np.nan)
    low[::3], high[::3], costs[::3] = asked[::3], asked[::3], 0.0
    mixed = Trace.build(
        "contract", submit_s=trace.submit_s, duration_s=trace.duration_s, num_gpus=asked,
        min_workers=low, max_workers=high, resize_s=costs,
    )  # fmt: skip
    return cluster, mixed, Conditions(restart_s=60, resize_s=1)


def _min_run(rng: np.random.Generator) -> Plain:
    when = Conditions(min_run_s=400)
    return Cluster.uniform(3, 4), _trace(rng, 20, [1, 1, 2, 4], 30), when


def _min_run_and_cost(rng: np.random.Generator) -> Plain:
    when = Conditions(min_run_s=400, restart_s=60)
    return Cluster.uniform(3, 4), _trace(rng, 20, [1, 1, 2, 4], 30), when


def _slots(rng: np.random.Generator) -> Plain:
    return Cluster.uniform(2, 4), _trace(rng, 16, [1, 2, 4]), Conditions(slot_s=300)


def _whole_cluster(rng: np.random.Generator) -> Plain:
    small = _trace(rng, 14, [1, 2])
    trace = Trace.build(
        "contract",
        submit_s=[*small.submit_s, 100],
        duration_s=[*small.duration_s, 900],
        num_gpus=[*small.num_gpus, 8],
    )
    return Cluster.uniform(2, 4), trace, Conditions()


def _empty_moments(rng: np.random.Generator) -> Plain:
    trace = Trace.build(
        "contract",
        submit_s=5000.0 * np.arange(8),
        duration_s=rng.integers(60, 3600, 8),
        num_gpus=rng.choice([1, 4, 8], 8),
    )
    return Cluster.uniform(2, 4), trace, Conditions()


def _curves(by_nodes: bool) -> Curves:
    """Three models whose speed rises with workers and falls with nodes or with few servers."""
    w, a = np.arange(9.0)[None, :], np.arange(9.0)[:, None]
    rest = 0.8 ** (a - 1) if by_nodes else a / (a + 0.5 * w + 1e-9)
    bend = np.array([0.95, 0.8, 0.6])[:, None, None]
    speed = (100.0 * w**bend * rest * (a > 0))[:, None]
    return Curves(MODELS, ("gpu",), speed, by_nodes, np.full((3, 2), 8))


def _contention(rng: np.random.Generator) -> WithPhysics:
    """Gangs that lose speed by spreading, and more beside other jobs that spread."""
    kind = np.full((len(MODELS) + 1, 9, 9), -1)
    kind[:3, 2:] = np.arange(3)[:, None, None]
    one = np.array([0.2, 0.5, 0.8])
    laws = no_contention()._replace(mode=RANKS, kind=kind, hurt=one, harm=one, floor=0.1)
    trace = _trace(rng, 20, [1, 2, 4, 8], model=rng.choice(MODELS, 20))
    physics = Physics(curves=_curves(by_nodes=True), contention=laws)
    return Cluster.uniform(4, 4), trace, Conditions(restart_s=10), physics


def _scaling_servers(rng: np.random.Generator) -> WithPhysics:
    """Workers and servers whose numbers change independently; some workers need no GPU."""
    trace = _trace(
        rng, 14, [2], num_servers=np.full(14, 2), min_servers=np.ones(14), min_workers=np.ones(14),
        max_servers=np.full(14, 8), max_workers=np.full(14, 8), cpus_per_server=np.full(14, 2.0),
        cpus_per_worker=np.full(14, 2.0), gpus_per_worker=rng.choice([0, 1, 1], 14),
        model=rng.choice(MODELS, 14),
    )  # fmt: skip
    physics = Physics(curves=_curves(by_nodes=False), sight="noisy", sight_error=0.2)
    return Cluster.uniform(4, 2, cpus=8), trace, Conditions(restart_s=1), physics


def _hidden(rng: np.random.Generator) -> WithPhysics:
    """The same, but neither curves nor durations are shown."""
    cluster, trace, _, physics = _scaling_servers(rng)
    when = Conditions(restart_s=15, hide_durations=True)
    return cluster, trace, when, replace(physics, sight="observed")


def _learning(rng: np.random.Generator) -> WithPhysics:
    """Elastic jobs with deadlines whose networks can grow, and nodes that fail."""
    level = {"top": 0.8, "span": 0.7, "scale": 2.0, "power": 1.0, "cost": 1.0}
    larger = {**level, "top": 0.9, "span": 0.8, "scale": 3.0, "cost": 1.7}
    families = {
        "wide": {"epochs": 10, "levels": [level, larger]},
        "deep": {"epochs": 30, "levels": [level, larger, {**larger, "cost": 2.5}]},
        "odd": {"epochs": 5, "levels": [level]},
    }
    submit_s = np.sort(rng.integers(0, 1200, 20))
    duration_s = rng.integers(60, 1800, 20)
    slack = rng.uniform(0.5, 3.0, 20)
    trace = Trace.build(
        "contract", submit_s=submit_s, duration_s=duration_s, num_gpus=rng.integers(1, 4, 20),
        min_workers=np.ones(20), max_workers=np.full(20, 4), model=rng.choice(MODELS, 20),
        deadline_s=np.where(rng.random(20) < 0.2, np.inf, submit_s + slack * duration_s),
    )  # fmt: skip
    physics = Physics(
        curves=_curves(by_nodes=True), learning=learning_curves(families, pause_s=5.0)
    )
    when = Conditions(restart_s=10, faults=Faults(node_mtbf_s=9000, node_repair_s=300))
    return Cluster.uniform(3, 4), trace, when, physics


CONTRACT_WORLDS: Final[dict[str, Callable[[np.random.Generator], WithPhysics | Plain]]] = {
    "rigid": _rigid,
    "one-gpu": _one_gpu,
    "elastic": _elastic,
    "gpu-types": _gpu_types,
    "cpus-and-memory": _cpus_and_memory,
    "servers": _servers,
    "failures": _failures,
    "restart-cost": _restart_cost,
    "two-costs": _two_costs,
    "min-run": _min_run,
    "min-run-and-cost": _min_run_and_cost,
    "slots": _slots,
    "whole-cluster": _whole_cluster,
    "empty-moments": _empty_moments,
    "contention": _contention,
    "scaling-servers": _scaling_servers,
    "hidden": _hidden,
    "learning": _learning,
}
"""Name → how it is drawn."""


def contract_world(name: str, seed: int = 0) -> World:
    """The world called `name`; the same for the same seed."""
    number = list(CONTRACT_WORLDS).index(name)
    return World(*CONTRACT_WORLDS[name](np.random.default_rng([seed, number])))
