"""The journal keeps what was written, whatever happens to its writer, and says so if it cannot."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from children import child
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.layout import (
    ARRIVE,
    EVENT,
    FINISH,
    GIVE_UP,
    KILL,
    MOVE,
    NODE_DOWN,
    NODE_UP,
    RESIZE,
    ROUND,
    SHARE,
    START,
    STOP,
)
from rota.errors import JournalError
from rota.run.journal import Journal
from rota.run.journal_file import FORMAT
from rota.run.outcome import Outcome
from rota.run.reader import EventChunk, JobChunk, RoundChunk, follow, read_journal

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rota.core.types import Records

META = {"policy": "srtf", "seed": 7, "total_gpus": 8, "trace": "by hand"}

# Two nodes of 4 GPUs. Job 0 runs, is stopped and runs again; job 1 moves and grows; job 2 fails
# for good; job 3 never starts; node 1 is down for a while.
EVENTS = np.array(
    [
        (0.0, 0, ARRIVE, 0),
        (0.0, 0, START, 2),
        (1.5, 1, ARRIVE, 0),
        (2.0, 0, STOP, 0),
        (2.0, 1, START, 1),
        (3.0, 1, MOVE, 1),
        (4.0, 1, RESIZE, 2),
        (5.0, 1, FINISH, 0),
        (5.0, 0, START, 1),
        (6.0, 2, ARRIVE, 0),
        (6.0, 2, START, 1),
        (7.0, 1, NODE_DOWN, 0),
        (7.0, 2, KILL, 0),
        (7.0, 2, GIVE_UP, 0),
        (8.0, 1, NODE_UP, 0),
        (9.0, 3, ARRIVE, 0),
        (0.1 + 0.2 + 9.0, 0, FINISH, 0),
    ],
    EVENT,
)
SHARES = np.array(
    [(0, 4, 0), (1, 2, 0), (0, 1, 0), (1, 1, 0), (0, 1, 0), (1, 1, 2), (0, 4, 0), (1, 3, 0)], SHARE
)
ROUNDS = np.array(
    [
        (0.0, 0, 1, 6, 8, 2),
        (2.0, 1, 1, 1, 8, 3),
        (4.0, 1, 1, 2, 8, 6),
        (5.0, 0, 1, 4, 8, 0),
        (6.0, 0, 2, 7, 8, 1),
        (7.0, 0, 1, 4, 4, 0),
        (9.0, 1, 1, 4, 8, 0),
    ],
    ROUND,
)
JOBS: dict[str, Any] = {
    "job_id": np.array(["a", "b", 'ü\n,"x', "d"]),
    "user": np.array([1, 0, -1, 1]),
    "users": ("ann", "bob"),
    "num_gpus": np.array([6, 1, 3, 8]),
    "submit_s": np.array([0.0, 1.5, 6.0, 9.0]),
    "duration_s": np.array([6.3, 3.0, 10.0, 1 / 3]),
}
SUMS: dict[str, Any] = {
    "begin_s": 0.0, "end_s": 9.3, "held_gpu_s": 0.1 + 0.2, "up_gpu_s": 72.4, "stray_gpu_s": 1e-300,
    "moves": 1, "resizes": 1, "kills": 1, "rounds": 7, "wall_s": 0.123456789,
}  # fmt: skip
LOST_S = np.array([0.0, 0.0, 1 / 7, 0.0])
FEE = np.array([1.5, 0.0, 2.25, 0.1])
OUTCOME = Outcome(
    policy="srtf", seed=7, total_gpus=8, **JOBS,
    started_s=np.array([0.0, 2.0, 6.0, np.nan]),
    done_s=np.array([0.1 + 0.2 + 9.0, 5.0, 7.0, np.nan]),
    gave_up=np.array([False, False, True, False]), preemptions=np.array([1, 0, 0, 0]),
    lost_s=LOST_S, fee=FEE, series=ROUNDS, **SUMS,
)  # fmt: skip


def write(path: Path, *, finish: bool = True) -> Path:
    with Journal.create(path, meta=META) as journal:
        journal.add_jobs(**JOBS)
        journal.add_events(EVENTS, SHARES)
        journal.add_rounds(ROUNDS)
        if finish:
            journal.finish(**SUMS, lost_s=LOST_S, fee=FEE)
    return path


def outcome_of(path: Path) -> Outcome:
    with read_journal(path) as view:
        return view.outcome()


def assert_same(a: Outcome, b: Outcome) -> None:
    for field in fields(Outcome):
        x, y = getattr(a, field.name), getattr(b, field.name)
        if isinstance(y, np.ndarray):
            assert x.dtype == y.dtype, field.name
            np.testing.assert_array_equal(x, y, err_msg=field.name)
        else:
            assert (x, type(x)) == (y, type(y)), field.name


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.journal"


# What is kept.


def test_an_outcome_comes_back_bit_for_bit(path: Path) -> None:
    assert_same(outcome_of(write(path)), OUTCOME)


def test_a_finished_journal_is_a_single_file(path: Path) -> None:
    write(path)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_meta_data_come_back_as_they_were_given(path: Path) -> None:
    @dataclass(frozen=True)
    class Settings:
        slot_s: float = 60.0

    cluster = {"names": ["n0", "n1"], "gpus": np.array([4, 4])}
    Journal.create(path, meta={**META, "cluster": cluster, "conditions": Settings()}).close()
    with read_journal(path) as view:
        assert view.meta["cluster"] == {"names": ["n0", "n1"], "gpus": [4, 4]}
        assert view.meta["conditions"] == {"slot_s": 60.0}
        assert {key: view.meta[key] for key in META} == META
        assert view.meta["format"] == FORMAT


def test_each_event_finds_its_shares(path: Path) -> None:
    with read_journal(write(path)) as view:
        events, shares, offsets = view.events()
    resize = int(np.flatnonzero(events["kind"] == RESIZE)[0])
    assert shares[offsets[resize] : offsets[resize + 1]].tolist() == [(0, 1, 0), (1, 1, 2)]
    assert len(offsets) == len(events) + 1


def test_notes_are_found_by_the_number_of_their_round(path: Path) -> None:
    note = {"reasons": {"41": "shortest"}, "decide_s": 0.25}
    with Journal.create(path, meta=META) as journal:
        journal.add_rounds(ROUNDS[:2])
        journal.add_rounds(ROUNDS[2:4], [{}, note])
    with read_journal(path) as view:
        assert view.notes() == {2: {}, 3: note}


def test_jobs_may_come_in_several_calls_with_their_own_lists_of_users(path: Path) -> None:
    def add(names: list[str], user: list[int], users: list[str]) -> int:
        one = [1.0] * len(names)
        return journal.add_jobs(names, user, users, [1] * len(names), one, one)

    with Journal.create(path, meta=META) as journal:
        firsts = [
            add(["a", "b"], [0, 1], ["ann", "bob"]),
            add(["c"], [0], ["bob"]),
            add(["d", "e"], [1, -1], ["ann", "cy"]),
        ]
    with read_journal(path) as view:
        jobs = view.jobs
    assert firsts == [0, 2, 3]
    assert jobs.job_id.tolist() == ["a", "b", "c", "d", "e"]
    assert jobs.users == ("ann", "bob", "cy")
    assert jobs.user.tolist() == [0, 1, 1, 2, -1]


def test_keeps_whatever_else_is_known_of_jobs(tmp_path: Path) -> None:
    def add(journal: Journal, name: str, models: list[str], **more: Any) -> None:
        journal.add_jobs([name], [-1], [], [1], [0.0], [5.0], more, {"model": models})

    with Journal.create(tmp_path / "j", meta=META) as journal:
        add(journal, "a", ["vgg"], model=[0], estimate_s=[np.nan])
        add(journal, "b", ["vgg", "bert"], model=[1], estimate_s=[1 / 3])
        with pytest.raises(JournalError, match="shape"):
            add(journal, "c", [], model=[0, 1], estimate_s=[1.0])
        with read_journal(journal.path) as view:
            jobs = view.jobs
        assert (jobs.more["model"].tolist(), jobs.names) == ([0, 1], {"model": ("vgg", "bert")})
        np.testing.assert_array_equal(jobs.more["estimate_s"], [np.nan, 1 / 3])
        add(journal, "d", [], samples=[2.0])
        # A newer rota, going on with the journal of an older one, may say other things of its jobs.
        with read_journal(journal.path) as view:
            jobs = view.jobs
        assert jobs.names == {"model": ("vgg", "bert")}
        np.testing.assert_array_equal(jobs.more["model"], [0, 1, np.nan])
        np.testing.assert_array_equal(jobs.more["samples"], [np.nan, np.nan, 2])


def records(dtype: np.dtype[Any]) -> st.SearchStrategy[Records]:
    def column(kind: np.dtype[Any]) -> st.SearchStrategy[Any]:
        if kind.kind == "f":
            return st.floats(allow_nan=False)
        half = 2 ** (8 * kind.itemsize - 1)
        return st.integers(-half, half - 1) | st.integers(-200, 200)

    row = st.tuples(*(column(dtype[name]) for name in dtype.names or ()))
    return st.lists(row, max_size=12).map(lambda rows: np.array(rows, dtype))


@settings(max_examples=40, deadline=None)
@given(st.lists(records(ROUND), max_size=5), st.lists(records(SHARE), max_size=5))
def test_records_of_any_size_and_range_come_back(
    rounds: list[Records], shares: list[Records]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "j"
        with Journal.create(path, meta=META) as journal:
            for chunk in rounds:
                journal.add_rounds(chunk)
            for chunk in shares:
                # About a node, so that no job needs to exist.
                journal.add_events(np.array([(0.0, 2**30, NODE_UP, len(chunk))], EVENT), chunk)
        with read_journal(path) as view:
            events = view.events()
            np.testing.assert_array_equal(view.rounds(), np.concatenate([ROUNDS[:0], *rounds]))
    np.testing.assert_array_equal(events.shares, np.concatenate([SHARES[:0], *shares]))
    assert events.events["job"].tolist() == [2**30] * len(shares)


# A run that died.


def test_an_unfinished_journal_gives_sums_from_its_rounds_and_events(path: Path) -> None:
    got = outcome_of(write(path, finish=False))
    # held 6·2 + 1·2 + 2·1 + 4·1 + 7·1 + 4·2 + 4·0.3, up 8·7 + 4·2 + 8·0.3
    assert got.held_gpu_s == pytest.approx(36.2)
    assert got.up_gpu_s == pytest.approx(66.4)
    assert got.stray_gpu_s == pytest.approx(2 * 2 + 3 * 2 + 6 + 0 + 1)
    assert (got.begin_s, got.end_s) == (0.0, 0.1 + 0.2 + 9.0)
    assert (got.moves, got.resizes, got.kills, got.rounds, got.wall_s) == (1, 1, 1, 7, 0.0)
    np.testing.assert_array_equal(got.done_s, OUTCOME.done_s)
    assert got.lost_s.tolist() == [0, 0, 0, 0]


def test_nodes_count_as_up_before_the_first_round(path: Path) -> None:
    with Journal.create(path, meta=META) as journal:
        journal.add_jobs(["a"], [-1], [], [1], [10.0], [5.0])
        journal.add_events(np.array([(10.0, 0, ARRIVE, 0)], EVENT), SHARES[:0])
        journal.add_rounds(np.array([(60.0, 0, 1, 1, 8, 3), (120.0, 0, 0, 0, 8, 0)], ROUND))
    got = outcome_of(path)
    assert (got.held_gpu_s, got.up_gpu_s, got.stray_gpu_s) == (60.0, 880.0, 180.0)


def test_a_journal_without_anything_gives_an_empty_outcome(path: Path) -> None:
    Journal.create(path, meta=META).close()
    got = outcome_of(path)
    assert (len(got.job_id), got.rounds, got.up_gpu_s, got.begin_s) == (0, 0, 0.0, 0.0)


def test_sums_that_finish_is_not_told_follow_from_the_rest(path: Path) -> None:
    with Journal.create(path, meta=META) as journal:
        journal.add_rounds(ROUNDS)
        journal.finish(wall_s=2)
    got = outcome_of(path)
    assert (got.wall_s, got.rounds, got.held_gpu_s) == (2.0, 7, 35.0)


def python(code: str, *arguments: object) -> AbstractContextManager[subprocess.Popen[str]]:
    return child(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip


ENDLESS = """
import sys, numpy as np
from rota.core.layout import EVENT, ROUND, SHARE
from rota.run.journal import Journal
journal = Journal.create(sys.argv[1], meta={"policy": "fifo", "total_gpus": 8})
n = 0
while True:
    journal.add_jobs([str(n)], [-1], [], [1], [n], [1.0])
    journal.add_events(np.array([(n, n, 1, 1)], EVENT), np.array([(n % 9, 1, 0)], SHARE))
    journal.add_rounds(np.array([(n, 0, 1, 1, 8, 7)], ROUND))
    n += 1
    print(n, flush=True)
"""


def test_killing_the_writer_loses_at_most_what_was_not_committed(path: Path) -> None:
    with python(ENDLESS, path) as writer:
        assert writer.stdout is not None
        for _ in range(50):
            writer.stdout.readline()
        with read_journal(path) as view:  # while it is being written
            assert not view.finished
            assert len(view.rounds()) >= 50
        os.kill(writer.pid, signal.SIGKILL)
        told = int(["50", *writer.stdout.read().split("\n")[:-1]][-1])
    assert writer.returncode == -signal.SIGKILL

    for _ in range(2):  # reading must not spoil what the dead writer left
        got = outcome_of(path)
        assert told <= got.rounds <= len(got.job_id) <= told + 1
        assert got.series["time_s"].tolist() == list(range(got.rounds))
        started = got.started_s[~np.isnan(got.started_s)]
        assert started.tolist() == list(range(len(started)))
        assert len(started) >= told


# Following.

FOLLOWER = """
import sys
from rota.run.reader import follow
print("ready", flush=True)
for chunk in follow(sys.argv[1], int(sys.argv[2]), poll_s=0.01):
    print(chunk.id, type(chunk).__name__, flush=True)
"""


def test_a_follower_in_another_process_sees_chunks_as_they_come(path: Path) -> None:
    with Journal.create(path, meta=META) as journal, python(FOLLOWER, path, 0) as reader:
        assert reader.stdout is not None

        def heard() -> str:
            assert reader.stdout is not None
            return reader.stdout.readline().strip()

        assert heard() == "ready"
        journal.add_jobs(**JOBS)
        assert heard() == "1 JobChunk"
        journal.add_events(EVENTS, SHARES)
        assert heard() == "2 EventChunk"
        for n in range(3, 6):
            journal.add_rounds(ROUNDS[:1])
            assert heard() == f"{n} RoundChunk"
        journal.finish()
        assert reader.stdout.read() == ""  # the end of the run ends the iteration
    assert reader.returncode == 0


def test_following_goes_on_after_the_last_chunk_seen(path: Path) -> None:
    jobs, events, rounds = follow(write(path))
    assert isinstance(jobs, JobChunk)
    assert isinstance(events, EventChunk)
    assert isinstance(rounds, RoundChunk)
    assert jobs.jobs.users == ("ann", "bob")
    np.testing.assert_array_equal(events.events.events, EVENTS)
    assert rounds.notes is None
    assert [chunk.id for chunk in follow(path, events.id)] == [rounds.id]
    with read_journal(path) as view:
        assert len(view.events(since=jobs.id).events) == len(EVENTS)
        assert len(view.events(since=events.id).events) == 0
        assert len(view.rounds(since=events.id)) == len(ROUNDS)


def test_a_follower_loses_patience_with_a_silent_writer(path: Path) -> None:
    write(path, finish=False)
    assert len(list(follow(path, poll_s=0.01, patience_s=0.05))) == 3


def test_a_journal_finishes_although_somebody_reads_it(path: Path) -> None:
    with Journal.create(path, meta=META) as journal:
        journal.add_rounds(ROUNDS)
        with read_journal(path) as view:
            chunks = view.chunks()
            journal.add_rounds(ROUNDS)
            assert len(list(chunks)) == 2
            journal.finish()
            assert view.finished
    with read_journal(path) as view:
        assert view.finished
        assert len(view.rounds()) == 14


# What is refused.


def refused(path: Path, **options: Any) -> str:
    with pytest.raises(JournalError) as caught:
        Journal.create(path, **{"meta": META, **options})
    return str(caught.value)


def test_creating_refuses_what_it_must_not_touch(path: Path) -> None:
    path.write_text("precious")
    assert "exists already" in refused(path)
    assert path.read_text() == "precious"
    assert "is a directory" in refused(path.parent, force=True)
    assert f"no directory {path.parent / 'nowhere'}" in refused(path.parent / "nowhere" / "j")
    assert "File name too long" in refused(path.parent / ("x" * 300))
    assert "policy and total_gpus" in refused(path, meta={})
    assert "cannot keep meta['when']" in refused(path, meta={**META, "when": {1, 2}})


def test_a_place_that_cannot_be_written_is_reported(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deny(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", deny)
    message = refused(path)
    assert str(path) in message
    assert "Permission denied; choose another place" in message


def test_force_replaces_a_file_and_its_log(path: Path) -> None:
    old = Journal.create(path, meta=META)
    old.add_rounds(ROUNDS)
    Journal.create(path, meta={**META, "policy": "new"}, force=True).close()
    old.close()
    got = outcome_of(path)
    assert (got.policy, got.rounds) == ("new", 0)


def test_the_file_itself_refuses_changes(path: Path) -> None:
    db = sqlite3.connect(write(path))
    for change in (
        "UPDATE meta SET value = '1'",
        "DELETE FROM meta",
        "INSERT OR REPLACE INTO meta VALUES ('policy', '1')",
        "UPDATE events SET count = 0",
        "DELETE FROM jobs",
        "INSERT OR REPLACE INTO rounds SELECT * FROM rounds",
        "DELETE FROM ending",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            db.execute(change)
    db.close()


def test_records_that_do_not_fit_together_are_refused(path: Path) -> None:
    with Journal.create(path, meta=META) as journal:
        with pytest.raises(JournalError, match="names job 3, but the journal knows 0 jobs"):
            journal.add_events(EVENTS, SHARES)
        with pytest.raises(JournalError, match="announce 8 shares, but 7 came"):
            journal.add_events(EVENTS, SHARES[:-1])
        with pytest.raises(JournalError, match="1 notes for 7 rounds"):
            journal.add_rounds(ROUNDS, [{}])
        with pytest.raises(JournalError, match="submit_s has 1 entries for 4 jobs"):
            journal.add_jobs(**{**JOBS, "submit_s": [1.0]})
        with pytest.raises(JournalError, match="index the 2 names"):
            journal.add_jobs(**{**JOBS, "user": [0, 1, 2, 0]})
        with pytest.raises(JournalError, match="fee has 4 entries for 0 jobs"):
            journal.finish(fee=FEE)
        with pytest.raises(JournalError, match="lost_s has 4 entries for 0 jobs"):
            journal.finish(lost_s=LOST_S)
        with pytest.raises(TypeError, match="'walls_s'"):
            journal.finish(walls_s=1.0)
        journal.finish()
        with pytest.raises(JournalError, match="is closed"):
            journal.add_rounds(ROUNDS)


# A full disk.


def test_a_full_disk_is_reported_and_what_was_written_before_is_kept(path: Path) -> None:
    many = np.zeros(100_000, ROUND)
    many["time_s"] = np.arange(100_000)
    with Journal.create(path, meta=META) as journal:
        journal.add_jobs(**JOBS)
        journal.add_rounds(ROUNDS)
        assert journal._db is not None
        journal._db.execute("PRAGMA max_page_count = 40")
        with pytest.raises(JournalError) as caught:
            journal.add_rounds(many)
        assert outcome_of(path).rounds == 7
        journal._db.execute("PRAGMA max_page_count = 100000")  # somebody made room
        journal.add_rounds(many)
    message = str(caught.value)
    assert str(path) in message
    assert "the disk is full" in message
    assert "4 jobs, 0 events, 7 rounds" in message
    assert outcome_of(path).rounds == 100_007


LIMITED = """
import resource, sys, numpy as np
from rota.core.layout import ROUND
from rota.errors import JournalError
from rota.run.journal import Journal
journal = Journal.create(sys.argv[1], meta={"policy": "fifo", "total_gpus": 8})
resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
try:
    for n in range(100):
        journal.add_rounds(np.full(1000, n, ROUND))
except JournalError as error:
    print(n, error)
"""


def test_a_write_that_the_system_cuts_short_is_reported(path: Path) -> None:
    with python(LIMITED, path) as writer:
        out, _ = writer.communicate()
    count, message = out.split(" ", 1)
    assert f"Cannot write to the journal {path}" in message
    assert f"{count}000 rounds" in message
    assert outcome_of(path).rounds == 1000 * int(count)


def test_a_disk_that_is_full_from_the_start_leaves_nothing_behind(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(sqlite3.Connection):
        def executemany(self, *_: Any) -> sqlite3.Cursor:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, factory=Full, **k))
    assert "the disk is full" in refused(path)
    assert list(path.parent.iterdir()) == []


# Files that are no journals, or no longer.


def unreadable(path: Path) -> str:
    with pytest.raises(JournalError) as caught:
        outcome_of(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_other_files_are_told_from_journals(path: Path) -> None:
    assert "no journal at" in unreadable(path)
    assert "is a directory" in unreadable(path.parent)
    assert "File name too long" in unreadable(path.parent / ("x" * 300))
    path.write_bytes(b"")
    assert "is empty" in unreadable(path)
    path.write_text("job_id,submit_s\n" * 100)
    assert "nor an SQLite file" in unreadable(path)
    path.unlink()
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE jobs (id)")
    db.close()
    assert "not a journal of rota" in unreadable(path)


def test_a_newer_format_is_refused(path: Path) -> None:
    db = sqlite3.connect(write(path))
    db.execute(f"PRAGMA user_version = {FORMAT + 1}")
    db.close()
    message = unreadable(path)
    assert f"format {FORMAT + 1}" in message
    assert "newer rota" in message


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.8])
def test_a_truncated_file_is_reported(path: Path, share: float) -> None:
    whole = write(path).read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    unreadable(path)


@pytest.mark.parametrize("value", [EVENTS["time_s"][-1], LOST_S[2], JOBS["duration_s"][3]])
def test_a_single_flipped_bit_in_the_records_is_reported(path: Path, value: np.float64) -> None:
    whole = bytearray(write(path).read_bytes())
    whole[whole.index(value.tobytes())] ^= 1
    path.write_bytes(whole)
    assert "wrong checksum" in unreadable(path)


@cache
def sound() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return write(Path(folder) / "j").read_bytes()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damage_anywhere_gives_a_journal_error_if_any(data: st.DataObject) -> None:
    filled = [at for at, byte in enumerate(sound()) if byte]
    whole = bytearray(sound())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.sampled_from(filled))] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "j"
        path.write_bytes(whole)
        with suppress(JournalError):
            assert isinstance(outcome_of(path), Outcome)


def test_the_columns_can_be_read_with_plain_sql_and_numpy(path: Path) -> None:
    db = sqlite3.connect(write(path))
    policy, count, blob = db.execute(
        "SELECT json_extract(value, '$'), count, events FROM meta, events WHERE key = 'policy'"
    ).fetchone()
    names = [json.loads(row[0]) for row in db.execute("SELECT job_id FROM jobs")]
    db.close()
    types, _, body = blob.partition(b"\n")
    events = np.frombuffer(body, types.decode())
    assert (policy, count, len(events)) == ("srtf", 17, 17)
    assert events["f0"].tolist() == EVENTS["time_s"].tolist()
    assert names == [JOBS["job_id"].tolist()]
