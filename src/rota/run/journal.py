"""The journal: one SQLite file to which a run appends what happens; docs/journal.md has the format.

Records are kept as BLOBs, many to a row: a compiled simulation writes large chunks, a live loop
one small chunk per round. Every `add_…` is one transaction. Once it has returned, killing the
process loses nothing of it.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from rota import __version__
from rota.core.layout import NODE_DOWN
from rota.errors import JournalError
from rota.run.packing import as_json, checksum, pack, write_columns

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

    from numpy.typing import ArrayLike

    from rota.core.types import Floats, Records

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

# Large pages suit large BLOBs; larger ones than this make the small commits of a live loop dear.
PAGE_BYTES: Final = 16384
WAL_PAGES: Final = 1024
"""The log is copied into the file, and both are synced, each time it has grown to this size."""

FileName: TypeAlias = "str | os.PathLike[str]"


def _schema() -> Iterable[str]:
    yield "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID"
    for table, columns in TABLES.items():
        yield f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, {columns})"
    for table in ("meta", *TABLES):
        key = "key" if table == "meta" else "id"
        rules = {
            "UPDATE": "",
            "DELETE": "",
            # INSERT OR REPLACE would delete without asking the trigger above.
            "INSERT": f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {key} = NEW.{key}) ",
        }
        for verb, when in rules.items():
            yield (
                f"CREATE TRIGGER {table}_{verb.lower()} BEFORE {verb} ON {table} {when}"
                "BEGIN SELECT RAISE(ABORT, 'a journal is append-only'); END"
            )


class Journal:
    """The writer's side of a journal; make one with `Journal.create`.

    As a context manager it closes the file. Without `finish` the file then says that the run
    did not end, which is what a reader must know after a crash too.
    """

    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        self.path = path
        self._db: sqlite3.Connection | None = db
        self._chunks = self._jobs = self._events = self._rounds = 0
        self._users: dict[str, int] = {}

    @classmethod
    def create(cls, path: FileName, *, meta: Mapping[str, Any], force: bool = False) -> Journal:
        """Begin a journal at `path`; `force` replaces a file that is there already.

        `meta` must hold `policy` and `total_gpus`; what else it holds is kept too, as JSON.
        """
        path = Path(path)
        missing = [key for key in NEEDED if key not in meta]
        if missing:
            raise JournalError(f"The journal {path} needs {' and '.join(missing)} in its meta.")
        facts = {**meta, "format": FORMAT, "rota_version": __version__}
        rows = [(key, as_json(f"meta[{key!r}]", value)) for key, value in facts.items()]
        _claim(path, force)
        try:
            return cls(path, _begin(path, rows))
        except (sqlite3.Error, OSError) as error:
            _remove(path)
            raise JournalError(f"Cannot begin the journal {path}: {reason(error)}.") from error

    def add_jobs(
        self, job_id: ArrayLike, user: ArrayLike, users: Sequence[str], num_gpus: ArrayLike,
        submit_s: ArrayLike, duration_s: ArrayLike, more: Mapping[str, ArrayLike] | None = None,
        names: Mapping[str, Sequence[str]] | None = None,
    ) -> int:  # fmt: skip
        """Append jobs; returns the number of the first, by which events name it.

        Jobs are numbered from 0 in the order they are added. `user` holds indices into `users`
        of this call (−1: nobody); the journal keeps one list of names for all calls. `more`
        holds further columns of numbers, the same ones in every call; `names`, by column, the
        texts that codes in it stand for, all of them so far.
        """
        ids = np.asarray(job_id, np.str_).tolist()
        new = {name: None for name in users if name not in self._users}
        known = {**self._users, **{name: len(self._users) + k for k, name in enumerate(new)}}
        code = np.array([*(known[name] for name in users), -1], np.int64)
        whose = np.asarray(user, np.int64)
        if len(whose) and not (whose.min() >= -1 and whose.max() < len(users)):
            raise JournalError(f"Job users must index the {len(users)} names given, or be −1.")
        jobs = np.empty(len(ids), LISTED)
        given = (code[whose], np.asarray(num_gpus), np.asarray(submit_s), np.asarray(duration_s))
        for name, column in zip(LISTED.names or (), given, strict=True):
            if len(column) != len(ids):
                raise JournalError(f"{name} has {len(column)} entries for {len(ids)} jobs.")
            jobs[name] = column
        first = self._jobs
        row = (as_json("job_id", ids), as_json("users", list(new)), pack(jobs))
        self._append("jobs", (first, len(ids)), (*row, *write_columns(len(ids), more, names)))
        self._jobs, self._users = first + len(ids), known
        return first

    def add_events(self, events: Records, entries: Records) -> None:
        """Append EVENT records; `entries` holds their shares, each event's `entries` in turn."""
        announced = int(events["entries"].sum())
        if announced != len(entries):
            raise JournalError(f"The events announce {announced} shares, but {len(entries)} came.")
        job = events["job"][events["kind"] < NODE_DOWN]
        if len(job) and not (job.min() >= 0 and job.max() < self._jobs):
            raise JournalError(
                f"An event names job {job.min() if job.min() < 0 else job.max()}, but the journal "
                f"knows {self._jobs} jobs; call add_jobs() first."
            )
        row = (pack(events), pack(entries))
        self._append("events", (self._events, len(events)), row, events["time_s"])
        self._events += len(events)

    def add_rounds(self, rounds: Records, notes: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Append ROUND records; `notes` (reasons, timings, …), if given, holds one per round."""
        if notes is not None and len(notes) != len(rounds):
            raise JournalError(f"There are {len(notes)} notes for {len(rounds)} rounds.")
        text = None if notes is None else as_json("notes", list(notes))
        row = (pack(rounds), text)
        self._append("rounds", (self._rounds, len(rounds)), row, rounds["time_s"])
        self._rounds += len(rounds)

    def finish(
        self, *, lost_s: Floats | None = None, fee: Floats | None = None, **sums: float
    ) -> None:
        """Write down that the run has ended, and close; a sum left out follows from the rest.

        `sums` may hold what `SUMS` names; `lost_s` (J,) is the progress lost in failures,
        `fee` (J,) what each job has cost its user.
        """
        unknown = sorted(sums.keys() - SUMS.keys())
        if unknown:
            raise TypeError(f"finish() does not know {unknown[0]!r}; known: {', '.join(SUMS)}.")
        for name, column in (("lost_s", lost_s), ("fee", fee)):
            if column is not None and len(column) != self._jobs:
                raise JournalError(f"{name} has {len(column)} entries for {self._jobs} jobs.")
        blobs = [None if x is None else np.asarray(x, "<f8").tobytes() for x in (lost_s, fee)]
        kinds = {"REAL": float, "INTEGER": int}
        values = [kinds[SUMS[name]](sums[name]) if name in sums else None for name in SUMS]
        self._insert("ending", (*values, checksum(blobs), *blobs))
        self._settle()
        self.close()

    def close(self) -> None:
        """Close the file; what was added is kept."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()

    def _append(
        self, table: str, place: tuple[int, int], row: tuple[Any, ...], time_s: Floats | None = None
    ) -> None:
        if place[1] == 0:
            return
        span = () if time_s is None else (float(time_s[0]), float(time_s[-1]))
        self._insert(table, (*place, checksum(row), *span, *row))

    def _insert(self, table: str, row: tuple[Any, ...]) -> None:
        if self._db is None:
            raise JournalError(f"The journal {self.path} is closed; nothing can be added to it.")
        marks = ", ".join("?" * (len(row) + 1))
        try:
            # Outside an explicit transaction a single statement is one by itself.
            self._db.execute(f"INSERT INTO {table} VALUES ({marks})", (self._chunks + 1, *row))
        except (sqlite3.Error, OSError) as error:
            raise JournalError(
                f"Cannot write to the journal {self.path}: {reason(error)}. It keeps what was "
                f"written before: {self._jobs} jobs, {self._events} events, {self._rounds} rounds."
            ) from error
        self._chunks += 1

    def _settle(self) -> None:
        """Turn the file and its log into one plain file, which needs no writable folder to read."""
        assert self._db is not None
        self._db.execute("PRAGMA busy_timeout = 0")
        # All is committed already. A reader that is connected now, or a full disk, only means
        # that the log stays beside the file.
        try:
            self._db.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.Error:
            with suppress(sqlite3.Error):
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def reason(error: sqlite3.Error | OSError) -> str:
    """What went wrong with a file, in a few words, and what to do about it if we know."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return "the disk is full; make room or choose another place"
    if code == sqlite3.SQLITE_IOERR:
        return f"{error} (is the disk full or gone?)"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _claim(path: Path, force: bool) -> None:
    """Create `path` as an empty file that was not there before."""
    try:
        if path.is_dir():
            raise JournalError(f"{path} is a directory; give the name of a file inside it.")
        if not path.parent.is_dir():
            raise JournalError(f"There is no directory {path.parent}; create it first.")
        if path.exists() and not force:
            raise JournalError(
                f"{path} exists already; choose another name, or force to replace it."
            )
        _remove(path)
        path.open("xb").close()
    except OSError as error:
        raise JournalError(
            f"Cannot create the journal {path}: {reason(error)}; choose another place."
        ) from error


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _begin(path: Path, meta: Iterable[tuple[str, str]]) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        if db.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise OSError("this file system lacks what SQLite's WAL needs; choose a local disk")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
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
