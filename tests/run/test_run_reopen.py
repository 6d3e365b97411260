"""A journal whose writer is gone can be gone on with, by one writer, as if nothing had happened."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import child
from hypothesis import given
from hypothesis import strategies as st

from rota.core.layout import EVENT, ROUND, SHARE
from rota.errors import JournalError
from rota.run.journal import Journal
from rota.run.journal_file import FORMAT, told
from rota.run.reader import read_journal

META = {"policy": "fifo", "total_gpus": 8}


def add(journal: Journal, n: int, user: str = "ann") -> None:
    """One job, its start and the round of it, all at time n."""
    journal.add_jobs([f"job-{n}"], [0], [user], [1], [n], [1.0])
    journal.add_events(np.array([(n, n, 1, 1)], EVENT), np.array([(n % 9, 1, 0)], SHARE))
    journal.add_rounds(np.array([(n, 0, 1, 1, 8, 7)], ROUND), [{"n": n}])


def begun(path: Path, upto: int = 3) -> Path:
    with Journal.create(path, meta=META) as journal:
        for n in range(upto):
            add(journal, n, f"user-{n % 2}")
    return path


def content(path: Path) -> list[Any]:
    with read_journal(path) as view:
        jobs, (events, shares, _) = view.jobs, view.events()
        whose = [jobs.users[code] for code in jobs.user]
        return [
            jobs.job_id.tolist(), whose, events.tolist(), shares.tolist(), view.rounds().tolist(),
            view.notes(), [chunk.id for chunk in view.chunks()],
        ]  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.journal"


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_reopening_at_any_time_makes_no_difference(
    tmp_path_factory: pytest.TempPathFactory, again: list[bool]
) -> None:
    folder = tmp_path_factory.mktemp("reopen")
    one, many = (Journal.create(folder / name, meta=META) for name in ("one", "many"))
    for n, reopened in enumerate(again):
        if reopened:
            many.close()
            many = Journal.reopen(folder / "many")
        for journal in (one, many):
            add(journal, n, f"user-{n % 3}")
    one.finish(wall_s=2.0)
    many.finish(wall_s=2.0)
    assert content(folder / "one") == content(folder / "many")


ENDLESS = """
import sys
sys.path.insert(0, sys.argv[2])
from run.test_run_reopen import META, add
from rota.run.journal import Journal
n = 0
journal = Journal.create(sys.argv[1], meta=META)
while True:
    with journal.together():
        add(journal, n)
    n += 1
    print(n, flush=True)
"""


def test_after_a_kill_everything_committed_is_there_and_more_can_be_added(path: Path) -> None:
    code = [sys.executable, "-c", ENDLESS, str(path), str(Path(__file__).parent.parent)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with child(code, stdout=subprocess.PIPE, text=True, env=env) as writer:
        assert writer.stdout is not None
        for _ in range(40):
            writer.stdout.readline()
        os.kill(writer.pid, signal.SIGKILL)
        told = int(["40", *writer.stdout.read().split("\n")[:-1]][-1])
    assert writer.returncode == -signal.SIGKILL

    with Journal.reopen(path) as journal:
        with read_journal(path) as view:
            kept = len(view.rounds())
        assert told <= kept <= told + 1
        for n in range(kept, kept + 5):
            add(journal, n)
        journal.finish()
    begun(path.with_name("whole"), 0)
    with Journal.reopen(path.with_name("whole")) as whole:
        for n in range(kept + 5):
            add(whole, n)
    assert content(path) == content(path.with_name("whole"))
    with read_journal(path) as view:
        assert view.finished
        assert view.outcome().rounds == kept + 5


def test_what_is_put_together_is_kept_whole_or_not_at_all(path: Path) -> None:
    begun(path)
    before = content(path)
    with Journal.reopen(path) as journal:

        def interrupted() -> None:
            with journal.together():
                add(journal, 3, "new")
                raise KeyboardInterrupt

        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                interrupted()
            assert content(path) == before
        with pytest.raises(JournalError, match="names job 3, but the journal knows 3 jobs"):
            journal.add_events(np.array([(3, 3, 1, 0)], EVENT), np.zeros(0, SHARE))
        with journal.together():
            add(journal, 3, "new")
            assert content(path) == before  # nobody sees the half of it
        add(journal, 4)
    got = content(path)
    assert got[0] == [f"job-{n}" for n in range(5)]
    assert got[1][3:] == ["new", "ann"]
    with pytest.raises(JournalError, match="is closed"), journal.together():
        pass


def test_a_full_disk_within_a_transaction_is_reported_with_what_was_kept(path: Path) -> None:
    begun(path)
    with Journal.reopen(path) as journal:
        assert journal._db is not None
        journal._db.execute("PRAGMA max_page_count = 12")
        many = np.zeros(100_000, ROUND)
        many["time_s"] = np.arange(100_000)

        def fill() -> None:
            with journal.together():
                add(journal, 3)
                journal.add_rounds(many)

        with pytest.raises(JournalError, match=r"disk is full.*3 jobs, 3 events, 3 rounds"):
            fill()
        journal._db.execute("PRAGMA max_page_count = 100000")
        add(journal, 3)
    assert content(path)[0] == [f"job-{n}" for n in range(4)]


# Two writers.


def test_of_two_writers_the_second_to_write_is_refused(path: Path) -> None:
    first = Journal.create(path, meta=META)
    add(first, 0)
    second = Journal.reopen(path)
    add(second, 1)
    before = content(path)
    for refused in (
        lambda: add(first, 1),
        lambda: first.add_rounds(np.zeros(1, ROUND)),
        first.finish,
    ):
        with pytest.raises(JournalError, match="somebody else has written to it since"):
            refused()
    assert content(path) == before
    add(second, 2)
    first.close()
    second.finish()
    assert content(path)[0] == ["job-0", "job-1", "job-2"]


def test_nothing_is_added_behind_the_end(path: Path) -> None:
    begun(path)
    late = Journal.reopen(path)
    with Journal.reopen(path) as journal:
        journal.finish()
    with pytest.raises(JournalError, match="somebody else"):
        add(late, 3)
    late.close()


# What is refused.


def refused(path: Path) -> str:
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(JournalError) as caught:
        Journal.reopen(path)
    assert str(path) in str(caught.value)
    assert (path.read_bytes() if path.is_file() else b"") == before
    return str(caught.value)


def test_other_files_are_not_gone_on_with(path: Path) -> None:
    assert "no journal at" in refused(path)
    assert not path.exists()
    assert "is a directory" in refused(path.parent)
    path.write_bytes(b"")
    assert "is empty" in refused(path)
    path.write_text("job_id,submit_s\n" * 100)
    assert "nor an SQLite file" in refused(path)
    path.unlink()
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE jobs (id)")
    db.close()
    assert "not a journal of rota" in refused(path)


def test_a_run_that_has_ended_is_not_gone_on_with(path: Path) -> None:
    with Journal.reopen(begun(path)) as journal:
        journal.finish()
    assert "has ended; begin another one" in refused(path)


def altered(path: Path, *statements: str) -> Path:
    db = sqlite3.connect(begun(path))
    for trigger in ("meta_delete", "events_delete", "events_update"):
        db.execute(f"DROP TRIGGER {trigger}")
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()
    return path


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        (f"PRAGMA user_version = {FORMAT + 1}", "newer rota"),
        ("DELETE FROM meta WHERE key = 'total_gpus'", "its meta data lack"),
        ("DELETE FROM events WHERE first = 1", "does not follow the one before"),
        ("DELETE FROM events WHERE first = 2", "of its 9 chunks 1 are missing"),
        ("UPDATE events SET events = x'00' WHERE first = 1", "wrong checksum"),
        ("DROP TABLE rounds", "no such table"),
    ],
)
def test_a_damaged_or_newer_journal_is_not_gone_on_with(
    path: Path, statement: str, says: str
) -> None:
    assert says in refused(altered(path, statement))


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6])
def test_a_truncated_file_is_not_gone_on_with(path: Path, share: float) -> None:
    whole = begun(path).read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    refused(path)


def test_a_file_that_cannot_be_written_is_reported(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ReadOnly(sqlite3.Connection):
        def execute(self, sql: str, *more: Any) -> sqlite3.Cursor:
            if sql.startswith("BEGIN IMMEDIATE"):
                raise sqlite3.OperationalError("attempt to write a readonly database")
            return super().execute(sql, *more)

    begun(path)
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, factory=ReadOnly, **k))
    assert "Cannot go on with the journal" in refused(path)


def test_facts_that_changed_are_told_beside_the_earlier_ones(path: Path) -> None:
    begun(path)
    for gpus in ([4], [4], [8, 8], [8, 8], [4]):
        with Journal.reopen(path, meta={"cluster": {"gpus": np.array(gpus)}, "policy": "fifo"}):
            pass
    with read_journal(path) as view:
        assert told(view.meta, "cluster") == [{"gpus": [4]}, {"gpus": [8, 8]}, {"gpus": [4]}]
        assert told(view.meta, "policy") == ["fifo"]
        assert told(view.meta, "nothing") == []
    before = content(path)
    with Journal.reopen(path) as journal:  # and it goes on as before
        add(journal, 3)
    assert len(content(path)[0]) == len(before[0]) + 1
