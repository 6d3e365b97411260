"""`hull-greedy` and the placing of elastic jobs: hand-solved moments and laws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import examples

from elastic import (
    along_workers,
    curves_of,
    dl2_nodes,
    moments,
    played,
    ps_job,
    sizes,
    with_left,
    worker_job,
)
from rota.core import Cluster, Job, Snapshot
from rota.core.speed import Curves
from rota.errors import ConfigError
from rota.policies import make_policy
from rota.policies.elastic.climb import FreeCapacity, Known, survey
from rota.policies.elastic.sizes import NOTHING
from rota.testing import check_policy

ELASTIC = (
    "hull-greedy", "hull-greedy:a=1,keep=1", "hull-greedy:weight=total",
    "hull-greedy:weight=remaining", "hull-greedy:weight=time", "optimus", "optimus:lookahead=0",
    "drf-bundles", "srtf-bundles", "srtf-bundles:best=0", "equal-units",
)  # fmt: skip


def decide(name: str, snapshot: Snapshot) -> list[tuple[int, int]]:
    decision = make_policy(name).decide(snapshot)
    decision.check(snapshot)
    return sizes(decision)


def test_one_job_gets_its_fastest_size() -> None:
    # Of 4 tasks a node has room for: 3 servers and 1 worker are fastest, 2 and 2 are slower.
    curves = curves_of([[10, 14, 12], [16, 20, 18], [22, 21, 19]])
    snapshot = Snapshot.of(dl2_nodes(1), [ps_job(0, 3)], curves=curves)

    assert decide("hull-greedy", snapshot) == [(3, 1)]


def test_steps_go_where_the_gain_is_largest() -> None:
    # Gains per GPU as a part of full speed: .25, .25, .25, .25 for the first job; .8, .1, .1
    # for the second. So of four GPUs the second job gets one.
    curves = along_workers([1, 2, 3, 4], [1.6, 1.8, 2.0])
    jobs = [worker_job(0, 4), worker_job(1, 3)]
    snapshot = Snapshot.of(Cluster.uniform(1, 4), jobs, curves=curves)

    assert decide("hull-greedy:a=0", snapshot) == [(0, 3), (0, 1)]


def test_shortness_counts_by_its_exponent() -> None:
    # Speeds 1, 1.5: gains of 2/3 and 1/3 of full speed. At the default a = .25 the second GPU of
    # a short job beats the first of a long one if it is more than 2^4 = 16 times shorter.
    curves = along_workers([1, 1.5])
    jobs = [worker_job(0, 2, 1700), worker_job(0, 2, 100)]
    snapshot = Snapshot.of(Cluster.uniform(1, 2), jobs, curves=curves)

    assert decide("hull-greedy:a=0", snapshot) == [(0, 1), (0, 1)]
    assert decide("hull-greedy", snapshot) == [(0, 0), (0, 2)]
    jobs[0] = worker_job(0, 2, 1500)
    snapshot = Snapshot.of(Cluster.uniform(1, 2), jobs, curves=curves)
    assert decide("hull-greedy", snapshot) == [(0, 1), (0, 1)]


def test_a_job_walks_across_a_dip_and_over_what_is_below_its_hull() -> None:
    curves = along_workers([1, 0.5, 1.2, 4.0])
    snapshot = Snapshot.of(Cluster.uniform(1, 4), [worker_job(0, 4)], curves=curves)

    assert decide("hull-greedy", snapshot) == [(0, 4)]


def test_where_a_corner_does_not_fit_the_best_size_that_does_is_taken() -> None:
    # The hull has corners at 1 and 4 only; with 3 GPUs the point of 3 is taken.
    curves = along_workers([1, 0.5, 1.2, 4.0])
    snapshot = Snapshot.of(Cluster.uniform(1, 3), [worker_job(0, 4)], curves=curves)

    assert decide("hull-greedy", snapshot) == [(0, 3)]


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        # Speeds 1 and 1.5; lengths 300 s (first job, 290 left) and 400 s (second, 10 left).
        ("total", [(0, 2), (0, 1)]),  # 1/300 and .5/300 against 1/400 and .5/400
        ("remaining", [(0, 1), (0, 2)]),  # 1/290 and .5/290 against 1/10 and .5/10
        ("time", [(0, 2), (0, 1)]),  # 290 (1 − 1/1.5) against 10 (1 − 1/1.5)
    ],
)
def test_other_weights(weight: str, expected: list[tuple[int, int]]) -> None:
    curves = along_workers([1, 1.5])
    jobs = [worker_job(0, 2, 300), worker_job(0, 2, 400)]
    snapshot = with_left(Snapshot.of(Cluster.uniform(1, 3), jobs, curves=curves), [290, 10])

    assert decide(f"hull-greedy:weight={weight}", snapshot) == expected


def test_remaining_time_saved_begins_with_the_shortest_job() -> None:
    curves = along_workers([1, 2])
    jobs = [worker_job(0, 2, 50), worker_job(0, 2, 10)]
    snapshot = Snapshot.of(Cluster.uniform(1, 1), jobs, curves=curves)

    assert decide("hull-greedy:weight=time", snapshot) == [(0, 0), (0, 1)]


def test_unknown_lengths_do_not_jump_the_queue() -> None:
    # One job is unknown: it counts as long as the others are on average, here between the two.
    curves = along_workers([1])
    jobs = [worker_job(0, 1, 1000), worker_job(0, 1, np.nan), worker_job(0, 1, 10)]
    for gpus, expected in ((1, [0, 0, 1]), (2, [0, 1, 1]), (3, [1, 1, 1])):
        snapshot = Snapshot.of(Cluster.uniform(1, gpus), jobs, curves=curves)
        assert [w for _, w in decide("hull-greedy", snapshot)] == expected


def test_without_curves_speed_follows_workers() -> None:
    jobs = [worker_job(-1, 3, 100), worker_job(-1, 3, 50)]
    snapshot = Snapshot.of(Cluster.uniform(1, 4), jobs)

    assert decide("hull-greedy", snapshot) == [(0, 1), (0, 3)]


def test_curves_over_nodes_are_read_at_the_fewest_nodes() -> None:
    # On two nodes of 2 GPUs, 3 workers are slower than 2: the job stays on one node.
    curves = curves_of([[1, 2, 0, 0], [0, 1, 1.5, 3.0]], by_nodes=True)
    snapshot = Snapshot.of(Cluster.uniform(2, 2), [worker_job(0, 3)], curves=curves)

    assert decide("hull-greedy", snapshot) == [(0, 2)]


def test_an_unchanged_job_stays_where_it_is() -> None:
    curves = along_workers([1, 2])
    jobs = [worker_job(0, 2, 100), worker_job(0, 2, 100)]
    snapshot = Snapshot.of(Cluster.uniform(3, 2), jobs, {0: [(2, 2)]}, curves=curves)
    decision = make_policy("hull-greedy").decide(snapshot)

    assert decision.share(0) == ((2, 2, 0),)
    assert decision.share(1) == ((0, 2, 0),)


def test_small_changes_are_left_out_if_nobody_needs_the_room() -> None:
    # The job would grow from 3 to 4 workers; a second one arrives that wants one.
    curves = along_workers([1, 2, 3, 4], [1])
    cluster = Cluster.uniform(1, 6)
    first = Snapshot.of(cluster, [worker_job(0, 4)], {0: [(0, 3)]}, curves=curves)
    assert decide("hull-greedy", first) == [(0, 4)]
    assert decide("hull-greedy:keep=1", first) == [(0, 3)]
    both = [worker_job(0, 4, 1e6), worker_job(1, 1, 1)]
    full = Snapshot.of(Cluster.uniform(1, 4), both, {0: [(0, 4)]}, curves=curves)
    assert decide("hull-greedy:keep=1", full) == [(0, 3), (0, 1)]


def test_a_pinned_job_keeps_what_it_holds() -> None:
    curves = along_workers([1, 2])
    jobs = [worker_job(0, 2, 1e6, min_run_s=60), worker_job(0, 2, 1)]
    snapshot = Snapshot.of(Cluster.uniform(1, 2), jobs, {0: [(0, 2)]}, curves=curves)

    assert decide("hull-greedy", snapshot) == [(0, 2), (0, 0)]
    assert decide("hull-greedy", replace(snapshot, time_s=60.0)) == [(0, 0), (0, 2)]


def test_servers_leave_the_cpus_of_free_gpus_alone() -> None:
    # Two nodes, 4 tasks each. Beside 3 servers and 1 worker, 3 workers and a server must fit.
    curves = curves_of([[1], [2], [3]], [[1, 2, 3]])
    jobs = [ps_job(0, 3), ps_job(1, 3, min_workers=3, workers=3, max_servers=1)]
    snapshot = Snapshot.of(dl2_nodes(2), jobs, curves=curves)

    assert decide("hull-greedy", snapshot) == [(3, 1), (1, 3)]


def test_fragments_are_cleared_when_moving_is_free() -> None:
    # Small jobs hold 1.5 of 8 CPUs on each of two nodes; one arrives that needs 7 on one node,
    # for which there is room only if one of them moves.
    curves = along_workers([1])
    tiny = Job(workers=1, gpus_per_worker=0, cpus_per_worker=1.5, curve=0, estimate_s=10.0)
    large = Job(workers=1, gpus_per_worker=2, cpus_per_worker=7, curve=0, estimate_s=10.0)
    held = {0: [(0, 1)], 1: [(1, 1)]}
    snapshot = Snapshot.of(dl2_nodes(2), [tiny, tiny, large], held, curves=curves)
    assert decide("hull-greedy", snapshot) == [(0, 1)] * 3
    costly = [replace(job, restart_s=60.0) for job in (tiny, tiny, large)]
    snapshot = Snapshot.of(dl2_nodes(2), costly, held, curves=curves)
    assert decide("hull-greedy", snapshot) == [(0, 1), (0, 1), (0, 0)]
    # What a stop costs does not matter to a move.
    nimble = [replace(job, restart_s=60.0, resize_s=0.0) for job in (tiny, tiny, large)]
    snapshot = Snapshot.of(dl2_nodes(2), nimble, held, curves=curves)
    assert decide("hull-greedy", snapshot) == [(0, 1)] * 3


def test_a_job_runs_on_the_type_on_which_it_is_fastest_and_else_on_another() -> None:
    cluster = Cluster(gpus=np.array([2, 2]), gpu_types=("old", "new"), type=np.array([0, 1]))
    speed = np.zeros((1, 2, 2, 3))
    speed[0, 0, 1, 1:], speed[0, 1, 1, 1:] = [1, 2], [3, 6]
    curves = Curves(("m",), ("old", "new"), speed, True, np.array([[1, 2]]))
    jobs = [worker_job(0, 2, 10), worker_job(0, 2, 20), worker_job(0, 2, 30)]
    snapshot = Snapshot.of(cluster, jobs, curves=curves)
    decision = make_policy("hull-greedy").decide(snapshot)

    assert [decision.share(job) for job in range(3)] == [((1, 2, 0),), ((0, 2, 0),), ()]


@pytest.mark.parametrize(
    "name", ["hull-greedy:a=-1", "hull-greedy:weight=speed", "hull-greedy:keep=x", "optimus:b=1"]
)
def test_wrong_settings_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="setting"):
        make_policy(name)


# -- laws ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ELASTIC)
@examples(40)
@given(snapshot=moments(), left_s=st.lists(st.floats(0, 1e6), min_size=6, max_size=6))
def test_no_decision_overfills_and_all_sizes_are_allowed(
    name: str, snapshot: Snapshot, left_s: list[float]
) -> None:
    policy = make_policy(name)
    for _ in range(2):  # from an empty cluster, and from what it became
        decision = policy.decide(snapshot)
        decision.check(snapshot)
        for row, (servers, workers) in zip(snapshot.jobs.rows, sizes(decision), strict=True):
            if workers or servers:
                assert row["min_workers"] <= workers <= row["max_workers"]
                assert row["min_servers"] <= servers <= row["max_servers"]
        snapshot = played(snapshot, decision, left_s)


@examples(60)
@given(moments())
def test_nobody_can_be_made_faster_with_what_is_left(snapshot: Snapshot) -> None:
    decision = make_policy("hull-greedy").decide(snapshot)
    view = survey(snapshot, Known())
    pool = FreeCapacity([list(part) for part in view.capacity])
    given_now = [
        view.sizes[job][0].point(*size) if size != (0, 0) else NOTHING
        for job, size in enumerate(sizes(decision))
    ]
    if any(row["gpus_per_worker"] > 1 for row in snapshot.jobs.rows):
        return  # then what is left over may lie in fragments
    for point in given_now:
        pool.take(NOTHING, point)
    for job, point in enumerate(given_now):
        for other in view.sizes[job][0].frontier:
            assert other.speed <= point.speed or not pool.fits(point, other)


@examples(60)
@given(moments())
def test_deciding_again_changes_nothing(snapshot: Snapshot) -> None:
    policy = make_policy("hull-greedy")
    decision = policy.decide(snapshot)
    again = played(snapshot, decision, snapshot.jobs.remaining_s.tolist())

    assert len(policy.decide(again).diff(again).job) == 0


@examples(60)
@given(moments())
def test_a_hull_is_concave_and_nothing_lies_above_it(snapshot: Snapshot) -> None:
    for (found,) in survey(snapshot, Known()).sizes:
        gains = [
            (b.speed - a.speed) / (b.share - a.share)
            for a, b in zip(found.hull, found.hull[1:], strict=False)
        ]
        assert gains == sorted(gains, reverse=True)
        for point in found.frontier:
            best = max(
                a.speed + (b.speed - a.speed) * (point.share - a.share) / (b.share - a.share)
                for a, b in zip(found.hull, found.hull[1:], strict=False)
                if a.share <= point.share <= b.share
            ) if point.share <= found.hull[-1].share and len(found.hull) > 1 else 0.0  # fmt: skip
            assert point.speed <= best + 1e-9


@pytest.mark.parametrize("name", ["hull-greedy", "hull-greedy:weight=time,keep=1"])
def test_it_keeps_the_contract(name: str) -> None:
    check_policy(make_policy(name))
