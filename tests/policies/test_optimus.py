"""`optimus` and the baselines in bundles: hand-solved moments and the contract."""

from __future__ import annotations

import tracemalloc

import pytest
from dl2_slots import SMALL, ali_trace, lower_bound, replay, speed_table

from elastic import along_workers, curves_of, dl2_nodes, ps_job, sizes, worker_job
from rota.core import Cluster, Job, Snapshot
from rota.policies import make_policy
from rota.policies.elastic.climb import Known, survey
from rota.testing import check_policy

HONEST = (
    "optimus", "optimus:lookahead=0", "drf-bundles", "drf-bundles:best=0", "srtf-bundles",
    "equal-units",
)  # fmt: skip


def decide(name: str, snapshot: Snapshot) -> list[tuple[int, int]]:
    decision = make_policy(name).decide(snapshot)
    decision.check(snapshot)
    return sizes(decision)


# -- optimus ---------------------------------------------------------------------------------


def test_optimus_adds_where_most_remaining_time_is_saved() -> None:
    # After one worker each: 300 (1 − 1/1.5) = 100 s saved against 60 (1 − 1/2) = 30 s.
    curves = along_workers([1, 1.5], [1, 2])
    jobs = [worker_job(0, 2, 300), worker_job(1, 2, 60)]
    snapshot = Snapshot.of(Cluster.uniform(1, 3), jobs, curves=curves)

    assert decide("optimus", snapshot) == [(0, 2), (0, 1)]


def test_optimus_gives_everybody_one_bundle_first_the_shortest_job_before_all() -> None:
    curves = curves_of([[1, 2], [2, 4]])
    jobs = [ps_job(0, 2, 300), ps_job(0, 2, 100), ps_job(0, 2, 200)]
    snapshot = Snapshot.of(dl2_nodes(1), jobs, curves=curves)

    assert decide("optimus", snapshot) == [(0, 0), (1, 1), (1, 1)]


def test_optimus_weighs_a_worker_against_a_server_by_cost() -> None:
    # A worker takes one of 2 GPUs, a server one of 4 tasks. From speed 1 at (1, 1), work 100:
    # a worker more saves 50 s for half the cluster; a server saves 40 s and costs nothing yet,
    # since GPUs are the dominant share until a third task.
    curves = curves_of([[1, 2], [1 / 0.6, 1 / 0.6]])
    snapshot = Snapshot.of(dl2_nodes(1), [ps_job(0, 2)], curves=curves)

    assert decide("optimus:lookahead=0", snapshot) == [(2, 1)]


def test_optimus_looks_across_a_dip_that_stops_single_steps() -> None:
    curves = along_workers([1, 0.9, 3])
    snapshot = Snapshot.of(Cluster.uniform(1, 3), [worker_job(0, 3)], curves=curves)

    assert decide("optimus:lookahead=0", snapshot) == [(0, 1)]
    assert decide("optimus", snapshot) == [(0, 3)]


@pytest.mark.parametrize(
    "name", [*HONEST, "hull-greedy", "dl2-drf", "dl2-fifo", "dl2-optimus", "dl2-tetris"]
)
def test_very_many_servers_that_need_nothing_take_no_memory(name: str) -> None:
    # 4,096 × 100,000 numbers would be 3 GB.
    many = Job(workers=1, max_workers=5000, servers=100_000, gpus_per_worker=0, estimate_s=9.0)
    snapshot = Snapshot.of(Cluster.uniform(2, 4, cpus=16.0), [many, worker_job(-1, 2)])
    policy = make_policy(name)
    tracemalloc.start()
    try:
        decision = policy.decide(snapshot)
        assert tracemalloc.get_traced_memory()[1] < 64e6
    finally:
        tracemalloc.stop()
    decision.check(snapshot)
    held = sum(servers for _, _, servers in decision.share(0))
    assert held == 100_000
    assert sum(workers for _, workers, _ in decision.share(1)) == 2


@pytest.mark.parametrize("servers", [0, 2])
def test_without_a_curve_servers_are_as_many_as_asked_for(servers: int) -> None:
    job = Job(workers=2, max_workers=4, min_workers=1, servers=servers, cpus_per_server=0.5)
    cluster = Cluster.uniform(1, 8, cpus=16.0)
    found = survey(Snapshot.of(cluster, [job]), Known()).sizes[0][0]
    assert [(p.servers, p.workers, p.speed) for p in found.frontier[1:]] == [
        (servers, workers, workers / 2) for workers in (1, 2, 3, 4)
    ]
    assert found.point(servers, 3).share == pytest.approx(3 / 8)
    for fewer in range(servers):  # held, say, while it lost some of them
        point = found.point(fewer, 4)
        assert (point.speed, point.share) == (0.0, pytest.approx(4 / 8))
    assert found.point(servers + 1, 1)[2:4] == (1.0, 0.0)
    assert [p.workers for _, p in found.steps(found.point(servers, 1), False)] == [2, 3, 4]


def test_optimus_passes_over_what_does_not_fit() -> None:
    # The long job would go on to 4 workers; one GPU is left, and the other job can use it.
    curves = along_workers([1, 1, 1, 4], [1, 1.1])
    jobs = [worker_job(0, 4, 1000), worker_job(1, 2, 10)]
    snapshot = Snapshot.of(Cluster.uniform(1, 3), jobs, curves=curves)

    assert decide("optimus", snapshot) == [(0, 1), (0, 2)]


# -- bundles ---------------------------------------------------------------------------------

PEAK_AT_2 = [[4, 3, 2], [3, 6, 5], [2, 5, 5]]
STEADY = [[1, 1, 1], [1, 2, 2], [1, 2, 3]]


def test_fair_bundles_are_dealt_out_evenly() -> None:
    # Four nodes hold 8 bundles: 3 + 3 + 2, the earlier jobs first.
    curves = curves_of(STEADY)
    snapshot = Snapshot.of(dl2_nodes(4), [ps_job(0, 3)] * 3, curves=curves)

    assert decide("drf-bundles", snapshot) == [(3, 3), (3, 3), (2, 2)]


def test_fair_bundles_stop_at_the_best_number_unless_told_otherwise() -> None:
    curves = curves_of(PEAK_AT_2, STEADY)
    snapshot = Snapshot.of(dl2_nodes(4), [ps_job(0, 3), ps_job(1, 3)], curves=curves)

    assert decide("drf-bundles", snapshot) == [(2, 2), (3, 3)]
    assert decide("drf-bundles:best=0", snapshot) == [(3, 3), (3, 3)]


def test_fair_bundles_pass_over_who_does_not_fit() -> None:
    # The first job's workers need 2 GPUs each, so one node holds one of its bundles, and a
    # second does not fit beside the bundle of the other job, which can still grow.
    curves = curves_of(STEADY)
    jobs = [ps_job(0, 3, gpus_per_worker=2), ps_job(0, 2, gpus_per_worker=0)]
    snapshot = Snapshot.of(dl2_nodes(2), jobs, curves=curves)

    assert decide("drf-bundles", snapshot) == [(2, 2), (2, 2)]


def test_shortest_first_goes_by_time_at_the_best_number_of_bundles() -> None:
    # Reference speeds 4 and 1 at (1, 1): work 400 and 150, best speeds 6 and 3: 67 s and 50 s.
    curves = curves_of(PEAK_AT_2, STEADY)
    jobs = [ps_job(0, 3, 100), ps_job(1, 3, 150)]
    snapshot = Snapshot.of(dl2_nodes(2), jobs, curves=curves)

    assert decide("srtf-bundles", snapshot) == [(1, 1), (3, 3)]
    # With all three bundles the first job runs at 5: 80 s, still the longer one.
    assert decide("srtf-bundles:best=0", snapshot) == [(1, 1), (3, 3)]


def test_shortest_first_may_take_everything() -> None:
    curves = curves_of(STEADY)
    snapshot = Snapshot.of(dl2_nodes(1), [ps_job(0, 3, 20), ps_job(0, 3, 10)], curves=curves)

    assert decide("srtf-bundles", snapshot) == [(0, 0), (2, 2)]


def test_shortest_first_takes_what_the_head_leaves() -> None:
    curves = curves_of(PEAK_AT_2, STEADY)
    snapshot = Snapshot.of(dl2_nodes(3), [ps_job(1, 3, 9999), ps_job(0, 3, 1)], curves=curves)

    assert decide("srtf-bundles", snapshot) == [(3, 3), (2, 2)]


def test_equal_units_each_used_at_its_best() -> None:
    # 8 tasks for two jobs. The first is fastest with 3 servers and 1 worker (4 tasks), the
    # second with one of each, and more servers: up to 4 tasks as well.
    curves = curves_of([[1, 1], [2, 2], [3, 3]], [[5, 1], [6, 1], [7, 1]])
    snapshot = Snapshot.of(dl2_nodes(2), [ps_job(0, 3), ps_job(1, 3)], curves=curves)

    assert decide("equal-units", snapshot) == [(3, 1), (3, 1)]


def test_equal_units_go_to_others_where_a_job_has_no_use_for_them() -> None:
    curves = along_workers([1], [1, 2, 3])
    jobs = [worker_job(0, 1), worker_job(1, 3)]
    snapshot = Snapshot.of(Cluster.uniform(1, 4), jobs, curves=curves)

    assert decide("equal-units", snapshot) == [(0, 1), (0, 3)]


def test_equal_units_go_to_early_jobs_where_there_are_not_enough() -> None:
    curves = along_workers([1, 2])
    snapshot = Snapshot.of(Cluster.uniform(1, 3), [worker_job(0, 2)] * 2, curves=curves)

    assert decide("equal-units", snapshot) == [(0, 2), (0, 1)]


# -- in DL2's world --------------------------------------------------------------------------


@pytest.mark.parametrize("name", HONEST)
def test_they_keep_the_contract(name: str) -> None:
    check_policy(make_policy(name))


def test_on_the_measured_table_size_is_what_matters() -> None:
    """Traces 0 and 1 of dl2-small: the best sizes reach the lower bound, bundles do not."""
    curves = speed_table(SMALL.most)
    traces = [ali_trace(SMALL, seed) for seed in (0, 1)]
    bound = sum(lower_bound(SMALL, tasks, curves) for tasks in traces)

    def total(name: str) -> float:
        return sum(
            replay(make_policy(name), SMALL, ali_trace(SMALL, seed), curves)[0] for seed in (0, 1)
        )

    assert total("hull-greedy") == pytest.approx(bound, rel=0.01)
    assert total("optimus") < 0.9 * total("optimus:lookahead=0")
    assert total("optimus:lookahead=0") < 0.9 * total("drf-bundles")
    assert total("drf-bundles") < 0.9 * total("dl2-drf")
