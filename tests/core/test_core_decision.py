"""Decisions: what is wrong with them is said by name, and plans lead from here to there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rota.core import Cluster, Decision, Draft, Job, Move, Resize, Snapshot, Start, Stop, Tune
from rota.core.layout import SHARE
from rota.errors import ConfigError, DecisionError, OverfillError

JOBS = [
    Job(workers=2, max_workers=4, min_workers=1),
    Job(workers=3),
    Job(workers=1, gpu_type=1, cpus_per_worker=3.0),
    Job(workers=1),
]


@pytest.fixture
def snapshot() -> Snapshot:
    cluster = Cluster(
        gpus=np.array([4, 4]), names=("left", "right"), gpu_types=("a", "b"),
        type=np.array([0, 1]), cpus=np.array([8.0, 2.0]),
    )  # fmt: skip
    return Snapshot.of(cluster, JOBS, {0: [(0, 2)], 3: [(1, 1)]})


def decision_of(snapshot: Snapshot, *held: list[tuple[int, int, int]]) -> Decision:
    """A decision made by hand, past every draft."""
    length = np.array([len(share) for share in held])
    shares = np.array([entry for share in held for entry in share], SHARE)
    return Decision(snapshot.jobs.uid, length.cumsum() - length, length, shares)


@pytest.mark.parametrize(
    ("held", "error", "says"),
    [
        (([(0, 2, 0)], [(0, 3, 0)], [], []), OverfillError,
         r"Node 'left' has 4 GPUs but the decision uses 5 \(job 0 wants 2, job 1 wants 3\)"),
        (([], [], [(1, 1, 0)], []), OverfillError, r"'right' has 2 CPUs .*\(job 2 wants 3\)"),
        (([], [], [(0, 1, 0)], []), DecisionError,
         "Node 'left' has GPUs of type 'a', but job 2 runs on another type only"),
        (([], [(0, 2, 0)], [], []), DecisionError,
         "Job 1 runs with 3 to 3 workers; the decision gives it 2"),
        (([(0, 5, 0), (1, -1, 0)], [], [], []), DecisionError, "Job 0"),
        (([], [], [], [(0, 1, -1)]), DecisionError, "Job 3"),
        (([(2, 2, 0)], [], [], []), DecisionError, "There is no node 2: the cluster has 2 nodes"),
        (([(-1, 2, 0)], [(0, 3, 0)], [], []), DecisionError, "There is no node -1"),
    ],
)  # fmt: skip
def test_says_what_cannot_be_carried_out(
    snapshot: Snapshot, held: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        decision_of(snapshot, *held).check(snapshot)


def test_a_decision_about_other_jobs_is_refused(snapshot: Snapshot) -> None:
    fewer = decision_of(Snapshot.of(snapshot.cluster, JOBS[:2]), [], [])
    with pytest.raises(DecisionError, match="about other jobs"):
        fewer.check(snapshot)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"at": np.array([0, 0, 0, -1]), "length": np.array([0, 0, 0, 1])}, "Job 3 points at"),
        ({"at": np.full(4, 2), "length": np.array([0, 1, 0, 0])}, "outside the decision's 2"),
        ({"length": np.array([-1, 0, 0, 0])}, "Job 0 points at"),
        ({"length": np.zeros(3, np.int64)}, "4 × at and 3 × length for 4 jobs"),
        ({"tunes": {4: {"batch": 1.0}}}, "tunes name job 4, an index; there are 4 jobs"),
        ({"reasons": {-1: "why"}}, "reasons name job -1"),
    ],
)
def test_a_decision_that_points_nowhere_is_refused(
    snapshot: Snapshot, wrong: dict[str, Any], says: str
) -> None:
    sound = decision_of(snapshot, [(0, 2, 0)], [], [], [(1, 1, 0)])
    sound.check(snapshot)
    with pytest.raises(DecisionError, match=says):
        replace(sound, **wrong).check(snapshot)


def test_a_server_on_a_node_that_is_down_is_refused(snapshot: Snapshot) -> None:
    nodes = snapshot.nodes.copy()
    nodes["up"][0], nodes["free"][0] = False, 0
    dark = Snapshot(0.0, snapshot.cluster, snapshot.jobs, nodes, snapshot.shares)
    with pytest.raises(DecisionError):
        decision_of(dark, [], [], [], [(0, 0, 1), (1, 1, 0)]).check(dark)


def test_a_drafted_decision_is_checked_like_any_other(snapshot: Snapshot) -> None:
    # Compiled code edits a draft's arrays, and its books may be wrong.
    draft = Draft(snapshot)
    draft.reserve(1)
    draft.shares[draft.used] = (0, 3, 0)
    draft.at[1], draft.length[1] = draft.used, 1
    with pytest.raises(OverfillError, match="Node 'left' has 4 GPUs but the decision uses 5"):
        draft.commit().check(snapshot)


@pytest.mark.parametrize(
    ("held", "says"),
    [
        ([(0, 1, 0)], "Job 0 runs with 1 to 2 parameter servers; the decision gives it 0"),
        ([(0, 1, 2), (1, 0, 1)], "parameter servers; the decision gives it 3"),
        ([(0, 0, 1)], "Job 0 runs with 1 to 1 workers; the decision gives it 0"),
        ([(0, 0, 0)], "Job 0 runs with 1 to 1 workers; the decision gives it 0"),
    ],
)
def test_servers_are_counted_too(held: list[tuple[int, int, int]], says: str) -> None:
    job = Job(workers=1, servers=1, max_servers=2)
    snapshot = Snapshot.of(Cluster.uniform(2, 4), [job])
    with pytest.raises(DecisionError, match=says):
        decision_of(snapshot, held).check(snapshot)
    decision_of(snapshot, [(0, 1, 1), (1, 0, 1)]).check(snapshot)


def test_who_lingers_on_a_node_that_is_down_may_be_left_alone(snapshot: Snapshot) -> None:
    nodes = snapshot.nodes.copy()
    nodes["up"][0], nodes["free"][0] = False, 0
    dark = Snapshot(0.0, snapshot.cluster, snapshot.jobs, nodes, snapshot.shares)
    decision_of(dark, [(0, 2, 0)], [], [], [(1, 1, 0)]).check(dark)
    with pytest.raises(DecisionError, match="Node 'left' is down: job 0"):
        decision_of(dark, [(0, 1, 0)], [], [], [(1, 1, 0)]).check(dark)


def test_a_plan_stops_first_and_starts_last(snapshot: Snapshot) -> None:
    # 0 grows, 1 starts, 3 stops.
    plan = decision_of(snapshot, [(0, 4, 0)], [(1, 3, 0)], [], []).diff(snapshot)
    assert list(plan) == [Stop(3), Resize(0, ((0, 4, 0),)), Start(1, ((1, 3, 0),))]
    assert len(plan) == 3


def test_a_move_keeps_the_size_and_a_resize_does_not(snapshot: Snapshot) -> None:
    moved = decision_of(snapshot, [(1, 2, 0)], [], [], [(1, 1, 0)]).diff(snapshot)
    assert list(moved) == [Move(0, ((1, 2, 0),))]
    split = decision_of(snapshot, [(0, 1, 0), (1, 1, 0)], [], [], [(1, 1, 0)]).diff(snapshot)
    assert list(split) == [Move(0, ((0, 1, 0), (1, 1, 0)))]
    served = decision_of(snapshot, [(0, 2, 1)], [], [], [(1, 1, 0)]).diff(snapshot)
    assert list(served) == [Resize(0, ((0, 2, 1),))]


def test_tunes_are_part_of_the_plan(snapshot: Snapshot) -> None:
    draft = Draft(snapshot)
    draft.tune(3, batch=32)
    plan = draft.commit().diff(snapshot)
    assert (len(plan), list(plan)) == (1, [Tune(3, {"batch": 32})])


def test_nothing_to_decide_about() -> None:
    empty = Snapshot.of(Cluster.uniform(1), [])
    decision = Draft(empty).commit()
    decision.check(empty)
    assert len(decision.diff(empty)) == 0


def test_a_snapshot_cannot_be_written_to(snapshot: Snapshot) -> None:
    for array in (snapshot.jobs.rows, snapshot.nodes, snapshot.shares):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[0]
    with pytest.raises(ValueError, match="read-only"):
        snapshot.jobs.remaining_s[0] = 1


def test_a_snapshot_made_by_hand_adds_up(snapshot: Snapshot) -> None:
    assert snapshot.jobs.running.tolist() == [True, False, False, True]
    assert snapshot.nodes["free"].tolist() == [2, 3]
    assert snapshot.share(0) == [(0, 2, 0)]
    assert snapshot.jobs.pace[0] == 1.0


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"gpus": np.zeros(0, np.int64)}, "at least one node"),
        ({"gpus": np.array([1]), "names": ("a", "b")}, "one distinct name per node"),
        ({"gpus": np.array([1, 1]), "names": ("a", "a")}, "one distinct name per node"),
        ({"gpus": np.array([-1])}, "Node 'node-0' has gpus=-1"),
        ({"gpus": np.array([65_537])}, "at most 65536"),
        ({"gpus": np.array([1]), "cpus": np.array([1.0, 2.0])}, "2 entries for 1 nodes"),
        ({"gpus": np.array([1]), "cpus": np.array([np.nan])}, "cpus=nan"),
        ({"gpus": np.array([1]), "type": np.array([1])}, "must index gpu_types"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(columns: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Cluster(**columns)


def test_a_cluster_leaves_the_callers_arrays_alone() -> None:
    gpus, rack = np.array([4, 4]), np.array([0, 1])
    Cluster(gpus=gpus, rack=rack)
    gpus[0] = rack[0] = 1
