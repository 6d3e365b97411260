"""What a journal tells of one job, from journals written by hand."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

import pytest

from helpers.hand_journals import add_round, live_journal
from rota.core.layout import ARRIVE, FINISH, GIVE_UP, KILL, MOVE, START, STOP
from rota.run.job_story import STOPS, story_of, usual_length_s
from rota.run.reader import read_journal

if TYPE_CHECKING:
    from pathlib import Path

    from rota.run.job_story import JobStory

META = {"policy": "srtf", "total_gpus": 8}
LONG, SHORT, THIRD = 0, 1, 2


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Job 5 is stopped for job 6, goes on elsewhere, is lost, and at last done."""
    path = tmp_path / "journal.db"
    with live_journal(path, META, 5, [8, 4, 1], [0.0, 10.0, 90.0]) as made:
        add_round(made, 1.0, [(0.0, LONG, ARRIVE, ()), (1.0, LONG, START, [(0, 4), (1, 4)])],
                  {"by": "srtf", "reasons": {"5": "it is the only one"}})  # fmt: skip
        add_round(made, 10.0, [(10.0, SHORT, ARRIVE, ()), (10.0, LONG, STOP, ()),
                               (10.0, SHORT, START, [(0, 4)])],
                  {"by": "srtf", STOPS: [5]})  # fmt: skip
        add_round(made, 30.0, [(25.0, SHORT, FINISH, ()), (30.0, LONG, START, [(0, 4), (1, 4)])],
                  {"by": "fifo"})  # fmt: skip
        add_round(made, 40.0, [(40.0, LONG, STOP, ())], {"by": "fifo"})
        add_round(made, 50.0, [(50.0, LONG, START, [(0, 4)]), ], {"by": "srtf"})  # fmt: skip
        add_round(made, 60.0, [(60.0, LONG, MOVE, [(1, 4)])], {"by": "srtf"})
        add_round(made, 95.0, [(80.0, LONG, FINISH, ()), (90.0, THIRD, ARRIVE, ()),
                               (92.0, THIRD, KILL, ()), (92.0, THIRD, GIVE_UP, ())],
                  {"by": "srtf"})  # fmt: skip
    return path


def story(path: Path, uid: int) -> JobStory:
    with read_journal(path) as view:
        found = story_of(view, uid)
    assert found is not None
    return found


def test_a_story_says_what_who_and_for_whom(journal: Path) -> None:
    found = story(journal, 5)
    told = [(one.time_s, one.what, one.by, one.gainers) for one in found.happened]
    assert told == [
        (0, "submitted", "", ()), (1, "started", "srtf", ()), (10, "stopped", "srtf", (6,)),
        (30, "started", "fifo", ()),
        (40, "stopped", "", ()),  # by no policy: its node failed, say
        (50, "started", "srtf", ()), (60, "moved", "srtf", ()), (80, "done", "", ()),
    ]  # fmt: skip
    assert found.happened[1].why == "it is the only one"
    assert found.happened[6].share == ((1, 4, 0),)
    assert (found.waited_s, found.ran_s) == (1, 9 + 10 + 30)
    assert found.end is found.happened[-1]


def test_a_job_that_was_cancelled_never_ran(journal: Path) -> None:
    found = story(journal, 7)
    assert [one.what for one in found.happened] == ["submitted", "cancelled", "failed"]
    assert isnan(found.waited_s)
    assert found.ran_s == 0


def test_a_job_that_is_not_there_has_no_story(journal: Path) -> None:
    with read_journal(journal) as view:
        assert story_of(view, 4) is None


def test_the_usual_length_is_the_median_of_those_that_are_over(journal: Path) -> None:
    with read_journal(journal) as view:
        # Job 5 of 8 GPUs held 8 for 9 + 10 s and 4 for 30 s; job 6 held what it asked for 15 s.
        assert usual_length_s(view) == (34 + 15) / 2
