"""`rota train`: learn a policy by a recipe."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.cli.options import AsJson, Tables, command, duration  # noqa: TC001
from rota.cli.table import print_json, print_table
from rota.cli.training_display import TrainingDisplay
from rota.errors import InputError

if TYPE_CHECKING:
    from rota.learn.trainer import Trainer
    from rota.learn.training_report import Standing


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


@dataclass(frozen=True)
class TrainOptions:
    """What `rota train` can be asked for."""

    recipe: Annotated[
        str,
        typer.Argument(
            metavar="PRESET|CONFIG.toml",
            help="A recipe that rota ships, or a file (recipe.json too).",
        ),
    ]
    out: Annotated[
        Path | None, typer.Option(help="Folder for its files; default: runs/NAME-SEED.")
    ] = None
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="TABLE.KEY=VALUE", help="Change a setting, such as run.seed=1."
        ),
    ] = None
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the training that stopped in the folder.")
    ] = False
    time_limit: Annotated[
        float | None,
        duration("Stop after this time, such as 20m or 2h; step sizes fall to 0 by then."),
    ] = None
    data: Tables = None
    as_json: AsJson = False
    listing: ListRecipes = False


@command(TrainOptions)
def train(options: TrainOptions) -> None:
    """Train a policy: warm-up, reinforcement learning, validation; keeps the best network."""
    # Threads that wait by spinning make each other six times slower where cores are shared.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        from rota.learn.recipe_file import load_recipe
        from rota.learn.trainer import Trainer, limited
        from rota.learn.training_folder import BEST
    except ModuleNotFoundError as error:
        raise InputError(
            f"Training needs {error.name}, which is not installed: pip install 'rota[train]'."
        ) from None

    chosen = load_recipe(options.recipe, options.set_ or [])
    if options.time_limit is not None:
        if options.time_limit <= 0:
            raise InputError("--time-limit must be above 0; leave it out for no limit.")
        chosen = limited(chosen, options.time_limit)
    folder = options.out or Path("runs") / f"{chosen.name}-{chosen.run.seed}"
    typer.echo(f"training {chosen.name} ({chosen.about}) in {folder}", err=True)
    with TrainingDisplay() as display:
        trainer = Trainer(
            chosen, folder, data=options.data, resume=options.resume, watcher=display.show
        )
        display.say(_intent(trainer))
        trainer.run()
        first, *others = trainer.standings()
    _tell_untrained(trainer)
    copy = trainer.copy
    if options.as_json:
        facts: dict[str, Any] = {
            "recipe": chosen.name, "folder": str(folder), "checkpoint": str(folder / BEST),
            **first.facts(), "also": [standing.facts() for standing in others],
            "perfect_copy": None if copy is None else asdict(copy),
        }  # fmt: skip
        print_json(facts)
        return
    for standing in (first, *others):
        _print(chosen.name, standing)
    if copy is not None:
        typer.echo(copy.words())
    typer.echo(f"checkpoint: {folder / BEST}")


def _intent(trainer: Trainer) -> str:
    """What a training learns from, what it is scored by, and what it is compared with."""
    recipe, worlds = trainer.recipe, trainer.worlds
    teacher, learner = recipe.clone.teacher, recipe.run.learner
    then = "no reinforcement learning follows" if learner == "none" else f"then {learner}"
    rivals = ", ".join(worlds.rivals) or "no other policy (world.against is empty)"
    return "\n".join([
        f"  teacher: {f'{teacher}, copied first; {then}' if teacher else f'none; {learner} alone'}",
        f"  score: mean JCT in {worlds.unit}, lower is better, on {worlds.validation_words} of "
        f"{', '.join(every.scenario.name for every in trainer.every)}",
        f"  compared with: {rivals}",
    ])  # fmt: skip


def _tell_untrained(trainer: Trainer) -> None:
    """Say so if the time was over before the first update."""
    from rota.cli.loading import note

    recipe, run = trainer.recipe, trainer.recipe.run
    if trainer.update or not run.minutes or run.learner == "none":
        return
    network = f"that of {run.start}, as it was" if run.start else "the untrained one"
    if recipe.clone.teacher:
        network = f"the copy of {recipe.clone.teacher}"
    note(
        f"no update was made within {60 * run.minutes:g} s, so the network is {network}; give "
        "more time with --time-limit."
    )


def _print(name: str, standing: Standing) -> None:
    """The final table: the best network, and its difference to each rival."""
    strongest = standing.strongest
    rows = [(f"{name} (best network)", f"{standing.jct:.3f}", "")]
    for rival in standing.rivals:
        teaches, leads = rival.policy == standing.teacher, rival is strongest
        marks = ["teacher"] * teaches + ["strongest"] * leads
        words = f"{rival.policy} ({', '.join(marks)})" if marks else rival.policy
        rows.append((words, f"{rival.jct:.3f}", rival.words()))
    heads = ("policy", "mean JCT", "network against it [95 % interval]")
    columns = [(head, [row[k] for row in rows]) for k, head in enumerate(heads)]
    if not standing.rivals:
        columns = columns[:2]
    print_table(
        columns, title=f"{standing.scenario}: mean JCT in {standing.unit}, {standing.traces}"
    )
    typer.echo(f"teacher: {standing.teacher or 'none'}")
    if strongest is not None:
        typer.echo(
            f"against the strongest rival, {strongest.policy}: mean JCT {strongest.words()}"
            f"{_verdict(strongest.ci95)}"
        )


def _verdict(ci95: tuple[float, float] | None) -> str:
    """What an interval of the change says."""
    if ci95 is None:
        return ", one trace, so no interval"
    if ci95[1] < 0:
        return ", the network is better"
    if ci95[0] > 0:
        return ", the network is worse"
    return ", no clear difference"
