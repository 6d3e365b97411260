"""Tables as plain text: they line up, whatever they are piped into."""

from __future__ import annotations

import sys
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, TextIO

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_RESULTS: Final[ContextVar[TextIO | None]] = ContextVar("_RESULTS", default=None)
"""Where `print_json` prints, if all else that is printed goes to stderr."""


@contextmanager
def only_json(wanted: bool) -> Iterator[None]:
    """If wanted, let nothing but `print_json` reach stdout: code of others may print, too."""
    if not wanted:
        yield
        return
    token = _RESULTS.set(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _RESULTS.reset(token)


def shown(text: str) -> str:
    """A text as a terminal may see it: what would steer the terminal is spelled out."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def print_table(
    columns: Sequence[tuple[str, Sequence[str]]], *, title: str = "", left: int = 1
) -> None:
    """Print columns of texts, each under its heading; the first `left` are flush left."""
    sheet = [[heading, *map(shown, cells)] for heading, cells in columns]
    widths = [max(map(len, column)) for column in sheet]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if k < left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    rows = list(zip(*sheet, strict=True))
    if title:
        typer.secho(title, bold=True)
    typer.secho(line(rows[0]), bold=True)
    typer.echo("  ".join("─" * width for width in widths))
    if rows[1:]:
        typer.echo("\n".join(map(line, rows[1:])))  # at once: each call costs


def print_json(facts: object) -> None:
    """Print one JSON object on stdout; what is not finite must have become None before."""
    import json

    text = json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False)
    if not text.replace("\n", "").isprintable():  # all of this is inside of strings
        text = "".join(c if c == "\n" or c.isprintable() else json.dumps(c)[1:-1] for c in text)
    typer.echo(text, file=_RESULTS.get())
