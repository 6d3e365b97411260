"""Columns of tables of results: what every metric is called, and how its values are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rota.dash import units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

METRICS: Final[Mapping[str, tuple[str, Callable[[Sequence[float | None]], list[str]]]]] = {
    "jobs": ("jobs", units.counts),
    "finished": ("finished", units.counts),
    "gave_up": ("gave up", units.counts),
    "mean_jct_s": ("mean JCT", units.times),
    "p50_jct_s": ("p50 JCT", units.times),
    "p90_jct_s": ("p90 JCT", units.times),
    "p99_jct_s": ("p99 JCT", units.times),
    "mean_wait_s": ("mean wait", units.times),
    "mean_slowdown": ("mean slowdown", units.numbers),
    "makespan_s": ("makespan", units.times),
    "utilisation": ("utilisation", units.percents),
    "held_gpu_h": ("GPU-hours held", units.numbers),
    "preemptions": ("preemptions", units.counts),
    "moves": ("moves", units.counts),
    "resizes": ("resizes", units.counts),
    "kills": ("failures", units.counts),
    "mean_accuracy": ("accuracy", units.percents),
    "mean_accuracy_gain": ("gain", units.percents),
    "grown": ("grown", units.counts),
}


def metric_columns(
    rows: Sequence[Mapping[str, Any]], keys: Iterable[str]
) -> list[tuple[str, list[str]]]:
    """A heading and the values of all rows, for each of these metrics."""
    return [
        (head, show([row[key] for row in rows])) for key in keys for head, show in [METRICS[key]]
    ]
