"""Tables by size and by user, and what of a log was left out: shared by all reports."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.dash import units
from rota.dash.metric_columns import metric_columns
from rota.dash.page import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rota.core import Cluster

UNNAMED: Final = "gpu"
"""The type of GPUs that were given no name."""
MOST_ROWS: Final = 15
"""Further users are only counted."""
_METRICS: Final = ("jobs", "finished", "mean_jct_s", "p99_jct_s", "mean_wait_s", "mean_slowdown")


def group_name(row: Mapping[str, Any], by: str) -> str:
    """What a row of `by_size` or `by_user` is about."""
    if by == "size":
        return f"{row['size']} GPU{'s' * (row['size'] != '1')}"
    return str(row["user"]) if row["user"] is not None else "(no user)"


def group_table(
    rows: Sequence[Mapping[str, Any]], by: str, further: Iterable[str] = ()
) -> list[str]:
    """The table of one run by `size` or `user`, with `further` metrics."""
    kept = [row for row in rows if row["jobs"]]
    shown = kept[:MOST_ROWS]
    columns = metric_columns(shown, (*_METRICS, *further))
    cells = zip(*(texts for _, texts in columns), strict=True)
    lines = [
        ("", [escape(group_name(row, by)), *own]) for row, own in zip(shown, cells, strict=True)
    ]
    if not lines:
        return []
    return [table([by, *(head for head, _ in columns)], lines), *_left(len(kept) - len(shown))]


def compared_groups(
    runs: Sequence[Mapping[str, Any]], policies: Sequence[str], by: str
) -> list[str]:
    """A row per group, a column per policy: the mean JCT, averaged over the runs of a policy."""
    found: dict[str, dict[str, list[float]]] = {}
    jobs: dict[str, list[int]] = {}
    for run in runs:
        for row in run.get(f"by_{by}", ()):
            if row["jobs"]:
                name = group_name(row, by)
                jobs.setdefault(name, []).append(row["jobs"])
                own = found.setdefault(name, {}).setdefault(run["policy"], [])
                own += [row["mean_jct_s"]] if row["mean_jct_s"] is not None else []
    if not found:
        return []
    names = list(found)[:MOST_ROWS]
    counts = units.counts([sum(jobs[name]) / len(jobs[name]) for name in names])
    lines = [
        # One unit per row: it is policies that are compared.
        ("", [escape(name), count, *units.times([_mean(found[name].get(p, ())) for p in policies])])
        for name, count in zip(names, counts, strict=True)
    ]
    most = max(run.get(f"{by}s", 0) for run in runs)
    caption = f"mean JCT by {by}"
    left = max(most, len(found)) - len(names)
    return [table([by, "jobs", *policies], lines, caption), *_left(left)]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _left(users: int) -> list[str]:
    if users <= 0:
        return []
    text = f"Not shown: {units.plural(users, 'further user')} with fewer GPU-hours."
    return [f'<p class="note">{text}</p>']


def losses(facts: Mapping[str, Any]) -> list[str]:
    """What of a log did not become a job, a sentence each."""
    found = []
    if facts.get("skipped"):
        found.append(f"{units.plural(facts['skipped'], 'broken line')} skipped.")
    for reason, count in (facts.get("left_out") or {}).items():
        found.append(f"{units.plural(count, 'job')} left out: {reason}.")
    if facts.get("oversized"):
        jobs = units.plural(facts["oversized"], "job")
        found.append(f"{jobs} left out that the empty cluster cannot hold.")
    return found


def cluster_facts(cluster: Cluster) -> dict[str, Any]:
    """A cluster in a few words and numbers, for JSON."""
    by_type = np.bincount(cluster.type, cluster.gpus, len(cluster.gpu_types)).astype(int).tolist()
    return {
        "about": cluster.describe(), "nodes": len(cluster), "gpus": cluster.total_gpus,
        "gpu_types": list(cluster.gpu_types),
        "gpus_by_type": dict(zip(cluster.gpu_types, by_type, strict=True)),
    }  # fmt: skip


def gpu_types(cluster: Mapping[str, Any]) -> str:
    """The GPUs of a cluster by type, as text; nothing, where they have no names."""
    by_type = cluster.get("gpus_by_type") or {}
    if list(by_type) == [UNNAMED]:
        return ""
    return ", ".join(f"{count:,} × {kind}" for kind, count in by_type.items())
