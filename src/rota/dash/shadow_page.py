"""The report of a policy in shadow: how jobs fared under Slurm, and would have under the policy."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

from rota.dash import axes, svg, units
from rota.dash.page import charts, facts, legend, page, table, tiles
from rota.run.metrics import cdf

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.dash.axes import Axis

MOST_JOBS: Final = 200
"""More jobs are not listed on the page; the JSON has all."""
_WAITS: Final = (
    ("mean wait", "mean_wait_s"), ("median", "p50_wait_s"), ("p90", "p90_wait_s"),
    ("longest", "max_wait_s"),
)  # fmt: skip
_COUNTS: Final = (("less", "less"), ("more", "more"), ("same", "same"))
_CHANGES: Final = (("preemptions", "preemptions"), ("of jobs", "preempted_jobs"),
                   ("moves", "moves"), ("resizes", "resizes"))  # fmt: skip


def table_columns(found: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """The main table: Slurm as it was, the policies asked for, and those that check."""
    rows = [found["slurm"], *found["policies"]]
    names = ["Slurm, as it was"]
    names += [f"{row['policy']}{' (check)' * row['check']}" for row in found["policies"]]
    columns = [("policy", names)]
    for show, heads in ((units.times, _WAITS), (units.counts, (*_COUNTS, *_CHANGES))):
        columns += [(head, show([row.get(key) for row in rows])) for head, key in heads]
    return columns


def verdicts(found: Mapping[str, Any]) -> list[str]:
    """In sentences: what each policy would have changed, and how far the simulator is off."""
    real_s, jobs = found["slurm"]["mean_wait_s"], found["compared"]
    if real_s is None:
        return ["No job can be compared yet: none was submitted and over since watching began."]
    lines = [
        f"Under {row['policy']}, {row['less']:,} of {units.plural(jobs, 'job')} would have waited "
        f"less, {row['more']:,} more; the mean wait would be {units.time(row['mean_wait_s'])} in "
        f"place of {units.time(real_s)}."
        for row in found["policies"] if not row["check"]
    ]  # fmt: skip
    checks = [row for row in found["policies"] if row["check"]]
    if checks:
        near = min(checks, key=lambda row: float(row["mean_gap_s"]))
        lines.append(
            f"Check: of what Slurm itself did, {near['policy']} in the simulator is off by "
            f"{units.time(abs(near['mean_wait_s'] - real_s))} in the mean wait, and by "
            f"{units.time(near['mean_gap_s'])} in the wait of one job on average; smaller "
            "differences say nothing."
        )
    return lines


def live_sentences(live: Mapping[str, Any]) -> list[str]:
    """In sentences: what was decided from round to round, as things really were."""
    decided = sorted(live["decided"].items(), key=lambda one: -one[1])
    whose = ", ".join(f"{name or 'nobody'} in {count:,}" for name, count in decided)
    lines = [f"Live: {units.plural(live['rounds'], 'round')}; {whose} decided."]
    if live["judged"]:
        lines.append(
            f"Of {live['judged']:,} rounds, {live['idle']:,} asked for nothing and Slurm did "
            f"nothing; in {live['agreed']:,} Slurm did just what the policy would have done; in "
            f"{live['differed']:,} it did not."
        )
    if live["starts"]:
        asked = live["starts"] - live["unasked"]
        lines.append(
            f"Slurm started jobs {live['starts']:,} times; the policy was asked before "
            f"{asked:,} of these starts, and would have made {live['wanted']:,}."
        )
    lines.append(
        f"As things were, it would have stopped {units.plural(live['stopped_jobs'], 'running job')}"
        f" ({units.plural(live['stops'], 'time')}), moved {live['moves']:,} and resized "
        f"{live['resizes']:,}."
    )
    worst = sorted(live["troubles"].items(), key=lambda one: -one[1])[:3]
    lines += [f"{count:,} ×: {why}" for why, count in worst]
    return lines


def render(found: Mapping[str, Any]) -> str:
    """The page as text."""
    sub = f"{units.time(found['watched_s'])} of Slurm on {found['cluster']['about']}"
    body = [
        f"<h1>{escape(found['journal'])}: in shadow</h1>", f'<p class="sub">{escape(sub)}</p>',
        *_tiles(found), *(f'<p class="lead">{escape(line)}</p>' for line in verdicts(found)),
        "<h2>Waiting times</h2>", *_main_table(found), *_figures(found), *_users(found),
        *_jobs(found), "<h2>Live</h2>",
        *(f"<p>{escape(line)}</p>" for line in live_sentences(found["live"])),
        "<h2>What is assumed, and left out</h2>",
        *(f"<p>{escape(line)}</p>" for line in found["assumed"]),
        facts((why, f"{units.plural(n, 'job')}") for why, n in found["not_compared"].items()),
    ]  # fmt: skip
    return page(f"{found['journal']}: in shadow", body)


def _tiles(found: Mapping[str, Any]) -> list[str]:
    first = found["policies"][0]
    pairs = [("jobs compared", f"{found['compared']:,}")]
    if first["mean_wait_s"] is not None:
        pairs += [
            ("mean wait under Slurm", units.time(found["slurm"]["mean_wait_s"])),
            (f"under {first['policy']}", units.time(first["mean_wait_s"])),
            ("wait less", f"{first['less']:,}"), ("wait more", f"{first['more']:,}"),
            ("preemptions", f"{first['preemptions']:,}"),
        ]  # fmt: skip
    return [tiles(pairs)]


def _main_table(found: Mapping[str, Any]) -> list[str]:
    columns = table_columns(found)
    rows = zip(*(map(escape, cells) for _, cells in columns), strict=True)
    words = (
        "A job waits from its submission to its end, except for the time that its work takes; what "
        "a restart costs is waiting, too. Less, more, same: than under Slurm, by more than 1 s."
    )
    return [table([head for head, _ in columns], [("", list(row)) for row in rows]),
            f'<p class="sub">{escape(words)}</p>']  # fmt: skip


def _names(found: Mapping[str, Any]) -> list[str]:
    return [row["policy"] for row in found["policies"]]


def _figures(found: Mapping[str, Any]) -> list[str]:
    """Who waits how long, whose wait changes by how much, and the queue over time."""
    jobs, names = found["jobs"], _names(found)
    if not jobs:
        return []
    waits = {"Slurm": [job["slurm_wait_s"] for job in jobs]}
    waits |= {name: [job["wait_s"][name] for job in jobs] for name in names}
    longest_s = max(max(one) for one in waits.values())
    shares = [svg.Line(name, k, (drawn := cdf(one))["x"], drawn["p"])
              for k, (name, one) in enumerate(waits.items())]  # fmt: skip
    changes = [
        svg.Line(name, k, range(len(jobs)),
                 sorted(job["wait_s"][name] - job["slurm_wait_s"] for job in jobs))
        for k, name in enumerate(names, 1)
    ]  # fmt: skip
    over = found["over_time"]
    begin_s = min((one["time_s"][0] for one in over.values() if one["time_s"]), default=0.0)
    queue = [svg.Line(name, k, [t - begin_s for t in one["time_s"]], one["waiting"], filled=not k)
             for k, (name, one) in enumerate(over.items()) if one["time_s"]]  # fmt: skip
    ends = [y for line in changes for y in line.y if y is not None]
    drawn_here = [
        ("waits", "Share of jobs that waited at most so long", shares,
         axes.time_axis("wait", longest_s), axes.share_axis("jobs")),
        ("changes", "Wait beside Slurm's, jobs by rank; below 0: less", changes,
         axes.count_axis("jobs", len(jobs)),
         axes.time_axis("difference", max(0.0, *ends), min(0.0, *ends))),
    ]  # fmt: skip
    if queue:
        drawn_here.append((
            "queue", "Waiting jobs over time", queue,
            axes.time_axis("time since watching began", max(line.x[-1] for line in queue)),
            axes.count_axis("jobs", max(y or 0.0 for line in queue for y in line.y)),
        ))  # fmt: skip
    return [charts([_figure(*one) for one in drawn_here])]


def _figure(name: str, title: str, lines: Sequence[svg.Line], x: Axis, y: Axis) -> str:
    key = legend(f"{svg.swatch(line.colour)}{escape(line.label)}" for line in lines)
    return f"<div>{svg.chart(name, title, title, lines, x, y)}{key}</div>"


def _users(found: Mapping[str, Any]) -> list[str]:
    rows, names = found["by_user"], _names(found)
    if len(rows) < 2:
        return []
    columns = [
        [escape(row["user"] or "(no user)") for row in rows],
        units.counts([row["jobs"] for row in rows]),
        *_wait_columns(rows, names),
    ]
    cells = [("", list(row)) for row in zip(*columns, strict=True)]
    return ["<h2>Mean wait by user</h2>", table(["user", "jobs", "Slurm", *names], cells)]


def _jobs(found: Mapping[str, Any]) -> list[str]:
    names, first = _names(found), found["policies"][0]["policy"]
    ranked = sorted(found["jobs"], key=lambda job: -abs(job["wait_s"][first] - job["slurm_wait_s"]))
    rows = ranked[:MOST_JOBS]
    if not rows:
        return []
    columns = [
        [escape(str(row["job"])) for row in rows],
        [escape(row["user"]) for row in rows],
        units.counts([row["gpus"] for row in rows]),
        units.times([row["run_s"] for row in rows]),
        *_wait_columns(rows, names),
    ]
    cells = [("", list(row)) for row in zip(*columns, strict=True)]
    left = f" ({len(rows)} of {len(ranked):,}; --json has all)" * (len(rows) < len(ranked))
    return [f"<h2>Wait by job, the largest differences first{left}</h2>",
            table(["job", "user", "GPUs", "run time", "Slurm", *names], cells)]  # fmt: skip


def _wait_columns(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[list[str]]:
    """Waits under Slurm and each policy, all in one unit."""
    flat = units.times([
        value for row in rows
        for value in (row["slurm_wait_s"], *(row["wait_s"][name] for name in names))
    ])  # fmt: skip
    width = 1 + len(names)
    return [flat[k::width] for k in range(width)]
