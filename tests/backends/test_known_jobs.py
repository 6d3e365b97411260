"""What is remembered of jobs: all of them on disk, and in memory those that still matter."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.backends.fake_cluster import nodes

from rota.backends import job_book
from rota.backends.book_reader import read_book
from rota.backends.driver import ClusterSight, JobRequest, JobSight
from rota.backends.job_book import COMMANDS_S, JobBook, KnownJob
from rota.backends.job_roll import JobRoll
from rota.backends.known_jobs import KEPT_S, KnownJobs
from rota.backends.node_table import NodeTable
from rota.backends.reconciler import Intent, JobOrder, Reconciler
from rota.backends.restart_costs import RestartCosts
from rota.core.layout import FINISH, GIVE_UP
from rota.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

T = 1_000_000.0


@pytest.fixture
def book(tmp_path: Path) -> Iterator[JobBook]:
    with closing(JobBook(tmp_path / "journal.db", T)) as made:
        yield made


def roll_of(book: JobBook, *, passive: bool = False) -> JobRoll:
    table = NodeTable([])
    table.see(nodes())
    return JobRoll(book, table, Reconciler(), passive=passive)


def look(roll: JobRoll, jobs: Sequence[JobSight], now_s: float) -> tuple[list[int], list[int]]:
    sight = ClusterSight(T + now_s, jobs, nodes())
    found = roll.see(sight, lambda *_: ("failed", T + now_s), forget_rows=False)
    roll.write()
    return found


def running(name: str, submit_s: float = 5.0) -> JobSight:
    return JobSight(name=name, submit_s=T + submit_s, request=JobRequest(user="ann"),
                    phase="running", place=(("n1", 1, 0),), start_s=T + 10.0)  # fmt: skip


def ended(sight: JobSight, end_s: float) -> JobSight:
    return replace(sight, end="done", end_s=T + end_s)


def in_memory(roll: JobRoll) -> int:
    return len(roll._every._jobs)


def test_jobs_that_are_over_leave_memory_and_can_still_be_asked_about(book: JobBook) -> None:
    roll = roll_of(book)
    jobs = [running(f"{k}") for k in range(100)]
    look(roll, jobs, 20)
    over = [ended(one, 30 + k) for k, one in enumerate(jobs)]
    _, gone = look(roll, over[:60], 202)
    assert gone == list(range(1, 61))
    _, gone = look(roll, (), 204)  # the others were missed twice
    assert sorted(gone) == list(range(61, 101))
    assert in_memory(roll) == 100
    look(roll, over[:1], 203 + KEPT_S)  # one is listed still
    assert in_memory(roll) == 41
    look(roll, over[:1], 205 + KEPT_S)
    assert in_memory(roll) == 1
    assert roll.known(7).name == "6"
    assert (roll.listing(7).job_id, roll.listing(7).user) == ("7", "ann")
    assert roll.ending(7) == (FINISH, 36)
    assert roll.ending(100) == (GIVE_UP, 204)
    assert roll.measured(7).restart_s != roll.measured(7).restart_s  # not measured
    with pytest.raises(LookupError, match="No job has the number 101"):
        roll.ending(101)


def test_what_could_not_be_written_stays_in_memory(
    book: JobBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    roll = roll_of(book)

    def full(*_: object) -> None:
        raise JournalError("Cannot write: the disk is full.")

    with monkeypatch.context() as patched:
        patched.setattr(book, "keep_jobs", full)
        for now_s, jobs in ((20, [running("a")]), (40, [ended(running("a"), 30)]),
                            (50 + KEPT_S, []), (50 + 2 * KEPT_S, [])):  # fmt: skip
            with pytest.raises(JournalError):
                look(roll, jobs, now_s)
    assert roll.ending(1) == (FINISH, 30)
    look(roll, [], 60 + 2 * KEPT_S)
    look(roll, [], 61 + 2 * KEPT_S)
    assert in_memory(roll) == 0
    assert roll.ending(1) == (FINISH, 30)


def test_a_start_reads_the_jobs_that_are_not_over_and_some_of_the_latest(
    book: JobBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [KnownJob(uid, f"j{uid}", T, end="done", end_s=T + 1) for uid in range(1, 1001)]
    book.keep_jobs([*jobs, KnownJob(1001, "j1001", T), replace(jobs[0], end="")])
    read: list[int] = []
    decode = job_book.known_job

    def counted(uid: int, *rest: Any) -> KnownJob:
        read.append(uid)
        return decode(uid, *rest)

    monkeypatch.setattr(job_book, "known_job", counted)
    monkeypatch.setattr(RestartCosts, "JOBS", 10)
    roll = roll_of(book)
    assert read == [1, 1001, *range(1001, 991, -1)]
    assert [roll._every[uid].name for uid in sorted(roll._every.open)] == ["j1", "j1001"]


def test_numbers_are_given_once_also_when_all_jobs_are_over(tmp_path: Path) -> None:
    for begin in (1, 3):
        with closing(JobBook(tmp_path / "journal.db", T)) as book:
            roll = roll_of(book)
            came, _ = look(roll, [running(f"a{begin}"), running(f"b{begin}")], 20)
            assert came == [begin, begin + 1]
            look(roll, [ended(running(f"{name}{begin}"), 30) for name in "ab"], 40)
            look(roll, [], 50 + KEPT_S)
    with closing(JobBook(tmp_path / "journal.db", T)) as book:
        assert KnownJobs(book).next_uid() == 5


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("passive", [False, True])
def test_a_job_that_is_listed_as_over_long_after_is_the_one_that_it_was(
    book: JobBook, *, passive: bool, restarted: bool
) -> None:
    roll = roll_of(book, passive=passive)
    look(roll, [running("a")], 20)
    # It is put back in line, and has a new time of submission from then on.
    again = replace(running("a", 50.0), resubmitted=True, start_s=T + 55.0)
    look(roll, [again], 60)
    look(roll, [ended(again, 70)], 80)
    look(roll, [], 90 + KEPT_S)
    if restarted:
        roll = roll_of(book, passive=passive)
    assert look(roll, [ended(again, 70)], 100 + KEPT_S) == ([], [])
    assert look(roll, [ended(again, 70)], 110 + KEPT_S) == ([], [])
    assert book.last_uid() == 1
    look(roll, [], 200 + 2 * KEPT_S)
    assert in_memory(roll) == 0


def test_a_job_that_lives_again_after_its_cluster_forgot_its_end_is_a_new_one(
    book: JobBook,
) -> None:
    roll = roll_of(book)
    for now_s, then_s in ((100, 110), (200 + 2 * KEPT_S, 210 + 2 * KEPT_S)):
        look(roll, [running("a")], now_s)
        look(roll, [ended(running("a"), then_s)], then_s)
        look(roll, [], then_s + 2 * KEPT_S)
    came, _ = look(roll, [running("a")], 500 + 4 * KEPT_S)
    assert came == [3]


def test_what_a_job_that_is_over_was_to_hold_is_forgotten_and_its_commands_after_a_while(
    book: JobBook,
) -> None:
    book.keep_jobs([KnownJob(1, "over", T), KnownJob(2, "waits", T)])
    book.keep_intents([Intent(1, ((0, 1, 0),)), Intent(2, ())])
    for k in range(15):
        book.begin_command(JobOrder(1 + k % 2, "start"), float(k))
    book.keep_jobs([KnownJob(1, "over", T, end="done", end_s=T + 20)])
    assert book.intents().keys() == {2}

    def times(uid: int) -> list[float]:
        found = read_book(book.path)
        assert found is not None
        return [time_s for time_s, *_ in found.commands(uid)]

    book.begin_command(JobOrder(2, "start"), COMMANDS_S)  # nothing is older than that
    assert len(times(1)) == 8
    book.begin_command(JobOrder(2, "stop"), COMMANDS_S + 5)
    assert times(1) == [6, 8, 10, 12, 14]
    assert len(times(2)) == 9
    assert book.stops_since(COMMANDS_S) == [COMMANDS_S + 5]
    book.begin_command(JobOrder(2, "stop"), 2 * COMMANDS_S)
    assert (times(1), len(times(2))) == ([], 10)


def test_a_book_of_an_earlier_version_is_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    facts = {"started_s": None, "listing": {}, "end_s": None}
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE names (uid INTEGER PRIMARY KEY, name TEXT, submit_s REAL, "
                   "facts TEXT)")  # fmt: skip
        db.execute("CREATE TABLE intents (uid INTEGER PRIMARY KEY, intent TEXT)")
        for uid, end in ((1, ""), (2, "done"), (3, "failed")):
            text = json.dumps({**facts, "end": end})
            db.execute("INSERT INTO names VALUES (?, ?, ?, ?)", (uid, f"j{uid}", T, text))
            wanted = {"share": [[0, 1, 0]], "cancelled": False, "noticed_s": None}
            db.execute("INSERT INTO intents VALUES (?, ?)", (uid, json.dumps(wanted)))
    with closing(JobBook(path, T)) as book:
        assert [job.name for job in book.open_jobs()] == ["j1"]
        assert book.intents() == {1: Intent(1, ((0, 1, 0),))}
        assert (book.last_uid(), book.job(3).end) == (3, "failed")


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"end_s": 1, "strange": 2}', "\x00"])
def test_damaged_rows_are_an_error_of_the_journal(tmp_path: Path, text: str) -> None:
    path = tmp_path / "journal.db"
    with closing(JobBook(path, T)) as book:
        book.keep_jobs([KnownJob(1, "a", T)])
        book.keep_intents([Intent(1)])
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE names SET facts = ?", (text,))
        db.execute("UPDATE intents SET intent = ?", (text,))
    with closing(JobBook(path, T)) as book:
        with pytest.raises(JournalError, match=r"job 'a' \(uid 1\) is damaged"):
            KnownJobs(book)
        with pytest.raises(JournalError, match="uid 1 shall hold is damaged"):
            book.intents()


@pytest.mark.parametrize("table", ["names", "nodes", "intents", "commands"])
def test_a_table_of_another_kind_is_an_error_of_the_journal(book: JobBook, table: str) -> None:
    with closing(sqlite3.connect(book.path)) as db, db:
        db.execute(f"DROP TABLE {table}")
        db.execute(f"CREATE TABLE {table} (strange TEXT)")
    with pytest.raises(JournalError, match="Cannot read"):
        {"names": book.open_jobs, "nodes": book.nodes, "intents": book.intents,
         "commands": lambda: book.stops_since(0.0)}[table]()  # fmt: skip


@pytest.mark.parametrize("value", [None, "soon", b"x", -1.0, float("inf")])
def test_a_book_that_does_not_say_since_when_it_counts_is_called_damaged(
    book: JobBook, value: Any
) -> None:
    with closing(sqlite3.connect(book.path)) as db, db:
        db.execute("UPDATE origin SET time_s = ?", (value,))
    for reads in (lambda: JobBook(book.path, T), lambda: read_book(book.path)):
        with pytest.raises(JournalError, match="counts seconds is damaged"):
            reads()


def test_a_job_is_not_journaled_before_its_number_is_in_the_book(book: JobBook) -> None:
    roll = roll_of(book)
    sight = ClusterSight(T + 20, [running("a")], nodes())
    roll.see(sight, lambda *_: ("failed", T), forget_rows=False)
    with pytest.raises(JournalError, match="Job a is not in the journal's tables"):
        roll.listing(1)
    roll.write()
    assert roll.listing(1).job_id == "1"
    look(roll, [ended(running("a"), 30)], 40)
    assert roll.listing(1).job_id == "1"
