"""Journals as pasts: what jobs were, and how long, read back from what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hand_journals import add_round, live_journal
from live import FIRST_UID, Queue, Task, ToyCluster

from rota.core import Cluster
from rota.core.layout import (
    ARRIVE,
    FINISH,
    GIVE_UP,
    KILL,
    MOVE,
    RESIZE,
    START,
    STOP,
)
from rota.errors import InputError
from rota.policies import make_policy
from rota.run.job_facts import Measured
from rota.run.journal import Journal
from rota.run.loop import rounds
from rota.run.reader import read_journal
from rota.run.recorder import Recorder
from rota.sim import simulate
from rota.sim.past import count_clusters, is_journal, lived_jobs, past_cluster, past_jobs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hand_journals import Happening

META = {"policy": "by hand", "total_gpus": 8, "cluster": {"gpus": [4, 4], "names": ["a", "b"]}}
NOBODY: list[tuple[int, int]] = []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "live.db"


def add(
    journal: Journal, happened: Sequence[Happening], note: dict[str, Any] | None = None
) -> None:
    """Events with (node, workers) pairs, and a round at the time of the last."""
    add_round(journal, max(time_s for time_s, *_ in happened), happened, note or {})


def begun(path: Path, gpus: Sequence[int], submit_s: Sequence[float], **more: Any) -> Journal:
    return live_journal(path, META, FIRST_UID, gpus, submit_s, **more)


CHANGING: list[Happening] = [
    (0.0, 0, ARRIVE, NOBODY), (10.0, 0, START, [(0, 2)]), (20.0, 0, RESIZE, [(0, 4)]),
    (30.0, 0, STOP, NOBODY), (50.0, 0, START, [(1, 2)]), (56.0, 0, MOVE, [(0, 1), (1, 1)]),
    (60.0, 0, FINISH, NOBODY),
]  # fmt: skip
COSTS = {"restart_s": 2.0, "resize_s": 1.0}


def test_a_jobs_length_is_what_it_held_without_its_pauses(path: Path) -> None:
    # 10 s with the 2 workers asked for, 9 s with double, then 4 s and 3 s with 2 again.
    with begun(path, [2], [0.0]) as journal:
        add(journal, CHANGING, {"ended": {str(FIRST_UID): COSTS}})
    trace = past_jobs(path)
    assert trace.duration_s.tolist() == [10 + 18 + 4 + 3]
    assert (trace.restart_s.tolist(), trace.resize_s.tolist()) == ([2], [1])
    # It was elastic, whatever the journal said of its size.
    assert (trace.num_gpus.tolist(), trace.min_workers.tolist()) == ([2], [2])
    assert trace.max_workers.tolist() == [4]


def test_without_measured_costs_all_that_it_held_counts(path: Path) -> None:
    with begun(path, [2], [0.0]) as journal:
        add(journal, CHANGING)
    trace = past_jobs(path)
    assert trace.duration_s.tolist() == [10 + 20 + 6 + 4]
    assert np.isnan([trace.restart_s, trace.resize_s]).all()


def test_work_that_was_measured_is_believed_and_one_start_is_part_of_it(path: Path) -> None:
    with begun(path, [2], [0.0]) as journal:
        add(journal, CHANGING, {"ended": {str(FIRST_UID): {**COSTS, "work_s": 31.0}, "7": {}}})
    assert past_jobs(path).duration_s.tolist() == [33]


def test_who_ran_and_is_over_counts_and_the_others_are_told_of(path: Path) -> None:
    with begun(path, [1] * 7, [0.0] * 7) as journal:
        add(journal, [
            *[(0.0, job, ARRIVE, NOBODY) for job in range(7)],
            (1.0, 0, START, [(0, 1)]), (1.0, 1, START, [(0, 1)]), (1.0, 2, START, [(0, 1)]),
            (1.0, 3, START, [(0, 1)]), (2.0, 4, KILL, NOBODY), (2.0, 4, GIVE_UP, NOBODY),
            (5.0, 0, FINISH, NOBODY), (6.0, 1, GIVE_UP, NOBODY),  # it failed after 5 s
            (7.0, 2, KILL, NOBODY), (7.0, 2, GIVE_UP, NOBODY),  # it was cancelled after 6 s
            (8.0, 6, START, [(1, 1)]), (8.0, 6, FINISH, NOBODY),
        ])  # fmt: skip
    trace = past_jobs(path)
    assert dict(zip(trace.job_id.tolist(), trace.duration_s.tolist(), strict=True)) == {
        "100": 4, "101": 5, "102": 6,
    }  # fmt: skip
    assert dict(trace.left_out) == {
        "it was cancelled or failed before it had run": 1,
        "it was not over when the journal ended": 2,  # one that runs, one that waits
        "it was not seen to take any time": 1,
    }


def test_an_empty_journal_and_one_without_endings_say_so(path: Path, tmp_path: Path) -> None:
    with Journal.create(path, meta=META):
        pass
    with pytest.raises(InputError, match="holds no jobs to learn from or to replay"):
        past_jobs(path)
    with begun(tmp_path / "young.db", [1], [0.0]) as journal:
        add(journal, [(0.0, 0, ARRIVE, NOBODY), (1.0, 0, START, [(0, 1)])])
    with pytest.raises(InputError, match=r"no job whose length can be told .*1 × it was not over"):
        past_jobs(tmp_path / "young.db")
    with begun(tmp_path / "waits.db", [1], [0.0]) as journal:
        add(journal, [(0.0, 0, ARRIVE, NOBODY)])
    with (
        read_journal(tmp_path / "waits.db") as view,
        pytest.raises(InputError, match="None of the journal's jobs has run"),
    ):
        lived_jobs(view)


def test_a_journal_that_a_newer_daemon_goes_on_with_keeps_what_each_said(path: Path) -> None:
    with begun(path, [2], [0.0], estimate_s=[30.0]) as journal:
        add(journal, [(0.0, 0, ARRIVE, NOBODY), (1.0, 0, START, [(0, 2)])])
    with Journal.reopen(path) as journal:  # the first daemon was killed; 0 ended meanwhile
        more = {"estimate_s": np.array([np.nan]), "min_workers": np.array([1.0])}
        journal.add_jobs(["101"], [-1], [], [2], [4.0], [np.nan], more)
        add(journal, [
            (5.0, 0, FINISH, NOBODY), (5.0, 1, ARRIVE, NOBODY), (5.0, 1, START, [(0, 2)]),
            (9.0, 1, FINISH, NOBODY),
        ])  # fmt: skip
    trace = past_jobs(path)
    assert trace.duration_s.tolist() == [4, 4]
    assert (trace.min_workers.tolist(), trace.max_workers.tolist()) == ([2, 1], [2, 2])
    np.testing.assert_array_equal(trace.estimate_s, [30, np.nan])


def test_a_submitters_clock_ahead_of_the_daemons_makes_nobody_start_before_it_came(
    path: Path,
) -> None:
    with begun(path, [1, 1], [1e9, -5.0]) as journal:
        add(journal, [
            (0.0, 0, ARRIVE, NOBODY), (0.0, 1, ARRIVE, NOBODY), (0.0, 0, START, [(0, 1)]),
            (3.0, 0, FINISH, NOBODY), (3.0, 1, START, [(0, 1)]), (3.0, 1, RESIZE, [(1, 1)]),
            (7.0, 1, FINISH, NOBODY),
        ])  # fmt: skip
    trace = past_jobs(path)
    assert (trace.job_id.tolist(), trace.submit_s.tolist()) == (["101", "100"], [-5, 0])
    assert trace.duration_s.tolist() == [4, 3]


def test_workers_without_gpus_are_counted_as_such(path: Path) -> None:
    with begun(path, [0, 3], [0.0, 0.0], gpus_per_worker=[np.nan, 0.0]) as journal:
        add(journal, [
            (0.0, 0, ARRIVE, NOBODY), (0.0, 1, ARRIVE, NOBODY), (0.0, 0, START, [(0, 3)]),
            (0.0, 1, START, [(1, 3)]), (4.0, 0, FINISH, NOBODY), (4.0, 1, FINISH, NOBODY),
        ])  # fmt: skip
    trace = past_jobs(path)
    assert (trace.num_gpus.tolist(), trace.gpus_per_worker.tolist()) == ([3, 3], [0, 0])
    assert trace.duration_s.tolist() == [4, 4]


def test_events_about_nobody_and_times_that_go_back_are_refused(path: Path) -> None:
    with begun(path, [1], [0.0]) as journal:
        add(journal, [(3.0, 0, ARRIVE, NOBODY), (2.0, 0, START, [(0, 1)])])
    with pytest.raises(InputError, match="not in order of time"):
        past_jobs(path)


# -- written by a recorder, lived through again --------------------------------------------------


class Meter(ToyCluster):
    """Also says what was measured."""

    def measured(self, uid: int) -> Measured:
        return Measured(work_s=uid / 10, resize_s=0.5) if uid != FIRST_UID + 2 else Measured()


def test_what_a_recorder_writes_can_be_played_again(path: Path) -> None:
    backend = ToyCluster([Task(0, 20, 2), Task(2, 30, 4), Task(4, 10, 8), Task(5, 7, 1)])
    with Journal.create(path, meta=META) as journal:
        recorder = Recorder(journal, backend)
        for turn in rounds(Queue(), backend):
            recorder.write(turn)
        recorder.close(backend.now_s)
    assert is_journal(path)
    trace = past_jobs(path)
    assert not trace.left_out
    np.testing.assert_allclose(trace.duration_s, [20, 30, 10, 7], atol=1.0)  # it looks up every s
    with read_journal(path) as view:
        cluster, real = past_cluster(view.meta), view.outcome()
    assert cluster is not None
    assert cluster.gpus.tolist() == [4, 4]
    again = simulate(cluster, trace, make_policy("fifo"))
    np.testing.assert_allclose(again.done_s, real.done_s, atol=5.0)
    assert simulate(cluster, trace, make_policy("srtf")).done_s.max() > 0


def test_what_was_measured_is_noted_when_a_job_has_ended(path: Path) -> None:
    backend = Meter([Task(0, 3, 2), Task(0, 5, 2), Task(1, 2, 1)])
    with Journal.create(path, meta=META) as journal:
        recorder = Recorder(journal, backend)
        for turn in rounds(Queue(), backend):
            recorder.write(turn)
        recorder.close(backend.now_s)  # which tells of the second, as no round does
    trace = past_jobs(path)
    assert trace.duration_s.tolist() == [10.0, 10.1, 2.0]
    assert trace.resize_s.tolist() == [0.5] * 3  # of the others as of the first
    assert np.isnan(trace.restart_s).all()


def test_a_journal_without_a_sound_cluster_has_none() -> None:
    for meta in ({}, {"cluster": None}, {"cluster": {"gpus": "x"}}, {"cluster": {"cards": [1]}}):
        assert past_cluster(meta) is None
    assert isinstance(past_cluster({"cluster": {"gpus": [1]}}), Cluster)


def test_of_several_clusters_a_journal_is_about_the_last() -> None:
    meta = {"cluster": {"gpus": [8]}, "cluster.2": {"gpus": [4, 4]}, "cluster.4": {"gpus": [1]}}
    found = past_cluster(meta)
    assert found is not None
    assert found.gpus.tolist() == [4, 4]
    assert count_clusters(meta) == 2
    assert past_cluster({**meta, "cluster.2": None}) is None
