"""The options of `rota simulate`: their names, defaults and help."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path  # noqa: TC003
from typing import Annotated, Any

import typer

from rota.cli.options import AsJson, SkipBad, duration, long_duration_s  # noqa: TC001

_duration = partial(duration, show_default=False)
_long_duration = partial(_duration, parser=long_duration_s)


@dataclass(frozen=True, kw_only=True)
class SimulateOptions:
    """Everything that `rota simulate` can be asked for; durations are in seconds."""

    # What is replayed.
    trace: Annotated[
        str | None,
        typer.Argument(
            metavar="[TRACE]",
            help="A job log, or a preset; `rota traces` lists them. Not needed with --scenario.",
        ),
    ] = None
    scenario: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A scenario or its file; `rota scenarios` lists them."),
    ] = None
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="NAME", help="Read TRACE as this format; default: by its content."
        ),
    ] = None
    skip_bad: SkipBad = False
    head: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Take the first N jobs only.")
    ] = None
    drop_oversized: Annotated[
        bool,
        typer.Option("--drop-oversized", help="Leave out jobs that the empty cluster cannot hold."),
    ] = False
    ignore_gpu_types: Annotated[
        bool, typer.Option("--ignore-gpu-types", help="Let every job run on every type of GPU.")
    ] = False
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where logs may also be; its measured tables replace rota's own."
        ),
    ] = None

    # Who decides, and what is known then.
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy", "-p", metavar="NAME",
            help="Repeat it to compare several; `rota policies` lists them.",
        ),
    ] = None  # fmt: skip
    estimates: Annotated[
        str | None,
        typer.Option(
            metavar="true|trace", help="What policies know: true durations, or TRACE's estimates."
        ),
    ] = None
    history: Annotated[
        str | None,
        typer.Option(metavar="TRACE", help="Past jobs for policies that learn; default: TRACE."),
    ] = None
    deadline: Annotated[
        float, _duration("Longest time that a policy in Python may take per round; default: 60s.")
    ] = 60.0

    # On what.
    nodes: Annotated[
        int | None,
        typer.Option(
            min=1, max=1_000_000, metavar="N",
            help="Nodes of the cluster; default: those of a preset, journal or log with GPU types, "
            "else 16.",
        ),
    ] = None  # fmt: skip
    gpus: Annotated[int | None, typer.Option(min=1, metavar="N", help="GPUs of each node.")] = None
    cluster: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A cluster file, in place of --nodes and --gpus."),
    ] = None

    # What changes cost, and when decisions are made.
    restart_cost: Annotated[
        float | None,
        _duration("Time without progress when a stopped job starts again; 0 if not given."),
    ] = None
    resize_cost: Annotated[
        float | None,
        _duration("The same after a resize or move of an elastic job; default: --restart-cost."),
    ] = None
    min_run: Annotated[
        float | None,
        _duration("Time for which a started job may not be stopped; 0 if not given."),
    ] = None
    slot: Annotated[
        float | None,
        _duration("Time between decisions; default: decide at every arrival and completion."),
    ] = None
    checkpoint_every: Annotated[
        float | None,
        _duration("Progress between checkpoints, which a failure can cost; default: 30m."),
    ] = None

    # What fails.
    node_mtbf: Annotated[
        float | None, _long_duration("Mean time until a node fails, such as 500h; default: never.")
    ] = None
    node_repair: Annotated[
        float, _long_duration("Mean time until a failed node is back; default: 4h.")
    ] = 4 * 3600.0
    job_mtbf: Annotated[
        float | None,
        _long_duration("Mean run time until a job fails, such as 100h; default: never."),
    ] = None
    retries: Annotated[
        int, typer.Option(min=0, metavar="N", help="How often a job that failed is tried again.")
    ] = 3

    # Random numbers.
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N",
            help="Seeds everything random; same seed, same numbers; 0 if not given.",
        ),
    ] = None  # fmt: skip
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="A:B", help="Seeds of a scenario: from A up to, not including, B; or a,b,c."
        ),
    ] = None

    # What is printed and kept.
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="size|user", help="Further tables, by job size or by user; repeat it for both."
        ),
    ] = None
    as_json: AsJson = False
    journal: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep every event here; one file per policy if several."),
    ] = None
    force: Annotated[bool, typer.Option("--force", help="Replace journals that exist already.")] = (
        False
    )

    def conditions(self) -> dict[str, Any]:
        """The fields of `Conditions` that the options ask for."""
        from math import inf

        from rota.sim import Faults

        asked: dict[str, Any] = {
            "restart_s": self.restart_cost,
            "resize_s": self.resize_cost,
            "min_run_s": self.min_run,
            "slot_s": self.slot,
            "checkpoint_s": self.checkpoint_every,
            "trust_trace": None if self.estimates is None else self.estimates == "trace",
        }
        if self.node_mtbf is not None or self.job_mtbf is not None:
            asked["faults"] = Faults(
                node_mtbf_s=inf if self.node_mtbf is None else self.node_mtbf,
                node_repair_s=self.node_repair,
                job_mtbf_s=inf if self.job_mtbf is None else self.job_mtbf,
                retries=self.retries,
            )
        return {key: value for key, value in asked.items() if value is not None}
