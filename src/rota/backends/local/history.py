"""Jobs that are over, in one file: what tables and the journal need, without environments."""

from __future__ import annotations

import json
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

from rota.backends.local.private import keep_private
from rota.errors import DamagedError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator
    from pathlib import Path

HISTORY: Final = "history.db"
_WAIT_S: Final = 5.0
_LAST: Final = (1 << 63) - 1
"""The largest number that the file can hold."""
_TABLE: Final = """
CREATE TABLE IF NOT EXISTS jobs (uid INTEGER PRIMARY KEY, ended_s REAL NOT NULL, facts TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS by_end ON jobs (ended_s);
"""  # noqa: E501


class History:
    """One row per job; written by the daemon only."""

    def __init__(self, root: Path) -> None:
        self.path = root / HISTORY

    def add(self, rows: Iterable[tuple[int, float, dict[str, Any]]]) -> None:
        """Put jobs in, all or none; one that is there already stays as it is."""
        told = [(uid, ended_s, json.dumps(facts)) for uid, ended_s, facts in rows]
        with self._open(write=True) as db:
            assert db is not None
            with db:
                db.executemany("INSERT OR IGNORE INTO jobs VALUES (?, ?, ?)", told)

    def get(self, uid: int) -> dict[str, Any] | None:
        """What is known of a job, if it is here."""
        if not 0 < uid <= _LAST:
            return None
        with self._open() as db:
            found = db and db.execute("SELECT facts FROM jobs WHERE uid = ?", (uid,)).fetchone()
        if not found:
            return None
        if (facts := _decode(found[0])) is None:
            raise DamagedError(self.row(uid), "it is no JSON object")
        return facts

    def has(self, uid: int) -> bool:
        """Whether a job has a row here, damaged or not."""
        if not 0 < uid <= _LAST:
            return False
        with self._open() as db:
            return bool(db and db.execute("SELECT 1 FROM jobs WHERE uid = ?", (uid,)).fetchone())

    def count(self) -> int:
        """How many jobs are here."""
        with self._open() as db:
            return int(db.execute("SELECT count(*) FROM jobs").fetchone()[0]) if db else 0

    def all(self) -> dict[int, dict[str, Any] | None]:
        """All jobs, by number; None for one whose row is damaged."""
        with self._open() as db:
            rows = db.execute("SELECT uid, facts FROM jobs ORDER BY uid").fetchall() if db else []
        return {int(uid): _decode(facts) for uid, facts in rows}

    def row(self, uid: int) -> str:
        """What errors call the row of a job: the rest of the file may be sound."""
        return f"The row of job {uid} in {self.path}"

    def last(self) -> tuple[int, float]:
        """The largest number, and the latest end; 0 if there is none."""
        with self._open() as db:
            found = db and db.execute("SELECT max(uid), max(ended_s) FROM jobs").fetchone()
        return (int(found[0]), float(found[1])) if found and found[0] is not None else (0, 0.0)

    def outdated(self, before_s: float, most: int) -> list[int]:
        """Jobs that ended before a time, or are not among the `most` that ended last."""
        with self._open() as db:
            rows = () if db is None else db.execute(
                "SELECT uid FROM jobs WHERE ended_s < ? OR uid IN "
                "(SELECT uid FROM jobs ORDER BY ended_s DESC, uid DESC LIMIT -1 OFFSET ?)",
                (before_s, most),
            ).fetchall()  # fmt: skip
        return [int(uid) for (uid,) in rows]

    def drop(self, uids: Iterable[int]) -> None:
        """Forget jobs."""
        with self._open(write=True) as db:
            assert db is not None
            with db:
                db.executemany("DELETE FROM jobs WHERE uid = ?", [(uid,) for uid in uids])

    @contextmanager
    def _open(self, *, write: bool = False) -> Iterator[sqlite3.Connection | None]:
        if not write and not self.path.exists():
            yield None
            return
        import sqlite3  # `rota submit` and `rota queue` seldom need it

        try:
            with closing(sqlite3.connect(self.path, timeout=_WAIT_S)) as db:
                db.text_factory = bytes  # text that is damaged concerns its own row only
                if write:
                    keep_private(self.path)
                    db.execute("PRAGMA journal_mode = WAL")
                    db.execute("PRAGMA synchronous = FULL")
                    db.executescript(_TABLE)
                made = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'jobs'").fetchone()
                yield db if made else None
        except sqlite3.OperationalError as error:
            raise OSError(f"{self.path}: {error}") from None
        except sqlite3.Error as error:
            raise DamagedError(self.path, str(error)) from None


def _decode(text: bytes) -> dict[str, Any] | None:
    try:
        facts = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None
    return facts if isinstance(facts, dict) else None
