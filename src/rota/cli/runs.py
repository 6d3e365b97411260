"""The tables of `rota simulate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import typer

from rota.cli.loading import short_name
from rota.cli.table import print_table
from rota.dash import units

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rota.traces import Trace

_COLUMNS: Final[tuple[tuple[str, str, Callable[[Sequence[float | None]], list[str]]], ...]] = (
    ("mean JCT", "mean_jct_s", units.times),
    ("p50", "p50_jct_s", units.times),
    ("p90", "p90_jct_s", units.times),
    ("p99", "p99_jct_s", units.times),
    ("mean wait", "mean_wait_s", units.times),
    ("makespan", "makespan_s", units.times),
    ("utilisation", "utilisation", units.percents),
    ("preemptions", "preemptions", units.counts),
    ("moves", "moves", units.counts),
)
_ONLY_IF_ANY: Final = (("kills", "kills"), ("gave up", "gave_up"), ("resizes", "resizes"))
_GROUP_COLUMNS: Final = (
    ("jobs", "jobs", units.counts),
    ("mean JCT", "mean_jct_s", units.times),
    ("p99 JCT", "p99_jct_s", units.times),
    ("mean wait", "mean_wait_s", units.times),
    ("mean slowdown", "mean_slowdown", units.numbers),
)
TOP_USERS: Final = 15


def print_runs(
    runs: Sequence[Mapping[str, Any]], facts: Mapping[str, Any], jobs: Trace, by: str | None
) -> None:
    """Print how the policies compare, and by size or user if asked."""
    columns = [(head, show([run[key] for run in runs])) for head, key, show in _COLUMNS]
    columns += [
        (head, units.counts([run[key] for run in runs]))
        for head, key in _ONLY_IF_ANY
        if any(run[key] for run in runs)
    ]
    where = f"{facts['cluster']['about']}, seed {facts['seed']}"
    title = f"{jobs.name}: {units.plural(len(jobs), 'job')} on {where}"
    print_table([("policy", [short_name(run["policy"]) for run in runs]), *columns], title=title)
    for line in _caption(runs, facts, jobs):
        typer.echo(line)
    if by is not None:
        for run in runs:
            typer.echo()
            _print_groups(run, by)


def _caption(runs: Sequence[Mapping[str, Any]], facts: Mapping[str, Any], jobs: Trace) -> list[str]:
    restart_s = facts["conditions"]["restart_s"]
    own = not (jobs.restart_s != jobs.restart_s).all()  # NaN, where the trace says nothing
    if own:
        cost = "a stop or move costs what the trace says"
    elif restart_s:
        cost = f"a stop or move costs {units.time(restart_s)} (--restart-cost {restart_s:g})"
    else:
        cost = "preemption and moving are free (--restart-cost 0)"
    wall_s = sum(run["wall_s"] for run in runs)
    rate = f"simulated {len(runs) * len(jobs) / wall_s:,.0f} jobs/s" if wall_s > 0 else ""
    return ["; ".join(filter(None, (cost, rate)))]


def _print_groups(run: Mapping[str, Any], by: str) -> None:
    rows = [row for row in run[f"by_{by}"] if row["jobs"]]
    shown = rows[:TOP_USERS] if by == "user" else rows
    names = [row[by] if row[by] is not None else "(nobody)" for row in shown]
    columns = [(head, show([row[key] for row in shown])) for head, key, show in _GROUP_COLUMNS]
    heading = "user" if by == "user" else "GPUs"
    print_table([(heading, names), *columns], title=f"{short_name(run['policy'])} by {by}")
    if len(rows) > len(shown):
        typer.echo(f"and {units.plural(len(rows) - len(shown), 'further user')} (--json lists all)")
