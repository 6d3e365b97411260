"""`rota learn`: go on learning from the jobs that a cluster has run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.cli.loading import note
from rota.cli.options import AsJson, Tables, command, duration  # noqa: TC001
from rota.cli.table import print_json, print_table
from rota.cli.training_display import TrainingDisplay
from rota.errors import ConfigError, InputError, UnknownNameError

if TYPE_CHECKING:
    from rota.learn.fine_tune import FineTuned


@dataclass(frozen=True)
class LearnOptions:
    """What `rota learn` can be asked for."""

    checkpoint: Annotated[
        str, typer.Argument(metavar="CKPT|NAME", help="What `rota run` was given as --policy.")
    ]
    journal: Annotated[
        Path, typer.Option("--from", metavar="JOURNAL", help="Whose jobs are learned from.")
    ]
    out: Annotated[
        Path | None,
        typer.Option(help="The new checkpoint; default: learned.ckpt beside the journal."),
    ] = None
    scenario: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Laws of speed to simulate with; default: the journal's, or the training's.",
        ),
    ] = ""
    stretch: Annotated[int, typer.Option(min=1, help="Jobs of one stretch of the journal.")] = 20
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="TABLE.KEY=VALUE", help="Change a setting, such as run.updates=100."
        ),
    ] = None
    time_limit: Annotated[float | None, duration("Stop learning after this time.")] = None
    data: Tables = None
    as_json: AsJson = False


@command(LearnOptions)
def learn(options: LearnOptions) -> None:
    """Learn on from a checkpoint on a journal's jobs; keep what is not worse on held-out jobs.

    A `rota run` whose journal it is takes the new weights between two rounds.
    """
    # Threads that wait by spinning make each other six times slower where cores are shared.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        from rota.learn import checkpoint
        from rota.learn.fine_tune import fine_tune
        from rota.learn.live_weights import OFFERED, running_file
        from rota.systems.registry import checkpoint_named, trained
    except ModuleNotFoundError as error:
        raise InputError(
            f"Learning needs {error.name}, which is not installed: pip install 'rota[train]'."
        ) from None

    if options.time_limit is not None and options.time_limit <= 0:
        raise ConfigError("--time-limit must be above 0; leave it out for no limit.")
    if (named := checkpoint_named(options.checkpoint)) is None:
        raise UnknownNameError("trained policy (or PATH.ckpt)", options.checkpoint, trained())
    out = options.out or options.journal.parent / OFFERED
    if out.suffix != ".ckpt":
        raise ConfigError(f"--out {out} must end in .ckpt, as all checkpoints do.")
    if named[1]:
        note(f"{named[1]} of {options.checkpoint} does not count here: it learns without it")
    file = running_file(named[0], options.journal.parent, lambda text, **_: note(text))
    if file != named[0]:
        note(f"learns on from {file}, which was learned from {options.checkpoint}")
    with TrainingDisplay() as display:
        tuned = fine_tune(
            file, options.journal, scenario=options.scenario, size=options.stretch,
            changes=options.set_ or [], seconds=options.time_limit, data=options.data,
            watch=display.show, say=display.say,
        )  # fmt: skip
    kept = tuned.new if tuned.comparison.not_worse else None
    if kept is not None:
        checkpoint.save(out, kept.about, kept.weights)
    written = None if kept is None else out
    if options.as_json:
        print_json(_facts(tuned, written))
    else:
        _print(tuned, written)


def _facts(tuned: FineTuned, out: Path | None) -> dict[str, Any]:
    """All numbers, for programs."""
    seen = tuned.comparison
    known = bool(seen.stretches) and not seen.unfinished
    return {
        "running": tuned.running.digest,
        "learned": None if tuned.new is None else tuned.new.digest,
        "checkpoint": None if out is None else str(out),
        "not_worse": None if tuned.new is None else seen.not_worse,
        "change": seen.change if known else None,
        "ci95": list(seen.ci95) if known and seen.stretches > 1 else None,
        "held_out": seen.stretches,
        "unfinished": seen.unfinished,
        "stretches": {
            use: [len(trace) for trace in getattr(tuned.stretches, use)]
            for use in ("learn", "choose", "judge")
        },
    }


def _print(tuned: FineTuned, out: Path | None) -> None:
    """Stretch by stretch, the verdict, and where the new weights are."""
    from rota.dash import units
    from rota.learn.verdict import short

    if tuned.new is None:
        typer.echo(
            f"no update was better on the {len(tuned.stretches.choose)} stretches to choose by: "
            f"the weights stay {short(tuned.running.digest)}, and nothing was written"
        )
        return
    columns = [
        ("held-out stretch", [str(k + 1) for k in range(len(tuned.new_s))]),
        ("jobs", [str(len(trace)) for trace in tuned.stretches.judge]),
        (f"running {short(tuned.running.digest)}", units.times(_finite(tuned.running_s))),
        (f"learned {short(tuned.new.digest)}", units.times(_finite(tuned.new_s))),
    ]
    print_table(columns, title="mean JCT of held-out stretches")
    typer.echo(tuned.comparison.words())
    typer.echo(f"checkpoint: {out}" if out else "nothing was written; the running weights stay")


def _finite(jct_s: Any) -> list[float | None]:
    """Times; None where a job did not end."""
    return [float(value) if value < float("inf") else None for value in jct_s]
