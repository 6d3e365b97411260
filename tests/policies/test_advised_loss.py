"""The policy `das`: what its two agents change in rounds of `least-loss`, and what fees change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from slow_snapshots import snapshots
from test_least_loss import LIKES_FAST, job, two_types

from rota.core import Cluster, Snapshot
from rota.policies import make_policy
from rota.policies.contention.advised_loss import HIDDEN, KNOWN, AdvisedLoss, Das, learned
from rota.policies.contention.least_loss import LeastLoss
from rota.policies.contention.loss_advice_kernels import ORDERING, PLACING


def advised(**weights: float) -> AdvisedLoss:
    """With these weights, by part and name as in `order_gpus`, and 0 for the others."""
    order, place = np.zeros(len(ORDERING)), np.zeros(len(PLACING))
    for name, weight in weights.items():
        part, _, seen = name.partition("_")
        if part == "order":
            order[ORDERING.index(seen)] = weight
        else:
            place[PLACING.index(seen)] = weight
    return AdvisedLoss(ordering=order, placing=place)


def started(policy: Any, snapshot: Snapshot) -> list[list[tuple[int, int]]]:
    decision = policy.decide(snapshot)
    decision.check(snapshot)
    return [[(n, w) for n, w, _ in decision.share(j)] for j in range(len(snapshot.jobs))]


@given(snapshots())
@settings(max_examples=30, deadline=None)
def test_without_weights_it_is_the_rule(snapshot: Snapshot) -> None:
    own, rule = AdvisedLoss().decide(snapshot), LeastLoss().decide(snapshot)
    for j in range(len(snapshot.jobs)):
        assert own.share(j) == rule.share(j)


@given(snapshots())
@settings(max_examples=30, deadline=None)
def test_what_was_learned_gives_valid_rounds(snapshot: Snapshot) -> None:
    for lengths in (True, False):
        Das(lengths=lengths).decide(snapshot).check(snapshot)


def test_the_ordering_agent_changes_who_goes_first() -> None:
    """4 GPUs × 300 s come after 2 × 500 s by GPU-seconds, and before them by seconds."""
    snapshot = two_types([job(4, 300.0), job(2, 500.0)], {}, "f")
    assert started(LeastLoss(), snapshot) == [[], [(0, 2)]]
    assert started(advised(order_gpus=-1.0), snapshot) == [[(0, 4)], []]


def test_the_ordering_agent_may_prefer_who_has_waited() -> None:
    snapshot = two_types([job(4, 300.0), job(4, 600.0)], {}, "f", submit_s=[-10.0, -36_000.0])
    assert started(LeastLoss(), snapshot) == [[(0, 4)], []]
    assert started(advised(order_age=-1.0), snapshot) == [[], [(0, 4)]]


def test_the_placement_agent_may_keep_fast_gpus_free() -> None:
    """On the slow node, 600 s become 2,400 s, 1,800 s lost; half an hour at most of 3,600 s."""
    snapshot = two_types([job(4, 600.0, LIKES_FAST)], {}, "fs")
    assert started(advised(place_own=0.4), snapshot) == [[(0, 4)]]
    assert started(advised(place_own=1.0), snapshot) == [[(1, 4)]]


def test_a_dear_place_must_save_time_that_is_worth_it() -> None:
    """4 GPUs for 600 s at $4 beyond the slow node's $1: $2.67; there it loses 1,800 s and $2."""
    bare = two_types([job(4, 600.0, LIKES_FAST)], {}, "fs")
    nodes = bare.nodes.copy()
    for prices, node in (((4.0, 1.0), 0), ((40.0, 1.0), 1)):
        nodes["price_per_gpu_h"] = prices
        snapshot = replace(bare, nodes=nodes.copy())
        assert started(LeastLoss(), snapshot) == [[(0, 4)]]
        assert started(LeastLoss(fee=1000.0), snapshot) == [[(node, 4)]]


def test_numbers_beyond_measure_leave_every_job_a_place() -> None:
    bare = two_types([job(4, 600.0, LIKES_FAST), job(4, 1e300)], {}, "fs")
    nodes = bare.nodes.copy()
    nodes["price_per_gpu_h"] = 1e308
    policy = make_policy("das:fee=1000000")
    assert all(started(policy, replace(bare, nodes=nodes)))


def test_the_second_pair_of_agents_is_asked_where_no_length_is_known() -> None:
    hidden = two_types([job(4, float("nan"))], {}, "f")
    known = two_types([job(4, 600.0)], {}, "f")
    for snapshot, policy, asked in (
        (known, Das(), KNOWN), (hidden, Das(), HIDDEN), (known, Das(lengths=False), HIDDEN),
    ):  # fmt: skip
        plain = AdvisedLoss.of(learned()[asked], lengths=policy.lengths)
        assert policy.decide(snapshot).share(0) == plain.decide(snapshot).share(0)


def test_an_empty_queue_and_a_cluster_that_is_down() -> None:
    assert Das().decide(Snapshot.of(Cluster.uniform(1, 4), [])).wake_s == np.inf
    bare = two_types([job(4, 600.0)], {}, "fs")
    nodes = bare.nodes.copy()
    nodes["up"] = False
    assert started(Das(), replace(bare, nodes=nodes)) == [[]]


@pytest.mark.parametrize("which", [KNOWN, HIDDEN])
def test_the_file_names_every_weight_once(which: str) -> None:
    table = learned()[which]
    assert tuple(table["ordering"]) == ORDERING
    assert tuple(table["placing"]) == PLACING
