"""The report of a comparison: one HTML file that needs nothing else."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

from rota.dash import axes, groups, svg, units
from rota.dash.metric_columns import metric_columns
from rota.dash.page import charts, facts, legend, page, table
from rota.traces.text_files import write_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_METRICS: Final = (
    "p50_jct_s", "p99_jct_s", "mean_wait_s", "makespan_s", "utilisation", "preemptions", "moves",
)  # fmt: skip
_CONDITIONS: Final = {
    "restart_s": ("cost of starting again after a stop", "none"),
    "resize_s": ("cost of a resize or move", "none"),
    "min_run_s": ("shortest run before a stop", "none"),
    "slot_s": ("decisions", "at every arrival and completion"),
    "whole_slots": ("jobs end", "when their work is done"),
    "checkpoint_s": ("progress between checkpoints", "none"),
    "estimate_error": ("log error of estimates", "none"),
    "trust_trace": ("estimates", "true durations"),
    "hide_durations": ("durations", "known to policies"),
    "node_mtbf_s": ("node failures", "none"),
    "node_repair_s": ("repair of a node", "none"),
    "job_mtbf_s": ("job failures", "none"),
    "retries": ("retries of a failed job", "none"),
}
"""Field of the conditions → what it is, and what its zero or absence means."""
_SPECIAL: Final = ("restart_s", "min_run_s", "slot_s", "estimate_error", "hide_durations")
"""What is said of a scenario's conditions, if it is not zero."""


def write_report(path: Path, results: Mapping[str, Any]) -> None:
    """Write what `rota compare` found, in the form of its results.json, as a web page."""
    write_text(path, render(results))


def render(results: Mapping[str, Any]) -> str:
    """The page as text."""
    body = [
        *_opening(results),
        *(part for trace in results["traces"] for part in _of_trace(results, trace)),
        *_differences(results),
        *_distributions(results),
        *_utilisation(results),
        *_conditions(results),
    ]
    return page(f"{results['name']}: policies compared", body)


def _opening(results: Mapping[str, Any]) -> list[str]:
    sizes = (
        units.plural(len(results["policies"]), "policy", "policies"),
        units.plural(len(results["traces"]), "trace"),
        units.plural(len(results["runs"]), "run"),
    )
    own = results.get("cases", {})
    places = [own.get(trace, results)["cluster"]["about"] for trace in results["traces"]]
    where = ", ".join(dict.fromkeys(places))
    sub = f"{', '.join(sizes)} on {where}; baseline {results['baseline']}"
    lines = [f"<h1>{escape(results['name'])}</h1>", f'<p class="sub">{escape(sub)}</p>']
    headline = _headline(results)
    if headline:
        lines.append(f'<p class="lead">{escape(headline)}</p>')
    return lines


def _headline(results: Mapping[str, Any]) -> str:
    """The largest improvement that is more than chance, or that there is none."""
    scopes = list(dict.fromkeys(row["scope"] for row in results["comparisons"]))
    rows = [
        row for row in results["comparisons"]
        if row["scope"] == scopes[-1] and row["ratio_ci"] is not None
    ]  # fmt: skip
    if not rows:
        return ""
    best = min(rows, key=lambda row: float(row["ratio"]))
    if best["ratio_ci"][1] >= 0:
        return f"No policy has a mean JCT that is clearly below that of {results['baseline']}."
    return (
        f"{best['policy']} has the lowest mean JCT: {units.change(best['ratio'])} against "
        f"{results['baseline']} (95 % interval {units.change_within(best['ratio_ci'])}, "
        f"over {best['n']:,} {best['over']})."
    )


def _of_trace(results: Mapping[str, Any], trace: str) -> list[str]:
    # What the log records of its own schedule stands first.
    both = (*results.get("as_it_was", ()), *results["table"])
    rows = [row for row in both if row["trace"] == trace]
    found = {row["policy"]: row for row in results["comparisons"] if row["scope"] == trace}
    against = [found.get(row["policy"]) for row in rows]
    verdicts = [
        _verdict(other) if other or row["policy"] == results["baseline"] else ""
        for other, row in zip(against, rows, strict=True)
    ]
    headings, columns = zip(
        ("policy", [_marked(results, row["policy"]) for row in rows]),
        *metric_columns(rows, ["mean_jct_s"]),
        (f"vs {results['baseline']} (95 % interval)", verdicts),
        *metric_columns(rows, _METRICS),
        strict=True,
    )
    kinds = ["baseline" if row["policy"] == results["baseline"] else "" for row in rows]
    cells = zip(kinds, zip(*columns, strict=True), strict=True)
    runs = units.plural(max(row["runs"] for row in rows), "run")
    own = [run for run in results["runs"] if run.get("trace") == trace]
    lost = " (some of the log left out, see the end)" if own and groups.losses(own[0]) else ""
    caption = f"{rows[-1]['jobs']:,.0f} jobs{lost}; means over {runs}"
    if rows[0]["policy"] not in results["policies"]:
        caption += f"; {rows[0]['policy']}: the log's own record, not a simulation"
    lines = [f"<h2>{escape(trace)}</h2>", table(headings, cells, caption)]
    for by in ("size", "user"):
        lines += groups.compared_groups(own, results["policies"], by)
    return lines


def _marked(results: Mapping[str, Any], policy: str) -> str:
    known = results["policies"]
    return (svg.swatch(known.index(policy)) if policy in known else "") + escape(policy)


def _verdict(row: Mapping[str, Any] | None) -> str:
    """A difference, coloured if its interval leaves no doubt of the sign."""
    if row is None:
        return "baseline"
    text, ci = units.change(row["ratio"]), row["ratio_ci"]
    if ci is None:
        return text
    kind = "good" if ci[1] < 0 else "bad" if ci[0] > 0 else "open"
    return f'<span class="{kind}">{text}</span> <small>({units.change_within(ci)})</small>'


def _differences(results: Mapping[str, Any]) -> list[str]:
    scopes = list(dict.fromkeys(row["scope"] for row in results["comparisons"]))
    figures = []
    for number, scope in enumerate(scopes):
        known = [
            row for row in results["comparisons"]
            if row["scope"] == scope and row["ratio_ci"] is not None
        ]  # fmt: skip
        if known:
            figures.append(_forest(results, f"forest{number}", scope, known))
    if not figures:
        return []
    words = (
        "Points are the relative difference of the mean JCT, bars its 95 % bootstrap interval; "
        "left of zero is shorter, so better. A bar that crosses zero may be chance."
    )
    return ["<h2>Difference to the baseline</h2>", f'<p class="sub">{words}</p>', *figures]


def _forest(
    results: Mapping[str, Any], name: str, scope: str, known: Sequence[Mapping[str, Any]]
) -> str:
    rows = [
        svg.Interval(
            row["policy"], results["policies"].index(row["policy"]), row["ratio"],
            row["ratio_ci"],
            f"{units.change(row['ratio'])} ({units.change_within(row['ratio_ci'])})",
        )
        for row in known
    ]  # fmt: skip
    over = f"{known[0]['n']:,} {known[0]['over']}"
    about = "; ".join(f"{row.label}: {row.text}" for row in rows)
    label = f"mean JCT against {results['baseline']}"
    title = f"{scope}, over {over}"
    return svg.forest(name, title, about, label, rows)


def _distributions(results: Mapping[str, Any]) -> list[str]:
    figures = []
    for number, trace in enumerate(results["traces"]):
        lines = [
            svg.Line(c["policy"], results["policies"].index(c["policy"]),
                     c["jct_cdf"]["x"], c["jct_cdf"]["p"])
            for c in results["curves"] if c["trace"] == trace and c["jct_cdf"]["x"]
        ]  # fmt: skip
        if lines:
            low, high = min(line.x[0] for line in lines), max(line.x[-1] for line in lines)
            about = f"Share of jobs completed within a time, one curve per policy, on {trace}."
            x, y = axes.log_time_axis("job completion time", low, high), axes.share_axis("jobs")
            figures.append(svg.chart(f"cdf{number}", trace, about, lines, x, y))
    words = "Share of jobs that are complete after a time (JCT, from submission); higher is better."
    return _section("Job completion times", words, results, figures)


def _utilisation(results: Mapping[str, Any]) -> list[str]:
    figures = []
    for number, trace in enumerate(results["traces"]):
        lines = [
            svg.Line(c["policy"], results["policies"].index(c["policy"]),
                     c["utilisation"]["time_s"], c["utilisation"]["share"])
            for c in results["curves"] if c["trace"] == trace and c["utilisation"]["time_s"]
        ]  # fmt: skip
        if lines:
            about = f"GPUs held by jobs over time, one curve per policy, on {trace}."
            x = axes.time_axis("time since the first job", max(line.x[-1] for line in lines))
            y = axes.share_axis("GPUs in use")
            figures.append(svg.chart(f"use{number}", trace, about, lines, x, y))
    words = f"Share of the GPUs that jobs hold, under seed {results['seeds'][0]}."
    return _section("Utilisation over time", words, results, figures)


def _section(
    heading: str, words: str, results: Mapping[str, Any], figures: Sequence[str]
) -> list[str]:
    if not figures:
        return []
    return [
        f"<h2>{heading}</h2>",
        f'<p class="sub">{escape(words)}</p>',
        legend(_marked(results, policy) for policy in results["policies"]),
        charts(figures),
    ]


def _conditions(results: Mapping[str, Any]) -> list[str]:
    seeds = ", ".join(map(str, results["seeds"]))
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    scenarios = results.get("scenarios", {})
    conditions = {key: _condition(key, v) for key, v in results["conditions"].items()}
    costs_s = results.get("axes", {}).get("restart_s", [])
    if len(costs_s) > 1:
        conditions["restart_s"] = ", ".join(_condition("restart_s", cost_s) for cost_s in costs_s)
    plain = [
        *_clusters(results),
        *((f"types asked for in {trace}", text) for trace, text in _asked_types(results).items()),
        ("seeds", seeds),
        *((_CONDITIONS[key][0], text) for key, text in conditions.items()),
    ]
    pairs = [
        *(plain if len(scenarios) < len(results["traces"]) else []),
        *((label, _scenario(own)) for label, own in scenarios.items()),
        ("bootstrap", f"{results['resamples']:,} resamples"),
        ("versions", versions),
        ("made", results["made_at"]),
    ]  # fmt: skip
    notes = [f"<p>{escape(note)}</p>" for note in results["notes"]]
    return ["<h2>How it was run</h2>", *notes, facts(pairs)]


def _clusters(results: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The cluster of all traces, or of each case where they differ; scenarios say their own."""
    scenarios = results.get("scenarios", {})
    cases = {
        label: own for label, own in results.get("cases", {}).items() if label not in scenarios
    }
    if len({_cluster(own) for own in cases.values()}) < 2:
        return [("cluster", _cluster(results))]
    return [(f"cluster of {label}", _cluster(own)) for label, own in cases.items()]


def _cluster(own: Mapping[str, Any]) -> str:
    types = groups.gpu_types(own["cluster"])
    return f"{own['cluster']['about']}, " + (types or f"{own['cluster']['gpus']:,} GPUs")


def _asked_types(results: Mapping[str, Any]) -> dict[str, str]:
    """By trace, how many jobs ask for which GPU type, where any do."""
    return {
        run["trace"]: ", ".join(f"{kind}: {units.plural(n, 'job')}" for kind, n in asked.items())
        for run in results["runs"]
        if (asked := run.get("jobs_by_gpu_type"))
    }


def _scenario(own: Mapping[str, Any]) -> str:
    """A scenario's cluster, seeds and what of its conditions is out of the ordinary."""
    special = [
        f"{_CONDITIONS[key][0]}: {_condition(key, value)}"
        for key, value in own["conditions"].items()
        if (value and key in _SPECIAL) or (key == "resize_s" and value is not None)
    ]
    name = f"scenario {own['name']}, version {own['version']}"
    seeds = ", ".join(map(str, own["seeds"]))
    return "; ".join([name, _cluster(own), f"seeds {seeds}", *special])


def _condition(key: str, value: Any) -> str:
    if key == "resize_s" and value is None:
        return "the same"
    if value is None or (not value and key != "retries"):
        return _CONDITIONS[key][1]
    if key == "trust_trace":
        return "as the trace gives them"
    if key == "whole_slots":
        return "at the end of a slot"
    if key == "hide_durations":
        return "hidden from all but oracles"
    if key == "slot_s":
        return f"every {units.time(value)}"
    if key.endswith("_mtbf_s"):
        return f"every {units.time(value)} on average"
    return units.time(value) if key.endswith("_s") else f"{value:g}"
