"""`rota traces`: list, describe and convert job logs."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.cli.logs import located
from rota.cli.options import AsJson, SkipBad  # noqa: TC001
from rota.cli.table import print_json, shown
from rota.dash.units import plural, rough_time
from rota.errors import ConfigError
from rota.traces import SACCT_COMMAND

if TYPE_CHECKING:
    from rota.traces import Trace

app = typer.Typer(
    name="traces",
    help="List, describe and convert job logs.",
    add_completion=False,
    rich_markup_mode=None,
)

_SLURM = (
    f"To export a Slurm cluster's history, run (with the first day you want):\n\n{SACCT_COMMAND}"
)

Source = Annotated[
    str, typer.Argument(help="A job log, or a preset such as venus:jobs=5000,load=0.9.")
]
FormatName = Annotated[
    str | None, typer.Option("--format", help="Read the file as this format; default: look at it.")
]
Seed = Annotated[int, typer.Option(help="Seeds a preset; same seed, same jobs.", min=0)]


@app.callback(invoke_without_command=True)
def traces(context: typer.Context, as_json: AsJson = False) -> None:
    """List the built-in workloads and the formats of job logs that rota reads."""
    if context.invoked_subcommand is not None:
        return
    from rota.cli.loading import note
    from rota.traces import FORMATS, PRESETS
    from rota.traces.formats import LOG_FORMATS

    presets = {
        name: {
            "about": preset.about,
            "jobs": preset.workload.jobs,
            "total_gpus": preset.workload.total_gpus,
            "cluster": preset.cluster_source or None,
            "load": preset.workload.load or preset.usual_load,
        }
        for name, preset in PRESETS.items()
    }
    plugged, troubles = LOG_FORMATS.plugged()
    formats = {name: known.about for name, known in (FORMATS | plugged).items()}
    packages = {name: LOG_FORMATS.package(name) for name in plugged}
    for trouble in troubles:
        note(trouble)
    if as_json:
        print_json({"presets": presets, "formats": formats, "packages": packages,
                    "sacct_command": SACCT_COMMAND})  # fmt: skip
        return
    typer.echo("Presets (NAME:jobs=…,total_gpus=…,load=…,users=… changes them)")
    for name, facts in presets.items():
        typer.echo(f"  {name:<10} {facts['about']}")
        sizes = f"{facts['jobs']:,} jobs, load {facts['load']:g} on {facts['total_gpus']:,} GPUs"
        typer.echo(f"  {'':<10} {sizes}")
        if facts["cluster"]:
            typer.echo(f"  {'':<10} its cluster: {facts['cluster']}")
    typer.echo("\nFormats of files, recognised by their content (--format NAME overrides)")
    for name, about in formats.items():
        whose = f" (package {packages[name]})" if name in packages else ""
        typer.echo(f"  {name:<10} {about}{whose}")
    typer.echo(f"\nTo export a Slurm cluster's history:\n  {SACCT_COMMAND}")


@app.command(epilog=_SLURM)
def describe(
    source: Source,
    format_name: FormatName = None,
    seed: Seed = 0,
    skip_bad: SkipBad = False,
    nodes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Also give the load on N nodes.")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="GPUs of each of them; default: 8.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what is in SOURCE: jobs, run times, sizes, load, GPU types, time limits, starts."""
    from rota.cli.loading import cluster_from
    from rota.traces import summary

    trace = _load(source, format_name, seed, skip_bad)
    asked = nodes is not None or gpus is not None
    facts = summary.describe(trace, cluster_from(None, nodes, gpus).total_gpus if asked else None)
    if as_json:
        print_json(facts)
        return
    for line in (*_summary(facts), *_record(facts)):
        typer.echo(shown(line))
    typer.echo("\nrun time")
    typer.echo("\n".join(summary.duration_bars(trace)))
    typer.echo("\nGPUs per job")
    typer.echo("\n".join(summary.size_bars(trace)))


@app.command(epilog=_SLURM)
def convert(
    source: Source,
    out: Annotated[Path, typer.Argument(help="File to write: .csv, or .csv.gz to compress.")],
    format_name: FormatName = None,
    seed: Seed = 0,
    skip_bad: SkipBad = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite OUT if it exists.")] = False,
) -> None:
    """Write SOURCE in rota's plain CSV form."""
    from rota.traces import write_csv

    if not out.name.endswith((".csv", ".csv.gz")):
        raise ConfigError(f"{str(out)!r} must end in .csv or .csv.gz.")
    if out.is_dir():
        raise ConfigError(f"{str(out)!r} is a directory; name a file in it.")
    if out.exists() and not force:
        raise ConfigError(f"{str(out)!r} exists already; --force overwrites it.")
    trace = _load(source, format_name, seed, skip_bad)
    write_csv(trace, out)
    typer.echo(f"Wrote {plural(len(trace), 'job')} to {out}.", err=True)


def _load(source: str, format_name: str | None, seed: int, skip_bad: bool) -> Trace:
    """Load a trace and tell, on stderr, what did not become a job."""
    from rota.cli.loading import trace_from

    trace = trace_from(located(source), format_name=format_name, seed=seed, skip_bad=skip_bad)
    if trace.skipped:
        typer.echo(f"Skipped {plural(trace.skipped, 'broken line')}.", err=True)
    for reason, count in trace.left_out.items():
        typer.echo(f"Left out {plural(count, 'job')}: {reason}.", err=True)
    for sentence in trace.notes:
        typer.echo(f"{sentence[0].upper()}{sentence[1:]}", err=True)
    return trace


def _summary(facts: dict[str, Any]) -> list[str]:
    run, gap = facts["duration_s"], facts["gap_s"]
    lines = [
        f"{facts['name']}: {plural(facts['jobs'], 'job')} over {rough_time(facts['span_s'])}, "
        f"{facts['gpu_hours']:,.1f} GPU hours",
        f"run time     median {rough_time(run['p50'])}, mean {rough_time(run['mean'])}, "
        f"p99 {rough_time(run['p99'])}, longest {rough_time(run['max'])}",
    ]
    if gap:
        lines.append(
            f"between jobs median {rough_time(gap['p50'])}, mean {rough_time(gap['mean'])}"
        )
    if facts["mean_gpus_busy"] is not None:
        lines.append(f"work arrives for {facts['mean_gpus_busy']:,.1f} GPUs on average")
    if facts["load"] is not None:
        lines.append(f"load on {plural(facts['gpus'], 'GPU')}: {facts['load']:.3f}")
    if facts["with_deadline"]:
        lines.append(f"{plural(facts['with_deadline'], 'job has', 'jobs have')} a deadline")
    if facts["elastic"]:
        lines.append(f"{plural(facts['elastic'], 'job is', 'jobs are')} elastic")
    if facts["top_users"]:
        top = ", ".join(f"{user['name']} ({user['jobs']:,})" for user in facts["top_users"][:3])
        lines.append(f"{plural(facts['users'], 'user')}, most jobs: {top}")
    return lines


def _record(facts: dict[str, Any]) -> list[str]:
    """What a cluster's own log says beyond jobs: types of GPUs, time limits, starts."""
    lines, jobs = [], facts["jobs"]
    if any(use["gpu_type"] for use in facts["gpu_types"]):
        uses = [
            f"{use['gpu_type'] or 'any'} "
            f"({plural(use['jobs'], 'job')}, {use['gpu_hours']:,.1f} GPU hours"
            + (f", up to {use['gpus_per_node']} a node)" if use["gpus_per_node"] else ")")
            for use in facts["gpu_types"]
        ]
        lines.append(f"GPU types    {', '.join(uses)}")
    limits, recorded = facts["time_limits"], facts["recorded"]
    if limits["jobs"]:
        used = limits["used"]
        lines.append(
            f"time limits  {limits['jobs']:,} of {plural(jobs, 'job has', 'jobs have')} one; "
            f"they run {100 * used['p50']:.0f} % of it at the median, "
            f"{100 * used['mean']:.0f} % on average; {limits['exceeded']:,} run over it"
        )
    if recorded["jobs"]:
        wait = recorded["wait_s"]
        lines.append(
            f"starts       recorded of {recorded['jobs']:,} of {plural(jobs, 'job')}; wait median "
            f"{rough_time(wait['p50'])}, mean {rough_time(wait['mean'])}; up to "
            f"{plural(recorded['peak_gpus'], 'GPU')} in use at once"
        )
    return lines
