"""The file of a journal: its tables, how it is created, opened, and told from other files."""

from __future__ import annotations

import errno
import json
import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from rota.errors import JournalError
from rota.run.packing import checksum

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

FORMAT: Final = 1
"""Counts up whenever an older rota could not read what a newer one writes."""
APPLICATION_ID: Final = int.from_bytes(b"rota", "big")
"""Tells a journal from other SQLite files; `file` and `PRAGMA application_id` show it."""
LISTED: Final = np.dtype(
    [
        ("user", np.int64),
        ("num_gpus", np.int64),
        ("submit_s", np.float64),
        ("duration_s", np.float64),
    ]
)
"""What the journal knows of a job from the start, besides its name."""
SUMS: Final = {
    "begin_s": "REAL", "end_s": "REAL", "held_gpu_s": "REAL", "up_gpu_s": "REAL",
    "stray_gpu_s": "REAL", "wall_s": "REAL", "moves": "INTEGER", "resizes": "INTEGER",
    "kills": "INTEGER", "rounds": "INTEGER",
}  # fmt: skip
"""What a run adds up while it goes; also fields of an Outcome."""
# `first` numbers the chunk's first record, counted over the whole journal. `crc` is over the
# columns behind it, in this order: SQLite itself would not notice a flipped bit in a BLOB.
TABLES: Final = {
    "jobs": "first INTEGER, count INTEGER, crc INTEGER, job_id TEXT, users TEXT, jobs BLOB, "
    "columns TEXT, more BLOB",
    "events": "first INTEGER, count INTEGER, crc INTEGER, begin_s REAL, end_s REAL, "
    "events BLOB, shares BLOB",
    "rounds": "first INTEGER, count INTEGER, crc INTEGER, begin_s REAL, end_s REAL, "
    "rounds BLOB, notes TEXT",
    "ending": ", ".join(f"{name} {kind}" for name, kind in SUMS.items())
    + ", crc INTEGER, lost_s BLOB, fee BLOB",
}
NEEDED: Final = ("policy", "total_gpus")
"""What the meta data must tell, because no Outcome is complete without it."""

# Large pages suit large BLOBs; still larger ones would make small commits of a live loop slow.
PAGE_BYTES: Final = 16384
WAL_PAGES: Final = 1024
"""The log is copied into the file, and both are synced, each time it has grown to this size."""

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_UNWRITABLE: Final = (
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_TRUNCATE, sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE,
    sqlite3.SQLITE_IOERR_SHMMAP,
)  # fmt: skip

FileName: TypeAlias = "str | os.PathLike[str]"


def _schema() -> Iterable[str]:
    yield "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID"
    for table, columns in TABLES.items():
        yield f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, {columns})"
    latest = ", ".join(f"(SELECT coalesce(max(id), 0) FROM {table})" for table in TABLES)
    for table in ("meta", *TABLES):
        # Of two writers, only one may add the chunk with the next number. And INSERT OR REPLACE
        # deletes without firing the trigger for DELETE.
        wrong = f"NEW.id <> 1 + max({latest})"
        if table == "meta":
            wrong = "EXISTS (SELECT 1 FROM meta WHERE key = NEW.key)"
        for verb, when in {"UPDATE": "", "DELETE": "", "INSERT": f"WHEN {wrong} "}.items():
            yield (
                f"CREATE TRIGGER {table}_{verb.lower()} BEFORE {verb} ON {table} {when}"
                "BEGIN SELECT RAISE(ABORT, 'a journal is append-only'); END"
            )


def reason(error: sqlite3.Error | OSError) -> str:
    """What went wrong with a file, in a few words, and what to do about it if we know."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return "the disk is full; make room or choose another place"
    if code == sqlite3.SQLITE_CONSTRAINT:
        return "somebody else has written to it since; stop that writer, then reopen it"
    if code == sqlite3.SQLITE_IOERR:
        return f"{error} (is the disk full or gone?)"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def lacks_room(error: BaseException | None) -> bool:
    """Whether something failed because nothing can be written, on a full disk for example."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL:
            return True
        if getattr(error, "sqlite_errorcode", None) in _UNWRITABLE:
            return True
        error = error.__cause__
    return False


def claim(path: Path, force: bool) -> None:
    """Create `path` as an empty file that was not there before."""
    try:
        if path.is_dir():
            raise JournalError(f"{path} is a directory; give the name of a file inside it.")
        if not path.parent.is_dir():
            raise JournalError(f"There is no directory {path.parent}; create it first.")
        if path.exists() and not force:
            raise JournalError(
                f"{path} exists already; choose another name, or replace it with --force."
            )
        if path.exists() and not is_journal(path):
            raise JournalError(
                f"{path} is no journal, so --force does not replace it; choose another name."
            )
        remove(path)
        path.open("xb").close()
    except OSError as error:
        raise JournalError(
            f"Cannot create the journal {path}: {reason(error)}; choose another place."
        ) from error


def is_journal(path: Path) -> bool:
    """Whether a file is a journal, or empty as a journal is before it is begun."""
    if path.stat().st_size == 0:
        return True
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            return _identity(db)[0] == APPLICATION_ID
    except sqlite3.Error:
        return False


def _identity(db: sqlite3.Connection) -> tuple[int, int]:
    """What kind of file it is, and in which version of its format."""
    kind, version = (
        int(db.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("application_id", "user_version")
    )
    return kind, version


def remove(path: Path) -> None:
    """Delete a journal, and what belongs to it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def begin(path: Path, meta: Iterable[tuple[str, str]]) -> sqlite3.Connection:
    """Make the empty file at `path` a journal."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        make_ready(db)
        db.execute("BEGIN IMMEDIATE")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {FORMAT}")
        for statement in _schema():
            db.execute(statement)
        db.executemany("INSERT INTO meta VALUES (?, ?)", meta)
        db.execute("COMMIT")
    except BaseException:
        db.close()
        raise
    return db


def make_ready(db: sqlite3.Connection) -> None:
    """Allow reading while it is written, and make commits fast."""
    if db.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
        raise OSError("this file system lacks what SQLite's WAL needs; choose a local disk")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")


def connect(path: Path, mode: str) -> tuple[sqlite3.Connection, dict[str, Any]]:
    """Open the journal at `path`, "ro" or "rw"; its meta data, which are checked, come with it."""
    with reading(path):
        if path.is_dir():
            raise JournalError(f"{path} is a directory, not a journal.")
        if not path.exists():
            raise JournalError(f"There is no journal at {path}.")
        if path.stat().st_size == 0:
            raise JournalError(f"{path} is empty: its writer died, or has just begun.")
        uri = f"{path.absolute().as_uri()}?mode={mode}"
        db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    try:
        db.row_factory = sqlite3.Row
        with reading(path):
            _check_identity(path, *_identity(db))
            rows = db.execute("SELECT key, value FROM meta").fetchall()
            meta = {key: json.loads(value) for key, value in rows}
            if not meta.keys() >= set(NEEDED):
                raise ValueError(f"its meta data lack {' or '.join(NEEDED)}")
    except BaseException:
        db.close()
        raise
    return db, meta


def told(meta: Mapping[str, Any], key: str) -> list[Any]:
    """The values of `key` in the order they were written: `key`, then `key.2`, `key.3`, …."""
    said = [meta[key]] if key in meta else []
    while said and f"{key}.{len(said) + 1}" in meta:
        said.append(meta[f"{key}.{len(said) + 1}"])
    return said


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn whatever goes wrong in the body into a JournalError: the journal cannot be read."""
    try:
        yield
    # Bytes that are not what was written can fail in any of these ways.
    except (sqlite3.Error, OSError, AttributeError, LookupError, TypeError, ValueError) as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_NOTADB:
            raise JournalError(f"{path} is not a journal of rota, nor an SQLite file.") from error
        what = reason(error) if isinstance(error, sqlite3.Error | OSError) else str(error)
        raise JournalError(f"Cannot read the journal {path}: {what}.") from error


def _check_identity(path: Path, application_id: int, version: int) -> None:
    if application_id != APPLICATION_ID:
        raise JournalError(f"{path} is an SQLite file, but not a journal of rota.")
    if version > FORMAT:
        raise JournalError(
            f"{path} has journal format {version}, but this rota reads up to {FORMAT}; "
            "read it with a newer rota."
        )


def chunk_rows(
    db: sqlite3.Connection, table: str, since: int = 0, until: int = 2**62
) -> Iterator[sqlite3.Row]:
    """The chunks after `since` up to `until`, checked."""
    sql = f"SELECT * FROM {table} WHERE id > ? AND id <= ? ORDER BY id"
    for row in db.execute(sql, (since, until)):
        if checksum(value for value in row if isinstance(value, str | bytes)) != row["crc"]:
            raise ValueError(f"chunk {row['id']} of {table} has the wrong checksum")
        yield row
