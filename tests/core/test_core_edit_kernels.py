"""Compiled edits of a draft against `Draft`, edit by edit."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from worlds import examples

from rota.core import Cluster, Draft, Job, Snapshot
from rota.core.layout import SHARE
from rota.errors import DecisionError
from rota.jit import kernel
from rota.ledger.draft_kernels import DraftArrays
from rota.ledger.edit_kernels import REFUSED, grow, place, release, shrink
from rota.ledger.node_kernels import build, new_index

PLACE, GROW, SHRINK, STOP = range(4)


@kernel
def edit(
    d: DraftArrays, jobs: Any, kind: int, j: int, wanted: Any, n: int, workers: int, servers: int,
    spare: Any, used: int,
) -> int:  # fmt: skip
    if kind == PLACE:
        return place(d, jobs[j], j, wanted, wanted.size, used)
    if kind == GROW:
        return grow(d, jobs[j], j, n, workers, servers, spare, used)
    if kind == SHRINK:
        return shrink(d, jobs[j], j, n, workers, servers, spare, used)
    release(d, jobs[j], j)
    return used


@kernel
def indexed(nodes: Any, level: Any) -> None:
    build(nodes, level)


def arrays_of(draft: Draft) -> DraftArrays:
    scratch = np.zeros(len(draft.nodes), np.int64)
    shares = np.concatenate([draft.shares[: draft.used], np.zeros(4096, SHARE)])
    nodes = draft.nodes.copy()
    return DraftArrays(
        nodes, new_index(nodes), draft.at.copy(), draft.length.copy(), shares, scratch, scratch
    )


def job(size: int, fewest: int, most: int, servers: int, cpus: int, kind: int) -> Job:
    return Job(
        workers=size, min_workers=min(size, fewest), max_workers=max(size, most), servers=servers,
        min_servers=min(1, servers), max_servers=servers + 1, cpus_per_worker=float(cpus),
        cpus_per_server=0.5, gpu_type=kind - 1,
    )  # fmt: skip


JOBS = st.lists(
    st.builds(job, st.integers(1, 4), st.integers(1, 3), st.integers(1, 6), st.integers(0, 2),
              st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=5,
)  # fmt: skip
SHARES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=3
)
EDITS = st.lists(
    st.tuples(st.integers(PLACE, STOP), st.integers(0, 4), SHARES, st.integers(0, 2),
              st.integers(0, 3), st.integers(0, 2)), max_size=25,
)  # fmt: skip


@examples(150)
@given(JOBS, EDITS, st.lists(st.booleans(), min_size=3, max_size=3))
def test_every_edit_does_what_a_draft_does(
    jobs: list[Job], edits: list[Any], up: list[bool]
) -> None:
    cluster = Cluster(
        gpus=np.array([4, 2, 8]), gpu_types=("a", "b"), type=np.array([0, 1, 0]),
        cpus=np.array([8.0, 8.0, 16.0]),
    )  # fmt: skip
    snapshot = Snapshot.of(cluster, jobs)
    nodes = snapshot.nodes.copy()
    nodes["up"] = up
    nodes["free"] = np.where(up, nodes["gpus"], 0)
    draft = Draft(Snapshot(0.0, cluster, snapshot.jobs, nodes, snapshot.shares))
    d, used = arrays_of(draft), draft.used
    rows, spare = draft.rows.copy(), np.zeros(len(cluster) + 1, SHARE)
    for kind, which, share, node, workers, servers in edits:
        j = which % len(jobs)
        by_node = {n: (w, s) for n, w, s in share if w or s}
        wanted = np.array([(n, *by_node[n]) for n in sorted(by_node)], SHARE)
        try:
            if kind == PLACE:
                draft.place(j, [(n, w) for n, (w, _) in by_node.items()],
                            [(n, s) for n, (_, s) in by_node.items()])  # fmt: skip
            elif kind == GROW:
                draft.grow(j, node, workers, servers)
            elif kind == SHRINK:
                draft.shrink(j, node, workers, servers)
            else:
                draft.stop(j)
            refused = False
        except DecisionError:
            refused = True
        found = edit(d, rows, kind, j, wanted, node, workers, servers, spare, used)
        assert (found == REFUSED) == refused
        used = used if refused else found
        for k in range(len(jobs)):
            at = int(d.at[k])
            assert d.shares[at : at + int(d.length[k])].tolist() == draft.held(k)
        for name in ("free", "free_cpus", "free_memory_gb"):
            np.testing.assert_allclose(d.nodes[name], draft.nodes[name], atol=1e-9)
        level = np.zeros_like(d.level)
        indexed(d.nodes, level)
        np.testing.assert_array_equal(level, d.level)


def test_without_room_to_write_an_edit_is_refused_and_changes_nothing() -> None:
    draft = Draft(Snapshot.of(Cluster.uniform(2, 4), [Job(workers=2)], {0: [(0, 2)]}))
    d = arrays_of(draft)
    d = d._replace(shares=d.shares[:1].copy())
    wanted, spare = np.array([(1, 2, 0)], SHARE), np.zeros(3, SHARE)
    before = d.nodes.copy()
    assert edit(d, draft.rows.copy(), PLACE, 0, wanted, 0, 0, 0, spare, 1) == REFUSED
    np.testing.assert_array_equal(d.nodes, before)
    assert (d.at[0], d.length[0]) == (0, 1)
