"""From the laws of a simulated world to the arrays that the kernels read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rota.core.speed import no_contention
from rota.errors import InputError
from rota.perf.contention_kernels import Traffic
from rota.perf.doubt import noisy
from rota.perf.laws import check_laws
from rota.perf.reference import reference_speeds
from rota.sim.state import Net

if TYPE_CHECKING:
    from rota.core.cluster import Cluster
    from rota.core.speed import Contention, Curves
    from rota.core.types import Floats, Records
    from rota.perf.physics import Drift, Physics
    from rota.traces.trace import Trace

STEPS = 4096
"""Steps of drift that are drawn; then the machines' speeds repeat."""


def on_cluster(physics: Physics, cluster: Cluster) -> Curves | None:
    """The curves with GPU types as the cluster lists them."""
    return physics.curves.on(cluster.gpu_types) if physics.curves is not None else None


def set_curves(
    rows: Records, truth: Records, trace: Trace, curves: Curves, cluster: Cluster
) -> None:
    """Give each job its curve, and the speed in it that counts as pace 1.

    That is samples / duration where the trace has both, else the best speed that the cluster can
    give it at the requested size: a trace's duration is what it takes there.
    """
    known = np.array([curves.index(model) for model in trace.models] or [-1])
    if (known < 0).any() and trace.models:
        bad = int(known.argmin())
        job = int((trace.model == bad).argmax())
        line = f", line {int(trace.line[job])}" if trace.line[job] else ""
        raise InputError(
            f"{trace.name}{line}: job {str(trace.job_id[job])!r} trains {trace.models[bad]!r}, "
            f"for which there is no speed curve; known are {', '.join(curves.names)}."
        )
    rows["curve"] = np.where(trace.model < 0, -1, known[trace.model])
    unit = np.ones(len(rows))
    given = ~np.isnan(trace.samples) & (trace.duration_s > 0)
    has = (rows["curve"] >= 0) & ~given
    unit[has] = reference_speeds(rows[has], curves, cluster)
    unit[given] = (trace.samples / trace.duration_s)[given]
    if not (unit > 0).all():
        j = int((unit <= 0).argmax())
        raise InputError(
            f"{trace.name}: job {str(trace.job_id[j])!r} asks for {rows['workers'][j]} workers and "
            f"{rows['servers'][j]} servers, at which {curves.names[rows['curve'][j]]!r} has no "
            "speed; ask for another size, or give its samples."
        )
    truth["unit"] = unit


def build_net(cluster: Cluster, physics: Physics, jobs: int, seeds: list[int]) -> Net | None:
    """The arrays for contention and drift, one cluster per seed; None without either."""
    if physics.contention is None and physics.drift is None:
        return None
    laws = physics.contention or no_contention(physics.curves)
    curves = 0 if physics.curves is None else len(physics.curves.names)
    check_laws(laws, curves, cluster)
    # While a round is carried out, a job may come to a node before others have left it.
    B, N, K = len(seeds), len(cluster), 2 * int(cluster.gpus.max())
    links = N + laws.uplink_gbps.size + 1
    traffic = Traffic(
        laws, np.zeros((B, N, K), np.int64), np.zeros((B, N, K), np.int64),
        np.zeros((B, N), np.int64), np.full((B, jobs), -1, np.int64), np.zeros((B, jobs)),
        np.zeros((B, links)), np.zeros((B, links)), np.zeros((B, links)),
    )  # fmt: skip
    machine_speed = np.zeros((B, N, 0))
    if physics.drift is not None:
        machine_speed = np.stack([_machine_speeds(physics.drift, N, seed) for seed in seeds])
    flags = np.zeros((2, B, jobs), np.bool_)
    return Net(traffic, np.zeros((B, jobs), np.int64), flags[0], flags[1], machine_speed)


def _machine_speeds(drift: Drift, nodes: int, seed: int) -> Floats:
    """Speeds (N, STEPS): log-normal with mean 1, AR(1) over time."""
    noise = np.random.default_rng([seed, 3]).standard_normal((STEPS, nodes))
    log = np.empty((STEPS, nodes))
    log[0] = noise[0]
    fresh = np.sqrt(1.0 - drift.correlation**2)
    for k in range(1, STEPS):
        log[k] = drift.correlation * log[k - 1] + fresh * noise[k]
    return np.ascontiguousarray(np.exp(drift.sd * log - 0.5 * drift.sd**2).T)


def is_local(cluster: Cluster, physics: Physics) -> bool:
    """Whether it matters to a job which nodes it gets, if the number of GPUs is the same."""
    prices = cluster.price_per_gpu_h
    return (
        physics.curves is not None
        or physics.contention is not None
        or physics.drift is not None
        or bool((prices != prices[0]).any())
        or (physics.billing.whole_nodes and bool(prices.any()))
    )


def seen_contention(physics: Physics) -> Contention | None:
    """What policies are shown of how jobs slow each other down."""
    return None if physics.sight == "hidden" else physics.contention


def seen_curves(physics: Physics, cluster: Cluster, seed: int) -> Curves | None:
    """What policies are shown of the curves; an estimate, if any, is made from what happens."""
    curves = on_cluster(physics, cluster)
    if curves is None or physics.sight in ("hidden", "observed"):
        return None
    if physics.sight == "true":
        return curves
    return noisy(curves, physics.sight_error, np.random.default_rng([seed, 2]))
