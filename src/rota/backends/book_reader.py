"""Reads the tables that `JobBook` keeps, while a daemon writes them or after it has ended."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rota.backends.job_book import COLUMNS, known_job, read_origin
from rota.errors import JournalError
from rota.run.journal_file import reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rota.backends.job_book import KnownJob


@dataclass(frozen=True)
class BookReader:
    """Looks jobs up; each look is at the tables as they are then."""

    path: Path
    nodes: Sequence[str]
    origin_s: float
    """Unix time from which the backend counts seconds."""

    def job(self, uid: int) -> KnownJob | None:
        """The job of that number; None if there is none."""
        rows = self._rows(f"SELECT {COLUMNS} FROM names WHERE uid = ?", uid)
        return known_job(*rows[0]) if rows else None

    def called(self, name: str) -> list[KnownJob]:
        """The jobs of that name, oldest first."""
        rows = self._rows(f"SELECT {COLUMNS} FROM names WHERE name = ? ORDER BY uid", name)
        return [known_job(*row) for row in rows]

    def latest_names(self, most: int, start: str = "") -> list[str]:
        """Names of jobs that begin so, the latest in order of their numbers."""
        rows = self._rows(
            "SELECT name FROM names WHERE substr(name, 1, ?) = ? ORDER BY uid DESC LIMIT ?",
            len(start), start, most,
        )  # fmt: skip
        return [name for (name,) in reversed(rows)]

    def commands(self, uid: int) -> list[tuple[float, str, str, str]]:
        """Time, action, outcome and answer of the commands for a job, oldest first."""
        return self._rows(
            "SELECT time_s, action, coalesce(outcome, ''), coalesce(said, '') FROM commands "
            "WHERE uid = ? ORDER BY id", uid
        )  # fmt: skip

    def _rows(self, query: str, *values: object) -> list[Any]:
        with _reading(self.path) as db:
            return db.execute(query, values).fetchall()


def read_book(path: Path) -> BookReader | None:
    """The tables of a file; None if there is no such file, or it has no such tables."""
    if not path.is_file():
        return None
    with _reading(path) as db:
        if not _has_tables(db):
            return None
        nodes = db.execute("SELECT name FROM nodes ORDER BY number").fetchall()
        origin_s = read_origin(db)
        latest = db.execute(f"SELECT {COLUMNS} FROM names ORDER BY uid DESC LIMIT 1")
        for row in latest:
            known_job(*row)  # which says so if the tables are damaged
    return BookReader(path, [name for (name,) in nodes], origin_s)


def read_known(path: Path) -> Iterator[KnownJob]:
    """All jobs of a book, which may be in use, one by one; none if it is only a journal."""
    with _reading(path) as db:
        if _has_tables(db):
            for row in db.execute(f"SELECT {COLUMNS} FROM names ORDER BY uid"):
                yield known_job(*row)


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            yield db
    except sqlite3.Error as error:
        raise JournalError(f"Cannot read {path}: {reason(error)}.") from error


def _has_tables(db: sqlite3.Connection) -> bool:
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    return {"names", "nodes", "origin"} <= tables
