"""`rota scenarios`: list the bundles of workload, cluster and speed, and show what is in one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rota.cli.options import AsJson  # noqa: TC001
from rota.cli.table import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.scenarios import Scenario

app = typer.Typer(
    name="scenarios",
    help="""List scenarios and show what is in them.

    load is the part of the cluster that jobs ask for while jobs arrive; work that a job does after
    the last arrival does not count. Where there is none, the workload says how often jobs come.""",
    add_completion=False,
    rich_markup_mode=None,
)

_ASKED_FOR: Final = (
    "load: the part of the cluster that the jobs ask for, on average, from the first arrival",
    "to the last. A job counts for at most that long: where single jobs outlast the arrivals,",
    "what they do afterwards keeps no job waiting.",
)
LOAD: Final = {
    "preset": _ASKED_FOR,
    "daily": _ASKED_FOR,
    "deepshare": (
        "load of gangs that slow each other down: nominal, an hour of its GPUs for each job;",
        "contention adds to it.",
    ),
}
"""What `load` means, by the kind of workload that has one."""


@app.callback(invoke_without_command=True)
def scenarios(context: typer.Context, as_json: AsJson = False) -> None:
    """List the scenarios: workload, cluster, speeds, contention, cadence and costs by name."""
    if context.invoked_subcommand is not None:
        return
    from rota.cli.loading import note
    from rota.plugins import OURS
    from rota.scenarios.speed_laws import SPEED_MODELS

    entries = _entries()
    models, troubles = SPEED_MODELS.plugged()
    for trouble in troubles:
        note(trouble)
    packages = [entry["package"] for entry in entries]
    if as_json:
        plugged = {name: SPEED_MODELS.package(name) for name in models}
        print_json({"scenarios": entries, "plugged_speed_models": plugged})
        return
    print_table(
        [
            ("scenario", [entry["name"] for entry in entries]),
            ("version", [str(entry["version"]) for entry in entries]),
            ("jobs", [f"{entry['jobs']:,}" for entry in entries]),
            ("load", ["-" if entry["load"] is None else f"{entry['load']:g}" for entry in entries]),
            ("cluster", [entry["cluster"]["about"] for entry in entries]),
            ("speed", [entry["speed"] for entry in entries]),
            ("contention", [entry["contention"] for entry in entries]),
            ("what for", [entry["about"] for entry in entries]),
            *([("package", packages)] if {*packages} > {OURS} else ()),
        ],
        left=9,
    )
    for name in models:
        typer.echo(f'[speed] family = "{name}" comes from package {SPEED_MODELS.package(name)}')
    typer.echo()
    for line in (line for lines in LOAD.values() for line in lines):
        typer.echo(line)
    typer.echo("\nrota simulate --scenario NAME --seeds 0:20 -p fifo-skip -p srtf")


def _entries() -> list[dict[str, Any]]:
    """What there is to say of every scenario that can be read; the others are noted."""
    from rota.cli.loading import note
    from rota.errors import RotaError
    from rota.scenarios import SCENARIO_FILES, load

    found = []
    for name in SCENARIO_FILES.names():
        try:
            found.append({**_facts(load(name)), "package": SCENARIO_FILES.package(name)})
        except RotaError as error:
            note(str(error))
    return found


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A scenario, or the TOML file of one.")],
    as_json: AsJson = False,
) -> None:
    """Show every setting of a scenario, defaults included."""
    from rota.scenarios import load

    scenario = load(name)
    if as_json:
        print_json({
            **_facts(scenario),
            "settings": {table: dict(keys) for table, keys in scenario.settings.items()},
            "nodes": [dict(entry) for entry in scenario.nodes],
            "aliases": dict(scenario.aliases),
        })  # fmt: skip
        return
    typer.secho(f"{scenario.name}: {scenario.about}", bold=True)
    for key, value in (("version", scenario.version), ("digest", scenario.digest)):
        typer.echo(f"{key} = {_toml(value)}")
    meaning = {"load": LOAD.get(scenario.settings["workload"]["kind"], ())}
    for table, keys in (*scenario.settings.items(), ("aliases", scenario.aliases)):
        _show_table(f"[{table}]", keys, meaning if table == "workload" else None)
    for entry in scenario.nodes:
        _show_table("[[node]]", entry)


def _show_table(
    head: str, keys: Mapping[str, Any], meaning: Mapping[str, Sequence[str]] | None = None
) -> None:
    """A table as TOML; `meaning` holds comments, by key."""
    if keys:
        typer.echo(f"\n{head}")
    for key, value in keys.items():
        for line in (meaning or {}).get(key, ()):
            typer.echo(f"# {line}")
        typer.echo(f"{key} = {_toml(value)}")


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else f"{value}"


def _facts(scenario: Scenario) -> dict[str, Any]:
    """A scenario in a few words and numbers."""
    from rota.cli.loading import facts_of_cluster

    settings = scenario.settings
    return {
        "name": scenario.name,
        "version": scenario.version,
        "digest": scenario.digest,
        "about": scenario.about,
        "workload": settings["workload"]["kind"],
        "jobs": settings["workload"]["jobs"],
        "load": settings["workload"].get("load"),
        "cluster": facts_of_cluster(scenario.cluster),
        "speed": settings["speed"]["family"],
        "contention": settings["contention"]["model"],
        "measured": scenario.measured,
    }
