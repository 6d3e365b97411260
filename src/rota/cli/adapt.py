"""`rota adapt`: trainings of networks that grow, and the agents that decide how they do."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rota.cli.options import AsJson, command  # noqa: TC001
from rota.cli.progress import LateBar
from rota.cli.table import print_json, print_table
from rota.errors import ConfigError, InputError

if TYPE_CHECKING:
    from rota.adapt.table_file import TableSpec

app = typer.Typer(
    name="adapt",
    help="Let networks grow when their job does: measure, train agents, compare them.",
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
)
FOLDER: Final = Path("runs/adapt")
"""Where tables and agents are kept by default."""


@app.callback()
def adapt() -> None:
    """Let networks grow when their job does: measure, train agents, compare them."""


def _needs_torch(error: ModuleNotFoundError) -> InputError:
    return InputError(
        f"`rota adapt` needs {error.name}, which is not installed: pip install 'rota[adapt]'."
    )


def _names(text: str | None) -> tuple[str, ...] | None:
    """Names in a list such as "a,b"; None: nothing was said."""
    if text is None:
        return None
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    if not found:
        raise ConfigError(f"{text!r} names nothing; write names with commas between, such as a,b.")
    return found


@dataclass(frozen=True)
class TableOptions:
    """What `rota adapt table` can be asked for."""

    name: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="Which table; without it, lists them.")
    ] = None
    out: Annotated[
        Path | None, typer.Option(help="The file; default: runs/adapt/TABLE.db.")
    ] = None
    starts: Annotated[
        str | None, typer.Option(metavar="A,B", help="Only these start networks.")
    ] = None
    seeds: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Trainings of each cell.")
    ] = None
    processes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="At once; default: one a core.")
    ] = None
    as_json: AsJson = False


@app.command(name="table")
@command(TableOptions)
def make_table(options: TableOptions) -> None:
    """Train start networks with every sequence of growths; goes on where it stopped."""
    try:
        from rota.adapt.table import build
        from rota.adapt.table_file import TableFile
    except ModuleNotFoundError as error:
        raise _needs_torch(error) from None

    if options.name is None:
        _list_tables(options.as_json)
        return
    spec = _chosen(options)
    path = options.out or FOLDER / f"{options.name}.db"
    with TableFile.open(path, spec) as table, LateBar() as bar:
        made = build(
            table,
            processes=options.processes,
            watch=bar.begin(f"trainings of {options.name}", spec.size),
        )
    if options.as_json:
        facts = {"table": options.name, "file": str(path), "runs": spec.size, "made": made}
        print_json({**facts, "spec": asdict(spec)})
        return
    typer.echo(f"{path}: {spec.size:,} trainings, {made:,} of them made now")


def _chosen(options: TableOptions) -> TableSpec:
    """The table that was asked for, with what options change in it."""
    from rota.adapt.tables import table

    assert options.name is not None
    spec = table(options.name)
    starts = _names(options.starts)
    if starts is not None:
        spec = replace(spec, starts=starts)
    if options.seeds is not None:
        spec = replace(spec, seeds=options.seeds)
    return spec


def _list_tables(as_json: bool) -> None:
    from rota.adapt.starts import STARTS
    from rota.adapt.tables import ABOUT, TABLES

    if as_json:
        tables: dict[str, Any] = {name: asdict(spec) for name, spec in TABLES.items()}
        starts = {name: {"task": s.task.name, "about": s.about, "held_out": s.held_out}
                  for name, s in STARTS.items()}  # fmt: skip
        print_json(json.loads(json.dumps({"tables": tables, "starts": starts})))
        return
    print_table(
        [
            ("table", list(TABLES)),
            ("trainings", [f"{spec.size:,}" for spec in TABLES.values()]),
            ("start networks", [str(len(spec.starts)) for spec in TABLES.values()]),
            ("what it is", [ABOUT[name] for name in TABLES]),
        ],
        left=1,
    )
    typer.echo()
    print_table(
        [
            ("start network", list(STARTS)),
            ("task", [s.task.name for s in STARTS.values()]),
            ("learned on", ["no" if s.held_out else "yes" for s in STARTS.values()]),
            ("what it is", [s.about for s in STARTS.values()]),
        ],
        left=4,
    )
