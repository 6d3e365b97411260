"""Reads the tables that `JobBook` keeps, while a daemon writes them or after it has ended."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rota.backends.job_book import known_job, read_commands
from rota.errors import JournalError
from rota.run.journal_file import reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rota.backends.job_book import KnownJob


@dataclass(frozen=True)
class BookFacts:
    """What one look at the tables has found."""

    path: Path
    jobs: Mapping[int, KnownJob]
    """By uid."""
    nodes: Sequence[str]
    origin_s: float
    """Unix time from which the backend counts seconds."""

    def commands(self, uid: int) -> list[tuple[float, str, str, str]]:
        """Time, action, outcome and answer of all commands for a job, oldest first."""
        try:
            return read_commands(self.path, uid)
        except sqlite3.Error as error:
            raise JournalError(f"Cannot read {self.path}: {reason(error)}.") from error


def read_book(path: Path) -> BookFacts | None:
    """What the tables hold; None if there is no such file, or it has no such tables."""
    if not path.is_file():
        return None
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
            if not {"names", "nodes", "origin"} <= tables:
                return None
            rows = db.execute("SELECT uid, name, submit_s, facts FROM names").fetchall()
            nodes = db.execute("SELECT name FROM nodes ORDER BY number").fetchall()
            origin = db.execute("SELECT time_s FROM origin").fetchone()
        jobs = {uid: known_job(uid, name, at, facts) for uid, name, at, facts in rows}
    except sqlite3.Error as error:
        raise JournalError(f"Cannot read {path}: {reason(error)}.") from error
    except (TypeError, KeyError, ValueError) as error:
        raise JournalError(f"The tables of jobs in {path} are damaged: {error}.") from error
    return BookFacts(path, jobs, [name for (name,) in nodes], origin[0] if origin else 0.0)
