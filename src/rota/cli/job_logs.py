"""`rota logs`: what a job has printed, and why it ended."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rota.cli.cancel import is_over
from rota.cli.job_verbs import STATE, State  # noqa: TC001
from rota.cli.loading import note
from rota.cli.options import AsJson  # noqa: TC001
from rota.cli.table import print_json
from rota.errors import InputError, RotaError

if TYPE_CHECKING:
    from pathlib import Path

    from rota.backends.local.held import Ended
    from rota.backends.local.state_dir import StateDir

_LOOK_S: Final = 0.2


def logs(
    job: Annotated[int, typer.Argument(metavar="JOB", help="Its number, as submit printed it.")],
    worker: Annotated[str, typer.Option(help="A worker's name, such as w0; default: all.")] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until the job is over.")] = False,
    state: State = STATE,
    as_json: AsJson = False,
) -> None:
    """Show what a job has printed, run by run, and why it failed if it did."""
    from rota.backends.local.state_dir import StateDir

    if follow and as_json:
        raise InputError("--json prints one object at once; leave --follow out.")
    store = StateDir(state, create=False)
    if not store.log_folder(job).is_dir():
        store.request(job)
    if as_json:
        print_json(_as_json(store, job, worker))
        return
    told: dict[str, int] = {}
    while True:
        over = is_over(store, job)
        _tell(store, job, worker, told)
        if over or not follow:
            break
        time.sleep(_LOOK_S)
    _tell_end(store, job, store.ended(job) if over else None, printed=bool(told))


def _tell_end(store: StateDir, job: int, ended: Ended | None, *, printed: bool) -> None:
    if ended is not None and ended.error:
        note(f"job {job} {ended.state}: {'. '.join(filter(None, (ended.error, ended.hint)))}")
    elif not printed:
        note(f"job {job} has printed nothing{' yet' * (ended is None)}.")
    with suppress(RotaError):  # a damaged file must not hide what was printed
        if ended is None and (stopped := store.held(job).stopped):
            note(f"job {job} {stopped}")


def _as_json(store: StateDir, job: int, worker: str) -> dict[str, Any]:
    ended = store.ended(job) if is_over(store, job) else None
    printed = [
        {"run": path.parents[1].name, "worker": path.stem, "text": text.decode(errors="replace")}
        for path, text, _ in _new_text(store, job, worker, {})
    ]
    return {
        "job": job,
        "state": ended.state if ended else None,
        "error": ended.error if ended else "",
        "hint": ended.hint if ended else "",
        "logs": printed,
    }


def _tell(store: StateDir, job: int, worker: str, told: dict[str, int]) -> None:
    """Print what is new in the logs."""
    several = len({path.stem for path in _log_files(store.log_folder(job))}) > 1
    for path, text, at in _new_text(store, job, worker, told):
        told[_name(path)] = at
        if several:
            typer.secho(f"── {path.parents[1].name} {path.stem}", dim=True)
        sys.stdout.buffer.write(text)
        sys.stdout.flush()


def _new_text(
    store: StateDir, job: int, worker: str, told: dict[str, int]
) -> list[tuple[Path, bytes, int]]:
    """Of each log: what comes after the `told` bytes, and where it ends."""
    while True:
        found = _log_files(store.log_folder(job))  # a job that is over is put away at some moment
        names = {path.stem for path in found}
        if worker and worker not in names and found:
            raise InputError(
                f"No worker of this job is called {worker!r}; there are {', '.join(sorted(names))}."
            )
        try:
            texts = [_read(path, told.get(_name(path), 0)) for path in found]
        except FileNotFoundError:  # it was put away just now
            continue
        return [
            (path, text, at)
            for path, (text, at) in zip(found, texts, strict=True)
            if text and (not worker or path.stem == worker)
        ]


def _read(path: Path, at: int) -> tuple[bytes, int]:
    with path.open("rb") as log:
        log.seek(at)
        return log.read(), log.tell()


def _name(path: Path) -> str:
    return "/".join(path.parts[-3:])


def _log_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("run-*/logs/*.log"), key=_written)


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
