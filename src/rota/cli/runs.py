"""The tables of `rota simulate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import typer

from rota.cli.loading import short_names
from rota.cli.table import print_table
from rota.dash import units
from rota.dash.metric_columns import metric_columns

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
_OF_GROUPS: Final = ("jobs", "mean_jct_s", "p99_jct_s", "mean_wait_s", "mean_slowdown")
TOP_USERS: Final = 15
RECORD: Final = "the log's own record of starts and run times, not a simulation"
"""What the row *as it was* is."""
_OVER_SEEDS: Final = (
    "mean_jct_s", "p50_jct_s", "p99_jct_s", "mean_wait_s", "makespan_s", "utilisation",
    "preemptions", "moves", "resizes", "mean_fee",
)  # fmt: skip

LEARNED: Final = ("mean_accuracy", "mean_accuracy_gain", "grown")
"""What a world with learning curves adds."""


def print_runs(
    runs: Sequence[Mapping[str, Any]], facts: Mapping[str, Any], jobs: Trace, by: Sequence[str]
) -> None:
    """Print how the policies compare, below what the log records, and by size or user if asked."""
    record = facts["as_it_was"]
    rows = [*([] if record is None else [record]), *runs]
    columns = [(head, show([row[key] for row in rows])) for head, key, show in _COLUMNS]
    columns += [
        (head, units.counts([row[key] for row in rows]))
        for head, key in _ONLY_IF_ANY
        if any(row[key] for row in rows)
    ]
    if any(row.get("mean_fee") is not None for row in rows):
        columns.append(("mean fee", units.numbers([row["mean_fee"] for row in rows])))
    if all("mean_accuracy" in row for row in runs):
        columns += metric_columns(rows, LEARNED)
    where = f"{facts['cluster']['about']}, seed {facts['seed']}"
    title = f"{jobs.name}: {units.plural(len(jobs), 'job')} on {where}"
    names = short_names(row["policy"] for row in rows)
    print_table([("policy", [names[row["policy"]] for row in rows]), *columns], title=title)
    for line in _caption(runs, facts, jobs):
        typer.echo(line)
    if record is not None:
        typer.echo(f"{record['policy']}: {RECORD}")
    for row in rows:
        for group in by:
            typer.echo()
            print_groups(row, group, names[row["policy"]])


def over_seeds(runs: Sequence[Mapping[str, Any]], policies: Sequence[str]) -> list[dict[str, Any]]:
    """Per policy: means over its runs, an interval of the mean JCT, the difference to the first."""
    import numpy as np

    from rota.run.metrics import mean_over
    from rota.run.stats import paired

    of = {name: [run for run in runs if run["policy"] == name] for name in policies}
    jct = {
        name: np.array([np.nan if run["mean_jct_s"] is None else run["mean_jct_s"] for run in own])
        for name, own in of.items()
    }
    rows = []
    for name, own in of.items():
        rng, both = np.random.default_rng(0), ~np.isnan(jct[name] + jct[policies[0]])
        row: dict[str, Any] = {"policy": name, "seeds": len(own), **mean_over(own, _OVER_SEEDS)}
        if all("mean_accuracy" in run for run in own):
            row |= mean_over(own, LEARNED)
        alone = jct[name][~np.isnan(jct[name])]
        spread = paired(alone, np.zeros(len(alone)), rng) if len(alone) else None
        row["mean_jct_ci_s"] = spread.difference_ci if spread else None
        against = None
        if name != policies[0] and both.any():
            against = paired(jct[name][both], jct[policies[0]][both], rng)
        row["baseline"] = policies[0]
        row["ratio"] = against.ratio if against else None
        row["ratio_ci"] = against.ratio_ci if against else None
        rows.append(row)
    return rows


def print_seeds(facts: Mapping[str, Any], slot_s: float) -> None:
    """Print what `over_seeds` found."""
    rows = facts["summary"]
    ends = [row["mean_jct_ci_s"] or (None, None) for row in rows]
    mean, low, high = _alike(
        [row["mean_jct_s"] for row in rows], [end[0] for end in ends], [end[1] for end in ends]
    )
    names = list(short_names(row["policy"] for row in rows).values())
    columns = [
        ("policy", names),
        ("mean JCT", mean),
        ("95 % interval", [f"{a} to {b}" for a, b in zip(low, high, strict=True)]),
    ]
    if slot_s > 0:
        slots = [None if r["mean_jct_s"] is None else r["mean_jct_s"] / slot_s for r in rows]
        columns.append(("in slots", units.numbers(slots)))
    columns += [
        (f"vs {names[0]}",
         ["baseline", *(units.change(row["ratio"]) for row in rows[1:])]),
        ("95 % interval", ["", *(units.change_within(row["ratio_ci"]) for row in rows[1:])]),
        ("p99", units.times([row["p99_jct_s"] for row in rows])),
        *metric_columns(rows, ("makespan_s", "utilisation", "preemptions", "resizes")),
    ]  # fmt: skip
    if any(row["mean_fee"] is not None for row in rows):
        columns.append(("mean fee", units.numbers([row["mean_fee"] for row in rows])))
    if all("mean_accuracy" in row for row in rows):
        columns += metric_columns(rows, LEARNED)
    scenario, seeds = facts["scenario"], facts["seeds"]
    title = (
        f"{scenario['name']} (version {scenario['version']}): "
        f"{units.plural(facts['trace']['jobs'], 'job')} on {facts['cluster']['about']}, "
        f"{len(seeds)} seeds from {seeds[0]} to {seeds[-1]}"
    )
    print_table(columns, title=title)
    typer.echo("means over seeds; intervals by bootstrap, differences over the same seeds")


def _alike(*columns: Sequence[float | None]) -> list[list[str]]:
    """Columns of times in one unit, that of the longest."""
    shown = units.times([value for column in columns for value in column])
    rows = len(columns[0])
    return [shown[k : k + rows] for k in range(0, len(shown), rows)]


def _caption(runs: Sequence[Mapping[str, Any]], facts: Mapping[str, Any], jobs: Trace) -> list[str]:
    restart_s, resize_s = (facts["conditions"][key] for key in ("restart_s", "resize_s"))
    # NaN, where the trace says nothing.
    own = not all((cost_s != cost_s).all() for cost_s in (jobs.restart_s, jobs.resize_s))
    if own:
        cost = "a stop or move costs what the trace says"
    elif resize_s is not None and resize_s != restart_s:
        cost = (
            f"a stop costs {units.time(restart_s)}, a resize or move of an elastic job "
            f"{units.time(resize_s)} (--restart-cost {restart_s:g}s --resize-cost {resize_s:g}s)"
        )
    elif restart_s:
        cost = f"a stop or move costs {units.time(restart_s)} (--restart-cost {restart_s:g}s)"
    else:
        cost = "preemption and moving are free (--restart-cost 0)"
    wall_s = sum(run["wall_s"] for run in runs)
    rate = f"simulated {len(runs) * len(jobs) / wall_s:,.0f} jobs/s" if wall_s > 0 else ""
    return ["; ".join(filter(None, (cost, rate)))]


def print_groups(run: Mapping[str, Any], by: str, policy: str) -> None:
    """Print the table of one run by `size` or `user`; `policy` is what tables call its policy."""
    rows = [row for row in run[f"by_{by}"] if row["jobs"]]
    shown = rows[:TOP_USERS] if by == "user" else rows
    names = [row[by] if row[by] is not None else "(no user)" for row in shown]
    columns = metric_columns(shown, _OF_GROUPS)
    heading = "user" if by == "user" else "GPUs"
    print_table([(heading, names), *columns], title=f"{policy} by {by}")
    if len(rows) > len(shown):
        typer.echo(f"and {units.plural(len(rows) - len(shown), 'further user')} (--json lists all)")
