"""What a live backend must not forget: names of jobs, what each shall hold, every command given.

These are tables of their own in the file of the journal, so that one file tells a run's story. What
was written survives a kill at any point.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Final

from rota.backends.reconciler import Intent
from rota.errors import BackendError, JournalError
from rota.run.journal_file import reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from rota.backends.reconciler import JobOrder

_TABLES: Final = (
    "names (uid INTEGER PRIMARY KEY, name TEXT, submit_s REAL, facts TEXT, "
    "over INTEGER NOT NULL DEFAULT 0)",
    "nodes (number INTEGER PRIMARY KEY, name TEXT UNIQUE)",
    "intents (uid INTEGER PRIMARY KEY, intent TEXT)",
    "commands (id INTEGER PRIMARY KEY, time_s REAL, uid INTEGER, action TEXT, share TEXT, "
    "outcome TEXT, said TEXT, took_s REAL)",
    "origin (time_s REAL)",
)
_INDEXES: Final = (
    "open_names ON names (uid) WHERE over = 0",
    "names_by_name ON names (name)",
    "commands_by_time ON commands (time_s)",
    "commands_by_job ON commands (uid)",
)
WAIT_S: Final = 10.0
"""Seconds to wait for another writer of the file."""
COMMANDS_S: Final = 7 * 86400.0
"""Seconds for which commands are kept once their job is over."""
_DROPPED: Final = 10
"""Old commands that give way to each new one, at most."""
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
COLUMNS: Final = "uid, name, submit_s, facts"
"""What `known_job` takes."""


@dataclass
class KnownJob:
    """What is remembered of a job, from one daemon to the next."""

    uid: int
    name: str
    submit_s: float
    """Unix time."""
    started_s: float | None = None
    attained_gpu_s: float = 0.0
    ran_s: float = 0.0
    """Of earlier runs."""
    counted_s: float = 0.0
    """Unix time up to which these two count."""
    preemptions: int = 0
    starts: int = 0
    """Starts that were timed; they took `starting_s` in all."""
    starting_s: float = 0.0
    samples: float = 0.0
    total: float = 0.0
    rate: float = 0.0
    """Samples per second that count as pace 1."""
    listing: dict[str, Any] = field(default_factory=dict)
    """What it asked for, as the journal lists it."""
    ours: bool = True
    """Whether it is ours to start, when it was first seen."""
    stopped: str = ""
    """By which policy it was stopped the last time, and for which jobs."""
    end: str = ""
    end_s: float = inf


class JobBook:
    """The tables of one file; for one process at a time, which holds the lock of its state."""

    def __init__(self, path: Path, now_s: float) -> None:
        """`now_s` is the Unix time from which a new book counts seconds."""
        self.path = path
        self._file: tuple[int, int] | None = None
        """None: not to be used any more."""
        try:
            self._db = sqlite3.connect(
                path, timeout=WAIT_S, isolation_level=None, check_same_thread=False
            )
            with self._writing():
                for table in _TABLES:
                    self._db.execute(f"CREATE TABLE IF NOT EXISTS {table}")
                self._bring_up_to_date()
                for index in _INDEXES:
                    self._db.execute(f"CREATE INDEX IF NOT EXISTS {index}")
                if self._db.execute("SELECT time_s FROM origin").fetchone() is None:
                    self._db.execute("INSERT INTO origin VALUES (?)", (now_s,))
            self.origin_s, self._file = read_origin(self._db), _identity(path)
        except sqlite3.Error as error:
            raise JournalError(f"Cannot go on with {path}: {reason(error)}.") from error

    def _bring_up_to_date(self) -> None:
        """Tables of an earlier version do not say which jobs are over, and hold their intents."""
        if "over" not in {row[1] for row in self._db.execute("PRAGMA table_info(names)")}:
            self._db.create_function("is_over", 1, lambda text: bool(json.loads(text)["end"]))
            self._db.execute("ALTER TABLE names ADD COLUMN over INTEGER NOT NULL DEFAULT 0")
            self._db.execute("UPDATE names SET over = is_over(facts)")
            self._db.execute("DELETE FROM intents WHERE uid IN (SELECT uid FROM names WHERE over)")

    def check_file(self) -> None:
        """BackendError if the file is gone, where SQLite would go on with it, or damaged."""
        if self._file is None or _identity(self.path) != self._file:
            raise BackendError(
                f"{self.path} was removed, replaced or damaged while rota kept in it what jobs "
                "shall hold. Start rota again: it begins a new journal, and takes the jobs as they "
                "are."
            )

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
                self._file = None
            raise JournalError(f"Cannot write to {self.path}: {reason(error)}.") from error

    def try_out(self) -> None:
        """Write something that changes nothing: JournalError if the file cannot be written."""
        with self._writing():
            self._db.execute("UPDATE origin SET time_s = time_s")

    # Jobs and nodes by name.

    def open_jobs(self) -> list[KnownJob]:
        """All jobs that are not over, in order of their numbers."""
        return self._jobs("over = 0 ORDER BY uid")

    def latest_jobs(self, most: int) -> list[KnownJob]:
        """The jobs that came last, over or not."""
        return self._jobs("true ORDER BY uid DESC LIMIT ?", most)

    def job(self, uid: int) -> KnownJob:
        """A job that was known at any time; KeyError if none was."""
        if not (found := self._jobs("uid = ?", uid)):
            raise KeyError(f"No job has the number {uid}.")
        return found[0]

    def find(self, name: str, submit_s: float, resubmitted: bool) -> KnownJob | None:
        """The latest job of that name and submission, or of an earlier one if `resubmitted`."""
        same = "submit_s <= ?" if resubmitted else "submit_s = ?"
        found = self._jobs(f"name = ? AND {same} ORDER BY uid DESC LIMIT 1", name, submit_s)
        return found[0] if found else None

    def last_uid(self) -> int:
        """The largest number that was ever given; 0 if none was."""
        found: int | None = self._rows("SELECT max(uid) FROM names")[0][0]
        return found or 0

    def _jobs(self, which: str, *values: object) -> list[KnownJob]:
        """The jobs of some rows."""
        rows = self._rows(f"SELECT {COLUMNS} FROM names WHERE {which}", *values)
        return [known_job(*row) for row in rows]

    def _rows(self, query: str, *values: object) -> list[Any]:
        try:
            return self._db.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise JournalError(f"Cannot read {self.path}: {reason(error)}.") from error

    def keep_jobs(self, jobs: Iterable[KnownJob]) -> None:
        """Remember jobs as they are now; what those shall hold that are over does not matter."""
        jobs = list(jobs)
        with self._writing():
            self._db.executemany(
                "INSERT OR REPLACE INTO names VALUES (?, ?, ?, ?, ?)",
                [(job.uid, job.name, job.submit_s, _encoded(job), bool(job.end)) for job in jobs],
            )
            over = [(job.uid,) for job in jobs if job.end]
            self._db.executemany("DELETE FROM intents WHERE uid = ?", over)

    def nodes(self) -> list[str]:
        """All nodes that were ever there; their place in the list is their number."""
        return [name for (name,) in self._rows("SELECT name FROM nodes ORDER BY number")]

    def keep_nodes(self, names: Iterable[str]) -> None:
        """Number further nodes."""
        with self._writing():
            first = self._db.execute("SELECT count(*) FROM nodes").fetchone()[0]
            self._db.executemany("INSERT INTO nodes VALUES (?, ?)", enumerate(names, first))

    # What jobs shall hold.

    def intents(self) -> dict[int, Intent]:
        """What each job shall hold."""
        rows = self._rows("SELECT uid, intent FROM intents")
        return {uid: _intent(uid, text) for uid, text in rows}

    def keep_intents(self, intents: Iterable[Intent]) -> None:
        """Write down what jobs shall hold, before anything is done about it."""
        rows = []
        for intent in intents:
            noticed = intent.noticed_s if isfinite(intent.noticed_s) else None
            facts = {"share": intent.share, "cancelled": intent.cancelled, "noticed_s": noticed}
            rows.append((intent.uid, json.dumps(facts)))
        with self._writing():
            self._db.executemany("INSERT OR REPLACE INTO intents VALUES (?, ?)", rows)

    # Commands, written down before they are given and after they were answered.

    def begin_command(self, order: JobOrder, time_s: float) -> int:
        """Note that an order is about to be carried out; its number."""
        row = (time_s, order.uid, order.action, json.dumps(order.share))
        with self._writing():
            self._db.execute(
                "DELETE FROM commands WHERE id IN (SELECT id FROM commands WHERE time_s < ? AND "
                "NOT EXISTS (SELECT 1 FROM names WHERE uid = commands.uid AND over = 0) "
                "ORDER BY time_s LIMIT ?)",
                (time_s - COMMANDS_S, _DROPPED),
            )
            done = self._db.execute(
                "INSERT INTO commands (time_s, uid, action, share) VALUES (?, ?, ?, ?)", row
            )
        return int(done.lastrowid or 0)

    def stops_since(self, time_s: float) -> list[float]:
        """When jobs were stopped since then, oldest first."""
        rows = self._rows(
            "SELECT time_s FROM commands WHERE action = 'stop' AND time_s > ? ORDER BY time_s",
            time_s,
        )
        return [at for (at,) in rows]

    def end_command(self, number: int, outcome: str, said: str, took_s: float) -> None:
        """Note what came of it."""
        with self._writing():
            self._db.execute(
                "UPDATE commands SET outcome = ?, said = ?, took_s = ? WHERE id = ?",
                (outcome, said, took_s, number),
            )


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from another one in its place; None if there is none."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


def read_origin(db: sqlite3.Connection) -> float:
    """The Unix time from which seconds are counted; JournalError if what is there is none."""
    row = db.execute("SELECT time_s FROM origin").fetchone()
    origin_s = row[0] if row else None
    if not isinstance(origin_s, float) or not 0 <= origin_s < inf:
        raise JournalError(f"The time from which it counts seconds is damaged: {origin_s!r}.")
    return origin_s


def _intent(uid: int, text: str) -> Intent:
    """What a row of the table of intents says; JournalError if it makes no sense."""
    try:
        facts = json.loads(text)
        share, noticed_s = facts["share"], facts["noticed_s"]
        return Intent(
            uid,
            None if share is None else tuple(tuple(entry) for entry in share),
            facts["cancelled"],
            inf if noticed_s is None else noticed_s,
        )
    except (TypeError, KeyError, ValueError, RecursionError) as error:
        raise JournalError(
            f"What the job with uid {uid} shall hold is damaged: {error}."
        ) from error


def _encoded(job: KnownJob) -> str:
    facts = asdict(job)
    for key in ("uid", "name", "submit_s"):
        del facts[key]
    facts["end_s"] = job.end_s if isfinite(job.end_s) else None
    return json.dumps(facts)


def known_job(uid: int, name: str, submit_s: float, text: str) -> KnownJob:
    """What a row of the table of jobs says; JournalError if it makes no sense."""
    try:
        facts: dict[str, Any] = json.loads(text)
        facts["end_s"] = inf if facts["end_s"] is None else facts["end_s"]
        return KnownJob(uid, name, submit_s, **facts)
    except (TypeError, KeyError, ValueError, RecursionError) as error:
        raise JournalError(
            f"What is known of job {name!r} (uid {uid}) is damaged: {error}."
        ) from error
