"""The tables of `rota compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from rota.cli.cases import SEPARATOR
from rota.cli.loading import short_names
from rota.cli.runs import RECORD
from rota.cli.table import print_table
from rota.dash import units
from rota.dash.metric_columns import metric_columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def print_results(results: Mapping[str, Any]) -> None:
    """Print a table per case, one across the cases of each trace, one over all, and the notes."""
    for label in results["traces"]:
        _print_case(results, label)
    for trace in results["axes"]["traces"]:
        _print_across(results, trace)
    _print_overall(results)
    if results["as_it_was"]:
        typer.echo(f"{results['as_it_was'][0]['policy']}: {RECORD}.")
    for line in results["notes"]:
        typer.echo(line)


def _print_case(results: Mapping[str, Any], label: str) -> None:
    found = {(row["scope"], row["policy"]): row for row in results["comparisons"]}
    rows = _rows(results, label)
    against = [found.get((label, row["policy"])) for row in rows]
    names = _names(results)
    columns = [
        ("policy", [names[row["policy"]] for row in rows]),
        ("runs", units.counts([row["runs"] for row in rows])),
        *metric_columns(rows, ["mean_jct_s"]),
        (f"vs {names[results['baseline']]}",
         [_change(results, row, other) for row, other in zip(rows, against, strict=True)]),
        ("95 % interval", [_interval(row) for row in against]),
        ("over", ["" if row is None else f"{row['n']:,} {row['over']}" for row in against]),
        *metric_columns(rows, ("p99_jct_s", "mean_wait_s", "utilisation")),
    ]  # fmt: skip
    print_table(columns, title=f"{label} on {results['cases'][label]['cluster']['about']}")
    typer.echo()


def _names(results: Mapping[str, Any]) -> dict[str, str]:
    """What tables call the policies, and the log's own record."""
    return short_names([*results["policies"], *(row["policy"] for row in results["as_it_was"])])


def _rows(results: Mapping[str, Any], label: str) -> list[Mapping[str, Any]]:
    """The log's own record, if there is one, and the policies of a case."""
    both = (*results["as_it_was"], *results["table"])
    return [row for row in both if row["trace"] == label]


def _print_across(results: Mapping[str, Any], trace: str) -> None:
    """How each policy's mean JCT changes from the first case of a trace to the others."""
    labels = [label for label, case in results["cases"].items() if case["trace"] == trace]
    if len(labels) < 2:
        return
    mean_s = {(row["trace"], row["policy"]): row["mean_jct_s"] for row in results["table"]}
    rows = [[mean_s[label, policy] for label in labels] for policy in results["policies"]]
    names = [_setting(results, label) for label in labels]
    columns = [("policy", [_names(results)[policy] for policy in results["policies"]])]
    for k, name in enumerate(names):
        shown = units.times([row[k] for row in rows])
        if k:
            ratios = [None if not row[0] or row[k] is None else row[k] / row[0] - 1 for row in rows]
            shown = [
                f"{time} ({units.change(ratio)})" for time, ratio in zip(shown, ratios, strict=True)
            ]
        columns.append((name, shown))
    print_table(columns, title=f"{trace}: mean JCT, and its change from {names[0]}")
    typer.echo()


def _setting(results: Mapping[str, Any], label: str) -> str:
    """A case without its trace: what a comparison of several clusters or costs varies."""
    case, axes = results["cases"][label], results["axes"]
    parts = [
        *([case["cluster_name"]] if len(axes["clusters"]) > 1 else []),
        *([f"restart {case['restart_s']:g} s"] if len(axes["restart_s"]) > 1 else []),
    ]
    return SEPARATOR.join(parts)


def _print_overall(results: Mapping[str, Any]) -> None:
    overall: Sequence[Mapping[str, Any]] = [
        row for row in results["comparisons"] if row["scope"] not in results["traces"]
    ]
    if not overall:
        return
    short = _names(results)
    columns = [
        ("policy", [short[row["policy"]] for row in overall]),
        ("mean JCT", [units.change(row["ratio"]) for row in overall]),
        ("95 % interval", [_interval(row) for row in overall]),
        ("over", [f"{row['n']:,} {row['over']}" for row in overall]),
    ]
    print_table(columns, title=f"{overall[0]['scope']}, against {short[results['baseline']]}")
    typer.echo()


def _change(
    results: Mapping[str, Any], row: Mapping[str, Any], against: Mapping[str, Any] | None
) -> str:
    if against is not None:
        return units.change(against["ratio"])
    return "baseline" if row["policy"] == results["baseline"] else ""


def _interval(row: Mapping[str, Any] | None) -> str:
    return "" if row is None else units.change_within(row["ratio_ci"])
