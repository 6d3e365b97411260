"""What a log tells of its cluster: GPU types, GPUs per node, and how many GPUs were in use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from rota.errors import ConfigError, InputError
from rota.traces.clusterfile import build_cluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core.cluster import Cluster
    from rota.core.types import Bools, Floats, Ints
    from rota.traces.trace import Trace

USUAL_NODES: Final = 16
USUAL_GPUS: Final = 8
"""Nodes of a cluster, and GPUs of a node, if they are not given."""
_MOST_NAMED: Final = 8
"""More GPU types than this are counted, not named."""


@dataclass(frozen=True, kw_only=True)
class GpuTypeUse:
    """What the jobs of one GPU type ask for."""

    gpu_type: str
    """Empty: jobs that accept any type."""
    jobs: int
    gpu_hours: float
    largest: int
    """GPUs of the largest job."""
    gpus_per_node: int | None
    """Most GPUs that a job held on each of its nodes; None: the log does not say."""
    peak_gpus: int | None
    """Most GPUs in use at once by the log's own starts; None: it records none."""


def gpu_type_use(trace: Trace) -> list[GpuTypeUse]:
    """The GPU types of a trace, by GPU-hours, most first; jobs that accept any come last."""
    order = np.argsort(trace.gpu_type, kind="stable")
    codes, begins = np.unique(trace.gpu_type[order], return_index=True)
    names = (*trace.gpu_types, "")  # code -1 finds the last entry
    found = [
        _use_of(trace, names[code], rows)
        for code, rows in zip(codes.tolist(), np.split(order, begins[1:]), strict=True)
    ]
    return sorted(found, key=lambda use: (not use.gpu_type, -use.gpu_hours))


def _use_of(trace: Trace, gpu_type: str, rows: Ints) -> GpuTypeUse:
    gpus, nodes = trace.num_gpus[rows], trace.ran_on_nodes[rows]
    told = nodes > 0  # false for NaN
    started = rows[~np.isnan(trace.started_s[rows])]
    return GpuTypeUse(
        gpu_type=gpu_type,
        jobs=len(rows),
        gpu_hours=float(gpus @ trace.duration_s[rows]) / 3600,
        largest=int(gpus.max(initial=0)),
        gpus_per_node=int(np.ceil(gpus[told] / nodes[told]).max()) if told.any() else None,
        peak_gpus=peak_gpus(trace, started) if len(started) else None,
    )


def gpus_of(trace: Trace) -> Ints:
    """GPUs that each job (J,) holds: none where its workers need none."""
    held: Ints = np.where(trace.gpus_per_worker > 0, trace.num_gpus, 0)
    return held


def peak_gpus(trace: Trace, rows: Bools | Ints) -> int:
    """Most GPUs that these jobs held at once by the log's own starts, which must be known."""
    gpus, started_s = gpus_of(trace)[rows], trace.started_s[rows]
    times_s = np.concatenate([started_s + trace.duration_s[rows], started_s])
    change = np.concatenate([-gpus, gpus])
    # At one moment ends come before starts: a GPU that is passed on counts once.
    order = np.lexsort((change > 0, times_s))
    return int(change[order].cumsum().max(initial=0))


def cluster_of_log(
    trace: Trace, nodes: int | None = None, gpus: int | None = None
) -> tuple[Cluster, str] | None:
    """The cluster of a log whose jobs name GPU types, and how it was found; None without types.

    Nodes of a type have as many GPUs as a job was seen to hold on each of its nodes (`gpus`
    replaces that; 8 where nothing is known). Of each type there are as many nodes as the GPUs in
    use at once need; `nodes` replaces their sum.
    """
    if (trace.gpu_type < 0).all():
        return None
    uses = gpu_type_use(trace)
    typed = [use for use in uses if use.gpu_type]
    size = [gpus or use.gpus_per_node or USUAL_GPUS for use in typed]
    timed = all(use.peak_gpus is not None for use in typed)
    if nodes is not None:
        weight = [(use.peak_gpus if timed else use.gpu_hours) or 0.0 for use in typed]
        count = _shared_out(trace, typed, nodes, np.array(weight) / size)
        how = "by GPUs in use" if timed else "by GPU-hours"
        how = f"{nodes:,} nodes shared out {how}" if len(typed) > 1 else "as many nodes as asked"
    elif not timed:
        raise InputError(
            f"{trace.name}: {listed(typed)}, but the log records no starts, so the number "
            "of nodes of each type cannot be told. Export the starts as well (the Start column of "
            "sacct), give --nodes or --cluster FILE, or take all GPUs as equal "
            "(--ignore-gpu-types)."
        )
    else:
        count = _in_use(trace, uses, size)
        how = "the fewest nodes that hold the GPUs in use at once"
    entries = [
        ("", {"count": n, "gpus": each, "gpu_type": use.gpu_type})
        for use, each, n in zip(typed, size, count, strict=True)
    ]
    shown = [f"{e['count']:,} × {e['gpus']} {e['gpu_type']}" for _, e in entries[:_MOST_NAMED]]
    more = [f"{len(entries) - _MOST_NAMED:,} more types"] if len(entries) > _MOST_NAMED else []
    kinds = ", ".join([*shown, *more])
    return build_cluster(trace.name, entries), f"{kinds} ({how})"


def _in_use(trace: Trace, uses: Sequence[GpuTypeUse], size: Sequence[int]) -> list[int]:
    """Nodes of each type: what its GPUs in use needed, and more of the first for other jobs."""
    typed = [use for use in uses if use.gpu_type]
    count = [
        -(-max(use.peak_gpus or 0, use.largest) // each)
        for use, each in zip(typed, size, strict=True)
    ]
    together = peak_gpus(trace, ~np.isnan(trace.started_s))
    wanted = max(together, *(use.largest for use in uses))
    missing = wanted - sum(n * each for n, each in zip(count, size, strict=True))
    count[0] += max(0, -(-missing // size[0]))
    return count


def _shared_out(trace: Trace, typed: Sequence[GpuTypeUse], nodes: int, weight: Floats) -> list[int]:
    """`nodes` in proportion to weights, by largest remainders, at least one for each type."""
    if nodes < len(typed):
        raise ConfigError(
            f"{trace.name}: {listed(typed)}; {len(typed):,} types need at least "
            f"{len(typed):,} nodes, not {nodes:,}. "
            "Give more --nodes, a --cluster FILE, or take all GPUs as equal (--ignore-gpu-types)."
        )
    exact = nodes * weight / max(float(weight.sum()), 1e-300)
    count = np.floor(exact).astype(np.int64)
    count[np.argsort(count - exact, kind="stable")[: nodes - int(count.sum())]] += 1
    for k in np.flatnonzero(count == 0).tolist():
        count[count.argmax()] -= 1
        count[k] = 1
    return [int(n) for n in count]


def listed(uses: Sequence[GpuTypeUse]) -> str:
    """The types that jobs ask for, and how much of each, as a clause."""
    typed = [use for use in uses if use.gpu_type]
    each = [
        f"{use.gpu_type!r} ({_jobs(use.jobs)}, {use.gpu_hours:,.1f} GPU-hours)" for use in typed
    ]
    more = f" and {len(each) - _MOST_NAMED:,} more" if len(each) > _MOST_NAMED else ""
    kinds = ", ".join(each[:_MOST_NAMED])
    return f"its jobs ask for GPU type{'s' * (len(each) != 1)} {kinds}{more}"


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"


def missing_types(trace: Trace, cluster: Cluster) -> str | None:
    """What to say of jobs whose GPU type no node of the cluster has; None if there are none."""
    have = {cluster.gpu_types[code] for code in np.unique(cluster.type)}
    if all(use.gpu_type in have for use in gpu_type_use(trace) if use.gpu_type):
        return None
    names = ", ".join(map(repr, sorted(have)))
    return (
        f"{listed(gpu_type_use(trace))}, but the nodes of the cluster ({cluster.describe()}) have "
        f"{names}. Name the types in a cluster file (gpu_type), give no cluster file so that the "
        "types are taken from the log, or take all GPUs as equal (--ignore-gpu-types)."
    )
