"""Locks of a state directory: one daemon at a time, one submitter at a time."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager, suppress
from time import monotonic, sleep, time
from typing import IO, TYPE_CHECKING, Any, Final

from rota.errors import ConfigError, DamagedError
from rota.files import read_file, replace_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK: Final = "daemon.lock"
DAEMON: Final = "daemon.json"


@contextmanager
def locked(root: Path, **facts: Any) -> Iterator[None]:
    """Be the only daemon of a state directory; `facts` are for others to read."""
    with (root / LOCK).open("a") as lock:
        if not seize(lock):
            other = (daemon_of(root) or {}).get("pid", "unknown")
            raise ConfigError(
                f"A daemon runs on {root} already (process {other}); stop it first, or "
                "choose another --state."
            )
        replace_file(root / DAEMON, {"pid": os.getpid(), "since": time(), **facts})
        try:
            yield
        finally:
            (root / DAEMON).unlink(missing_ok=True)


def daemon_of(root: Path) -> dict[str, Any] | None:
    """What the daemon that runs on a state directory says of itself; None if none runs."""
    try:
        with (root / LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        with suppress(DamagedError):
            return read_file(root / DAEMON) or {}
        return {}  # one runs, but its file cannot be read
    return None  # it has ended, or was killed


def seize(lock: IO[str], patience_s: float = 0.5) -> bool:
    """Take a lock; False if that takes longer than `patience_s`. `daemon_of` holds it briefly."""
    until_s = monotonic() + patience_s
    while monotonic() < until_s:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sleep(0.01)
        else:
            return True
    return False
