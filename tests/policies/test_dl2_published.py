"""DL2's baselines as published: its own numbers to the digit, and small slots by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from dl2_slots import SMALL, replay, speed_table, uniform_trace
from hypothesis import given
from worlds import examples

from elastic import curves_of, dl2_nodes, moments, ps_job, sizes, with_left
from rota.core import Cluster, Job, Snapshot
from rota.policies import make_policy
from rota.testing import check_policy

if TYPE_CHECKING:
    from rota.core import Decision

RULES = ("drf", "fifo", "srtf", "tetris", "optimus")
FLAT = [[1.0] * 4] * 4


def decide(rule: str, snapshot: Snapshot) -> Decision:
    decision = make_policy(f"dl2-{rule}").decide(snapshot)
    decision.check(snapshot)
    return decision


@pytest.mark.parametrize(
    ("rule", "mean", "makespan"),
    [
        ("drf", 40.752, 229.78),
        ("fifo", 92.908, 345.75),
        ("srtf", 93.480, 348.08),
        ("tetris", 146.918, 255.75),
        ("optimus", 28.911, 165.26),
    ],
)
def test_published_numbers(rule: str, mean: float, makespan: float) -> None:
    """96 nodes, arrivals "Uniform", lengths "Normal", traces 0 to 2, as published."""
    curves, policy = speed_table(SMALL.most), make_policy(f"dl2-{rule}")
    found = [replay(policy, SMALL, uniform_trace(SMALL, seed), curves) for seed in range(3)]

    assert sum(jct for jct, _ in found) / 3 == pytest.approx(mean, abs=6e-4)
    assert sum(end for _, end in found) / 3 == pytest.approx(makespan, abs=6e-3)


# -- drf -------------------------------------------------------------------------------------


def test_drf_deals_bundles_in_turn_each_on_the_least_used_node() -> None:
    # Two nodes hold two bundles each; the jobs alternate, and so do the nodes.
    snapshot = Snapshot.of(dl2_nodes(2), [ps_job(0, 4)] * 2, curves=curves_of(FLAT))
    decision = decide("drf", snapshot)

    assert decision.share(0) == ((0, 2, 2),)
    assert decision.share(1) == ((1, 2, 2),)


def test_drf_grows_to_the_cap_even_where_it_is_slower() -> None:
    snapshot = Snapshot.of(dl2_nodes(2), [ps_job(0, 3)], curves=curves_of([[9, 1, 1]] * 3))

    assert sizes(decide("drf", snapshot)) == [(3, 3)]


def test_the_first_failure_ends_the_round_for_everybody() -> None:
    # Least used is counted in slots, 1 per CPU and 4 per GPU. A CPU bundle leaves node 0 at 4,
    # a bundle of 2 GPUs node 1 at 12; the next CPU bundle fills node 0, and now node 0, at 8,
    # is the head: it has no CPU for the third, though node 1 has.
    jobs = [ps_job(0, 4, gpus_per_worker=0), ps_job(0, 1, gpus_per_worker=2)]
    snapshot = Snapshot.of(dl2_nodes(2), jobs, curves=curves_of(FLAT))

    assert sizes(decide("drf", snapshot)) == [(2, 2), (1, 1)]
    assert sizes(decide("fifo", snapshot)) == [(4, 4), (0, 0)]


# -- fifo and srtf ---------------------------------------------------------------------------


def test_fifo_fills_job_after_job() -> None:
    snapshot = Snapshot.of(dl2_nodes(2), [ps_job(0, 3)] * 2, curves=curves_of(FLAT))

    assert sizes(decide("fifo", snapshot)) == [(3, 3), (1, 1)]


def test_fifo_spreads_over_nodes() -> None:
    snapshot = Snapshot.of(dl2_nodes(3), [ps_job(0, 3)], curves=curves_of(FLAT))

    assert decide("fifo", snapshot).share(0) == ((0, 1, 1), (1, 1, 1), (2, 1, 1))


def test_srtf_goes_by_the_remaining_part_not_by_time() -> None:
    # A tenth of a long job is left, nine tenths of a short one.
    jobs = [ps_job(0, 2, 10), ps_job(0, 2, 1000)]
    snapshot = Snapshot.of(dl2_nodes(1), jobs, curves=curves_of(FLAT))

    assert sizes(decide("srtf", with_left(snapshot, [9, 100]))) == [(0, 0), (2, 2)]
    assert sizes(decide("srtf", snapshot)) == [(2, 2), (0, 0)]  # both new: who came first
    assert sizes(decide("srtf", with_left(snapshot, [float("nan"), 100]))) == [(0, 0), (2, 2)]


# -- tetris ----------------------------------------------------------------------------------


def test_tetris_prefers_what_has_long_to_go() -> None:
    jobs = [ps_job(0, 4, 100), ps_job(0, 4, 100)]
    snapshot = with_left(Snapshot.of(dl2_nodes(1), jobs, curves=curves_of(FLAT)), [10, 90])

    assert sizes(decide("tetris", snapshot)) == [(0, 0), (2, 2)]


def test_tetris_prefers_what_takes_more_of_a_node() -> None:
    # Demand along free slots: 8·4 + 8·4 = 64 with a GPU, 32 without.
    jobs = [ps_job(0, 4, gpus_per_worker=0), ps_job(0, 4)]
    snapshot = Snapshot.of(dl2_nodes(1), jobs, curves=curves_of(FLAT))

    assert sizes(decide("tetris", snapshot)) == [(0, 0), (2, 2)]


def test_tetris_fills_nodes_in_turn_and_leaves_one_when_its_best_does_not_fit() -> None:
    # Bundles of 2 GPUs score highest. One fills node 0's GPUs; the second does not fit there,
    # so the CPU job may not use what is left of that node, and gets a bundle once the first
    # job is at its cap, beside its last bundle.
    jobs = [ps_job(0, 2, gpus_per_worker=2), ps_job(0, 4, gpus_per_worker=0)]
    snapshot = Snapshot.of(dl2_nodes(2), jobs, curves=curves_of(FLAT))
    decision = decide("tetris", snapshot)

    assert decision.share(0) == ((0, 1, 1), (1, 1, 1))
    assert decision.share(1) == ((1, 1, 1),)


# -- optimus ---------------------------------------------------------------------------------


def test_optimus_climbs_to_the_first_summit() -> None:
    # From (1, 1): a server more is better than a worker; then nothing helps, though (2, 4) would.
    curves = curves_of([[1, 1.5, 1, 1], [2, 2, 2, 8], [1, 1, 1, 1]])
    snapshot = Snapshot.of(dl2_nodes(4), [ps_job(0, 4)], curves=curves)

    assert sizes(decide("optimus", snapshot)) == [(2, 1)]


def test_optimus_gives_a_server_where_a_worker_would_save_as_much() -> None:
    curves = curves_of([[1, 2], [2, 2]])
    snapshot = Snapshot.of(dl2_nodes(4), [ps_job(0, 2)], curves=curves)

    assert sizes(decide("optimus", snapshot)) == [(2, 1)]


def test_optimus_goes_by_time_saved_whatever_it_costs() -> None:
    # A server more saves the first job a third of 900 s, the second half of 400 s; only one fits.
    curves = curves_of([[1, 1], [1.5, 1.5]], [[1, 1], [2, 2]])
    jobs = [ps_job(1, 2, 400), ps_job(0, 2, 900)]
    snapshot = Snapshot.of(Cluster.uniform(1, 2, cpus=10), jobs, curves=curves)

    assert sizes(decide("optimus", snapshot)) == [(1, 1), (2, 1)]


def test_optimus_gives_back_a_worker_whose_server_finds_no_room() -> None:
    # Room for three tasks: the second job's first worker fits, its server does not. As published
    # it would hold a GPU at speed 0; a job is never given fewer servers than it runs with.
    cluster = Cluster.uniform(1, 4, cpus=6)
    snapshot = Snapshot.of(cluster, [ps_job(0, 2)] * 2, curves=curves_of(FLAT))

    assert sizes(decide("optimus", snapshot)) == [(1, 1), (0, 0)]


# -- beyond what DL2 knows -------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_a_gang_is_placed_whole_or_not_at_all(rule: str) -> None:
    gang = Job(workers=3, estimate_s=10.0)
    snapshot = Snapshot.of(Cluster.uniform(2, 2), [gang, gang])

    assert sizes(decide(rule, snapshot)) == [(0, 3), (0, 0)]


@pytest.mark.parametrize("rule", RULES)
def test_the_first_gang_runs_even_where_nodes_differ(rule: str) -> None:
    # Workers of 2 GPUs: the least used node is the one with a single GPU.
    gang = Job(workers=2, gpus_per_worker=2, estimate_s=10.0)
    snapshot = Snapshot.of(Cluster(gpus=Cluster.uniform(3, 4).gpus - [3, 0, 2]), [gang])

    assert sizes(decide(rule, snapshot)) == [(0, 2)]


@pytest.mark.parametrize("rule", RULES)
@examples(40)
@given(snapshot=moments())
def test_no_decision_overfills(rule: str, snapshot: Snapshot) -> None:
    decide(rule, snapshot)


@pytest.mark.parametrize("rule", RULES)
def test_they_keep_the_contract(rule: str) -> None:
    check_policy(make_policy(f"dl2-{rule}"))
