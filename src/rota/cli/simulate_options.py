"""The options of `rota simulate`: their names, limits and help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Source = Annotated[
    str | None,
    typer.Argument(
        metavar="[TRACE]",
        help="A job log, or a preset; `rota traces` lists them. Not needed with --scenario.",
    ),
]
ScenarioName = Annotated[
    str | None,
    typer.Option(
        "--scenario", metavar="NAME", help="A scenario or its file; `rota scenarios` lists them."
    ),
]
Seeds = Annotated[
    str | None,
    typer.Option(metavar="A:B", help="Seeds of a scenario: A up to, not with, B; or a,b,c."),
]
DataFolder = Annotated[
    Path | None,
    typer.Option("--data", help="Where logs may also be; its measured tables replace rota's own."),
]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy", "-p", metavar="NAME", help="Repeat to compare; `rota policies` lists them."
    ),
]
Nodes = Annotated[int | None, typer.Option(min=1, help="Nodes of the cluster; 16 if not given.")]
Gpus = Annotated[int | None, typer.Option(min=1, help="GPUs of each node; 8 if not given.")]
ClusterFile = Annotated[
    Path | None, typer.Option("--cluster", help="A cluster file, in place of --nodes and --gpus.")
]
Seed = Annotated[
    int | None,
    typer.Option(min=0, help="Seeds everything random; same seed, same numbers; 0 if not given."),
]
JournalFile = Annotated[
    Path | None,
    typer.Option("--journal", help="Keep every event here; one file per policy if several."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace journals that exist already.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, not a table.")]
FormatName = Annotated[
    str | None, typer.Option("--format", help="Read TRACE as this format; default: look at it.")
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Pass over broken lines and count them.")]
Head = Annotated[int | None, typer.Option(min=1, help="Take the first N jobs only.")]
DropOversized = Annotated[
    bool,
    typer.Option("--drop-oversized", help="Leave out jobs that the empty cluster cannot hold."),
]
RestartCost = Annotated[
    float | None,
    typer.Option(
        min=0, help="Seconds without progress when a stopped job starts again; 0 if not given."
    ),
]
ResizeCost = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="The same after a resize or move of an elastic job; default: as --restart-cost.",
    ),
]
MinRun = Annotated[
    float | None,
    typer.Option(min=0, help="Seconds for which a started job may not be stopped; 0 if not given."),
]
Slot = Annotated[
    float | None,
    typer.Option(min=0, help="Decide every so many seconds only; by default at every event."),
]
CheckpointEvery = Annotated[
    float | None,
    typer.Option(
        min=0, help="Seconds of progress between checkpoints: what a failure costs; usually 1800."
    ),
]
NodeMtbf = Annotated[
    float | None, typer.Option(min=0.001, help="Mean hours until a node fails; default: never.")
]
NodeRepair = Annotated[
    float, typer.Option(min=0.001, help="Mean hours until a failed node is back.")
]
JobMtbf = Annotated[
    float | None,
    typer.Option(min=0.001, help="Mean hours of run time until a job fails; default: never."),
]
Retries = Annotated[int, typer.Option(min=0, help="How often a job that failed is tried again.")]
Estimates = Annotated[
    str | None, typer.Option(metavar="true|trace", help="What policies know of durations.")
]
History = Annotated[
    str | None, typer.Option(help="Past jobs for policies that learn; default: TRACE itself.")
]
Deadline = Annotated[
    float, typer.Option(min=0.001, help="Seconds that a policy of your own may take per round.")
]
By = Annotated[
    list[str] | None,
    typer.Option(metavar="size|user", help="Further tables, by job size or by user; repeat it."),
]
