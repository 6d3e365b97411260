"""`rota train`: learn a policy by a recipe."""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rota.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.learn.trainer import Report

QUIET_S: Final = 30.0
"""The longest silence of a training whose output is no terminal."""
WIDE: Final = 130
"""Columns from which a terminal shows all numbers."""

Source = Annotated[
    str, typer.Argument(metavar="PRESET|CONFIG.toml", help="A recipe that rota ships, or a file.")
]
Out = Annotated[
    Path | None, typer.Option(help="Folder for all that it leaves; default: runs/NAME-SEED.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Change a setting, such as run.seed=1."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on where the folder's run stopped.")]
Minutes = Annotated[
    float | None, typer.Option(min=0.01, help="Stop after so long; the rates fall accordingly.")
]
DataFolder = Annotated[
    Path | None,
    typer.Option("--data", help="A folder of measured tables, in place of those that ship."),
]


def _list(wanted: bool) -> None:
    """Print the recipes that ship, and the systems that a recipe may train."""
    if not wanted:
        return
    from rota.cli.loading import note
    from rota.cli.table import print_table
    from rota.systems.registry import LEARNED, SYSTEMS, about_preset, presets

    plugged, troubles = LEARNED.plugged()
    for trouble in troubles:
        note(trouble)
    systems = SYSTEMS | plugged
    print_table([("system", list(systems)), ("what it does", [s.summary for s in systems.values()]),
                 ("package", [*map(LEARNED.package, systems)])], left=3)  # fmt: skip
    typer.echo()
    # The ablations, named after what they change, come last.
    recipes = sorted(presets(), key=lambda name: len(presets()[name].parts))
    print_table([("recipe", recipes), ("what it trains", [*map(about_preset, recipes)])], left=2)
    raise typer.Exit


ListRecipes = Annotated[
    bool,
    typer.Option("--list", is_eager=True, callback=_list, help="List recipes and systems."),
]


def train(
    recipe: Source,
    out: Out = None,
    set_: Set = None,
    resume: Resume = False,
    minutes: Minutes = None,
    data: DataFolder = None,
    _listing: ListRecipes = False,
) -> None:
    """Train a policy: warm-up, reinforcement learning, validation; keeps the best."""
    # Threads that wait by spinning make each other six times slower where cores are shared.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        from rota.learn.recipe import load_recipe
        from rota.learn.trainer import BEST, Trainer, shorter
    except ModuleNotFoundError as error:
        raise InputError(
            f"Training needs {error.name}, which is not installed: pip install 'rota[train]'."
        ) from None

    chosen = load_recipe(recipe, set_ or [])
    if minutes is not None:
        chosen = shorter(chosen, minutes)
    folder = out or Path("runs") / f"{chosen.name}-{chosen.run.seed}"
    typer.echo(f"training {chosen.name} ({chosen.about}) in {folder}", err=True)
    with _Display() as display:
        trainer = Trainer(chosen, folder, data=data, resume=resume, watcher=display.show)
        best = trainer.run()
    teacher = trainer.stage.teacher
    compared = "" if teacher is None else f", {best / teacher - 1:+.1%} against the teacher"
    typer.echo(f"best mean JCT on validation traces: {best:.3f}{compared}")
    if trainer.copy is not None:
        typer.echo(trainer.copy.words())
    typer.echo(f"checkpoint: {folder / BEST}")


class _Display:
    """One line on stderr that is kept up to date, where there is a terminal; else now and then."""

    def __enter__(self) -> _Display:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.fields[phase]:>5}"), BarColumn(10),
            TextColumn("{task.completed}/{task.total}"), TextColumn("{task.fields[says]}"),
            TimeElapsedColumn(), console=self._console, transient=True,
            disable=not self._console.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=1, phase="setup", says="drawing traces")
        self._bar.start()
        self._said: tuple[str, float | None] = ("", None)
        self._said_s = 0.0
        self._copy_told = False
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, report: Report) -> None:
        """Bring the line up to date."""
        if report.copy is not None and not self._copy_told:
            words = report.copy.words()
            self._console.print(words, markup=False, highlight=False, soft_wrap=True)
            self._copy_told = True
        if self._console.is_terminal:
            says = _words(report) if self._console.width >= WIDE else _brief(report)
            self._bar.update(
                self._task, completed=report.update, total=max(1, report.updates),
                phase=report.phase, says=says,
            )  # fmt: skip
            return
        news, now_s = (report.phase, report.validation), monotonic()
        ends = report.update == report.updates
        if news != self._said or ends or now_s - self._said_s > QUIET_S:
            where = f"{report.phase} {report.update}/{report.updates}"
            typer.echo(f"{where}: {_words(report)}", err=True)
            self._said_s = now_s
        self._said = news


def _brief(report: Report) -> str:
    """What matters most, in the 45 columns that a plain terminal leaves."""
    facts, parts = report.facts or {}, []
    if report.best is not None:
        change = f" ({report.best / report.teacher - 1:+.1%})" if report.teacher else ""
        parts.append(f"JCT {report.best:.3f}{change}")
    parts += [f"{name} {facts[name]:.2f}" for name in ("entropy", "agreement") if name in facts]
    return ", ".join(parts + [f"{report.rate:,.0f} steps/s"] * (report.rate > 0))


def _words(report: Report) -> str:
    """All there is to say."""
    facts = report.facts or {}
    number: Callable[[float], str] = "{:.3f}".format
    parts = [f"{report.rate:,.0f} steps/s"] if report.rate else []
    if report.validation is not None:
        parts.append(f"validation JCT {number(report.validation)}")
    if report.best is not None:
        parts.append(f"best {number(report.best)}")
    if report.teacher is not None:
        parts.append(f"teacher {number(report.teacher)}")
    if report.best is not None and report.teacher:
        parts[-1] += f" ({report.best / report.teacher - 1:+.1%})"
    parts += [f"{name} {number(facts[name])}" for name in ("jct", "entropy", "agreement")
              if name in facts]  # fmt: skip
    return ", ".join(parts)
