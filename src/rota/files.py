"""Small files that are replaced whole and checked when they are read.

Daemons, agents and commands share them. A writer may have been killed, or have run out of disk or
power, so a reader expects anything and reports a damaged file as DamagedError.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import zipfile
import zlib
from contextlib import suppress
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rota.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

T = TypeVar("T")

_RESERVED: Final = 4096
_MOST_FILE: Final = 1 << 26
"""Bytes; a longer JSON file is taken for damaged."""

BAD_ARRAYS: Final = (
    OSError, EOFError, KeyError, TypeError, ValueError, IndexError, RuntimeError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What reading arrays from a damaged file of numpy's (npz, a zip archive) may raise."""


def replace_file(path: Path, facts: dict[str, Any], mode: int = 0o600) -> None:
    """Write a JSON file, as `replace_bytes` does."""
    replace_bytes(path, [json.dumps(facts).encode()], mode)


def replace_bytes(path: Path, pieces: Iterable[Any], mode: int = 0o600) -> None:
    """Write a file that others see whole or not at all, and only its owner can read.

    Another `mode` lets others read it, too. When this returns, contents and name are on the disk
    (fsync) and survive a loss of power.
    """
    part = path.with_suffix(".part")
    try:
        # In a folder that others may write to, a link may lie in its place.
        number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(number, "wb") as file:
            if mode != 0o600:
                os.fchmod(file.fileno(), mode)
            for piece in pieces:
                file.write(piece)
            file.truncate()  # last: space reserved by `reserve_file` is overwritten first
            file.flush()
            os.fsync(file.fileno())
        try:
            part.replace(path)
        except IsADirectoryError as error:  # it is told of the part
            raise IsADirectoryError(error.errno, error.strerror, str(path)) from None
        sync_folder(path.parent)
    except OSError:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk (fsync), besides the contents of its files."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def reserve_file(path: Path) -> None:
    """Take the disk space for a file now, so that it can be written when the disk is full."""
    path.with_suffix(".part").write_bytes(b" " * _RESERVED)


def read_file(path: Path) -> dict[str, Any] | None:
    """Read a JSON object from a file: None if there is no such file, DamagedError if it is damaged.

    A link, a folder or a pipe of that name counts as damage; this never blocks on one.
    """
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENXIO):
            raise  # such as too many open files, which says nothing about this file
        why = "it is a link" if error.errno == errno.ELOOP else f"{error.strerror}"
        raise DamagedError(path, why) from None
    try:
        facts_of = os.fstat(number)
        if not stat.S_ISREG(facts_of.st_mode):
            raise DamagedError(path, "it is not a regular file")
        if facts_of.st_uid != os.geteuid():
            raise DamagedError(path, f"it belongs to somebody else (user {facts_of.st_uid})")
        text = _read_all(number)
    finally:
        os.close(number)
    if not text:
        raise DamagedError(path, "it is empty")
    try:
        facts = json.loads(text) if len(text) <= _MOST_FILE else None
    except (ValueError, RecursionError):
        raise DamagedError(path, "it is not JSON") from None
    if not isinstance(facts, dict):
        raise DamagedError(path, "it is not a JSON object")
    return facts


def decode_as(kind: type[T], facts: dict[str, Any], path: object) -> T:
    """Rebuild a dataclass with plain fields from what `asdict` gave, or raise DamagedError."""
    known = {item.name: item for item in fields(kind)}  # type: ignore[arg-type]
    if foreign := sorted(facts.keys() - known.keys()):
        raise DamagedError(path, f"{foreign[0]!r} does not belong there")
    for name, item in known.items():
        if name not in facts:
            if item.default is MISSING:
                raise DamagedError(path, f"{name} is missing")
            continue
        if not _fits(facts[name], str(item.type)):
            raise DamagedError(path, f"{name} is {str(facts[name])[:40]!r}")
    return kind(**facts)


def _fits(value: object, declared: str) -> bool:
    """Whether a value has the declared type of a field."""
    if declared.startswith("Literal["):
        return isinstance(value, str) and repr(value) in declared  # as annotations are kept
    return _FITS.get(declared.partition("[")[0], lambda _: True)(value)


def is_count(value: object) -> bool:
    """Whether a value from a file is a whole number that counts something."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53


def is_number(value: object) -> bool:
    """Whether a value from a file is a finite number; bool is none."""
    return type(value) in (int, float) and abs(value) < 1e15  # type: ignore[arg-type]


_FITS: Final[dict[str, Callable[[Any], bool]]] = {
    "int": is_count,
    "float": is_number,
    "float | None": lambda value: value is None or is_number(value),
    "bool": lambda value: isinstance(value, bool),
    "str": lambda value: isinstance(value, str),
    "dict": lambda value: isinstance(value, dict),
    "Seats": lambda value: isinstance(value, dict),
}
"""Checks of a field's value, by its declared type."""


def _read_all(number: int) -> bytes:
    """The bytes of an open file; reading stops soon after `_MOST_FILE`."""
    parts, size = [], 0
    while size <= _MOST_FILE and (part := os.read(number, 1 << 20)):
        parts.append(part)
        size += len(part)
    return b"".join(parts)
