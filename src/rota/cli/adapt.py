"""`rota adapt`: trainings of networks that grow, and the agents that decide how they do."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rota.cli.options import AsJson, command  # noqa: TC001
from rota.cli.progress import LateBar
from rota.cli.table import print_json, print_table, shown
from rota.errors import ConfigError, InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.adapt.cells import Cells
    from rota.adapt.clock import Occasion
    from rota.adapt.evaluation import Evaluation
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
    # Twice the same would count as more evidence than there is.
    found = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not found:
        raise ConfigError(f"{text!r} names nothing; write names with commas between, such as a,b.")
    return found


@dataclass(frozen=True)
class TableOptions:
    """What `rota adapt table` can be asked for."""

    name: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="Which table; without it, lists them.")
    ] = None
    out: Annotated[Path | None, typer.Option(help="The file; default: runs/adapt/TABLE.db.")] = None
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
        from rota.adapt.table_build import build
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
    from rota.adapt.known_tables import table

    assert options.name is not None
    spec = table(options.name)
    starts = _names(options.starts)
    if starts is not None:
        spec = replace(spec, starts=starts)
    if options.seeds is not None:
        spec = replace(spec, seeds=options.seeds)
    return spec


def _list_tables(as_json: bool) -> None:
    from rota.adapt.known_tables import ABOUT, TABLES
    from rota.adapt.starts import STARTS

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


AGENT: Final = FOLDER / "agent.ckpt"
TablePath = Annotated[Path, typer.Option(metavar="FILE", help="A file of `rota adapt table`.")]
OccasionNames = Annotated[
    str | None,
    typer.Option(metavar="A,B", help="Only these occasions, such as early-1to2; default: all."),
]


@dataclass(frozen=True)
class AdaptTrainOptions:
    """What `rota adapt train` can be asked for."""

    table: TablePath = FOLDER / "learn.db"
    out: Annotated[Path, typer.Option(help="The checkpoint to write.")] = AGENT
    learner: Annotated[str, typer.Option(help="ours, or published.")] = "ours"
    episodes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Episodes to learn from.")
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same agent.")] = 0
    occasions: OccasionNames = None
    model: Annotated[
        bool,
        typer.Option("--model", help="Learn on learning curves fitted to the table, at all times."),
    ] = False
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the training that stopped.")
    ] = False
    as_json: AsJson = False


@app.command(name="train")
@command(AdaptTrainOptions)
def train_agent(options: AdaptTrainOptions) -> None:
    """Let an agent learn on a table; --resume goes on where it stopped."""
    try:
        from rota.adapt.apprentice import STATE, apprentice, check_agent_path
        from rota.adapt.learning_curve import mean_gain
    except ModuleNotFoundError as error:
        raise _needs_torch(error) from None

    check_agent_path(options.out)
    cells = _cells(options.table, options.occasions, None, model=options.model)
    training = apprentice(
        options.learner, cells, seed=options.seed, episodes=options.episodes,
        state=options.out.with_suffix(STATE), resume=options.resume,
    )  # fmt: skip
    with LateBar() as bar:
        training.run(bar.begin("episodes", training.most))
    training.save(options.out)
    gain = mean_gain(training.learner.chooser, cells)
    facts = {"checkpoint": str(options.out), "learner": options.learner,
             "episodes": training.learner.episodes, "cases": len(cells.names),
             "validation_gain": gain}  # fmt: skip
    if options.as_json:
        print_json(facts)
        return
    typer.echo(
        f"{options.out}: {training.learner.episodes:,} episodes on {len(cells.names)} cases; "
        f"{100 * gain:+.1f} points of validation accuracy over no growth"
    )


@dataclass(frozen=True)
class AdaptEvaluateOptions:
    """What `rota adapt evaluate` can be asked for."""

    agents: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[CKPT]...", help="Agents; default: runs/adapt/agent.ckpt."),
    ] = None
    table: TablePath = FOLDER / "held-out.db"
    learned_on: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The table that the best constant is chosen on."),
    ] = None
    starts: Annotated[
        str | None, typer.Option(metavar="A,B", help="Only these start networks; default: all.")
    ] = None
    occasions: OccasionNames = None
    seed: Annotated[int, typer.Option(min=0, help="Of random choices and of intervals.")] = 0
    as_json: AsJson = False


@app.command(name="evaluate")
@command(AdaptEvaluateOptions)
def evaluate_agents(options: AdaptEvaluateOptions) -> None:
    """Compare agents with baselines on a table, with confidence intervals."""
    found = _evaluated(options)
    if options.as_json:
        print_json(found.facts())
        return
    _print(found)


@dataclass(frozen=True)
class PlotOptions(AdaptEvaluateOptions):
    """What `rota adapt plot` can be asked for."""

    out: Annotated[Path, typer.Option(metavar="FILE.html", help="The page.")] = (
        FOLDER / "report.html"
    )


@app.command(name="plot")
@command(PlotOptions)
def plot_agents(options: PlotOptions) -> None:
    """Draw what `rota adapt evaluate` finds as a page with pictures."""
    from rota.cli.report import check_page
    from rota.dash.adapt_page import render
    from rota.traces.text_files import write_text

    check_page(options.out)
    found = _evaluated(options).facts()
    write_text(options.out, render(found))
    if options.as_json:
        print_json({"page": str(options.out), **found})
        return
    typer.echo(f"Wrote {shown(str(options.out))}.")


def _evaluated(options: AdaptEvaluateOptions) -> Evaluation:
    try:
        from rota.adapt.apprentice import load_agent
        from rota.adapt.evaluation import BASELINES, evaluate
    except ModuleNotFoundError as error:
        raise _needs_torch(error) from None

    cells = _cells(options.table, options.occasions, _names(options.starts))
    default = FOLDER / "learn.db"
    path = options.learned_on or (default if default.is_file() else None)
    learned_on = None if path is None else _cells(path, None, None)
    spec = None if learned_on is None else learned_on.spec
    if spec and (spec.menu, spec.decisions) != (cells.spec.menu, cells.spec.decisions):
        if options.learned_on is not None:
            raise ConfigError(
                f"{path}: This table has {spec.decisions} decisions of the menu {spec.menu!r}, "
                f"{options.table} other ones; no constant can be chosen on it."
            )
        learned_on = None
    paths = list(dict.fromkeys(options.agents or [AGENT]))
    agents = {name: [load_agent(path)] for name, path in _titles(paths, BASELINES).items()}
    with LateBar() as bar:
        bar.begin("cases", 0)
        return evaluate(cells, agents, learned_on, seed=options.seed)


def _titles(paths: Sequence[Path], taken: Sequence[str]) -> dict[str, Path]:
    """Agents by the name of their file, or by their path where that could be another's."""
    names = [*taken, *(path.stem for path in paths)]
    return {str(path) if names.count(path.stem) > 1 else path.stem: path for path in paths}


def _print(found: Evaluation) -> None:
    print_table(
        [
            ("who decides", [s.name for s in found.standings]),
            ("accuracy", [f"{100 * s.accuracy:.2f} %" for s in found.standings]),
            ("over no growth", [f"{100 * s.gain:+.2f}" for s in found.standings]),
            ("what it is", [s.about for s in found.standings]),
        ],
        title=f"Accuracy at the deadline, test split, {len(found.cases)} cases",
    )
    if found.differences:
        typer.echo()
        print_table(
            [
                ("agent", [d.agent for d in found.differences]),
                ("against", [d.baseline for d in found.differences]),
                ("points", [f"{100 * d.mean:+.2f}" for d in found.differences]),
                ("95 % interval", [f"[{100 * d.low:+.2f}, {100 * d.high:+.2f}]"
                                   for d in found.differences]),
            ],
            left=2,
        )  # fmt: skip


def _cells(
    path: Path, occasions: str | None, starts: Sequence[str] | None, *, model: bool = False
) -> Cells:
    """The cases of a table, or of a model of it."""
    from rota.adapt.cells import Cells, TableRuns
    from rota.adapt.surrogate import Surrogate
    from rota.adapt.table_file import TableFile

    with TableFile.open(path) as table:
        runs = TableRuns(table)
    source = Surrogate(runs) if model else runs
    return Cells(source, starts or runs.spec.starts, _occasions(source.epochs, occasions))


def _occasions(epochs: Sequence[int], text: str | None) -> list[Occasion]:
    """Occasions by name; without names, all that begin after one of these epochs."""
    from rota.adapt.clock import OCCASIONS, occasion, occasions_at

    if (names := _names(text)) is not None:
        return [occasion(name) for name in names]
    found = [one for one in OCCASIONS.values() if one.epoch in epochs]
    known = {one.epoch for one in found}
    return found + [one for epoch in epochs if epoch not in known for one in occasions_at(epoch)]
