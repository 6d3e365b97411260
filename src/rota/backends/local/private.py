"""Folders and files that only their owner can read."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from rota.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def make_private(folder: Path, mark: Path) -> None:
    """See that no other user can look into a folder of ours, or refuse it.

    A folder that others can enter is closed to them if it is known as ours by its `mark`, or empty;
    another one may be theirs for a reason.
    """
    for facts in (folder.lstat(), folder.stat()):
        # A link in a folder that all may write to could have been put there by any user.
        if facts.st_uid != os.geteuid():
            raise ConfigError(
                f"{folder} belongs to somebody else (user {facts.st_uid}): what is kept there "
                "could be read or changed; choose another --state."
            )
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        mode = stat.S_IMODE(os.fstat(number).st_mode)
        if mode & 0o077:
            if not mark.exists() and os.listdir(number):
                raise ConfigError(
                    f"{folder} holds other things, and others can look into it (mode {mode:o}); "
                    "choose another --state, or close it with chmod 700."
                )
            os.fchmod(number, 0o700)
    finally:
        os.close(number)


def keep_private(path: Path) -> None:
    """Let only its owner read a file that a library made for us, such as SQLite."""
    number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        facts = os.fstat(number)
        if facts.st_uid != os.geteuid():
            raise ConfigError(
                f"{path} belongs to somebody else (user {facts.st_uid}); remove it, or choose "
                "another --state."
            )
        if stat.S_IMODE(facts.st_mode) & 0o077:
            os.fchmod(number, 0o600)
    finally:
        os.close(number)


def put_aside(path: Path) -> str:
    """Rename a file, and what SQLite keeps beside it; its new name."""
    k = 1
    while path.with_name(f"{path.name}.damaged-{k}").exists():
        k += 1
    for tail in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            path.with_name(f"{path.name}{tail}").rename(
                path.with_name(f"{path.name}{tail}.damaged-{k}")
            )
    return f"{path.name}.damaged-{k}"
