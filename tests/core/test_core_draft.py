"""Drafts: they refuse to overfill, say why, and their books always balance."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import examples

from rota.core import Cluster, Draft, Job, Snapshot
from rota.errors import DecisionError, OverfillError


def two_nodes(**columns: Any) -> Cluster:
    return Cluster(
        gpus=np.array([4, 8]), names=("small", "large"), gpu_types=("a", "b"),
        type=np.array([0, 1]), cpus=np.array([16.0, 32.0]), memory_gb=np.array([64.0, 128.0]),
        **columns,
    )  # fmt: skip


def test_servers_go_evenly_beside_the_workers_unless_told_otherwise() -> None:
    gang = Job(workers=3, servers=2, min_servers=0)
    draft = Draft(Snapshot.of(Cluster.uniform(2, 2), [gang]))
    draft.place(0, [(1, 1), (0, 2)])
    assert draft.held(0) == [(0, 2, 1), (1, 1, 1)]
    draft.place(0, [(0, 2), (1, 1)], servers=())
    assert draft.held(0) == [(0, 2, 0), (1, 1, 0)]
    draft.place(0, [(0, 2), (1, 1)], servers=[(1, 2)])
    assert draft.held(0) == [(0, 2, 0), (1, 1, 2)]


def test_begins_with_what_is_held() -> None:
    snapshot = Snapshot.of(two_nodes(), [Job(workers=2), Job(workers=3)], {1: [(0, 1), (1, 2)]})
    draft = Draft(snapshot)
    assert (draft.held(0), draft.held(1)) == ([], [(0, 1, 0), (1, 2, 0)])
    assert (draft.free(0), draft.free(1)) == (3, 6)
    assert len(draft.commit().diff(snapshot)) == 0


def test_a_blank_draft_begins_with_nothing() -> None:
    snapshot = Snapshot.of(two_nodes(), [Job(workers=2)], {0: [(0, 2)]})
    draft = Draft(snapshot, blank=True)
    assert (draft.held(0), draft.free(0)) == ([], 4)
    assert [type(action).__name__ for action in draft.commit().diff(snapshot)] == ["Stop"]


def test_the_same_place_again_is_no_change() -> None:
    snapshot = Snapshot.of(two_nodes(), [Job(workers=2), Job(workers=1)], {0: [(0, 2)]})
    for blank in (True, False):
        draft = Draft(snapshot, blank=blank)
        draft.place(0, [(0, 2)])
        assert len(draft.commit().diff(snapshot)) == 0


def test_workers_on_one_node_are_added_up_and_ordered_by_node() -> None:
    draft = Draft(Snapshot.of(two_nodes(), [Job(workers=4, servers=2)]))
    draft.place(0, [(1, 1), (0, 2), (1, 1)], servers=[(1, 2)])
    assert draft.held(0) == [(0, 2, 0), (1, 2, 2)]


def test_an_overfilled_node_is_named_with_its_users() -> None:
    cluster, jobs = two_nodes(), [Job(workers=3), Job(workers=2)]
    draft = Draft(Snapshot.of(cluster, jobs, {0: [(0, 3)]}))
    said = "Node 'small' has 4 GPUs but the decision uses 5 (job 0 wants 3, job 1 wants 2)."
    with pytest.raises(OverfillError, match=re.escape(said)):
        draft.place(1, [(0, 2)])
    assert (draft.held(1), draft.free(0)) == ([], 1)


@pytest.mark.parametrize(
    ("job", "share", "says"),
    [
        (Job(workers=2, cpus_per_worker=10), [(0, 2)], r"'small' has 16 CPUs .*\(job 0 wants 20\)"),
        (Job(workers=2, memory_gb_per_worker=40), [(0, 2)], "Node 'small' has 64 GB of memory"),
        (Job(workers=1, gpu_type=0), [(1, 1)], "'large' has no GPUs of the type job 0 runs on"),
        (Job(workers=1), [(2, 1)], "There is no node 2: the cluster has 2 nodes"),
        (Job(workers=1), [(-1, 1)], "There is no node -1"),
        (Job(workers=2), [(0, 1)], "Job 0 runs with 2 to 2 workers"),
        (Job(workers=2, min_workers=1), [(0, 3)], "Job 0 runs with 1 to 2 workers"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_and_nothing_changes(
    job: Job, share: list[tuple[int, int]], says: str
) -> None:
    draft = Draft(Snapshot.of(two_nodes(), [job]))
    with pytest.raises(DecisionError, match=says):
        draft.place(0, share)
    assert (draft.held(0), draft.free(0), draft.free(1)) == ([], 4, 8)
    assert draft.nodes["free_cpus"].tolist() == [16, 32]


def test_a_refused_change_leaves_the_job_where_it_was() -> None:
    jobs = [Job(workers=2, max_workers=8, cpus_per_worker=1), Job(workers=2)]
    draft = Draft(Snapshot.of(two_nodes(), jobs, {0: [(0, 2)], 1: [(0, 2)]}))
    with pytest.raises(OverfillError):
        draft.place(0, [(1, 2), (0, 3)])
    assert (draft.held(0), draft.free(0), draft.free(1)) == ([(0, 2, 0)], 0, 8)
    assert draft.nodes["free_cpus"].tolist() == [14, 32]


def test_grow_and_shrink() -> None:
    draft = Draft(Snapshot.of(two_nodes(), [Job(workers=2, min_workers=1, max_workers=4)]))
    draft.grow(0, 1, 2)
    draft.grow(0, 0)
    assert draft.held(0) == [(0, 1, 0), (1, 2, 0)]
    draft.shrink(0, 1, 2)
    assert draft.held(0) == [(0, 1, 0)]
    with pytest.raises(DecisionError, match="cannot take 1 and 0 away"):
        draft.shrink(0, 1)
    with pytest.raises(DecisionError, match="Job 0 runs with 1 to 4 workers"):
        draft.grow(0, 1, 4)


@pytest.mark.parametrize("edit", ["grow", "shrink"])
def test_a_node_that_does_not_exist_is_refused(edit: str) -> None:
    draft = Draft(Snapshot.of(two_nodes(), [Job(workers=2, max_workers=4)], {0: [(1, 2)]}))
    with pytest.raises(DecisionError, match="There is no node 2"):
        getattr(draft, edit)(0, 2)


def test_shrinking_below_the_least_is_refused_at_the_latest_on_commit() -> None:
    draft = Draft(Snapshot.of(two_nodes(), [Job(workers=4, min_workers=2)], {0: [(1, 4)]}))
    draft.shrink(0, 1, 2)
    draft.shrink(0, 1, 1)
    with pytest.raises(DecisionError, match="Job 0 runs with 2 to 4 workers"):
        draft.commit()


@pytest.mark.parametrize("edit", ["grow", "shrink"])
def test_a_negative_change_is_refused(edit: str) -> None:
    # Growing by -1 must not undercut min_workers, nor shrinking by -2 exceed max_workers.
    draft = Draft(Snapshot.of(two_nodes(), [Job(workers=2)], {0: [(1, 2)]}))
    with pytest.raises(DecisionError):  # noqa: PT012
        getattr(draft, edit)(0, 1, -2)
        draft.commit()


def down(snapshot: Snapshot, node: int) -> Snapshot:
    nodes = snapshot.nodes.copy()
    nodes["up"][node], nodes["free"][node] = False, 0
    return replace(snapshot, nodes=nodes)


def test_a_node_that_is_down_takes_nobody() -> None:
    snapshot = down(Snapshot.of(two_nodes(), [Job(workers=1)]), 1)
    with pytest.raises(DecisionError, match="Node 'large' is down: job 0 cannot be placed there"):
        Draft(snapshot).place(0, [(1, 1)])


def test_a_node_that_is_down_takes_no_server() -> None:
    snapshot = down(Snapshot.of(two_nodes(), [Job(workers=1, servers=1)]), 1)
    draft = Draft(snapshot)
    with pytest.raises(DecisionError, match="Node 'large' is down"):
        draft.place(0, [(0, 1)], servers=[(1, 1)])


def test_what_lingers_on_a_node_that_is_down_frees_nothing() -> None:
    jobs = [Job(workers=1), Job(workers=1)]
    draft = Draft(down(Snapshot.of(two_nodes(), jobs, {0: [(1, 1)]}), 1))
    draft.stop(0)
    assert draft.free(1) == 0


def test_a_node_that_is_down_takes_no_worker_without_gpus() -> None:
    snapshot = down(Snapshot.of(two_nodes(), [Job(workers=1, gpus_per_worker=0)]), 1)
    with pytest.raises(DecisionError, match="Node 'large' is down"):
        Draft(snapshot).place(0, [(1, 1)])


def test_a_refused_place_for_a_job_on_a_node_that_went_down_changes_nothing() -> None:
    # Job 0 lingers on the large node, which is down. The small node cannot take it, and is named.
    jobs = [Job(workers=2, cpus_per_worker=4, min_workers=1), Job(workers=3, cpus_per_worker=4)]
    draft = Draft(down(Snapshot.of(two_nodes(), jobs, {0: [(1, 2)], 1: [(0, 3)]}), 1))
    before = draft.nodes.tolist()
    with pytest.raises(OverfillError, match="Node 'small' has 4 GPUs"):
        draft.place(0, [(0, 2)])
    assert (draft.held(0), draft.nodes.tolist()) == ([(1, 2, 0)], before)
    draft.place(0, [(0, 1)])
    assert draft.nodes["free_cpus"].tolist() == [0, 32]


# -- servers -----------------------------------------------------------------------------

SERVED = Job(workers=2, min_workers=1, servers=2, min_servers=1, max_servers=3)


@pytest.mark.parametrize("servers", [[], [(0, 4)], [(0, 2), (1, 2)]])
def test_a_number_of_servers_that_the_job_does_not_run_with_is_refused(
    servers: list[tuple[int, int]],
) -> None:
    draft = Draft(Snapshot.of(two_nodes(), [SERVED]))
    with pytest.raises(DecisionError, match="Job 0 runs with 1 to 3 parameter servers"):
        draft.place(0, [(1, 2)], servers)
    assert (draft.held(0), draft.free(1)) == ([], 8)


def test_servers_are_nothing_without_workers() -> None:
    loose = Job(workers=2, min_workers=0, servers=1)
    draft = Draft(Snapshot.of(two_nodes(), [loose], {0: [(1, 2, 1)]}))
    with pytest.raises(DecisionError, match="the decision gives it 0"):
        draft.place(0, [], [(1, 1)])
    draft.shrink(0, 1, 2)
    with pytest.raises(DecisionError, match="the decision gives it 0"):
        draft.commit()


def test_growing_and_shrinking_keep_the_servers_within_their_limits() -> None:
    snapshot = Snapshot.of(two_nodes(), [SERVED], {0: [(1, 2, 2)]})
    draft = Draft(snapshot)
    draft.grow(0, 0, 0, 1)
    with pytest.raises(DecisionError, match="the decision gives it 4"):
        draft.grow(0, 0, 0, 1)
    draft.shrink(0, 1, 0, 2)
    assert draft.held(0) == [(0, 0, 1), (1, 2, 0)]
    draft.shrink(0, 0, 0, 1)
    with pytest.raises(DecisionError, match="the decision gives it 0"):
        draft.commit()


def test_who_runs_without_its_servers_may_go_on_so() -> None:
    # A backend may show such a job; a policy that leaves it alone is not to blame.
    snapshot = Snapshot.of(two_nodes(), [SERVED, Job(workers=1)], {0: [(1, 2)]})
    draft = Draft(snapshot)
    draft.place(1, [(0, 1)])
    draft.commit().check(snapshot)


# -- what has been decided stays so ------------------------------------------------------


@pytest.mark.parametrize(
    "edit",
    [
        lambda draft: draft.place(1, [(0, 1)]),
        lambda draft: draft.grow(0, 0),
        lambda draft: draft.shrink(0, 1),
        lambda draft: draft.stop(0),
        lambda draft: draft.tune(0, batch=1),
        lambda draft: draft.reason(0, "second thoughts"),
        lambda draft: draft.reserve(1000),
    ],
)
def test_a_committed_draft_refuses_edits(edit: Any) -> None:
    jobs = [Job(workers=2, min_workers=1, max_workers=4), Job(workers=1)]
    snapshot = Snapshot.of(two_nodes(), jobs, {0: [(1, 2)]})
    draft = Draft(snapshot)
    draft.tune(0, batch=7)
    decision = draft.commit()
    before = decision.share(0), decision.share(1), dict(decision.tunes), dict(decision.reasons)
    with pytest.raises(DecisionError, match="has been committed"):
        edit(draft)
    with pytest.raises(ValueError, match="read-only"):
        draft.length[0] = 0
    after = decision.share(0), decision.share(1), dict(decision.tunes), dict(decision.reasons)
    assert after == before


def test_reasons_and_tunes_are_kept() -> None:
    draft = Draft(Snapshot.of(two_nodes(), [Job(workers=1), Job(workers=1)]))
    draft.reason(1, "short")
    draft.tune(0, batch=64)
    draft.tune(0, rate=0.1)
    decision = draft.commit(wake_s=7)
    assert (decision.reasons, decision.tunes) == ({1: "short"}, {0: {"batch": 64, "rate": 0.1}})
    assert decision.wake_s == 7


# -- random edits ------------------------------------------------------------------------

numbers = st.integers(-1, 5)
edits = st.lists(
    st.tuples(
        st.sampled_from(["place", "grow", "shrink", "stop"]),
        st.integers(0, 3),
        st.lists(st.tuples(numbers, numbers), min_size=1, max_size=3),
        st.lists(st.tuples(numbers, numbers), max_size=2),
    ),
    max_size=25,
)
wishes = st.builds(
    Job,
    workers=st.just(2),
    min_workers=st.integers(1, 2),
    max_workers=st.integers(2, 4),
    gpus_per_worker=st.sampled_from([1, 1, 2]),
    gpu_type=st.sampled_from([-1, -1, 0, 1]),
    cpus_per_worker=st.sampled_from([0.0, 2.5]),
    memory_gb_per_worker=st.sampled_from([0.0, 0.1]),
    cpus_per_server=st.sampled_from([0.0, 1.5]),
    servers=st.just(0),
    max_servers=st.sampled_from([0, 10]),
)
grid = Cluster(
    gpus=np.array([4, 2, 8, 1]), gpu_types=("a", "b"), type=np.array([0, 0, 1, 1]),
    cpus=np.array([8.0, 4.0, 6.0, np.inf]), memory_gb=np.full(4, 0.6),
)  # fmt: skip


@examples(200)
@given(st.lists(wishes, min_size=4, max_size=4), edits, st.booleans())
def test_books_balance_after_any_edits(jobs: list[Job], steps: list[Any], blank: bool) -> None:
    snapshot = Snapshot.of(grid, jobs, {0: [(2, 2)]} if jobs[0].gpu_type != 0 else {})
    draft, refusals = Draft(snapshot, blank=blank), []
    for edit, job, share, servers in steps:
        before = [draft.held(j) for j in range(4)], draft.nodes.tolist()
        try:
            if edit == "place":
                draft.place(job, share, servers)
            elif edit == "stop":
                draft.stop(job)
            else:
                node, workers = share[0]
                more = abs(servers[0][1]) if servers else 0
                getattr(draft, edit)(job, node % 4, abs(workers), more)
        except DecisionError as error:
            held, nodes = before
            assert [draft.held(j) for j in range(4)] == held
            np.testing.assert_allclose(
                np.array([node[5:] for node in draft.nodes.tolist()]),
                np.array([node[5:] for node in nodes]),
                atol=1e-6,
            )
            refusals.append((job, str(error)))
        used = np.zeros((3, 4))
        for j, wish in enumerate(jobs):
            for node, workers, count in draft.held(j):
                assert workers >= 0
                assert count >= 0
                used[0, node] += workers * wish.gpus_per_worker
                used[1, node] += workers * wish.cpus_per_worker + count * wish.cpus_per_server
                used[2, node] += workers * wish.memory_gb_per_worker
        np.testing.assert_array_equal(draft.nodes["free"], grid.gpus - used[0])
        assert (draft.nodes["free"] >= 0).all()
        assert (used[1] <= grid.cpus + 1e-6).all()
        assert (used[2] <= grid.memory_gb + 1e-6).all()
    for job, said in refusals:
        assert f"job {job}" in said.lower() or "There is no node" in said
    try:
        decision = draft.commit()
    except DecisionError:
        return
    replace(decision, drafted=None).check(snapshot)
    # The shortcut that a draft allows itself finds the same plan as looking at everything.
    plain = replace(decision, drafted=None, untouched=None).diff(snapshot)
    assert list(decision.diff(snapshot)) == list(plain)
