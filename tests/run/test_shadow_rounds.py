"""What would have been done in shadow, against what was done, round by round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from shadow_journal import ALL, TURNS, WISH, write_shadow_journal

from rota.core.layout import ARRIVE, FINISH, START, STOP
from rota.run.reader import read_journal
from rota.run.shadow_rounds import read_shadow_rounds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rota.run.shadow_rounds import ShadowRounds


@pytest.fixture
def count(tmp_path: Path) -> Callable[..., ShadowRounds]:
    def counted(turns: Any = TURNS, foreign: Any = ()) -> ShadowRounds:
        path = tmp_path / "run.db"
        path.unlink(missing_ok=True)
        write_shadow_journal(path, turns)
        with read_journal(path) as view:
            return read_shadow_rounds(view, foreign)

    return counted


def test_rounds_by_hand(count: Callable[..., ShadowRounds]) -> None:
    found = count()
    # Six written rounds, and three quiet ones before the third.
    assert (found.rounds, found.decided) == (9, {"srtf": 8, "fifo-skip": 1})
    assert found.troubles == {"Policy 'srtf' has not answered": 1}
    # At 10 s it would have started job 2, and Slurm started job 1; at 110 s both started job 2;
    # at 115 s the fallback would have stopped job 2. The last round is not judged.
    assert (found.differed, found.agreed, found.idle, found.judged) == (2, 1, 5, 8)
    assert (found.stops, found.stopped_jobs, found.moves, found.resizes) == (1, 1, 0, 0)
    assert (found.starts, found.wanted, found.unasked) == (2, 1, 0)


def test_jobs_of_others_do_not_count_as_started(count: Callable[..., ShadowRounds]) -> None:
    found = count(foreign={1})
    assert (found.starts, found.wanted) == (1, 1)


def test_a_start_that_comes_with_its_job_was_not_asked_about(
    count: Callable[..., ShadowRounds],
) -> None:
    both = [(10, 0, ARRIVE, ()), (10, 0, START, ALL)]
    found = count([(10, {"by": "srtf"}, both), (20, {"by": "srtf"}, [(20, 0, FINISH, ())])])
    assert (found.starts, found.unasked, found.wanted) == (1, 1, 0)


def test_a_wish_that_stands_counts_once_and_one_that_comes_back_again(
    count: Callable[..., ShadowRounds],
) -> None:
    stop = {"by": "srtf", "shadow": [{"uid": 1, "do": "stop", "share": []}, WISH]}
    began = [(10, 0, ARRIVE, ()), (10, 1, ARRIVE, ()), (10, 0, START, ALL)]
    found = count([
        (10, stop, began), (20, {**stop, "quiet": 4}, []), (30, {"by": "srtf"}, []), (40, stop, []),
    ])  # fmt: skip
    assert (found.stops, found.stopped_jobs) == (2, 1)
    # 10 s, four quiet ones and 20 s differ: Slurm stopped nobody. At 30 s both did nothing.
    assert (found.differed, found.idle) == (6, 1)


def test_what_slurm_stops_by_itself_is_no_agreement(count: Callable[..., ShadowRounds]) -> None:
    began = [(10, 0, ARRIVE, ()), (10, 0, START, ALL)]
    found = count([(10, {"by": "srtf"}, began), (20, {"by": "srtf"}, [(15, 0, STOP, ())])])
    assert (found.differed, found.idle, found.agreed) == (1, 0, 0)


def test_what_only_tells_of_measurements_is_no_round(count: Callable[..., ShadowRounds]) -> None:
    found = count([*TURNS, (121, {"ended": {"2": {"work_s": 10.0}}}, [])])
    assert found.rounds == 9
