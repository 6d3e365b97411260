"""What ran when a job failed, and what its user can do about it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rota.backends.local.request import Request

_MODULE: Final = re.compile(r"No module named '?([\w.]+)")
_ENDED: Final = re.compile(r"exited with code|cannot be started|did not start|cannot be entered")
"""Failures of the command itself; others are not about what ran."""


def start_hint(request: Request, error: str) -> str:
    """A sentence on what ran and what to do; empty if the command is not what failed."""
    if not _ENDED.search(error):
        return ""
    program = program_of(request)
    if program in error and "; " in error:
        return ""  # the agent has said it already
    return f"It ran {program} in {request.cwd}: {_advice(error, program, request.cwd)}"


def program_of(request: Request) -> str:
    """The program of a job's command with its full path, if it is found where the job runs."""
    program = request.command[0]
    if "/" in program:
        return str(Path(request.cwd, program))
    return shutil.which(program, path=request.env.get("PATH")) or program


def _advice(error: str, program: str, cwd: str) -> str:
    if found := _MODULE.search(error):
        package = found[1].partition(".")[0]
        return (
            f"install {package} for it ({program} -m pip install {package}), or submit with the "
            "full path of the Python that has it"
        )
    if "code 127" in error or "No such file" in error:
        return f"check the names and paths in the command; relative ones start at {cwd}"
    if "code 126" in error or "Permission denied" in error:
        return "make the program executable (chmod +x), or put its interpreter before it"
    if "SyntaxError" in error or "IndentationError" in error:
        return "correct the script, or submit with another Python"
    return "rota logs shows all that it printed"
