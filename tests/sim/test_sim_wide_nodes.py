"""Nodes of more than 64 GPUs: racks that are one machine, and whole pools as one node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow_sim import SlowJob, SlowSim
from worlds import assert_same, by_rounds, cluster_of, done_s, examples, trace_of

from rota.core import Cluster, Draft, Job, Snapshot
from rota.errors import ConfigError
from rota.policies import ORDERINGS, make_policy
from rota.policies.classic.placing import PLACEMENTS, Placer
from rota.sim import Conditions, simulate
from rota.traces import Trace

POOL = 192


def test_a_pool_is_one_node() -> None:
    # 100 + 92 GPUs at once; the last one waits for either.
    assert done_s([POOL], [(0, 10, 100), (0, 20, 92), (0, 5, 1)], "fifo") == [10, 20, 15]
    # Preemptive: at 1 the job of 5 s takes all 192 GPUs, and the two others go on at 6.
    assert done_s([POOL], [(0, 10, 100), (0, 20, 92), (1, 5, 192)], "srtf") == [15, 25, 6]


def test_a_gang_over_two_racks_of_72() -> None:
    # 100 GPUs: the whole of rack 0, and 28 of rack 1, which leaves 44 for the next. The gang of
    # 144 waits for everybody.
    jobs = [(0, 10, 100), (0, 30, 44), (0, 10, 144), (0, 5, 1)]
    assert done_s([72, 72], jobs, "fifo") == [10, 30, 40, 45]
    assert done_s([72, 72], jobs, "fifo-skip") == [10, 30, 40, 15]
    # Best-fit: the small node while it suffices.
    decision = make_policy("fifo").decide(
        Snapshot.of(cluster_of([72, 8]), [Job(workers=8), Job(workers=65)])
    )
    assert (decision.share(0), decision.share(1)) == (((1, 8, 0),), ((0, 65, 0),))


def counted(trace: Trace, gpus: int, order: str) -> list[float]:
    """First come, first served over a bare count of GPUs, with the head blocking or not."""
    free, now_s, waiting, ends = gpus, 0.0, list(range(len(trace))), []
    done = [0.0] * len(trace)
    while waiting or ends:
        here = [j for j in waiting if trace.submit_s[j] <= now_s]
        for j in here:
            if trace.num_gpus[j] <= free:
                free -= trace.num_gpus[j]
                done[j] = now_s + trace.duration_s[j]
                ends.append((done[j], j))
                waiting.remove(j)
            elif order == "strict":
                break
        times = [trace.submit_s[j] for j in waiting if trace.submit_s[j] > now_s]
        now_s = min([*times, *(end for end, _ in ends)], default=now_s)
        for end, j in [e for e in ends if e[0] <= now_s]:
            ends.remove((end, j))
            free += trace.num_gpus[j]
    return done


@pytest.mark.parametrize(("name", "order"), [("fifo", "strict"), ("fifo-skip", "skip")])
def test_a_pool_counts_gpus(name: str, order: str) -> None:
    rng = np.random.default_rng(3)
    trace = Trace.build(
        "pool", submit_s=np.sort(rng.integers(0, 4000, 400)),
        duration_s=rng.integers(1, 900, 400), num_gpus=rng.choice([1, 2, 8, 33, 64, 65, 128], 400),
    )  # fmt: skip
    outcome = simulate(cluster_of([POOL]), trace, make_policy(name))
    assert outcome.done_s.tolist() == counted(trace, POOL, order)


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("fifo", {"passing": "strict"}),
        ("fifo-easy", {"passing": "easy"}),
        ("fifo-conservative", {"passing": "conservative"}),
        ("srtf", {"order": "srtf", "preempt": True}),
    ],
)
@examples(40)
@given(st.data(), st.sampled_from([0.0, 7.0]))
def test_wide_nodes_as_the_slow_twin_has_them(
    name: str, rules: dict[str, Any], data: st.DataObject, restart_s: float
) -> None:
    gpus = data.draw(st.sampled_from([[192], [72, 72], [72, 8, 65], [100, 64]]))
    possible = [1, 8, 32, 60, 64, 65, 72, sum(gpus)]
    job = st.tuples(st.integers(0, 50), st.integers(1, 60), st.sampled_from(possible))
    asked = sorted(data.draw(st.lists(job, min_size=1, max_size=10)), key=lambda one: one[0])
    jobs = [one for one in asked if one[2] <= max(gpus) or one[2] == sum(gpus)]
    if not jobs:
        return
    fast = simulate(
        cluster_of(gpus), trace_of(jobs), make_policy(name), Conditions(restart_s=restart_s)
    )
    slow = SlowSim(
        gpus,
        [SlowJob(i, *map(float, one[:2]), one[2]) for i, one in enumerate(jobs)],
        restart_s=restart_s,
        **rules,
    )
    np.testing.assert_allclose(fast.done_s, slow.run(), rtol=1e-9)


@pytest.mark.parametrize("place", PLACEMENTS)
def test_every_placement_fills_a_wide_node(place: str) -> None:
    draft = Draft(Snapshot.of(cluster_of([72, 8]), [Job(workers=1) for _ in range(80)]))
    find = Placer(place)
    for job in range(80):
        share = find(draft, job)
        assert share is not None
        draft.place(job, share)
    assert (draft.free(0), draft.free(1)) == (0, 0)
    assert find(draft, 0) is None


@pytest.mark.parametrize("name", ORDERINGS)
def test_every_ordering_plays_wide_nodes_alike_both_ways(name: str) -> None:
    rng = np.random.default_rng(1)
    trace = Trace.build(
        "wide", submit_s=np.sort(rng.integers(0, 200, 40)), duration_s=rng.integers(1, 90, 40),
        num_gpus=rng.choice([1, 8, 40, 72, 144], 40),
    )  # fmt: skip
    cluster, policy = Cluster.uniform(3, 72), make_policy(name)
    assert_same(simulate(cluster, trace, policy), by_rounds(cluster, trace, policy))


def test_a_rack_beyond_counting_is_refused() -> None:
    # Arrays are kept by the number of a rack: this one's would be of 16 GB.
    with pytest.raises(ConfigError, match="Node 'node-1' is in rack 2000000000; number racks"):
        cluster_of([4, 4], rack=np.array([0, 2_000_000_000]))
