"""The journal: one SQLite file to which a run appends what happens (docs/journal-format.md).

Records are kept as BLOBs, many to a row: a compiled simulation writes large chunks, a live loop
a few small ones per round. Every `add_…` is one transaction, unless several are put `together`.
Once it has returned, its data survive if the process is killed.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rota import __version__
from rota.core.layout import NODE_DOWN
from rota.errors import JournalError
from rota.run.journal_file import (
    FORMAT,
    LISTED,
    NEEDED,
    SUMS,
    begin,
    chunk_rows,
    claim,
    connect,
    make_ready,
    reading,
    reason,
    remove,
    told,
)
from rota.run.packing import as_json, checksum, pack, write_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    from numpy.typing import ArrayLike

    from rota.core.types import Floats, Records
    from rota.run.journal_file import FileName


class Journal:
    """The writer's side of a journal; make one with `Journal.create` or `Journal.reopen`.

    As a context manager it closes the file. Without `finish` the file says that the run has not
    ended, just as it does after a crash.
    """

    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        self.path = path
        self._db: sqlite3.Connection | None = db
        self._chunks = self._jobs = self._events = self._rounds = 0
        self._users: dict[str, int] = {}
        self._together = False

    @classmethod
    def create(cls, path: FileName, *, meta: Mapping[str, Any], force: bool = False) -> Journal:
        """Create a journal at `path`; `force` replaces a file that exists.

        `meta` must hold `policy` and `total_gpus`; further keys are kept too, as JSON.
        """
        path = Path(path)
        missing = [key for key in NEEDED if key not in meta]
        if missing:
            raise JournalError(f"The journal {path} needs {' and '.join(missing)} in its meta.")
        facts = {**meta, "format": FORMAT, "rota_version": __version__}
        rows = [(key, as_json(f"meta[{key!r}]", value)) for key, value in facts.items()]
        claim(path, force)
        try:
            return cls(path, begin(path, rows))
        except (sqlite3.Error, OSError) as error:
            remove(path)
            raise JournalError(f"Cannot begin the journal {path}: {reason(error)}.") from error

    @classmethod
    def reopen(cls, path: FileName, *, meta: Mapping[str, Any] | None = None) -> Journal:
        """Continue a journal whose run has not ended, whatever happened to its writer.

        All of it is read and checked once. If the earlier writer is still there, the one of the
        two that writes first goes on, and the other gets errors from then on. Facts in `meta`
        that differ from the last ones in the journal are added as `cluster.2` and so on;
        `rota.run.journal_file.told` lists them.
        """
        path = Path(path)
        db, before = connect(path, "rw")
        try:
            journal = cls(path, db)
            with reading(path):
                journal._recall(db)
            try:
                make_ready(db)
                db.execute("BEGIN IMMEDIATE")  # a file that cannot be written shows here
                db.executemany("INSERT INTO meta VALUES (?, ?)", _news(before, meta or {}))
                db.execute("COMMIT")
            except (sqlite3.Error, OSError) as error:
                raise JournalError(
                    f"Cannot go on with the journal {path}: {reason(error)}."
                ) from error
        except BaseException:
            db.close()
            raise
        return journal

    def _recall(self, db: sqlite3.Connection) -> None:
        """Count the chunks and records, and collect the names of users."""
        if db.execute("SELECT 1 FROM ending").fetchone():
            raise JournalError(f"The run in the journal {self.path} has ended; begin another one.")
        counts, latest = {}, 0
        for table in ("jobs", "events", "rounds"):
            counts[table] = 0
            for row in chunk_rows(db, table):
                if row["first"] != counts[table]:
                    raise ValueError(f"chunk {row['id']} of {table} does not follow the one before")
                counts[table] += row["count"]
                self._chunks, latest = self._chunks + 1, max(latest, row["id"])
                for name in json.loads(row["users"]) if table == "jobs" else ():
                    self._users[name] = len(self._users)
        if latest != self._chunks:
            raise ValueError(f"of its {latest} chunks {latest - self._chunks} are missing")
        self._jobs, self._events, self._rounds = counts.values()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Put all that is added in the body into one transaction: all of it is kept, or nothing."""
        if self._db is None:
            raise JournalError(f"The journal {self.path} is closed; nothing can be added to it.")
        before = (self._chunks, self._jobs, self._events, self._rounds, self._users)
        self._together = True
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            self._chunks, self._jobs, self._events, self._rounds, self._users = before
            if isinstance(error, sqlite3.Error):
                raise JournalError(
                    f"Cannot write to the journal {self.path}: {reason(error)}. It keeps what was "
                    f"written before: {self._jobs} jobs, {self._events} events, "
                    f"{self._rounds} rounds."
                ) from error
            raise
        finally:
            self._together = False

    def add_jobs(
        self, job_id: ArrayLike, user: ArrayLike, users: Sequence[str], num_gpus: ArrayLike,
        submit_s: ArrayLike, duration_s: ArrayLike, more: Mapping[str, ArrayLike] | None = None,
        names: Mapping[str, Sequence[str]] | None = None,
    ) -> int:  # fmt: skip
        """Append jobs; returns the number of the first, by which events name it.

        Jobs are numbered from 0 in the order they are added. `user` holds indices into `users`
        of this call (−1: none); the journal keeps one list of names for all calls. `more` holds
        further columns of numbers; a column that a call leaves out is NaN for its jobs. `names`
        holds, by column, all texts so far that the codes in it stand for.
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
        """Write that the run has ended, and close; readers compute the sums that are left out.

        `sums` may hold what `SUMS` names; `lost_s` (J,) is the progress lost in failures,
        `fee` (J,) is the price of each job.
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

    def stop(self, why: str) -> None:
        """Write that the run broke off, and why; without it, it might be still running."""
        with self.together():
            assert self._db is not None
            row = ("stopped", as_json("stopped", why))
            self._db.execute("INSERT INTO meta VALUES (?, ?)", row)

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
        with nullcontext() if self._together else self.together():
            assert self._db is not None
            marks = ", ".join("?" * (len(row) + 1))
            self._db.execute(f"INSERT INTO {table} VALUES ({marks})", (self._chunks + 1, *row))
            self._chunks += 1

    def _settle(self) -> None:
        """Merge the log into the file, so that reading it needs no writable folder."""
        assert self._db is not None
        self._db.execute("PRAGMA busy_timeout = 0")
        # Everything is committed already. If a reader is connected now, or the disk is full, the
        # log just stays beside the file.
        try:
            self._db.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.Error:
            with suppress(sqlite3.Error):
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _news(before: Mapping[str, Any], meta: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The rows of `meta` for facts that are new or have changed."""
    rows = []
    for key, value in meta.items():
        text, said = as_json(f"meta[{key!r}]", value), told(before, key)
        if not said:
            rows.append((key, text))
        elif said[-1] != json.loads(text):
            rows.append((f"{key}.{len(said) + 1}", text))
    return rows
