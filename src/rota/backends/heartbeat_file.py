"""A file that says that a scheduler is alive; watchdogs that know nothing of rota read it."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from time import monotonic, time
from typing import TYPE_CHECKING, Final

from rota.backends.local.daemon_lock import seize
from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
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


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Be the only scheduler that gives signs of life there; another one may have another state."""
    beside = path.with_name(f".{path.name}.lock")
    try:  # for reading only: an earlier daemon may have run with another account
        number = os.open(beside, os.O_RDONLY | os.O_CREAT, 0o644)
    except OSError as error:
        raise ConfigError(f"{beside} cannot be opened: {error.strerror}; remove it.") from None
    with os.fdopen(number) as lock:
        if not seize(lock):
            raise ConfigError(
                f"Another rota gives signs of life at {path}: two would take back what the other "
                "starts. Stop that one; for another Slurm, choose another --heartbeat."
            )
        yield
