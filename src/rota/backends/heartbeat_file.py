"""A file that says that a scheduler is alive; watchdogs that know nothing of rota read it."""

from __future__ import annotations

import os
from contextlib import suppress
from time import monotonic, time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

EVERY_S: Final = 2.0


class HeartbeatFile:
    """Holds the Unix time as decimal text, never older than a few seconds while all is well."""

    def __init__(self, path: Path) -> None:
        self._path, self._due_s = path, 0.0

    def beat(self) -> None:
        """Say that the scheduler is alive; if it cannot be written, it looks dead, rightly."""
        if monotonic() < self._due_s:
            return
        self._due_s = monotonic() + EVERY_S
        part = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            part.write_text(f"{int(time())}\n")
            part.chmod(0o644)
            part.replace(self._path)
        except OSError:
            with suppress(OSError):
                part.unlink()
