"""Why a process of a job has failed, in words that say what ran and what to do about it."""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from rota.elastic.protocol import LOGS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rota.elastic.protocol import JobSpec

_MOST_LOG: Final = 4096
"""Bytes at the end of a log in which the reason is looked for."""
_MOST_TEXT: Final = 300
_MISSING: Final = re.compile(r"No module named '?([\w.]+)")
_PLACE: Final = re.compile(r'^ *File "(.+)", line (\d+)')
_ELASTIC: Final = ("rota", "torch")
"""Modules that `pip install 'rota[elastic]'` installs."""


class Failures:
    """Says why processes of one job could not start, or have ended."""

    def __init__(self, folder: Path, spec: JobSpec) -> None:
        self._folder, self._cwd, self._command = folder, folder / spec.cwd, spec.command
        self._elastic = spec.mode != "plain"
        self._env = {**os.environ, **spec.env}

    def command(self) -> str:
        """The command of the members in one line, with the full path of its program."""
        text = " ".join(shlex.join([self._program(), *self._command[1:]]).split())
        return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 1]}…"

    def of_exit(self, code: int, name: str) -> str:
        """Why the process that writes log `name` has ended; empty for exit code 0."""
        if code == 0:
            return ""
        if code < 0:
            return f"it was killed by {_signal_name(-code)}"
        said = explain_exit(self._last_lines(name), self._program(), elastic=self._elastic)
        full = "" if os.statvfs(self._folder).f_bavail else " (the disk is full)"
        return f"it exited with code {code}: {said}{full}"

    def of_start(self, error: OSError) -> str:
        """Why a process could not be started."""
        what = str(error.filename)
        if what == str(self._cwd):
            return f"its folder {what} cannot be entered: {error.strerror}"
        if what.startswith(str(self._folder / LOGS)):
            return f"its log {what} cannot be written: {error.strerror}"
        return explain_start(error, self._program(), self._env)

    def _program(self) -> str:
        return full_path(self._command[0], self._env, self._cwd)

    def _last_lines(self, name: str) -> list[str]:
        with suppress(OSError), (self._folder / LOGS / f"{name}.log").open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _MOST_LOG))
            return log.read(_MOST_LOG).decode(errors="replace").strip("\0\n ").splitlines()
        return []


def full_path(program: str, env: Mapping[str, str], cwd: Path) -> str:
    """Where a program is found, by PATH or relative to `cwd`; as given if it is not found."""
    if os.sep in program:
        return os.path.normpath(cwd / program)
    return shutil.which(program, path=env.get("PATH")) or program


def explain_exit(printed: Sequence[str], program: str, *, elastic: bool = True) -> str:
    """The last line that a failed process printed, and what to do if Python could not run it.

    `elastic` says that the script has to use rota.elastic.
    """
    if not printed:
        return "it printed nothing"
    last = printed[-1][:_MOST_TEXT]
    if missing := _MISSING.search(last):
        package = missing[1].partition(".")[0]
        wanted = "'rota[elastic]'" if elastic and package in _ELASTIC else package
        return f"{last}; install it: {program} -m pip install {wanted}"
    if last.startswith(("SyntaxError", "IndentationError", "TabError")):
        places = [found for line in printed if (found := _PLACE.match(line))]
        where = f" ({places[-1][1]}, line {places[-1][2]})" if places else ""
        return f"{last}{where}; correct the script, or use another Python than {program}"
    return last


def explain_start(error: OSError, program: str, env: Mapping[str, str]) -> str:
    """Why the kernel did not start a program, and what to do about it."""
    said = f"{program} cannot be started: {error.strerror}"
    if error.errno == errno.ENOENT and os.sep not in program:
        return f"{said}; give its full path, or add its folder to PATH={env.get('PATH', ''):.200}"
    if error.errno == errno.ENOENT and os.path.exists(program):
        return f"{said}; the interpreter that its first line (#!) names does not exist"
    if error.errno == errno.ENOENT:
        return f"{said}; correct the path in the job's command"
    if error.errno in (errno.EACCES, errno.ENOEXEC):
        return f"{said}; make it executable, or put its interpreter before it in the command"
    return said


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"
