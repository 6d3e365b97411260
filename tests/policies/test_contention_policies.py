"""Contention-aware placing: hand-solved cases, laws, and equality with slow twins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_rounds import pairs
from slow_scores import Rule, SlowWorld
from slow_snapshots import curves_of, snapshots

from rota.core import Cluster, Job, Snapshot
from rota.core.speed import LINKS, MACHINES, PAIRS, RANKS, Contention
from rota.policies import make_policy
from rota.policies.contention import neighbours
from rota.policies.contention.greedy import ContentionGreedy
from rota.policies.contention.greedy_rollout import ContentionRollout
from rota.policies.contention.neighbour_kernels import GreedySettings
from rota.policies.contention.placing_round_kernels import greedy_round
from rota.run.loop import rounds
from rota.scenarios import load
from rota.sim import Simulator

# -- two nodes of four GPUs, two kinds, spread over both nodes only ------------------------

A, B = 0, 1


def two_kinds(
    queue: list[int], ratio: list[list[float]], *, runs: bool = True, **columns: Any
) -> Snapshot:
    """A runs with four workers over both nodes; the jobs of `queue` want the same."""
    speed = np.zeros((2, 3, 5))
    speed[:, 2, 4] = 10.0
    kind = np.full((3, 3, 5), -1)
    kind[A, 2], kind[B, 2] = A, B
    jobs = [Job(workers=4, curve=c, estimate_s=100.0) for c in ([A] if runs else []) + queue]
    held = {0: [(0, 2), (1, 2)]} if runs else {}
    made = Snapshot.of(
        Cluster.uniform(2, 4), jobs, held, curves=curves_of(speed), contention=pairs(kind, ratio)
    )
    rows = made.jobs.rows.copy()
    for name, values in columns.items():
        rows[name] = values
    return Snapshot(0.0, made.cluster, type(made.jobs)(rows), made.nodes, made.shares,
                    made.curves, made.contention)  # fmt: skip


def started(policy: Any, snapshot: Snapshot) -> list[int]:
    decision = policy.decide(snapshot)
    decision.check(snapshot)
    return [j for j in range(len(snapshot.jobs)) if snapshot.jobs.waiting[j] and decision.share(j)]


RATIO = [[0.9, 0.5], [0.4, 0.8]]


def test_greedy_prefers_the_job_that_gains_more_than_it_costs() -> None:
    # B beside A: 4 × 0.4 − 4 × (1 − 0.5) = −0.4. Another A: 4 × 0.9 − 4 × 0.1 = 3.2.
    snapshot = two_kinds([B, A], RATIO)
    assert started(ContentionGreedy(), snapshot) == [2]
    assert ContentionGreedy().decide(snapshot).share(2) == ((0, 2, 0), (1, 2, 0))


def test_greedy_waits_rather_than_lose() -> None:
    snapshot = two_kinds([B], RATIO)
    assert started(ContentionGreedy(), snapshot) == []
    assert started(ContentionGreedy(threshold=-0.11), snapshot) == [1]
    assert started(ContentionGreedy(threshold=-0.09), snapshot) == []


def test_threshold_is_the_net_gain_per_gpu() -> None:
    # Another A adds 0.9 and costs 0.1 per GPU.
    assert started(ContentionGreedy(threshold=0.79), two_kinds([A], RATIO)) == [1]
    assert started(ContentionGreedy(threshold=0.81), two_kinds([A], RATIO)) == []


def test_min_ratio_protects_newcomer_and_neighbour() -> None:
    assert started(ContentionGreedy(min_ratio=0.89), two_kinds([A], RATIO)) == [1]
    assert started(ContentionGreedy(min_ratio=0.91), two_kinds([A], RATIO)) == []


def test_an_empty_cluster_never_waits_for_ever() -> None:
    policy = ContentionGreedy(threshold=5.0, min_ratio=1.0)
    assert started(policy, two_kinds([B, B], RATIO, runs=False)) == [0]


def test_fraction_takes_the_shorter_of_two_alike() -> None:
    snapshot = two_kinds([A, A], RATIO, remaining_s=[100, 90, 50])
    assert started(ContentionGreedy(), snapshot) == [1]
    assert started(ContentionGreedy(fraction=True), snapshot) == [2]


def test_size_exponent_takes_the_smaller() -> None:
    speed = np.zeros((1, 3, 5))
    speed[0, 1, 2], speed[0, 1, 4] = 1.0, 2.0
    jobs = [Job(workers=4, curve=0), Job(workers=2, curve=0)]
    snapshot = Snapshot.of(Cluster.uniform(1, 4), jobs, curves=curves_of(speed))
    assert started(ContentionGreedy(), snapshot) == [0]
    assert started(ContentionGreedy(size=0.5), snapshot) == [1]


SLOW = [[1.0, 0.4], [0.62, 1.0]]


def test_rollout_waits_where_the_greedy_rule_is_too_eager() -> None:
    # At once: A, 10 s from its end, takes 10 / 0.4 = 25 s; B does 25 × 0.62 = 15.5 s of its
    # 100 by then and ends at 109.5: 134.5 s together. One after the other: 10 + 110 = 120 s.
    snapshot = two_kinds([B], SLOW, remaining_s=[10, 100], pace=[1.0, 0.0])
    assert started(ContentionGreedy(), snapshot) == [1]
    assert started(ContentionRollout(threshold=0.0), snapshot) == []


def test_rollout_starts_what_is_worth_it() -> None:
    # The other way round: B, 10 s long, ends at 10 / 0.62 = 16.1 s and costs A 9.7 s of its 100;
    # it would else wait for 100 s.
    snapshot = two_kinds([B], SLOW, remaining_s=[100, 10], pace=[1.0, 0.0])
    assert started(ContentionRollout(threshold=0.0), snapshot) == [1]


def test_rollout_takes_unknown_lengths_for_equal() -> None:
    snapshot = two_kinds([B, A], RATIO, remaining_s=[np.nan, np.inf, np.nan], pace=[1.0, 0, 0])
    assert started(ContentionRollout(), snapshot) == [2]


def test_an_observed_pace_tells_how_long_a_job_still_runs() -> None:
    # A does a tenth of what its curve says, so its 10 s of work are 100 s: B had better start.
    snapshot = two_kinds([B], SLOW, remaining_s=[10, 10], pace=[0.1, 0.0])
    assert started(ContentionRollout(threshold=0.0), snapshot) == [1]
    snapshot = two_kinds([B], SLOW, remaining_s=[10, 100], pace=[1.0, 0.0])
    assert started(ContentionRollout(threshold=0.0), snapshot) == []


def test_a_spread_that_was_never_measured_is_not_used() -> None:
    # Four workers fit on one node, but the table knows two nodes only.
    snapshot = two_kinds([A], RATIO, runs=False)
    assert ContentionGreedy().decide(snapshot).share(0) == ((0, 2, 0), (1, 2, 0))


def test_a_gang_that_no_even_spread_suits_is_packed() -> None:
    cluster = Cluster(gpus=np.array([8, 4]))
    snapshot = Snapshot.of(cluster, [Job(workers=12)])
    assert ContentionGreedy().decide(snapshot).share(0) == ((0, 8, 0), (1, 4, 0))


def test_settings_are_read_from_the_name() -> None:
    made = make_policy("contention-rollout:threshold=0.3,k=4,fraction=1,size=0.5@oracle")
    assert isinstance(made, ContentionRollout)
    assert (made.threshold, made.k, made.fraction, made.size) == (0.3, 4, True, 0.5)
    assert made.oracle


# -- random worlds ----------------------------------------------------------------------


RULES = st.builds(
    Rule,
    threshold=st.sampled_from([0.0, 0.2, -0.5]),
    min_ratio=st.sampled_from([0.0, 0.6]),
    size=st.sampled_from([0.0, 0.5]),
)


def assert_same(snapshot: Snapshot, policy: Any, slow: dict[int, Any]) -> None:
    decision = policy.decide(snapshot)
    decision.check(snapshot)
    got = {j: tuple((n, w) for n, w, _ in decision.share(j)) for j in range(len(snapshot.jobs))}
    assert {j: share for j, share in got.items() if share} == {j: o.held for j, o in slow.items()}


@settings(max_examples=60)
@given(snapshots(), RULES)
def test_greedy_is_its_slow_twin(snapshot: Snapshot, rule: Rule) -> None:
    policy = ContentionGreedy(threshold=rule.threshold, min_ratio=rule.min_ratio, size=rule.size)
    assert_same(snapshot, policy, SlowWorld(snapshot).greedy(rule))


@settings(max_examples=40)
@given(snapshots(most_nodes=3), RULES, st.integers(1, 4))
def test_rollout_is_its_slow_twin(snapshot: Snapshot, rule: Rule, most: int) -> None:
    policy = ContentionRollout(
        threshold=rule.threshold, min_ratio=rule.min_ratio, size=rule.size, k=most
    )
    assert_same(snapshot, policy, SlowWorld(snapshot).rollout(rule, most))


@settings(max_examples=80)
@given(snapshots(racks=True), RULES)
def test_greedy_is_its_slow_twin_where_racks_share_uplinks(snapshot: Snapshot, rule: Rule) -> None:
    policy = ContentionGreedy(threshold=rule.threshold, min_ratio=rule.min_ratio, size=rule.size)
    assert_same(snapshot, policy, SlowWorld(snapshot).greedy(rule))


@settings(max_examples=80)
@given(snapshots(racks=True, most_nodes=4), RULES, st.integers(1, 4))
def test_rollout_is_its_slow_twin_where_racks_share_uplinks(
    snapshot: Snapshot, rule: Rule, most: int
) -> None:
    policy = ContentionRollout(
        threshold=rule.threshold, min_ratio=rule.min_ratio, size=rule.size, k=most
    )
    assert_same(snapshot, policy, SlowWorld(snapshot).rollout(rule, most))


@settings(max_examples=60)
@given(snapshots() | snapshots(racks=True, most_nodes=12))
def test_what_is_left_to_jobs_is_kept_up_to_date(snapshot: Snapshot) -> None:
    rows = snapshot.jobs.rows.copy()
    laws = neighbours.PlacementModel.of(snapshot, None).tables
    rooms = neighbours.rooms_for(snapshot, rows, laws)
    order = neighbours.weigh(rooms, rows, fraction=False)
    every = GreedySettings(-np.inf, 0.0, 0.0)
    assert greedy_round(laws, rooms, rows, order, snapshot.nodes.copy(), snapshot.shares.copy(),
                        0.0, every, neighbours.found_of(rooms, 1))  # fmt: skip
    world, room = SlowWorld(snapshot), rooms.room
    known = {**world.running, **world.waiting}
    jobs = {}
    for j in room.run[: room.run[-1]].tolist():
        nodes = room.node[j, : room.span[j]].tolist()
        each, more = divmod(known[j].gpus, len(nodes))
        held = tuple((n, each + (i < more)) for i, n in enumerate(nodes))
        jobs[j] = replace(known[j], held=held)
    for j in jobs:
        np.testing.assert_allclose(
            max(room.low[j], laws.law.floor), world.ratio(j, jobs), rtol=1e-9
        )


def drift_of(snapshot: Snapshot) -> Any:
    """What a round saw of the speed of nodes."""
    rows = snapshot.jobs.rows.copy()
    laws = neighbours.PlacementModel.of(snapshot, None).tables
    rooms = neighbours.rooms_for(snapshot, rows, laws)
    order = neighbours.weigh(rooms, rows, fraction=False)
    assert greedy_round(laws, rooms, rows, order, snapshot.nodes.copy(), snapshot.shares.copy(),
                        snapshot.time_s, GreedySettings(np.inf, 0.0, 0.0),
                        neighbours.found_of(rooms, 1))  # fmt: skip
    return rooms.room.drift


def test_a_node_is_as_fast_as_the_best_job_there_was_seen_to_be() -> None:
    # Alone at pace 1; beside one another A keeps .9, B .8 of it.
    # Each of the two nodes is the slow one with probability 1/2.
    np.testing.assert_allclose(drift_of(two_kinds([], RATIO, pace=[0.7])), 0.7**0.5)
    np.testing.assert_allclose(drift_of(two_kinds([], RATIO, pace=[1.2])), 1.2)
    assert drift_of(two_kinds([], RATIO, pace=[0.0])).tolist() == [1.0, 1.0]  # it restarts
    assert drift_of(two_kinds([A], RATIO, runs=False)).tolist() == [1.0, 1.0]
    both = two_kinds([B], RATIO, pace=[0.45, 0.2], share_at=[0, 0], share_len=[2, 2])
    # A keeps .5 beside B and is at .9 of that; B keeps .4 beside A and is at half of that.
    np.testing.assert_allclose(drift_of(both), 0.9**0.5)


def test_what_is_seen_of_drift_is_the_speed_of_the_machines() -> None:
    world = load("das-small", ["workload.jobs=60"]).draw(0)
    backend = Simulator(world.cluster, world.trace, world.when, seed=0, physics=world.physics)
    speeds, compared = backend.state.net.machine_speed, 0

    class Watching(ContentionGreedy):
        def decide(self, snapshot: Snapshot) -> Any:
            nonlocal compared
            step = int(snapshot.time_s / backend.clock["drift_step_s"]) % speeds.shape[1]
            rows = snapshot.jobs.rows
            # One that runs on a single node is as fast as this node.
            runs = (rows["share_len"] == 1) & (rows["pace"] > 0)
            nodes = np.unique(snapshot.shares["node"][rows["share_at"][runs]])
            if len(nodes):
                np.testing.assert_allclose(drift_of(snapshot)[nodes], speeds[nodes, step])
            compared += len(nodes)
            return super().decide(snapshot)

    for _ in rounds(Watching(), backend):
        pass
    assert compared > 100


@settings(max_examples=40)
@given(snapshots(modes=(PAIRS, RANKS), most_nodes=12), st.sampled_from([0.5, 0.7, 0.9]))
def test_nobody_is_lowered_below_the_minimum_ratio(snapshot: Snapshot, least: float) -> None:
    world = SlowWorld(snapshot)
    for policy in (ContentionGreedy(min_ratio=least), ContentionRollout(min_ratio=least)):
        decision = policy.decide(snapshot)
        decision.check(snapshot)  # nor is a node overfilled
        known = {**world.running, **world.waiting}
        jobs = {}
        for j, job in known.items():
            if decision.share(j):
                held = tuple((n, w) for n, w, _ in decision.share(j))
                jobs[j] = type(job)(job.curve, job.gpus, held, job.left)
        for j in jobs:
            before = world.ratio(j, world.running) if j in world.running else 1.0
            assert world.ratio(j, jobs) >= min(least, before) - 1e-9


# -- racks: nodes of two GPUs, jobs of two workers over two nodes ---------------------------


def racked(
    queue: int, held: dict[int, list[tuple[int, int]]], *, nodes: int = 4,
    uplink_gbps: float = 15.0, spine_gbps: float = np.inf, per_rack: int = 2,
) -> Snapshot:  # fmt: skip
    """Jobs that talk all of the time and want 10 Gb/s; NICs have more than enough."""
    speed = np.zeros((1, 3, 3))
    speed[0, 2, 2] = 1.0
    racks = -(-nodes // per_rack)
    laws = Contention(
        LINKS, np.where(speed[[0, 0]] > 0, 0, -1), np.zeros((0, 0)), np.zeros(1), np.zeros(1),
        0.0, np.full(1, 10.0), np.ones(1), np.full(nodes, 1e3), np.full(racks, uplink_gbps),
        spine_gbps,
    )  # fmt: skip
    jobs = [Job(workers=2, curve=0, estimate_s=100.0) for _ in range(len(held) + queue)]
    return Snapshot.of(
        Cluster.uniform(nodes, 2, per_rack=per_rack), jobs, held, curves=curves_of(speed),
        contention=laws,
    )  # fmt: skip


def test_a_newcomer_that_crosses_racks_counts_what_the_others_lose_on_uplinks() -> None:
    # One job over both racks: with another, 20 Gb/s want 15, both keep 3/4. The newcomer gains
    # 2 × 3/4 and costs 2 × 1/4: 1/2 per GPU.
    one_each = {0: [(0, 1), (2, 1)], 1: [(0, 1), (1, 1)], 2: [(2, 1), (3, 1)]}
    snapshot = racked(1, one_each)  # a GPU is left in each rack
    assert started(ContentionGreedy(threshold=0.49), snapshot) == [3]
    assert started(ContentionGreedy(threshold=0.51), snapshot) == []
    assert started(ContentionGreedy(min_ratio=0.74), snapshot) == [3]
    assert started(ContentionGreedy(min_ratio=0.76), snapshot) == []
    wide = racked(1, one_each, uplink_gbps=20.0)
    assert started(ContentionGreedy(threshold=0.99), wide) == [3]
    narrow = racked(1, one_each, uplink_gbps=20.0, spine_gbps=15.0)
    assert started(ContentionGreedy(threshold=0.49), narrow) == [3]
    assert started(ContentionGreedy(threshold=0.51), narrow) == []


@pytest.mark.parametrize("nodes", [4, 12])
def test_a_job_stays_in_a_rack_if_its_uplink_is_busy(nodes: int) -> None:
    # A job over nodes 0 and 2; between equals the fuller node comes first, so both would do.
    held = {0: [(0, 1), (2, 1)]}
    for policy in (ContentionGreedy(), ContentionRollout()):
        share = policy.decide(racked(1, held, nodes=nodes)).share(1)
        assert len({n // 2 for n, _, _ in share}) == 1


def test_a_job_that_leaves_an_uplink_makes_room_there() -> None:
    # Both over the racks, 10 s left: they end at 10 / (3/4) s. The third waits for a GPU until
    # then and is alone afterwards, or else the third is in the way: 30 Gb/s for 15.
    held = {0: [(0, 1), (2, 1)], 1: [(1, 1), (3, 1)]}
    snapshot = racked(1, held)
    world = SlowWorld(snapshot)
    assert world.ratio(0, world.running) == 0.75
    policy = ContentionRollout(threshold=0.0)
    assert_same(snapshot, policy, world.rollout(Rule(), policy.k))


def test_a_large_cluster_is_searched_node_by_node() -> None:
    # Ten nodes, nine of them disturbed by a job of their own and a neighbour's; the gang of two
    # nodes goes to the pair that shares both nodes with one job, not to two different ones.
    speed = np.zeros((1, 3, 5))
    speed[0, 2, 4] = 1.0
    kind = np.full((2, 3, 5), -1)
    kind[0, 2] = 0
    jobs = [Job(workers=4, curve=0, estimate_s=100.0) for _ in range(6)]
    held = {i: [(2 * i, 2), (2 * i + 1, 2)] for i in range(5)}
    snapshot = Snapshot.of(
        Cluster.uniform(10, 4), jobs, held, curves=curves_of(speed),
        contention=pairs(kind, [[0.7]]),
    )  # fmt: skip
    for policy in (ContentionGreedy(), ContentionRollout()):
        assert [n for n, _, _ in policy.decide(snapshot).share(5)] == [0, 1]


def test_without_a_reason_to_cross_racks_a_large_cluster_offers_the_set_within_one() -> None:
    # Node 0 is half full, so it comes first; beside it the only other half-full node is in the
    # second rack. Uplinks are free: both sets score the same, and the one within a rack is taken.
    held = {0: [(0, 1), (1, 1)], 1: [(1, 1), (4, 1)]}
    snapshot = racked(1, held, nodes=12, per_rack=4, uplink_gbps=1e3)
    share = ContentionGreedy().decide(snapshot).share(2)
    assert len({n // 4 for n, _, _ in share}) == 1


@settings(max_examples=40)
@given(snapshots(most_nodes=14) | snapshots(most_nodes=14, racks=True), RULES)
def test_what_is_remembered_of_nodes_is_what_one_finds_anew(snapshot: Snapshot, rule: Rule) -> None:
    for policy in (
        ContentionGreedy(threshold=rule.threshold, min_ratio=rule.min_ratio),
        ContentionRollout(threshold=rule.threshold, min_ratio=rule.min_ratio),
    ):
        shares = []
        for most in (256, 0, 3):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(neighbours, "MOST_KEPT", most)
                decision = policy.decide(snapshot)
            shares.append([decision.share(j) for j in range(len(snapshot.jobs))])
        assert shares[0] == shares[1] == shares[2]


def test_a_round_of_more_placements_than_are_compared_overfills_no_node() -> None:
    # 48 jobs of two GPUs each on 12 nodes of 8: the look-ahead compares 32 placements.
    speed = np.zeros((1, 3, 3))
    speed[0, 1:, 2] = 1.0
    kind = np.full((2, 3, 3), -1)
    kind[0, 2] = 0
    jobs = [Job(workers=2, curve=0, estimate_s=100.0 + j) for j in range(60)]
    snapshot = Snapshot.of(
        Cluster.uniform(12, 8), jobs, {0: [(0, 1), (1, 1)]}, curves=curves_of(speed),
        contention=pairs(kind, [[0.7]]),
    )  # fmt: skip
    assert len(started(ContentionRollout(threshold=0.0, k=2), snapshot)) == 47


@pytest.mark.parametrize("mode", [PAIRS, RANKS, LINKS, MACHINES])
def test_alone_nobody_is_slowed_down(mode: int) -> None:
    speed = np.zeros((1, 3, 5))
    speed[0, 2, 4] = 1.0
    kind = np.full((2, 3, 5), 0)
    one = np.ones(1)
    laws = Contention(mode, kind, np.full((1, 1), 0.1), one, one, 0.0, one, one,
                      np.zeros(0), np.zeros(0), np.inf)  # fmt: skip
    snapshot = Snapshot.of(
        Cluster.uniform(2, 4), [Job(workers=4, curve=0)], curves=curves_of(speed), contention=laws
    )
    assert started(ContentionGreedy(threshold=0.999), snapshot) == [0]
