"""The report of one journal: what became of its jobs, and where and when they ran."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.dash import gantt, groups, node_chart, svg, units, user_chart
from rota.dash.axes import count_axis, time_axis
from rota.dash.metric_columns import metric_columns
from rota.dash.page import charts, facts, legend, page, table, tiles
from rota.dash.past_run import MARKED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rota.core.types import Ints
    from rota.dash.axes import Axis
    from rota.dash.past_run import PastRun

MOST_JOBS: Final = 60
"""More jobs than this do not all get a row of their own."""
ROWS_PER_CHART: Final = 25
"""So that a chart fits on a sheet of paper, and its axis is not far away."""
SUMMARY: Final = (
    "jobs", "finished", "gave_up", "mean_jct_s", "p50_jct_s", "p90_jct_s", "p99_jct_s",
    "mean_wait_s", "makespan_s", "utilisation", "preemptions", "moves", "resizes", "kills",
)  # fmt: skip
_TILES: Final = ("jobs", "finished", "mean JCT", "mean wait", "utilisation", "preemptions")


def render(
    run: PastRun,
    found: Mapping[str, Any],
    over_time: Mapping[str, Any],
    progress: Callable[[int], None] = lambda _: None,
) -> str:
    """The page as text; `found` is the summary of the run, `over_time` its `series`."""
    body: list[str] = []
    for done, part in enumerate(_parts(run, found, over_time), 1):
        body += part
        progress(done)
    return page(f"{run.name}: report", body)


def _parts(
    run: PastRun, found: Mapping[str, Any], over_time: Mapping[str, Any]
) -> Iterator[list[str]]:
    yield _opening(run, found)
    yield _over_time(run, over_time)
    yield _by_node(run)
    yield _by_user(run, found)
    yield _jobs(run)
    yield _sizes(found)
    yield _facts(run, found)


SECTIONS: Final = 7
"""Steps that `render` reports."""


def _opening(run: PastRun, found: Mapping[str, Any]) -> list[str]:
    state = "" if run.finished else ", so far" if len(run) else ", nothing yet"
    span = units.time(run.end_s - run.begin_s)
    sub = f"{found['policy']} on {found['cluster']['about']}, {span}{state}"
    shown = {head: value for head, (value,) in metric_columns([found], SUMMARY)}
    return [
        f"<h1>{escape(run.name)}</h1>",
        f'<p class="sub">{escape(sub)}</p>',
        tiles((head, shown[head]) for head in _TILES),
        *(f'<p class="note">{escape(note)}</p>' for note in found["notes"]),
        "<h2>Summary</h2>",
        table(list(shown), [("", list(shown.values()))], "JCT: job completion time"),
    ]


def _axis(run: PastRun) -> Axis:
    return time_axis("time since the first job", run.end_s - run.begin_s)


def _over_time(run: PastRun, over_time: Mapping[str, Any]) -> list[str]:
    if not over_time["time_s"]:
        return []
    times_s = [t - run.begin_s for t in over_time["time_s"]]
    x = _axis(run)
    used = [
        svg.Line("GPUs in use", 0, times_s, over_time["held_gpus"], filled=True),
        svg.Line("GPUs that are up", 6, times_s, over_time["up_gpus"]),
    ]
    queue = [
        svg.Line("running jobs", 0, times_s, over_time["running"]),
        svg.Line("waiting jobs", 1, times_s, over_time["waiting"], filled=True),
    ]
    figures = []
    for name, title, label, lines in (
        ("used", "GPUs in use", "GPUs", used),
        ("queue", "Running and waiting jobs", "jobs", queue),
    ):
        top = max(y for line in lines for y in line.y if y is not None)
        about = f"{title} over time, averaged over {len(times_s)} equal stretches."
        drawn = svg.chart(name, title, about, lines, x, count_axis(label, top))
        key = legend(f"{svg.swatch(line.colour)}{line.label}" for line in lines)
        figures.append(f"<div>{drawn}{key}</div>")
    return ["<h2>Over time</h2>", charts(figures)]


def _by_node(run: PastRun) -> list[str]:
    names, _ = run.nodes
    if not len(run.stints.stint) or not names:
        return []
    x = _shifted(run)
    if node_chart.is_detailed(run):
        users, rank = run.user
        colour = rank if len(users) > 1 else np.arange(len(run)) % (svg.COLOURS - 1)
        words = "Each box is a job on the GPUs that it held; the taller, the more GPUs."
        words += " Red: the node is down." * bool(run.down)
        drawn = node_chart.job_lanes("nodes", "Jobs on nodes", words, run, _capped(colour), x)
        key = _user_legend(users) if len(users) > 1 else ""
    else:
        per = -(-len(names) // node_chart.MOST_ROWS)
        words = (
            f"The darker, the more of the GPUs are in use. {len(run.stints.stint):,} pieces of "
            f"jobs on {len(names):,} nodes are too many to draw one by one"
            + (f"; a row is {per} nodes, named after the first." if per > 1 else ".")
            + " Red: down." * bool(run.down and per == 1)
        )
        drawn = node_chart.fill_levels("nodes", "GPUs in use per node", words, run, x)
        shades = ("up to 25 %", "to 50 %", "to 75 %", "more")
        key = legend(
            f'<span class="block c0 s{k}"></span>{text}' for k, text in enumerate(shades, 1)
        )
    return ["<h2>By node</h2>", f'<p class="sub">{escape(words)}</p>', key, drawn]


def _shifted(run: PastRun) -> Axis:
    """An axis for times of the journal, marked by time since its begin."""
    x = _axis(run)
    ticks = [(value + run.begin_s, text) for value, text in x.ticks]
    return type(x)(x.label, x.low + run.begin_s, x.high + run.begin_s, ticks)


def _capped(colour: Ints) -> Ints:
    return np.minimum(colour, svg.COLOURS - 1)


def _user_legend(users: Sequence[str]) -> str:
    first = users[: svg.COLOURS - 1]
    items = [f'<span class="block c{k}"></span>{escape(name)}' for k, name in enumerate(first)]
    if len(users) > len(first):
        others = units.plural(len(users) - len(first), "other")
        items.append(f'<span class="block c{svg.COLOURS - 1}"></span>{others}')
    return legend(items)


def _by_user(run: PastRun, found: Mapping[str, Any]) -> list[str]:
    if not len(run):
        return []
    users, _ = run.user
    lines = ["<h2>By user</h2>"]
    lines += groups.group_table(found["by_user"], "user", ("held_gpu_h", "preemptions"))
    if len(run.stints.job):
        words = (
            "GPUs that the jobs of a user hold and, lighter on top of them, GPUs that they wait "
            "for. Every row has its own scale, up to the number at its left."
        )
        left = len(users) - user_chart.MOST_USERS
        if left > 0:
            words += f" The {left + 1} users who held least share the last row."
        if len(run.marks) > MOST_JOBS:
            words += " Marks of a kind that is too frequent in a row are left out there."
        about = "GPUs held and waited for over time, a row per user."
        lines += [
            f'<p class="sub">{escape(words)}</p>',
            _mark_legend(run.marks["kind"].tolist()),
            user_chart.user_rows("users", "GPUs per user", about, run, _shifted(run)),
        ]
    return lines


def _mark_legend(kinds: Iterable[int]) -> str:
    there = set(kinds)
    items = [f"<i>{gantt.MARKS[text]}</i> {text}" for kind, text in MARKED.items() if kind in there]
    return legend(items) if items else ""


def _jobs(run: PastRun) -> list[str]:
    chosen = chosen_jobs(run)
    if not len(chosen):
        return []
    users, rank = run.user
    rows: list[gantt.Course | str] = []
    last = -1
    for job in chosen[np.lexsort((run.jobs.submit_s[chosen], rank[chosen]))].tolist():
        if rank[job] != last and len(users) > 1:
            rows.append(users[rank[job]])
        last = int(rank[job])
        rows.append(course(run, job, last if len(users) > 1 else job % (svg.COLOURS - 1)))
    own = [row for row in rows if isinstance(row, gantt.Course)]
    low_s, high_s = min(row.submit_s for row in own), max(row.end_s for row in own)
    words = (
        "A row per job: a light line while it waits, a bar while it runs. The more workers, the "
        "taller the bar; the numbers are workers of jobs that can grow and shrink."
    )
    there = int(run.there.sum())
    if len(chosen) < there:
        words += (
            f" {len(chosen)} of {there:,} jobs are drawn: those that were changed most often, then "
            "those that held the most GPU-hours."
        )
    kinds = run.marks["kind"][np.isin(run.marks["job"], chosen)]
    title, about = "Jobs by user" if len(users) > 1 else "Jobs", "A row per job over time."
    x = time_axis("time since the first job", high_s, low_s)
    parts = _on_sheets(rows)
    return [
        "<h2>Jobs</h2>",
        f'<p class="sub">{escape(words)}</p>',
        _mark_legend(kinds.tolist()),
        *(
            gantt.gantt(
                f"jobs{k}", title + f" ({k} of {len(parts)})" * (len(parts) > 1), about, part, x
            )
            for k, part in enumerate(parts, 1)
        ),
    ]


def _on_sheets(rows: Sequence[gantt.Course | str]) -> list[list[gantt.Course | str]]:
    """The rows of each chart; a heading stays with its jobs, and is repeated where they go on."""
    sheets: list[list[gantt.Course | str]] = [[]]
    heading: list[str] = []
    for row in rows:
        if isinstance(row, str):
            heading = [row]
            continue
        if len(sheets[-1]) >= ROWS_PER_CHART:
            sheets.append([])
        if heading and (not sheets[-1] or heading[0] not in sheets[-1]):
            sheets[-1] += heading
        sheets[-1].append(row)
    return sheets


def chosen_jobs(run: PastRun) -> Ints:
    """The jobs that get a row of their own: all, or those to which most happened."""
    there: Ints = np.flatnonzero(run.there)
    if len(there) <= MOST_JOBS:
        return there
    changes = np.bincount(run.stints.job, minlength=len(run))
    order = np.lexsort((-run.gpu_s[there], -changes[there]))
    return np.sort(there[order[:MOST_JOBS]])


def course(run: PastRun, job: int, colour: int) -> gantt.Course:
    """One job's row; times since the begin of the journal."""
    at, stints = run.stints.of_job(job), run.stints
    columns = (stints.begin_s[at], stints.end_s[at], stints.workers[at])
    bars = [
        gantt.Bar(b - run.begin_s, e - run.begin_s, float(w))
        for b, e, w in zip(*(column.tolist() for column in columns), strict=True)
    ]
    own = run.marks[run.marks["job"] == job]
    pairs = zip(own["time_s"].tolist(), own["kind"].tolist(), strict=True)
    return gantt.Course(
        label=run.label(job), colour=min(colour, svg.COLOURS - 1),
        submit_s=float(run.jobs.submit_s[job]) - run.begin_s,
        end_s=max(float(run.left_s[job]) - run.begin_s, bars[-1].end_s if bars else 0.0),
        most_workers=int(stints.workers[at].max(initial=1)), bars=bars,
        elastic=bool(run.elastic[job]),
        marks=[(time_s - run.begin_s, MARKED[kind]) for time_s, kind in pairs],
    )  # fmt: skip


def _sizes(found: Mapping[str, Any]) -> list[str]:
    rows = groups.group_table(found["by_size"], "size")
    return ["<h2>By size</h2>", *rows] if rows else []


def _facts(run: PastRun, found: Mapping[str, Any]) -> list[str]:
    pairs = [(key, str(found[key])) for key in ("policy", "trace", "seed", "began") if found[key]]
    if scenario := found["scenario"]:
        pairs.append(("scenario", f"{scenario.get('name')}, version {scenario.get('version')}"))
    types = groups.gpu_types(found["cluster"])
    pairs += [("cluster", found["cluster"]["about"])] + ([("GPUs by type", types)] if types else [])
    pairs.append(("journal", "of a run that has ended" if run.finished else "of a run not ended"))
    pairs.append(("written by", f"rota {run.meta.get('rota_version', '?')}"))
    return ["<h2>How it was run</h2>", facts(pairs)]
