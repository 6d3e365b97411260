"""What a live backend must not forget: names of jobs, what each shall hold, every command given.

These are tables of their own in the file of the journal, so that one file tells a run's story. What
was written survives a kill at any point.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Final

from rota.backends.reconciler import Intent
from rota.errors import JournalError
from rota.run.journal_file import reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from rota.backends.reconciler import JobOrder

_TABLES: Final = (
    "names (uid INTEGER PRIMARY KEY, name TEXT, submit_s REAL, facts TEXT)",
    "nodes (number INTEGER PRIMARY KEY, name TEXT UNIQUE)",
    "intents (uid INTEGER PRIMARY KEY, intent TEXT)",
    "commands (id INTEGER PRIMARY KEY, time_s REAL, uid INTEGER, action TEXT, share TEXT, "
    "outcome TEXT, said TEXT, took_s REAL)",
    "origin (time_s REAL)",
)
WAIT_S: Final = 10.0
"""Seconds to wait for another writer of the file."""


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
        try:
            self._db = sqlite3.connect(
                path, timeout=WAIT_S, isolation_level=None, check_same_thread=False
            )
            with self._writing():
                for table in _TABLES:
                    self._db.execute(f"CREATE TABLE IF NOT EXISTS {table}")
                if self._db.execute("SELECT time_s FROM origin").fetchone() is None:
                    self._db.execute("INSERT INTO origin VALUES (?)", (now_s,))
        except sqlite3.Error as error:
            raise JournalError(f"Cannot go on with {path}: {reason(error)}.") from error
        self.origin_s: float = self._db.execute("SELECT time_s FROM origin").fetchone()[0]

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
            raise JournalError(f"Cannot write to {self.path}: {reason(error)}.") from error

    def try_out(self) -> None:
        """Write something that changes nothing: JournalError if the file cannot be written."""
        with self._writing():
            self._db.execute("UPDATE origin SET time_s = time_s")

    # Jobs and nodes by name.

    def jobs(self) -> list[KnownJob]:
        """All jobs that were ever known, in order of their numbers."""
        rows = self._db.execute("SELECT uid, name, submit_s, facts FROM names ORDER BY uid")
        return [known_job(uid, name, at, facts) for uid, name, at, facts in rows]

    def keep_jobs(self, jobs: Iterable[KnownJob]) -> None:
        """Remember jobs as they are now."""
        with self._writing():
            self._db.executemany(
                "INSERT OR REPLACE INTO names VALUES (?, ?, ?, ?)",
                [(job.uid, job.name, job.submit_s, _encoded(job)) for job in jobs],
            )

    def nodes(self) -> list[str]:
        """All nodes that were ever there; their place in the list is their number."""
        rows = self._db.execute("SELECT name FROM nodes ORDER BY number")
        return [name for (name,) in rows]

    def keep_nodes(self, names: Iterable[str]) -> None:
        """Number further nodes."""
        with self._writing():
            first = self._db.execute("SELECT count(*) FROM nodes").fetchone()[0]
            self._db.executemany("INSERT INTO nodes VALUES (?, ?)", enumerate(names, first))

    # What jobs shall hold.

    def intents(self) -> dict[int, Intent]:
        """What each job shall hold."""
        rows = self._db.execute("SELECT uid, intent FROM intents")
        found = {}
        for uid, text in rows:
            facts = json.loads(text)
            share = facts["share"]
            found[uid] = Intent(
                uid,
                None if share is None else tuple(tuple(entry) for entry in share),
                facts["cancelled"],
                inf if facts["noticed_s"] is None else facts["noticed_s"],
            )
        return found

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
            done = self._db.execute(
                "INSERT INTO commands (time_s, uid, action, share) VALUES (?, ?, ?, ?)", row
            )
        return int(done.lastrowid or 0)

    def stops_since(self, time_s: float) -> list[float]:
        """When jobs were stopped since then, oldest first."""
        rows = self._db.execute(
            "SELECT time_s FROM commands WHERE action = 'stop' AND time_s > ? ORDER BY time_s",
            (time_s,),
        )
        return [at for (at,) in rows]

    def end_command(self, number: int, outcome: str, said: str, took_s: float) -> None:
        """Note what came of it."""
        with self._writing():
            self._db.execute(
                "UPDATE commands SET outcome = ?, said = ?, took_s = ? WHERE id = ?",
                (outcome, said, took_s, number),
            )


def read_commands(path: Path, uid: int) -> list[tuple[float, str, str, str]]:
    """Time, action, outcome and answer of all commands for a job, oldest first."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
        rows = db.execute(
            "SELECT time_s, action, coalesce(outcome, ''), coalesce(said, '') FROM commands "
            "WHERE uid = ? ORDER BY id", (uid,)
        )  # fmt: skip
        return rows.fetchall()


def read_known(path: Path) -> dict[int, KnownJob]:
    """The jobs of a book, which may be in use, by uid; none if it is only a journal."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'names'").fetchone():
            return {}
        rows = db.execute("SELECT uid, name, submit_s, facts FROM names")
        return {uid: known_job(uid, name, at, facts) for uid, name, at, facts in rows}


def _encoded(job: KnownJob) -> str:
    facts = asdict(job)
    for key in ("uid", "name", "submit_s"):
        del facts[key]
    facts["end_s"] = job.end_s if isfinite(job.end_s) else None
    return json.dumps(facts)


def known_job(uid: int, name: str, submit_s: float, text: str) -> KnownJob:
    """What a row of the table of jobs says."""
    facts: dict[str, Any] = json.loads(text)
    facts["end_s"] = inf if facts["end_s"] is None else facts["end_s"]
    return KnownJob(uid, name, submit_s, **facts)
