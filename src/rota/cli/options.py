"""Options as several commands have them: one dataclass per command, durations written one way."""

from __future__ import annotations

import math
import re
from dataclasses import MISSING, fields
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_type_hints

import typer

from rota.cli.table import only_json

if TYPE_CHECKING:
    from collections.abc import Callable

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Pass over broken lines and count them.")]
Tables = Annotated[
    Path | None, typer.Option(help="A folder of measured tables, in place of those that ship.")
]

_UNITS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([smhd]?)\s*")


def duration_s(text: str | float) -> float:
    """Seconds in a duration such as 90s, 20m, 2h or 1.5d; a bare number counts seconds."""
    if isinstance(text, float):  # a default, which typer hands through the parser as well
        return text
    match = _DURATION.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f"{text!r} is no duration; write one like 90s, 20m, 2h or 7d.")
    seconds = float(match[1]) * _UNITS[match[2]]
    if not math.isfinite(seconds):
        raise typer.BadParameter(f"{text!r} is longer than a number can say.")
    return seconds


def long_duration_s(text: str | float) -> float:
    """The same above 0 and with its unit, where a bare number would be taken for hours or days."""
    if isinstance(text, str) and text.strip()[-1:].isdigit():
        raise typer.BadParameter(f"{text!r} has no unit; write {text.strip()}h or {text.strip()}s.")
    seconds = duration_s(text)
    if seconds <= 0:
        raise typer.BadParameter(f"{text!r} is not above 0.")
    return seconds


def duration(about: str, *names: str, **more: Any) -> Any:
    """An option that is given as a duration, in seconds for the command."""
    settings = {"parser": duration_s, "metavar": "DURATION", "help": about, **more}
    return typer.Option(*names, **settings)


def command(options: type[Any]) -> Callable[[Callable[[Any], None]], Callable[..., None]]:
    """Make a typer command of a function that takes its options as one dataclass.

    Every field is one option or argument: its annotation and default are what a parameter of the
    command would have.
    """
    hints = get_type_hints(options, include_extras=True)
    parameters = [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(options)
    ]

    def wrap(verb: Callable[[Any], None]) -> Callable[..., None]:
        def run(**given: Any) -> None:
            chosen = options(**given)
            with only_json(getattr(chosen, "as_json", False)):
                verb(chosen)

        run.__name__, run.__doc__ = verb.__name__, verb.__doc__
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return run

    return wrap
