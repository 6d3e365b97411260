"""What the verbs for jobs share: the state directory, and one thing done to several jobs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rota.cli.loading import note
from rota.cli.table import print_json
from rota.errors import ConfigError, RotaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rota.backends.local.state_dir import StateDir

State = Annotated[
    Path,
    typer.Option(
        "--state", metavar="DIR", envvar="ROTA_STATE", help="Where jobs and their logs are kept."
    ),
]
Jobs = Annotated[
    list[int], typer.Argument(metavar="JOB...", help="Numbers, as submit printed them.")
]
STATE: Final = Path("~/.local/state/rota")
_OWN: Final = ("_", "SHLVL", "PWD", "OLDPWD")
"""Variables that mean something in the submitting shell only."""


def environment() -> dict[str, str]:
    """The environment of this command, as a job gets it."""
    return {
        key: value
        for key, value in os.environ.items()
        if key not in _OWN and not key.startswith("ROTA_")
    }


def to_each(
    store: StateDir,
    jobs: Iterable[int],
    do: Callable[[int], dict[str, Any] | None],
    *,
    as_json: bool,
    when: str,
) -> None:
    """Do something to each job and go on after one for which that fails.

    `do` may return what JSON says of it beside its number. `when` ends the sentence "no daemon
    runs …" if none does. What failed is raised as one error in the end.
    """
    done: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    for uid in dict.fromkeys(jobs):
        try:
            done.append({"job": uid, **(do(uid) or {})})
        except (RotaError, OSError) as error:
            failed.append({"job": uid, "error": str(error)})
    if as_json:
        print_json({"state": str(store.root), "jobs": done, "errors": failed})
    if done:
        note_no_daemon(store, when)
    if failed:
        raise ConfigError(" ".join(one["error"] for one in failed))


def note_no_daemon(store: StateDir, when: str) -> None:
    """Tell the user if no daemon runs on the state directory."""
    if store.daemon() is None:
        note(f"no daemon schedules {store.root} now: {when}.")
