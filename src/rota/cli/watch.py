"""Showing something again and again: in place on a terminal, one after the other elsewhere."""

from __future__ import annotations

import io
import shutil
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Final

from rota.cli.table import shown
from rota.errors import RotaError

if TYPE_CHECKING:
    from collections.abc import Callable

_HOME: Final = "\x1b[H"
_CLEAR_LINE: Final = "\x1b[K"
_CLEAR_BELOW: Final = "\x1b[J"


def redraw(show: Callable[[], None], every_s: float) -> None:
    """Show what `show` prints until Ctrl-C.

    An error is shown in its place, and it is tried again: files may change beneath it.
    """
    try:
        while True:
            text = _printed(show)
            if sys.stdout.isatty():
                _draw(text)
            else:
                sys.stdout.write(text)
                sys.stdout.flush()
            time.sleep(every_s)
    except KeyboardInterrupt:
        return


def _printed(show: Callable[[], None]) -> str:
    """What it prints on both streams, or its error."""
    out = io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(out):
            show()
    except (RotaError, OSError) as error:
        return f"{out.getvalue()}error: {shown(str(error))}\n"
    return out.getvalue()


def _draw(text: str) -> None:
    """Write over what is on the screen, cut to its size: no flicker, and nothing scrolls."""
    width, height = shutil.get_terminal_size()
    lines = [time.strftime("%H:%M:%S"), *text.splitlines()]
    if len(lines) >= height:
        hidden = len(lines) - height + 2
        lines = [*lines[: height - 2], f"… {hidden} more lines"]
    cut = [line if len(line) <= width else f"{line[: width - 1]}…" for line in lines]
    screen = "".join(f"{line}{_CLEAR_LINE}\n" for line in cut)
    sys.stdout.write(f"{_HOME}{screen}{_CLEAR_BELOW}")
    sys.stdout.flush()
