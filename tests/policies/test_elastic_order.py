"""Elastic sizing keeps to the ordering: who comes first starts first, if need be smaller."""

from __future__ import annotations

import numpy as np
import pytest
from worlds import cluster_of, trace_of

from rota.core import Job, Snapshot
from rota.policies import make_policy
from rota.sim import Conditions, simulate


def elastic(workers: int, least: int, estimate_s: float, restart_s: float = 0.0) -> Job:
    return Job(workers=workers, min_workers=least, max_workers=workers, estimate_s=estimate_s,
               restart_s=restart_s)  # fmt: skip


def given(name: str, gpus: list[int], jobs: list[Job], held: dict[int, list[tuple[int, int]]],
          time_s: float = 0.0) -> list[int]:  # fmt: skip
    """How many workers each job shall hold."""
    snapshot = Snapshot.of(cluster_of(gpus), jobs, held, time_s=time_s)
    decision = make_policy(name).decide(snapshot)
    return [sum(workers for _, workers, _ in decision.share(job)) for job in range(len(jobs))]


@pytest.mark.parametrize(
    "name", ["srtf+elastic", "srsf+elastic", "sjf+elastic", "sjf-skip+elastic"]
)
@pytest.mark.parametrize("restart_s", [0.0, 5.0])
def test_the_shorter_job_starts_where_neither_fits_in_full(name: str, restart_s: float) -> None:
    # Two of the six GPUs are taken by a job that is nearly done.
    jobs = [Job(workers=2, estimate_s=1.0, restart_s=restart_s),
            elastic(6, 2, 100.0, restart_s), elastic(6, 2, 10.0, restart_s)]  # fmt: skip
    assert given(name, [6], jobs, {0: [(0, 2)]}) == [2, 0, 4]


@pytest.mark.parametrize("restart_s", [0.0, 5.0])
def test_a_longer_job_that_fits_in_full_does_not_pass_a_shorter_one(restart_s: float) -> None:
    jobs = [Job(workers=2, estimate_s=1.0, restart_s=restart_s),
            Job(workers=3, estimate_s=100.0, restart_s=restart_s),
            elastic(6, 2, 10.0, restart_s)]  # fmt: skip
    assert given("srtf+elastic", [6], jobs, {0: [(0, 2)]}) == [2, 0, 4]


@pytest.mark.parametrize("restart_s", [0.0, 5.0])
def test_a_longer_job_gives_way_to_a_shorter_one_that_starts_smaller(restart_s: float) -> None:
    # By length: 0 (four GPUs), 2 (eight, or as few as two), 1, which runs on four.
    jobs = [Job(workers=4, estimate_s=1.0, restart_s=restart_s),
            Job(workers=4, estimate_s=100.0, restart_s=restart_s),
            elastic(8, 2, 10.0, restart_s)]  # fmt: skip
    held = {0: [(0, 4)], 1: [(1, 4)]}
    assert given("srtf+elastic+consolidate", [4, 4], jobs, held) == [4, 0, 4]


@pytest.mark.parametrize("name", ["fifo+elastic", "sjf+elastic", "fifo-easy+elastic",
                                  "fifo-conservative+elastic"])  # fmt: skip
def test_a_blocked_head_is_not_passed_by_who_would_start_smaller(name: str) -> None:
    jobs = [Job(workers=2, estimate_s=1.0), Job(workers=5, estimate_s=2.0), elastic(6, 1, 50.0)]
    assert given(name, [6], jobs, {0: [(0, 2)]}) == [2, 0, 0]
    skipping = "fifo-skip+elastic" if name.startswith("fifo") else "sjf-skip+elastic"
    assert given(skipping, [6], jobs, {0: [(0, 2)]}) == [2, 0, 4]


@pytest.mark.parametrize("name", ["fifo", "fifo-skip", "fifo-easy", "fifo-conservative", "srtf"])
def test_a_head_starts_as_large_as_it_can(name: str) -> None:
    jobs = [Job(workers=2, estimate_s=1.0), elastic(6, 3, 5.0), elastic(6, 1, 50.0)]
    assert given(f"{name}+elastic", [6], jobs, {0: [(0, 2)]}) == [2, 4, 0]
    # Its least is more than there is.
    jobs[1] = elastic(6, 5, 5.0)
    assert given(f"{name}+elastic", [6], jobs, {0: [(0, 2)]})[1] == 0


@pytest.mark.parametrize("name", ["drf", "max-min"])
def test_fair_shares_are_filled_in_turn(name: str) -> None:
    # User 1 holds nothing, so it comes first, and with less than it asked for.
    jobs = [Job(workers=2, user=0), Job(workers=3, user=0),
            Job(workers=6, min_workers=1, max_workers=6, user=1)]  # fmt: skip
    assert given(f"{name}+elastic", [6], jobs, {0: [(0, 2)]}) == [2, 0, 4]


def test_growing_goes_in_the_order_of_the_policy_too() -> None:
    # Both run at their request; the one GPU that is left goes to the shorter job.
    jobs = [Job(workers=2, min_workers=1, max_workers=4, estimate_s=100.0),
            Job(workers=2, min_workers=1, max_workers=4, estimate_s=10.0)]  # fmt: skip
    assert given("srtf+elastic", [5], jobs, {0: [(0, 2)], 1: [(0, 2)]}) == [2, 3]
    assert given("fifo+elastic", [5], jobs, {0: [(0, 2)], 1: [(0, 2)]}) == [3, 2]


@pytest.mark.parametrize("restart_s", [0.0, 3.0])
@pytest.mark.parametrize("name", ["srtf", "fifo", "fifo-skip", "sjf", "las", "drf", "fifo-easy"])
def test_rigid_jobs_fare_as_without_it(name: str, restart_s: float) -> None:
    rng = np.random.default_rng(7)
    jobs = [(float(t), float(d), int(g)) for t, d, g in zip(
        np.sort(rng.integers(0, 300, 60)), rng.integers(1, 90, 60), rng.integers(1, 9, 60),
        strict=True)]  # fmt: skip
    cluster, when = cluster_of([8, 4, 4]), Conditions(restart_s=restart_s)
    plain, sized = (
        simulate(cluster, trace_of(jobs), make_policy(f"{name}{suffix}"), when).done_s
        for suffix in ("", "+elastic")
    )
    np.testing.assert_array_equal(plain, sized)
