"""The command line as a whole: what all verbs have in common, and how errors reach the user.

Nothing here, nor at the top of any module of a verb, imports numpy, numba or rich: `rota --help`
and `rota VERB --help` are to answer at once.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rota import __version__
from rota.cli.table import shown
from rota.cli.verbs import VerbGroup
from rota.errors import RotaError

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C, as shells have it."""

app = typer.Typer(
    name="rota",
    cls=VerbGroup,
    help="Schedule deep-learning jobs on GPU clusters, and learn to do it better.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # rich takes as long to import as everything else together
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rota {__version__}")
        raise typer.Exit


@app.callback()
def rota(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", is_eager=True, callback=_show_version
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
) -> None:
    """Schedule deep-learning jobs on GPU clusters, and learn to do it better."""


def main() -> int:
    """Run the command that this process was started for; returns the exit code."""
    # Importing numba makes half a million objects that all stay: no use looking for garbage.
    gc.set_threshold(100_000)
    return run(sys.argv[1:])


def run(words: Sequence[str]) -> int:
    """Run one command; returns the exit code."""
    before = words[: words.index("--")] if "--" in words else words
    debug = "--debug" in before
    try:
        code = _obey([word for word in before if word != "--debug"] + list(words[len(before) :]))
        sys.stdout.flush()  # a full disk or a closed pipe may show only now
        return code
    except Exception as error:
        if isinstance(error, BrokenPipeError):
            _forget(sys.stdout)
            return 1
        if debug:
            import traceback

            traceback.print_exc()
        message, code = _explain(error)
        with suppress(OSError):
            lines = filter(None, map(str.strip, message.splitlines()))
            print(f"error: {shown(' '.join(lines))}", file=sys.stderr)
        return code
    except KeyboardInterrupt:
        return INTERRUPTED


def _obey(words: list[str]) -> int:
    """Parse and run; typer leaves by SystemExit whether all went well or not."""
    try:
        app(args=words, prog_name="rota")
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    return 0


def _explain(error: Exception) -> tuple[str, int]:
    """What to tell the user, and the exit code."""
    if isinstance(error, RotaError):
        return str(error), error.exit_code
    if isinstance(error, MemoryError):
        return (
            "not enough memory; take fewer jobs (--head N), a smaller cluster, or less at once",
            1,
        )
    if isinstance(error, OSError):
        where = f" {error.filename}" if error.filename else ""
        return f"cannot read or write{where}: {error.strerror or error}", 1
    what = f"{type(error).__name__}: {error}".rstrip(": ")
    return f"internal error: {what}; run again with --debug", 1


def _forget(stream: object) -> None:
    """Nobody reads the stream any more: let Python's flush on leaving go nowhere."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # type: ignore[attr-defined]
        os.close(nowhere)
