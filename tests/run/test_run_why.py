"""Why a job waits: snapshots and decisions made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rota.core import Cluster, Draft, Job, JobTable, Snapshot
from rota.run.wait_reason import name_jobs
from rota.run.why import stopped_for, too_large, why_waiting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.core import Decision
    from rota.run.wait_reason import WaitReason

TWO = Cluster.uniform(2, 4)


def scene(
    jobs: Sequence[Job], held: Mapping[int, Sequence[tuple[int, ...]]], cluster: Cluster = TWO
) -> Snapshot:
    """Jobs with the uids 10, 11, …: a uid is never an index."""
    made = Snapshot.of(cluster, jobs, held)
    rows = made.jobs.rows.copy()
    rows["uid"] += 10
    return replace(made, jobs=JobTable(rows))


def same(snapshot: Snapshot) -> Decision:
    return Draft(snapshot).commit()


def reason(
    job: Job, held: Mapping[Job, Sequence[tuple[int, ...]]], cluster: Cluster = TWO, **more: Any
) -> WaitReason:
    """Why `job`, submitted last, waits beside others that run."""
    snapshot = scene([*held, job], dict(enumerate(held.values())), cluster)
    found = why_waiting(snapshot, same(snapshot), "srtf", **more)
    assert list(found) == [10 + len(held)]
    return found[10 + len(held)]


@pytest.mark.parametrize(
    ("job", "text"),
    [
        (Job(workers=9), "it asks for 9 workers with 1 GPU each; 2 nodes × 4 GPUs have room for 8"),
        (Job(workers=3, gpus_per_worker=3),
         "it asks for 3 workers with 3 GPUs each; 2 nodes × 4 GPUs have room for 2"),
        (Job(workers=1, gpus_per_worker=5),
         "each worker asks for 5 GPUs; the largest node has 4"),
        (Job(workers=1, cpus_per_worker=65),
         "each worker asks for 65 CPUs; the largest node has 64"),
        (Job(workers=1, memory_gb_per_worker=1e9),
         "each worker asks for 1e+09 GB of memory; the largest node has 256"),
        (Job(workers=1, gpu_type=-2), "no node has GPUs of the type that it asks for"),
        (Job(workers=2, servers=3, cpus_per_worker=40, cpus_per_server=20),
         "its workers and parameter servers together need more CPUs or memory than there are"),
    ],
)  # fmt: skip
def test_a_job_that_never_fits_says_what_and_how_much(job: Job, text: str) -> None:
    cluster = Cluster.uniform(2, 4, cpus=64, memory_gb=256)
    found = reason(job, {}, cluster)
    assert (found.tier, found.text) == ("never", f"never fits: {text}")
    assert "ask for less" in found.next
    assert too_large(cluster, JobTable.of([job]).rows[0], job.workers) == text


def test_a_job_that_could_run_smaller_is_not_too_large() -> None:
    job = Job(workers=9, min_workers=1, max_workers=9)
    assert reason(job, {}).tier == "full"
    assert too_large(TWO, JobTable.of([job]).rows[0], 1) == ""


def test_a_full_cluster_names_who_holds_it_the_largest_first() -> None:
    held = {Job(workers=2, user=1): [(0, 2)], Job(workers=4): [(1, 4)], Job(workers=1): [(0, 1)]}
    found = reason(Job(workers=2), held)
    assert found.tier == "full"
    assert found.text == (
        "needs 2 GPUs; 1 of 8 GPUs is free; job 11 holds 4, job 10 holds 2, job 12 holds 1"
    )
    assert found.holders == ((11, 4), (10, 2), (12, 1))
    assert found.unit == "GPUs"


def test_of_many_holders_a_few_are_named_and_all_are_listed() -> None:
    held = {Job(workers=1, user=k): [(k // 4, 1)] for k in range(8)}
    found = reason(Job(workers=1), held)
    assert found.text.endswith("job 13 holds 1 and 4 jobs 4 more")
    assert len(found.holders) == 8


def test_free_gpus_on_different_nodes_are_not_room_for_a_large_worker() -> None:
    held = {Job(workers=2, user=1): [(0, 2)], Job(workers=2): [(1, 2)]}
    found = reason(Job(workers=1, gpus_per_worker=4), held)
    assert found.text.startswith(
        "needs 1 worker with 4 GPUs; 4 of 8 GPUs are free, but on different nodes: there is room "
        "for 0 workers; job 10 holds 2"
    )


def test_cpus_may_be_what_is_missing() -> None:
    cluster = Cluster.uniform(1, 4, cpus=8)
    found = reason(Job(workers=2, cpus_per_worker=2), {Job(workers=1, cpus_per_worker=5): [(0, 1)]},
                   cluster)  # fmt: skip
    assert found.text == "needs 2 workers with 2 CPUs each; 3 of 8 CPUs are free; job 10 holds 5"
    assert found.unit == "CPUs"


def test_cpus_here_and_gpus_there_are_no_room() -> None:
    cluster = replace(Cluster.uniform(2, 4), cpus=np.array([8.0, 8.0]))
    held = {Job(workers=4, user=1): [(0, 4)], Job(workers=1, cpus_per_worker=8): [(1, 1)]}
    found = reason(Job(workers=1, cpus_per_worker=2), held, cluster)
    assert "nodes with all of that free have room for 0" in found.text


def test_a_job_without_gpus_is_never_kept_waiting_by_them() -> None:
    full = {Job(workers=8): [(0, 4), (1, 4)]}
    assert reason(Job(workers=2, gpus_per_worker=0), full).tier == "passed"


def test_nodes_that_are_down_are_no_room_and_named() -> None:
    snapshot = scene([Job(workers=8)], {})
    nodes = snapshot.nodes.copy()
    nodes["up"][0], nodes["free"][0] = False, 0
    snapshot = replace(snapshot, nodes=nodes)
    found = why_waiting(snapshot, same(snapshot), "fifo")[10]
    assert found.text == "needs 8 GPUs; 4 of 4 GPUs are free; 1 node is down"


def test_room_is_what_the_decision_leaves_not_what_was_free_before() -> None:
    snapshot = scene([Job(workers=8), Job(workers=8)], {})
    draft = Draft(snapshot)
    draft.place(0, [(0, 4), (1, 4)])
    found = why_waiting(snapshot, draft.commit(), "fifo")
    assert list(found) == [11]
    assert found[11].holders == ((10, 8),)


def test_a_job_that_fits_was_passed_over_by_the_policy() -> None:
    snapshot = scene([Job(workers=8), Job(workers=1), Job(workers=1)], {})
    found = why_waiting(snapshot, same(snapshot), "fifo", first_come=True)
    assert [one.tier for one in found.values()] == ["passed"] * 3
    assert found[10].text == "it fits, but policy fifo did not start it"
    assert found[12].text == "it fits, but policy fifo did not start it: job 10 is ahead of it"
    assert (found[10].ahead, found[11].ahead) == (None, 10)
    assert why_waiting(snapshot, same(snapshot), "srtf")[12].ahead is None


def test_what_the_policy_says_of_a_job_is_passed_on() -> None:
    snapshot = scene([Job(workers=1)], {})
    draft = Draft(snapshot)
    draft.reason(0, "its user has had enough")
    found = why_waiting(snapshot, draft.commit(), "mine")[10]
    assert found.text.endswith("policy mine did not start it: its user has had enough")


def test_an_elastic_job_for_which_a_part_would_do_says_so() -> None:
    found = reason(Job(workers=4, min_workers=1, max_workers=4), {Job(workers=6): [(0, 4), (1, 2)]})
    assert found.text == (
        "needs 4 GPUs; 2 of 8 GPUs are free; job 10 holds 6; policy srtf did not start it with "
        "fewer"
    )
    least = reason(Job(workers=4, min_workers=3, max_workers=4), {Job(workers=6): [(0, 4), (1, 2)]})
    assert least.text.startswith("needs 3 GPUs; 2 of 8 GPUs are free")


def test_a_round_in_which_no_policy_decided() -> None:
    snapshot = scene([Job(workers=1), Job(workers=9)], {})
    found = why_waiting(snapshot, same(snapshot), "")
    assert (found[10].tier, found[11].tier) == ("undecided", "never")


def test_no_jobs_no_reasons() -> None:
    snapshot = scene([], {})
    assert why_waiting(snapshot, same(snapshot), "fifo", first_come=True) == {}


def test_a_stopped_job_knows_for_which_jobs() -> None:
    snapshot = scene(
        [Job(workers=4, user=1), Job(workers=4), Job(workers=2)], {0: [(0, 4)], 1: [(1, 4)]}
    )
    draft = Draft(snapshot)
    draft.stop(0)
    draft.place(2, [(0, 2)])
    draft.stop(1)
    plan = draft.commit().diff(snapshot)
    assert stopped_for(plan, {10: [0], 11: [1]}) == {10: (12,), 11: ()}
    assert stopped_for(plan, {}) == {10: (), 11: ()}


def test_jobs_in_a_sentence() -> None:
    assert name_jobs([3]) == "job 3"
    assert name_jobs([3, 5]) == "jobs 3 and 5"
    assert name_jobs(range(1, 7)) == "jobs 1, 2, 3, 4 and 2 more"


def test_a_job_that_fits_on_no_single_node_is_said_to_fit_on_several() -> None:
    held = {Job(workers=2, user=1): [(0, 2)], Job(workers=2): [(1, 2)]}
    assert reason(Job(workers=3), held).text == (
        "it fits on several nodes together, but on no single one, and policy srtf did not start it"
    )
    assert reason(Job(workers=2), held).text == "it fits, but policy srtf did not start it"
