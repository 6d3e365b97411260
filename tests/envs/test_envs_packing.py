"""Where tasks go: never too many on a node, and what the nodes have together can be used."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from worlds import examples

from rota.core import Cluster, Draft, Job, Snapshot
from rota.envs.pack_kernels import pack_once
from rota.ledger.draft_kernels import DraftArrays
from rota.ledger.node_kernels import new_index

Wants = list[tuple[int, int]]


def packed(snapshot: Snapshot, wants: Wants) -> list[tuple[tuple[int, int, int], ...]]:
    """What every job is to hold if it wants so many workers and servers; checked."""
    draft, nodes = Draft(snapshot), len(snapshot.nodes)
    draft.reserve(4 * sum(w + s for w, s in wants))
    scratch = np.zeros(nodes, np.int64)
    level = new_index(draft.nodes)
    desk = DraftArrays(draft.nodes, level, draft.at, draft.length, draft.shares, scratch, scratch)
    workers, servers = np.array(wants, np.int64).reshape(-1, 2).T.copy()
    rows, order = snapshot.jobs.rows.copy(), np.arange(len(wants))
    draft.used = pack_once(
        desk, rows, order, len(wants), snapshot.time_s, workers, servers, draft.used
    )
    decision = draft.commit()
    object.__setattr__(decision, "drafted", None)  # trust nothing
    decision.check(snapshot)
    np.testing.assert_array_equal(level, new_index(draft.nodes))
    return [decision.share(job) for job in range(len(wants))]


def sizes(held: list[tuple[tuple[int, int, int], ...]]) -> Wants:
    return [(sum(w for _, w, _ in share), sum(s for _, _, s in share)) for share in held]


def dl2_job(on_gpu: bool, **more: Any) -> Job:
    return Job(
        workers=1, min_workers=1, max_workers=16, servers=1, min_servers=1, max_servers=16,
        gpus_per_worker=int(on_gpu), cpus_per_worker=2, cpus_per_server=2, **more,
    )  # fmt: skip


counts = st.tuples(st.integers(0, 16), st.integers(0, 16))


@examples(60)
@given(st.lists(st.tuples(st.booleans(), counts, counts), min_size=1, max_size=12))
def test_dl2_tasks_get_all_that_the_nodes_have_together(
    jobs: list[tuple[bool, tuple[int, int], tuple[int, int]]],
) -> None:
    # Eight CPUs and two GPUs per node; tasks of two CPUs, workers of one GPU: always packable.
    cluster = Cluster.uniform(12, 2, cpus=8)
    snapshot = Snapshot.of(cluster, [dl2_job(on_gpu) for on_gpu, _, _ in jobs])
    for turn in (1, 2):  # the second time from what the first one left
        gpus, cpus, wants = 24, 96, []
        for job in jobs:
            w, s = job[turn]
            fits = w > 0 and s > 0 and 2 * (w + s) <= cpus and (w if job[0] else 0) <= gpus
            wants.append((w, s) if fits else (0, 0))
            if fits:
                cpus, gpus = cpus - 2 * (w + s), gpus - (w if job[0] else 0)
        held = packed(snapshot, wants)
        assert sizes(held) == wants
        snapshot = holding(snapshot, held)


def holding(snapshot: Snapshot, held: list[tuple[tuple[int, int, int], ...]]) -> Snapshot:
    """The same cluster once everybody holds this."""
    rows, nodes = snapshot.jobs.rows.copy(), snapshot.cluster.empty()
    entries: list[tuple[int, int, int]] = []
    for row, share in zip(rows, held, strict=True):
        row["status"], row["share_at"], row["share_len"] = bool(share), len(entries), len(share)
        row["held_workers"] = sum(w for _, w, _ in share)
        row["held_servers"] = sum(s for _, _, s in share)
        for n, w, s in share:
            nodes[n]["free"] -= w * row["gpus_per_worker"]
            nodes[n]["free_cpus"] -= w * row["cpus_per_worker"] + s * row["cpus_per_server"]
            nodes[n]["free_memory_gb"] -= w * row["memory_gb_per_worker"]
        entries += share
    shares = np.array(entries, snapshot.shares.dtype)
    return Snapshot(snapshot.time_s, snapshot.cluster, type(snapshot.jobs)(rows), nodes, shares)


odd_jobs = st.builds(
    Job,
    workers=st.just(2), min_workers=st.integers(1, 2), max_workers=st.integers(2, 6),
    servers=st.just(1), min_servers=st.integers(0, 1), max_servers=st.integers(1, 4),
    gpus_per_worker=st.integers(0, 2), cpus_per_worker=st.sampled_from([0.0, 1.0, 2.5]),
    memory_gb_per_worker=st.sampled_from([0.0, 7.0]), cpus_per_server=st.sampled_from([0.0, 1.5]),
    gpu_type=st.sampled_from([-1, 0, 1]),
)  # fmt: skip


@examples(100)
@given(st.lists(st.tuples(odd_jobs, counts, counts), min_size=1, max_size=8), st.integers(0, 4))
def test_no_node_is_overfilled_and_nobody_runs_with_less_than_he_must_have(
    jobs: list[tuple[Job, tuple[int, int], tuple[int, int]]], down: int
) -> None:
    cluster = Cluster(
        gpus=np.array([4, 2, 2, 1]), cpus=np.array([8.0, 4.0, 16.0, 2.0]),
        memory_gb=np.array([16.0, 32.0, 8.0, 64.0]), gpu_types=("a", "b"),
        type=np.array([0, 0, 1, 1]),
    )  # fmt: skip
    snapshot = Snapshot.of(cluster, [job for job, _, _ in jobs])
    if down < 4:
        nodes = snapshot.nodes.copy()
        nodes["up"][down], nodes["free"][down] = False, 0
        snapshot = Snapshot(0.0, cluster, snapshot.jobs, nodes, snapshot.shares)
    held: list[tuple[tuple[int, int, int], ...]] = []
    for turn in (1, 2):
        wants = [job[turn] for job in jobs]
        held = packed(snapshot, wants)
        for (job, *_), (w, s), (has_w, has_s) in zip(jobs, wants, sizes(held), strict=True):
            assert has_w <= w
            assert has_s <= s
            if has_w + has_s:
                assert has_w >= (job.min_workers or 1)
                assert has_s >= (job.min_servers or 0)
        if down == 4:
            snapshot = holding(snapshot, held)
    if down == 4:  # a job that wants what it has stays where it is
        assert packed(snapshot, sizes(held)) == held


def test_growing_by_a_server_moves_nobody() -> None:
    cluster = Cluster.uniform(4, 2, cpus=8)
    snapshot = Snapshot.of(cluster, [dl2_job(True), dl2_job(True)])
    before = packed(snapshot, [(2, 3), (1, 4)])
    after = packed(holding(snapshot, before), [(2, 4), (1, 4)])
    assert after[1] == before[1]
    assert {n for n, w, _ in after[0] if w} == {n for n, w, _ in before[0] if w}


def test_a_job_within_its_minimum_run_time_keeps_what_it_has() -> None:
    cluster = Cluster.uniform(2, 2, cpus=8)
    jobs = [dl2_job(True, min_run_s=100.0), dl2_job(True)]
    snapshot = Snapshot.of(cluster, jobs, {0: [(1, 1)]})
    held = packed(snapshot, [(0, 0), (2, 2)])
    assert held[0] == ((1, 1, 0),)
    assert sizes(held)[1] == (2, 2)
