"""What is in a trace, in numbers and in bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.traces.log_cluster import gpu_type_use, peak_gpus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core.types import Floats
    from rota.traces.trace import Trace

PERCENTILES: Final = (1, 5, 10, 25, 50, 75, 90, 95, 99)
_TOP_USERS: Final = 10
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"


def describe(trace: Trace, gpus: int | None = None) -> dict[str, Any]:
    """Sum up a trace as plain numbers, ready for JSON; with `gpus`, also the load on that many.

    `load` is None when all jobs come at once. Times are in seconds.
    """
    sizes, counts = np.unique(trace.num_gpus, return_counts=True)
    work_s = trace.num_gpus * trace.duration_s
    by_size_s = np.bincount(np.searchsorted(sizes, trace.num_gpus), work_s)
    total_s = max(trace.gpu_seconds, 1e-300)
    load = trace.load(gpus) if gpus else None
    return {
        "name": trace.name,
        "jobs": len(trace),
        "skipped": trace.skipped,
        "left_out": dict(trace.left_out),
        "first_submit_s": float(trace.submit_s[0]),
        "span_s": trace.span_s,
        "gpu_hours": trace.gpu_seconds / 3600,
        "mean_gpus_busy": trace.gpu_seconds / trace.span_s if trace.span_s else None,
        "gpus": gpus,
        "load": load if load is not None and np.isfinite(load) else None,
        "duration_s": _spread(trace.duration_s),
        "gap_s": _spread(np.diff(trace.submit_s)),
        "num_gpus": [
            {"gpus": size, "jobs": count, "gpu_hour_share": share}
            for size, count, share in zip(
                sizes.tolist(), counts.tolist(), (by_size_s / total_s).tolist(), strict=True
            )
        ],
        "users": len(trace.users),
        "top_users": _most(trace.user, trace.users),
        "top_models": _most(trace.model, trace.models),
        "with_deadline": int(np.isfinite(trace.deadline_s).sum()),
        "elastic": int((trace.min_workers < trace.max_workers).sum()),
        "gpu_types": [
            {
                "gpu_type": use.gpu_type or None,
                "jobs": use.jobs,
                "gpu_hours": use.gpu_hours,
                "gpus_per_node": use.gpus_per_node,
                "peak_gpus": use.peak_gpus,
            }
            for use in gpu_type_use(trace)
        ],
        "time_limits": _limits(trace),
        "recorded": _recorded(trace),
    }


def _limits(trace: Trace) -> dict[str, Any]:
    """How many jobs have a time limit, and which part of it they ran."""
    limited = ~np.isnan(trace.estimate_s)
    used = trace.duration_s[limited] / trace.estimate_s[limited]
    return {"jobs": int(limited.sum()), "used": _spread(used), "exceeded": int((used > 1).sum())}


def _recorded(trace: Trace) -> dict[str, Any]:
    """How many jobs have a start in the log's own record, and how long they waited for it."""
    started = ~np.isnan(trace.started_s)
    wait_s = (trace.started_s - trace.submit_s)[started]
    peak = peak_gpus(trace, started) if started.any() else None
    return {"jobs": int(started.sum()), "wait_s": _spread(wait_s), "peak_gpus": peak}


def _spread(values: Floats) -> dict[str, float] | None:
    if not values.size:
        return None
    marks = np.percentile(values, PERCENTILES).tolist()
    spread = {f"p{mark}": value for mark, value in zip(PERCENTILES, marks, strict=True)}
    return {"mean": float(values.mean()), "max": float(values.max()), **spread}


def _most(codes: Any, names: Sequence[str]) -> list[dict[str, Any]]:
    counts = np.bincount(codes[codes >= 0], minlength=len(names))
    order = np.argsort(-counts, kind="stable")[:_TOP_USERS]
    return [{"name": names[k], "jobs": int(counts[k])} for k in order if counts[k]]


def bars(labels: Sequence[str], amounts: Sequence[float], width: int = 40) -> list[str]:
    """Draw a horizontal histogram, one line per label, to an eighth of a character."""
    if not amounts:
        return []
    margin = max(map(len, labels))
    scale = 8 * width / (max(amounts) or 1)
    lines = []
    for label, amount in zip(labels, amounts, strict=True):
        whole, part = divmod(round(amount * scale), 8)
        bar = ("█" * whole + _EIGHTHS[part]).rstrip() or ("▏" if amount else "")
        lines.append(f"{label:>{margin}} {bar:<{width}} {amount:,.0f}")
    return lines


def duration_bars(trace: Trace, width: int = 40) -> list[str]:
    """Draw how many jobs run how long, in steps that people think in."""
    edges = (10, 60, 600, 3600, 4 * 3600, 86400, 7 * 86400, np.inf)
    labels = ("< 10 s", "< 1 min", "< 10 min", "< 1 h", "< 4 h", "< 1 d", "< 7 d", "7 d or more")
    steps = np.searchsorted(edges, trace.duration_s, side="right")
    return bars(labels, np.bincount(steps, minlength=len(labels)).tolist(), width)


def size_bars(trace: Trace, width: int = 40) -> list[str]:
    """Draw how many jobs want how many GPUs, in powers of two."""
    step = np.ceil(np.log2(trace.num_gpus)).astype(np.int64)
    counts = np.bincount(step).tolist()
    labels = ["1 GPU", "2", *(f"{2 ** (k - 1) + 1}–{2**k}" for k in range(2, len(counts)))]
    return bars(labels[: len(counts)], counts, width)
