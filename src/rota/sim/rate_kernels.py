"""What a job gains and what it pays per second with what it holds, without contention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rota.jit import inline, part

if TYPE_CHECKING:
    from rota.core.types import Records
    from rota.sim.state import State


@part
def curve_speed(
    speed: Any, job: Any, nodes: Records, shares: Records, first: int, count: int, a: int
) -> float:
    """The job's speed on shares[first : first + count] by its curve: the slowest GPU type's."""
    workers, slowest = 0, np.inf
    for k in range(first, first + count):
        workers += shares[k]["workers"]
    a, w = min(a, speed.shape[2] - 1), min(workers, speed.shape[3] - 1)
    for k in range(first, first + count):
        if shares[k]["workers"] > 0:
            kind = nodes[shares[k]["node"]]["type"]
            slowest = min(slowest, speed[job["curve"], kind, a, w])
    return slowest


@inline
def lone_pace(s: State, j: int, first: int, count: int, workers: int, servers: int) -> float:
    """Progress per second of job j on shares[first : first + count], without contention."""
    job, clock = s.jobs[j], s.clock[0]
    pace = workers / job["workers"]
    if job["curve"] >= 0 and workers > 0:
        a = count if clock["by_nodes"] else servers
        pace = curve_speed(s.speed, job, s.nodes, s.shares, first, count, a) / s.truth[j]["unit"]
    elif clock["scaling"] != 1.0 and workers > 0:
        pace = pace ** clock["scaling"]
    return pace


@part
def fee_rate(
    job: Any, clock: Any, nodes: Records, shares: Records, first: int, count: int
) -> float:
    """Dollars per second that the job pays for shares[first : first + count]."""
    dollars_per_h = 0.0
    for k in range(first, first + count):
        node = nodes[shares[k]["node"]]
        gpus = shares[k]["workers"] * job["gpus_per_worker"]
        gpus = node["gpus"] if clock["whole_nodes"] else gpus
        dollars_per_h += gpus * node["price_per_gpu_h"]
    return dollars_per_h / 3600.0


@part
def same_kinds(nodes: Records, shares: Records, at: int, first: int, count: int) -> bool:
    """Whether two lists of shares have equal workers, pair by pair, on equal GPU types."""
    for k in range(count):
        a, b = shares[at + k], shares[first + k]
        if a["workers"] != b["workers"] or nodes[a["node"]]["type"] != nodes[b["node"]]["type"]:
            return False
    return True


@part
def is_alike(s: State, j: int, first: int, count: int) -> bool:
    """Whether a move of job j to these shares changes no pace and no fee."""
    job, true, clock = s.jobs[j], s.truth[j], s.clock[0]
    if true["sends"] or clock["drift_step_s"] < np.inf or count != job["share_len"]:
        return False
    if not clock["priced"] and same_kinds(s.nodes, s.shares, job["share_at"], first, count):
        return True
    pace = lone_pace(s, j, first, count, job["held_workers"], job["held_servers"])
    if pace != true["alone"]:
        return False
    if not clock["priced"]:
        return True
    return fee_rate(job, clock, s.nodes, s.shares, first, count) == true["fee_rate"]


@inline
def close_bill(s: State, j: int) -> None:
    """Job j, settled, ends a stint, which is billed in whole grains."""
    true, span_s = s.truth[j], s.clock[0]["now_s"] - s.jobs[j]["since_s"]
    grain_s = s.clock[0]["grain_s"]
    if true["fee_rate"] > 0.0:
        grains = np.ceil(span_s / grain_s - 1e-6)  # rounding must not cost a grain
        true["fee"] += true["fee_rate"] * max(0.0, grains * grain_s - span_s)
    true["fee_rate"] = 0.0
