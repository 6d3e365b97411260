"""A file of jobs, each with the settings that `rota submit` takes as options."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

import typer

from rota.cli.submit import SubmitOptions
from rota.cli.verbs import imported
from rota.errors import ConfigError
from rota.traces.clusterfile import read_toml, unknown_key

if TYPE_CHECKING:
    from pathlib import Path

    from rota.backends.local.request import Request

_USAGE: Final[Any] = typer.BadParameter.__bases__[0]
"""What a command's parser raises; typer has it under different names from version to version."""
_NOT_HERE: Final = ("state", "as_json", "help")
_WANTS: Final = (
    'Jobs are listed under [[job]], each with name, command = "python train.py" and elastic = true.'
)


def read_jobs(path: Path) -> dict[str, Request]:
    """The jobs of a TOML file by the name that tables have them under; ConfigError if one is bad.

    Each table [[job]] has the options of `rota submit` as keys (gpus_per_worker for
    --gpus-per-worker), and is read by the same rules.
    """
    content = read_toml(path)
    for key in content:
        if key != "job":
            raise unknown_key(str(path), key, ["job"])
    entries = content.get("job")
    if not (isinstance(entries, list) and entries and all(isinstance(e, dict) for e in entries)):
        raise ConfigError(f"{path}: {_WANTS}")
    found: dict[str, Request] = {}
    for number, entry in enumerate(entries, 1):
        where = f"{path}: job {number}"
        request = _request(where, entry)
        model = request.model or request.name
        if not model or model != model.strip():
            raise ConfigError(
                f"{where}: name = {model!r} must be a text by which tables call the job, without "
                "spaces around it."
            )
        if model in found:
            raise ConfigError(
                f"{where}: another job is called {model!r} already; tables tell jobs apart by "
                "name (or model, if they have one)."
            )
        _check_kind(where, request)
        found[model] = request
    return found


def _request(where: str, entry: dict[str, Any]) -> Request:
    submit = imported("submit")
    options = {
        option.name: option for option in submit.params if option.name not in (*_NOT_HERE, None)
    }
    words: list[str] = []
    for key, value in entry.items():
        if key not in options:
            raise unknown_key(where, key, options)
        if key != "command":
            words += _words(where, options[key], value)
    given = [*words, "--", *_command(where, entry.get("command"))]
    try:
        chosen = SubmitOptions(**submit.make_context("submit", given).params)
        request = chosen.request()
        request.check_here()
    except _USAGE as error:
        raise ConfigError(f"{where}: {error.format_message()}") from None
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    return request


def _command(where: str, value: Any) -> list[str]:
    wants = "the command as one text, or as a list of words"
    if value is None:
        raise ConfigError(f"{where}: 'command' is missing; it must be {wants}.")
    try:
        words = shlex.split(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ConfigError(f"{where}: command = {value!r} cannot be split: {error}.") from None
    if not (isinstance(words, list) and words and all(isinstance(word, str) for word in words)):
        raise ConfigError(f"{where}: command = {value!r} must be {wants}.")
    return words


def _words(where: str, option: Any, value: Any) -> list[str]:
    """The key as it would be typed."""
    flag = f"--{option.name.replace('_', '-')}"
    if option.is_flag:
        if not isinstance(value, bool):
            raise ConfigError(f"{where}: {option.name} = {value!r} must be true or false.")
        return [flag] if value else []
    values = value if option.multiple and isinstance(value, list) else [value]
    if isinstance(value, bool) or not all(isinstance(one, str | int | float) for one in values):
        wants = "a list of texts" if option.multiple else "a number or a text"
        raise ConfigError(f"{where}: {option.name} = {value!r} must be {wants}.")
    return [word for one in values for word in (flag, str(one))]


def _check_kind(where: str, request: Request) -> None:
    """Refuse jobs whose speed cannot be seen, or depends on more than workers and nodes."""
    if request.servers:
        raise ConfigError(
            f"{where}: servers = {request.servers}: the speed of jobs with parameter servers is "
            "not measured; take them out, or set servers = 0."
        )
    if request.kind != "elastic":
        raise ConfigError(
            f"{where}: its speed cannot be seen: only a script that uses rota.elastic reports its "
            "samples. If this one does, say elastic = true."
        )
