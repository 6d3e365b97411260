"""From traces and a cluster to the arrays that the kernels work on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from rota.core.kinds import kinds_of
from rota.core.layout import EVENT, FUTURE, JOB, ROUND, SHARE, SLACK
from rota.errors import ConfigError, InputError
from rota.ledger.node_kernels import new_index
from rota.perf.physics import Physics
from rota.sim.faults import Faults
from rota.sim.state import ASK, CLOCK, FAULT, TRUTH, Breakdowns, State
from rota.sim.world import build_net, is_local, on_cluster, set_curves
from rota.traces.log_cluster import missing_types

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core.cluster import Cluster
    from rota.core.speed import Curves
    from rota.core.types import Bools, Floats, Ints, Records
    from rota.traces.trace import Trace


PLAIN: Final = Physics()
"""Durations as the trace has them; no job slows another one down."""


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What a simulation adds to trace and cluster: costs, cadence, faults, knowledge."""

    restart_s: float = 0.0
    """Seconds without progress when a stopped job starts again, unless its trace says."""
    resize_s: float | None = None
    """The same after a resize or a move of a job that can be resized; None: `restart_s`."""
    min_run_s: float = 0.0
    """Seconds after a start during which a job may not be stopped or moved."""
    slot_s: float = 0.0
    """Decide at multiples of this time only; 0: at every arrival and completion."""
    whole_slots: bool = False
    """Jobs end at the end of a slot only and hold what they have until then."""
    checkpoint_s: float = 1800.0
    """Progress between two checkpoints, which is what a failure can cost, unless its trace says."""
    estimate_error: float = 0.0
    """Policies see duration × exp(estimate_error × z) with z standard normal, one per job; means
    nothing where they are told what the trace says."""
    trust_trace: bool = False
    """Policies see the trace's own estimates (such as time limits) and nothing else: no duration
    where it has none, and no further error."""
    hide_durations: bool = False
    """Policies see nothing of durations, unless they are oracles."""
    faults: Faults = field(default_factory=Faults)

    def __post_init__(self) -> None:
        numbers = ("restart_s", "min_run_s", "slot_s", "checkpoint_s", "estimate_error")
        for name in (*numbers, *(["resize_s"] if self.resize_s is not None else [])):
            value = getattr(self, name)
            if not value >= 0 or (not np.isfinite(value) and name != "checkpoint_s"):
                raise ConfigError(f"{name}={value} must be 0 or more.")
        if self.whole_slots and self.slot_s == 0:
            raise ConfigError("whole_slots needs slots: give slot_s, the seconds of one.")


def noise_of(seed: int) -> np.random.Generator:
    """The generator from which the errors of a simulation's estimates are drawn."""
    return np.random.default_rng([seed, 0])


def job_records(
    trace: Trace, cluster: Cluster, when: Conditions, rng: np.random.Generator
) -> Records:
    """The trace's jobs (J,) as a policy will see them, none submitted yet."""
    rows = np.zeros(len(trace), JOB)
    for name in ("submit_s", "deadline_s", "user", "model", "min_workers", "max_workers",
                 "min_servers", "max_servers", "gpus_per_worker", "cpus_per_worker",
                 "memory_gb_per_worker", "cpus_per_server",
                 "memory_gb_per_server"):  # fmt: skip
        rows[name] = getattr(trace, name)
    rows["uid"], rows["status"] = np.arange(len(trace)), FUTURE
    rows["curve"], rows["servers"] = -1, trace.num_servers
    rows["workers"] = trace.num_gpus // np.maximum(1, trace.gpus_per_worker)
    rows["gpus"] = rows["workers"] * rows["gpus_per_worker"]
    bare = rows["gpus_per_worker"] == 0
    if bare.any() and not np.isfinite(cluster.cpus).all():
        raise InputError(
            f"{trace.name}: the workers of job {str(trace.job_id[int(bare.argmax())])!r} need CPUs "
            "only, but the cluster does not count its CPUs. Give its nodes `cpus` (--cluster FILE)."
        )
    codes = np.array([cluster.type_code(name) for name in trace.gpu_types] or [-1])
    rows["gpu_type"] = np.where(trace.gpu_type < 0, -1, codes[trace.gpu_type])
    estimate_s = trace.estimate_s if when.trust_trace else trace.duration_s
    if when.estimate_error > 0 and not when.trust_trace:
        estimate_s = estimate_s * np.exp(when.estimate_error * rng.standard_normal(len(trace)))
    rows["estimate_s"] = rows["remaining_s"] = np.nan if when.hide_durations else estimate_s
    rows["started_s"] = rows["since_s"] = np.nan
    rows["restart_s"], rows["resize_s"] = change_costs(trace, when)
    rows["min_run_s"] = np.where(trace.stoppable > 0, when.min_run_s, np.inf)
    return rows


def change_costs(trace: Trace, when: Conditions) -> tuple[Floats, Floats]:
    """Seconds that a restart and a move or resize cost each job (J,), by its trace or else `when`.

    A job of one size is taken to be unable to resize, so it moves by a restart.
    """
    restart_s = np.where(np.isnan(trace.restart_s), when.restart_s, trace.restart_s)
    pliant = (trace.min_workers < trace.max_workers) | (trace.min_servers < trace.max_servers)
    usual = np.nan if when.resize_s is None else when.resize_s
    resize_s = np.where(np.isnan(trace.resize_s) & pliant, usual, trace.resize_s)
    return restart_s, np.where(np.isnan(resize_s), restart_s, resize_s)


def _truth(trace: Trace, when: Conditions) -> tuple[Records, Ints]:
    """What policies do not see of the jobs (J,), and one job of each shape (C,)."""
    truth = np.zeros(len(trace), TRUTH)
    truth["work_s"], truth["event_s"], truth["done_s"] = trace.duration_s, np.inf, np.nan
    truth["heap"], truth["fail_in_s"] = -1, np.inf
    truth["checkpoint_s"] = np.where(
        np.isnan(trace.checkpoint_s), when.checkpoint_s, trace.checkpoint_s
    )
    examples, truth["shape"] = shapes_of(trace)
    return truth, examples


def shapes_of(trace: Trace) -> tuple[Ints, Ints]:
    """One job of each shape, and the shape of every job: equal ones ask for equal resources."""
    return kinds_of(
        getattr(trace, name) for name in (
            "num_gpus", "gpus_per_worker", "gpu_type", "num_servers", "cpus_per_worker",
            "memory_gb_per_worker", "cpus_per_server", "memory_gb_per_server",
        )
    )  # fmt: skip


class BatchSize(NamedTuple):
    """The lengths of the arrays that the clusters of a batch share."""

    jobs: int
    shapes: int
    faults: int
    retries: int


def build_state(
    cluster: Cluster, traces: Sequence[Trace], when: Conditions, seeds: Sequence[int],
    log: int = 0, physics: Physics = PLAIN,
) -> State:  # fmt: skip
    """A batch of simulations, one per trace and seed, not started yet.

    `log` is the number of events that the log holds before it must be emptied; 0: no log. Traces
    of a batch may differ in length.
    """
    curves = on_cluster(physics, cluster)
    parts = [
        _one(cluster, trace, when, seed, curves) for trace, seed in zip(traces, seeds, strict=True)
    ]
    size = BatchSize(*(max(1, *(part["size"][k] for part in parts)) if k < 2 else
                    max(part["size"][k] for part in parts) for k in range(4)))  # fmt: skip
    B, J, N, C = len(parts), size.jobs, len(cluster), size.shapes
    # Half of the pool is free at the beginning of a round, which may give everything out anew.
    most = max(part["shares"] for part in parts)
    pool = 12 * cluster.total_gpus + 4 * most + 4 * N + 256
    rush = max(part["burst"] for part in parts) + size.faults
    events = max(log, 2 * (rush + 4 * most + 2 * N + 64)) if log else 0
    entries = max(log, 8 * most + 8 * N) if log else 0
    state = State(
        jobs=np.zeros((B, J), JOB), truth=np.zeros((B, J), TRUTH), clock=np.zeros((B, 1), CLOCK),
        nodes=np.stack([cluster.empty()] * B), level=np.stack([new_index(cluster.empty())] * B),
        running=np.zeros((B, J), np.int64), order=np.zeros((B, J), np.int64), key=np.zeros((B, J)),
        at=np.zeros((B, J), np.int64), length=np.zeros((B, J), np.int64),
        shares=np.zeros((B, pool), SHARE), spare=np.zeros((B, pool), SHARE),
        node=np.zeros((B, N), np.int64), part=np.zeros((B, N), np.int64),
        queue=np.zeros((B, J), np.int64), begins=np.zeros((B, C + 1), np.int64),
        waits=np.zeros((B, C), np.int64), shapes=np.zeros((B, C), np.int64),
        asks=np.zeros((B, C), ASK),
        full=np.zeros((B, C), np.bool_),
        events=np.zeros((B, events), EVENT), entries=np.zeros((B, entries), SHARE),
        rounds=np.zeros((B, events), ROUND),
        speed=np.zeros((0, 0, 0, 0)) if curves is None else np.ascontiguousarray(curves.speed),
        breakdowns=None if when.faults.never else Breakdowns(
            np.zeros((B, size.faults), FAULT), np.full((B, J, size.retries), np.inf)
        ),
        net=build_net(cluster, physics, J, list(seeds)),
    )  # fmt: skip
    if state.breakdowns is not None:
        state.breakdowns.faults["time_s"] = np.inf
    for b, part in enumerate(parts):
        _install(state, b, part, cluster, when)
    clock = state.clock
    clock["scaling"], clock["by_nodes"] = physics.scaling, curves is not None and curves.by_nodes
    clock["grain_s"], clock["whole_nodes"] = physics.billing.grain_s, physics.billing.whole_nodes
    clock["priced"] = cluster.price_per_gpu_h.any()
    clock["local"] = is_local(cluster, physics)
    clock["drift_step_s"] = physics.drift.step_s if physics.drift is not None else np.inf
    return state


def _one(
    cluster: Cluster, trace: Trace, when: Conditions, seed: int, curves: Curves | None
) -> dict[str, Any]:
    breaks = np.random.default_rng([seed, 1])
    rows = job_records(trace, cluster, when, noise_of(seed))
    truth, examples = _truth(trace, when)
    if curves is not None:
        set_curves(rows, truth, trace, curves, cluster)
    begin_s = float(trace.submit_s[0]) if len(trace) else 0.0
    faults = when.faults.of_nodes(len(cluster), begin_s, fault_horizon_s(cluster, trace), breaks)
    failures = when.faults.of_jobs(len(trace), breaks)
    if failures.shape[1]:
        truth["fail_in_s"] = failures[:, 0]
    return {
        "rows": rows, "truth": truth, "faults": faults, "failures": failures, "begin_s": begin_s,
        "burst": int((np.searchsorted(trace.submit_s, trace.submit_s + when.slot_s, "right")
                      - np.arange(len(trace))).max(initial=0)),
        "size": (len(trace), len(examples), len(faults), failures.shape[1]),
        "asks": rows[examples],
        "shares": most_shares(cluster, rows),
    }  # fmt: skip


def fault_horizon_s(cluster: Cluster, trace: Trace) -> float:
    """The time after which no node fails any more; runs mostly end long before."""
    busy_s = float((trace.duration_s * trace.num_gpus).sum()) / max(1, cluster.total_gpus)
    return (float(trace.submit_s[-1]) if len(trace) else 0.0) + 4 * busy_s + 30 * 86400.0


def _install(
    state: State, b: int, part: dict[str, Any], cluster: Cluster, when: Conditions
) -> None:
    J, C, faults, retries = part["size"]
    state.jobs[b, :J], state.truth[b, :J] = part["rows"], part["truth"]
    for name in ASK.names or ():
        state.asks[name][b, :C] = part["asks"][name]
    if state.breakdowns is not None:
        state.breakdowns.faults[b, :faults] = part["faults"]
        state.breakdowns.failures[b, :J, :retries] = part["failures"]
    counts = np.bincount(part["truth"]["shape"], minlength=state.waits.shape[1])
    state.begins[b, 1:] = counts.cumsum()
    clock = state.clock[b, 0]
    clock["jobs"] = J
    clock["up"], clock["shares"] = cluster.total_gpus, part["shares"]
    clock["burst"] = part["burst"]
    clock["bare"] = bool((part["asks"]["gpus"] == 0).any())
    clock["even"] = cluster.gpus[0] if (cluster.gpus == cluster.gpus[0]).all() else 0
    clock["now_s"] = -np.inf
    clock["begin_s"] = clock["since_s"] = part["begin_s"]
    clock["slot_s"], clock["wake_s"], clock["whole_slots"] = when.slot_s, np.inf, when.whole_slots


def most_shares(cluster: Cluster, rows: Records) -> int:
    """The most shares that these jobs (J,) can hold at once.

    A share is a GPU or more, or a node's part of a job's servers or of its workers without GPUs.
    Of the latter as many as the GPUs (for the workers beside), the CPUs and the memory allow.
    """
    N, least = len(cluster), np.maximum(1, rows["min_workers"])
    bare = rows["gpus_per_worker"] == 0
    if not (bare.any() or rows["max_servers"].any()):
        return cluster.total_gpus
    servers = np.minimum(N, rows["max_servers"])
    workers = np.where(bare, np.minimum(N, rows["max_workers"]), 0)
    count = np.concatenate([servers, workers])
    beside = least * rows["gpus_per_worker"] / np.maximum(1, servers)
    none = np.zeros(len(rows))
    fits = [_cheapest_first(count, np.concatenate([beside, none]), cluster.total_gpus)]
    for name in ("cpus", "memory_gb"):
        each = np.concatenate([rows[f"{name}_per_server"], rows[f"{name}_per_worker"]])
        fits.append(_cheapest_first(count, each, float(getattr(cluster, name).sum()) + N * SLACK))
    return cluster.total_gpus + min(fits)


def _cheapest_first(count: Ints, each: Floats, capacity: float) -> int:
    """The most things a capacity holds, if there are count[k] things that take each[k]."""
    order = each.argsort(kind="stable")
    taken = (count * each)[order].cumsum()
    whole = int(np.searchsorted(taken, capacity, "right"))
    fits = int(count[order[:whole]].sum())
    if whole < len(order):
        left = capacity - (float(taken[whole - 1]) if whole else 0.0)
        fits += min(int(count[order[whole]]), int(left / float(each[order[whole]])) + 1)
    return fits


def check_fits(cluster: Cluster, trace: Trace, rows: Records, fits: Bools) -> None:
    """Refuse a trace with a job that an empty cluster cannot hold; `fits` tells which can (J,)."""
    if fits.all():
        return
    if (rows["gpu_type"] == -2).any() and (unknown := missing_types(trace, cluster)):
        raise InputError(f"{trace.name}: {unknown}")
    bad = int((~fits).argmax())
    gpus, wanted = int(trace.num_gpus[bad]), int(rows["gpu_type"][bad])
    what = (
        f"{gpus} GPUs"
        if wanted == -1
        else f"{gpus} GPUs of type {trace.gpu_types[int(trace.gpu_type[bad])]!r}"
    )
    line = f", line {int(trace.line[bad])}" if trace.line[bad] else ""
    more = int((~fits).sum()) - 1
    raise InputError(
        f"{trace.name}{line}: job {str(trace.job_id[bad])!r} asks for {what}, which the empty "
        f"cluster ({cluster.describe()}) cannot hold{f', nor {more} others' if more else ''}. "
        "Give a larger cluster (--nodes, --gpus or --cluster), or leave such jobs out "
        "(--drop-oversized)."
    )
