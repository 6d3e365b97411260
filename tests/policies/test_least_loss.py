"""The policy `least-loss`: hand-solved rounds, and equality with a slow twin."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from slow_scores import Placed, SlowWorld
from slow_snapshots import snapshots

from rota.core import Cluster, Job, Snapshot
from rota.core.speed import Curves
from rota.errors import ConfigError
from rota.policies import make_policy
from rota.policies.contention.least_loss import LeastLoss
from rota.scenarios import load
from rota.sim import simulate
from rota.traces import Trace

FAST, SLOW = 0, 1
LIKES_FAST, LIKES_BOTH = 0, 1


def two_types(
    jobs: list[Job], held: dict[int, list[tuple[int, int]]], nodes: str = "fs", gpus: int = 4,
    **columns: Any,
) -> Snapshot:  # fmt: skip
    """Nodes by the first letter of their GPU type. One model has a quarter of its speed on slow
    GPUs, the other one is as fast there; both lose half of it over two nodes."""
    speed = np.zeros((2, 2, 3, 2 * gpus + 1))
    speed[:, :, 1] = 1.0
    speed[:, :, 2] = 0.5
    speed[LIKES_FAST, SLOW] /= 4
    curves = Curves(("a", "b"), ("fast", "slow"), speed, by_nodes=True, measured=np.full((2, 2), 8))
    types = ["fs".index(letter) for letter in nodes]
    cluster = Cluster(gpus=[gpus] * len(nodes), gpu_types=("fast", "slow"), type=types)
    made = Snapshot.of(cluster, jobs, held, curves=curves)
    rows = made.jobs.rows.copy()
    for name, values in columns.items():
        rows[name] = values
    return Snapshot(0.0, cluster, type(made.jobs)(rows), made.nodes, made.shares, curves)


def job(workers: int, length_s: float, likes: int = LIKES_BOTH, **more: Any) -> Job:
    return Job(workers=workers, curve=likes, estimate_s=length_s, restart_s=60.0, **more)


def held_by(snapshot: Snapshot, **settings: Any) -> list[list[tuple[int, int]]]:
    """What every job holds after the round, as (node, workers)."""
    decision = LeastLoss(**settings).decide(snapshot)
    decision.check(snapshot)
    return [[(n, w) for n, w, _ in decision.share(j)] for j in range(len(snapshot.jobs))]


def test_a_job_goes_to_the_gpus_that_it_is_fast_on() -> None:
    assert held_by(two_types([job(4, 600.0, LIKES_FAST)], {}, "sf")) == [[(1, 4)]]


def test_who_needs_fewer_gpu_seconds_goes_first() -> None:
    # 4 × 300 GPU-seconds, 1 × 900, 2 × 500: the last two fit.
    jobs = [job(4, 300.0), job(1, 900.0), job(2, 500.0)]
    assert held_by(two_types(jobs, {}, "f")) == [[], [(0, 1)], [(0, 2)]]


def test_who_needs_far_less_takes_the_room_of_others() -> None:
    snapshot = two_types([job(4, 10_000.0), job(1, 300.0)], {0: [(0, 4)]}, "f")
    assert held_by(snapshot) == [[], [(0, 1)]]
    assert held_by(snapshot, stops=False) == [[(0, 4)], []]
    # 40,000 GPU-seconds against 300.
    assert held_by(snapshot, margin=133.0) == [[], [(0, 1)]]
    assert held_by(snapshot, margin=134.0) == [[(0, 4)], []]


def test_nobody_is_stopped_before_its_time() -> None:
    jobs = [job(4, 10_000.0, min_run_s=100.0), job(1, 300.0)]
    assert held_by(two_types(jobs, {0: [(0, 4)]}, "f")) == [[(0, 4)], []]


def test_only_who_must_make_room_does() -> None:
    jobs = [job(2, 9_000.0), job(2, 8_000.0), job(2, 300.0)]
    snapshot = two_types(jobs, {0: [(0, 2)], 1: [(0, 2)]}, "f")
    assert held_by(snapshot) == [[], [(0, 2)], [(0, 2)]]
    # Nobody must if there is room elsewhere.
    assert held_by(two_types(jobs, {0: [(0, 2)], 1: [(0, 2)]}, "fs"))[0] == [(0, 2)]


def test_a_job_moves_if_that_saves_more_than_it_costs() -> None:
    # At a quarter of its speed it would lose 3 × its length, at most 2,700 s of an hour.
    at = {0: [(1, 4)]}

    def place(length_s: float, **settings: Any) -> int:
        return held_by(two_types([job(4, length_s, LIKES_FAST)], at), **settings)[0][0][0]

    assert place(100_000.0) == 0
    assert place(100_000.0, moves=False) == 1
    assert place(100_000.0, gain=2600.0) == 0
    assert place(100_000.0, gain=2650.0) == 1
    # A restart costs 60 s and the gain must be 180 s: from 80 s on it pays.
    assert [place(79.0), place(81.0)] == [1, 0]
    assert [place(200.0, horizon=300.0), place(200.0, horizon=340.0)] == [1, 0]


def test_a_job_that_still_restarts_is_not_moved() -> None:
    jobs = [job(4, 9_000.0, LIKES_FAST)]
    assert held_by(two_types(jobs, {0: [(1, 4)]}, resume_s=30.0)) == [[(1, 4)]]


def test_others_move_away_for_a_job_that_gains_more() -> None:
    jobs = [job(4, 9_000.0, LIKES_FAST), job(2, 9_000.0), job(1, 9_000.0)]
    at = {0: [(1, 4)], 1: [(0, 2)], 2: [(0, 1)]}
    assert held_by(two_types(jobs, at)) == [[(0, 4)], [(1, 2)], [(1, 1)]]
    assert held_by(two_types(jobs, at), displaces=False) == [[(1, 4)], [(0, 2)], [(0, 1)]]
    # Three moves cost 180 s, and 2,700 s are saved.
    assert held_by(two_types(jobs, at), gain=2510.0)[0] == [(0, 4)]
    assert held_by(two_types(jobs, at), gain=2530.0)[0] == [(1, 4)]


def test_nobody_is_moved_away_who_loses_as_much() -> None:
    jobs = [job(4, 9_000.0, LIKES_FAST), job(4, 9_000.0, LIKES_FAST)]
    assert held_by(two_types(jobs, {0: [(1, 4)], 1: [(0, 4)]})) == [[(1, 4)], [(0, 4)]]


def test_without_lengths_who_has_run_least_goes_first() -> None:
    jobs = [job(2, 100.0), job(2, 9_000.0), job(2, 500.0)]
    run = {"progress_s": [4_000.0, 0.0, 100.0]}
    snapshot = two_types(jobs, {}, "f", **run)
    assert held_by(snapshot) == [[(0, 2)], [], [(0, 2)]]
    assert held_by(snapshot, lengths=False) == [[], [(0, 2)], [(0, 2)]]
    unknown = two_types(jobs, {}, "f", remaining_s=np.nan, **run)
    assert held_by(unknown) == [[], [(0, 2)], [(0, 2)]]


def test_what_was_seen_of_machines_counts_as_far_as_it_lasts() -> None:
    # The first node is seen to run at half its speed.
    jobs = [job(1, 9_000.0), job(1, 9_000.0)]
    snapshot = two_types(jobs, {0: [(0, 1)]}, "ff", pace=[0.5, 0.0], remaining_s=9_000.0)
    assert held_by(snapshot, moves=False) == [[(0, 1)], [(0, 1)]]
    assert held_by(snapshot, moves=False, drift=0.5) == [[(0, 1)], [(1, 1)]]


def test_a_gang_that_no_even_spread_suits_is_still_placed() -> None:
    speedless = two_types([Job(workers=6, estimate_s=100.0)], {}, "f", gpus=4)
    assert held_by(speedless) == [[]]  # six workers fit nowhere
    cluster = Cluster(gpus=[8, 4])
    snapshot = Snapshot.of(cluster, [Job(workers=12, estimate_s=100.0)])
    assert held_by(snapshot) == [[(0, 8), (1, 4)]]


def test_it_asks_to_be_woken_while_jobs_run() -> None:
    snapshot = two_types([job(4, 600.0)], {})
    assert LeastLoss().decide(snapshot).wake_s == 900.0
    assert LeastLoss(moves=False).decide(snapshot).wake_s == np.inf
    assert LeastLoss().decide(Snapshot.of(Cluster.uniform(1, 4), [])).wake_s == np.inf


def test_the_longer_nothing_happens_the_later_it_is_woken() -> None:
    snapshot = two_types([job(4, 1e9)], {0: [(0, 4)]})
    later = replace(snapshot, time_s=80_000.0)
    assert LeastLoss().decide(later).wake_s == 90_000.0
    trace = Trace.build("long", submit_s=[0], duration_s=[1e9], num_gpus=[1])
    assert simulate(Cluster.uniform(1, 4), trace, LeastLoss()).rounds < 200


@pytest.mark.parametrize(
    "bad",
    [
        "fee=-1",
        "fee=2e6",
        "unknown=0",
        "again=-1",
        "horizon=0",
        "horizon=nan",
        "margin=0.9",
        "gain=-1",
        "drift=-1",
        "wake=0",
        "stops=2",
    ],
)
def test_settings_that_mean_nothing_are_refused(bad: str) -> None:
    with pytest.raises(ConfigError, match=bad.partition("=")[0]):
        make_policy(f"least-loss:{bad}")


# -- a slow twin: every set of nodes, everything from scratch ------------------------------

HORIZON_S = 200.0


def total_loss_s(world: SlowWorld, jobs: dict[int, Placed], need_s: dict[int, float]) -> float:
    """What all lose where they are."""
    total = 0.0
    for j, placed in jobs.items():
        widths = [world.speed[placed.curve, m, placed.gpus] for m in world.spans(placed)]
        best = max(widths) / np.mean(widths)
        pace = world.value(placed) * world.ratio(j, jobs) / best
        total += min(need_s[j] / pace - need_s[j], HORIZON_S * (1 - pace))
    return total


def slow_starts(world: SlowWorld, need_s: dict[int, float]) -> dict[int, Placed]:
    """All who run once the waiting jobs, by GPU-seconds, are where all lose least."""
    running = dict(world.running)
    for j in sorted(world.waiting, key=lambda j: (need_s[j] * world.waiting[j].gpus, j)):
        best = None
        for placed in places(world, running, world.waiting[j]):
            jobs = {**running, j: placed}
            loss = total_loss_s(world, jobs, need_s)
            if best is None or loss < best[0] - 1e-9:
                best = loss, jobs
        if best is not None:
            running = best[1]
    return running


def places(world: SlowWorld, running: dict[int, Placed], job: Placed) -> list[Placed]:
    free = list(world.gpus)
    for placed in running.values():
        for node, held in placed.held:
            free[node] -= held
    found = []
    for m in world.spans(job):
        parts = [job.gpus // m + (i < job.gpus % m) for i in range(m)]
        able = [n for n in range(len(free)) if free[n] >= parts[0]]
        for nodes in combinations(able, m):
            held = tuple(zip(nodes, parts, strict=True))
            found.append(Placed(job.curve, job.gpus, held, job.left))
    return found


@settings(max_examples=60)
@given(snapshots())
def test_starts_are_those_of_a_slow_twin(snapshot: Snapshot) -> None:
    world = SlowWorld(snapshot)
    need_s = {j: max(60.0, float(s)) for j, s in enumerate(snapshot.jobs.remaining_s)}
    slow = slow_starts(world, need_s)
    shares = held_by(snapshot, horizon=HORIZON_S, stops=False, moves=False)
    fast = {
        j: Placed(int(row["curve"]), int(row["workers"]), tuple(shares[j]), 0.0)
        for j, row in enumerate(snapshot.jobs.rows)
        if shares[j]
    }
    assert {*fast} == {*slow}
    # Nodes that cannot be told apart may change places, so it is the loss that must be the same.
    losses = [total_loss_s(world, jobs, need_s) for jobs in (fast, slow)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-9, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_no_move_makes_the_whole_worse_than_the_same_rule_without(seed: int) -> None:
    world = load("das-small", ["workload.jobs=200"]).draw(seed)

    def mean_s(name: str) -> float:
        run = simulate(
            world.cluster, world.trace, make_policy(name), world.when, seed=seed,
            physics=world.physics,
        )  # fmt: skip
        return float((run.done_s - run.submit_s).mean())

    assert mean_s("least-loss") < mean_s("least-loss:moves=0")
