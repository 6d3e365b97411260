"""The compiled check of a loop says nothing is wrong only where `Decision.check` does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import cluster_of, examples, trace_of

from rota.core import Cluster, Decision, Draft, Job, Snapshot
from rota.core.layout import SHARE
from rota.errors import DecisionError, OverfillError, PolicyError
from rota.run.check_kernels import Check
from rota.run.loop import rounds
from rota.sim import Simulator

GRID = Cluster(
    gpus=np.array([4, 2, 0]), gpu_types=("a", "b"), type=np.array([0, 1, 0]),
    cpus=np.array([8.0, 4.0, 16.0]), memory_gb=np.array([np.inf, 8.0, 8.0]),
)  # fmt: skip
JOBS = [
    Job(workers=2, min_workers=1, max_workers=3),
    Job(workers=1, gpus_per_worker=2, gpu_type=1),
    Job(workers=2, gpus_per_worker=0, cpus_per_worker=3.5, memory_gb_per_worker=2.0),
    Job(workers=1, servers=1, max_servers=2, cpus_per_server=2.0),
    Job(workers=2, min_workers=0, servers=0, max_servers=1),
]
entry = st.tuples(st.integers(-1, 3), st.integers(-1, 3), st.integers(-1, 2))


def hold(shares: list[list[tuple[int, int, int]]], snapshot: Snapshot) -> Decision:
    length = np.array([len(share) for share in shares], np.int64)
    flat = np.array([entry for share in shares for entry in share], SHARE)
    return Decision(snapshot.jobs.uid, length.cumsum() - length, length, flat)


def verdict(check: Any, decision: Decision, snapshot: Snapshot) -> str:
    try:
        check(decision, snapshot)
    except DecisionError as error:
        return str(error)
    return ""


@examples(500)
@given(
    st.lists(st.lists(entry, max_size=2), min_size=5, max_size=5),
    st.lists(st.sampled_from([True, True, False]), min_size=3, max_size=3),
)
def test_both_checks_say_the_same(shares: Any, up: list[bool]) -> None:
    made = Snapshot.of(GRID, JOBS)
    nodes = made.nodes.copy()
    nodes["up"] = up
    snapshot, check = replace(made, nodes=nodes), Check()
    decision = hold(shares, snapshot)
    said = verdict(Decision.check, decision, snapshot)
    assert verdict(check, decision, snapshot) == said
    assert check._is_sound(decision, snapshot) == (said == "")


@pytest.mark.parametrize(
    "odd",
    [
        {"uid": np.arange(4)},
        {"uid": np.arange(5) + 1},
        {"at": np.zeros(5)},
        {"at": np.zeros((5, 1), np.int64)},
        {"length": [0] * 5},
        {"length": np.ones(5, np.int32)},
        {"shares": np.zeros((0, 3), np.int32)},
        {"at": np.full(5, 2**62), "length": np.full(5, 2**62)},
        {"tunes": {9: {}}},
        {"reasons": None},
    ],
)
def test_what_compiled_code_could_misread_never_reaches_it(odd: dict[str, Any]) -> None:
    snapshot = Snapshot.of(GRID, JOBS)
    decision = replace(hold([[]] * 5, snapshot), **odd)
    assert not Check()._is_sound(decision, snapshot)


def test_one_check_serves_rounds_of_any_size() -> None:
    # The first round has one job, whose column of numbers looks contiguous; the others' do not.
    check = Check()
    for count in (1, 3, 0, 2):
        snapshot = Snapshot.of(GRID, [Job(workers=1) for _ in range(count)])
        draft = Draft(snapshot)
        for job in range(count):
            draft.place(job, [(0, 1)])
        assert check._is_sound(draft.commit(), snapshot)


class Overfills:
    """From its third round on, a policy whose compiled books are wrong."""

    asked = 0

    def decide(self, snapshot: Snapshot) -> Decision:
        self.asked += 1
        draft = Draft(snapshot)
        if self.asked >= 3:
            draft.reserve(len(snapshot.jobs))
            for job in range(len(snapshot.jobs)):
                draft.shares[draft.used] = (0, 1, 0)
                draft.at[job], draft.length[job] = draft.used, 1
                draft.used += 1
        return draft.commit(wake_s=snapshot.time_s + 1)


def test_every_round_of_a_loop_is_checked() -> None:
    sim = Simulator(cluster_of([1]), trace_of([(0, 10, 1), (0, 10, 1)]))
    with pytest.raises(PolicyError, match=r"round 3: Node 'node-0' has 1 GPUs .* uses 2") as error:
        list(rounds(Overfills(), sim))
    assert isinstance(error.value.__cause__, OverfillError)
