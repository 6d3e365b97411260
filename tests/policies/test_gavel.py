"""Gavel's programs against answers by hand, and leases that come to what the programs say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core import Cluster, Job, Snapshot
from rota.core.jobs import JobTable
from rota.core.speed import Curves
from rota.errors import ConfigError, PolicyError
from rota.policies import make_policy
from rota.policies.gpu_types.gavel import max_min, most_gain
from rota.policies.gpu_types.linear import Program
from rota.policies.gpu_types.type_pools import TypePools
from rota.testing import check_policy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.core.types import Floats

FAST_AND_SLOW = Cluster(gpus=[1, 1], gpu_types=("fast", "slow"), type=[0, 1])
NAMES = ("gavel-max-min", "gavel-min-jct")


def curves_of(*speeds: Sequence[float], workers: int = 1) -> Curves:
    """Models with so much speed per worker on each type, however many nodes they span."""
    table = np.zeros((len(speeds), len(speeds[0]), 5, workers + 1))
    table[:, :, 1:, :] = np.array(speeds)[:, :, None, None] * np.arange(workers + 1)
    names = tuple(f"model-{c}" for c in range(len(speeds)))
    types = ("fast", "slow", "mid")[: len(speeds[0])]
    return Curves(names, types, table, by_nodes=True, measured=np.ones((len(speeds), 2), np.int64))


def at(
    time_s: float,
    cluster: Cluster,
    jobs: Sequence[Job],
    held: Mapping[int, Sequence[tuple[int, int]]],
    curves: Curves | None = None,
) -> Snapshot:
    """A snapshot in which those who run have done so since 0."""
    made = Snapshot.of(cluster, jobs, held, time_s=time_s)
    rows = made.jobs.rows.copy()
    rows["since_s"][rows["share_len"] > 0] = 0.0
    return Snapshot(time_s, cluster, JobTable(rows), made.nodes, made.shares, curves)


def play(
    policy: Any,
    cluster: Cluster,
    jobs: Sequence[Job],
    curves: Curves | None,
    rounds: int,
    lease_s: float = 360.0,
) -> Floats:
    """The fraction of rounds each job spent on each type, when nobody comes or goes."""
    received = np.zeros((len(jobs), len(cluster.gpu_types)))
    held: dict[int, list[tuple[int, int]]] = {}
    for turn in range(rounds):
        decision = policy.decide(at(turn * lease_s, cluster, jobs, held, curves))
        held = {}
        for job in range(len(jobs)):
            share = [(node, workers) for node, workers, _ in decision.share(job)]
            if share:
                held[job] = share
                received[job, cluster.type[share[0][0]]] += 1
    return received / rounds


def fractions(name: str, cluster: Cluster, jobs: Sequence[Job], curves: Curves | None) -> Floats:
    policy: Any = make_policy(name)
    policy.decide(Snapshot.of(cluster, jobs, curves=curves))
    answer: Floats = policy._solved[1]
    return answer[:, :-1]


@pytest.mark.parametrize("name", NAMES)
def test_the_contract_is_kept(name: str) -> None:
    check_policy(lambda: make_policy(name))


def test_who_gains_most_from_the_fast_type_gets_it() -> None:
    # Model 0 is 4 times as fast there, model 1 no faster: its level is 1 wherever it runs.
    # A plain program is content with 1 for both; water-filling lets model 0 rise to 4 / 2.5.
    curves = curves_of([4, 1], [1, 1])
    jobs = [Job(workers=1, curve=0), Job(workers=1, curve=1)]
    np.testing.assert_allclose(
        fractions("gavel-max-min", FAST_AND_SLOW, jobs, curves), np.eye(2), atol=1e-6
    )


def test_three_jobs_on_two_types_share_as_solved_by_hand() -> None:
    # Jobs 0 and 1 run twice as fast on the fast GPU, job 2 as fast on either. An equal share of
    # ⅓ and ⅓ is worth 1 and ⅔. Job 2 takes only slow time s: level 3s / 2. The others split the
    # fast GPU and the slow one's rest: (1 + (1 − s) / 2). Equal at s = ¾: level 9/8.
    curves = curves_of([2, 1], [2, 1], [1, 1])
    jobs = [Job(workers=1, curve=c) for c in range(3)]
    got = fractions("gavel-max-min", FAST_AND_SLOW, jobs, curves)
    np.testing.assert_allclose(got, [[0.5, 0.125], [0.5, 0.125], [0, 0.75]], atol=1e-6)


def test_a_gang_counts_by_its_share_of_gpus() -> None:
    # 4 GPUs of one type; a gang of 4 and two single jobs: 4x = 4/3 GPUs for the gang, but the
    # single jobs cannot use more than one each, so the gang is left 2 of 4: half the time.
    cluster = Cluster(gpus=[4], gpu_types=("fast",))
    jobs = [Job(workers=4), Job(workers=1), Job(workers=1)]
    got = fractions("gavel-max-min", cluster, jobs, None)
    np.testing.assert_allclose(got[:, 0], [0.5, 1, 1], atol=1e-6)


def test_the_shorter_job_gets_the_fast_type_unless_it_gains_nothing() -> None:
    jobs = [Job(workers=1, curve=0, estimate_s=100), Job(workers=1, curve=1, estimate_s=1000)]
    # Per second, in 1/1000 of the remaining work: 10 or 5 against 1 or .25.
    both_gain = fractions("gavel-min-jct", FAST_AND_SLOW, jobs, curves_of([2, 1], [4, 1]))
    np.testing.assert_allclose(both_gain, np.eye(2), atol=1e-6)
    one_gains = fractions("gavel-min-jct", FAST_AND_SLOW, jobs, curves_of([1, 1], [4, 1]))
    np.testing.assert_allclose(one_gains, np.eye(2)[::-1], atol=1e-6)


def test_on_equal_gpus_the_shortest_run() -> None:
    jobs = [Job(workers=1, estimate_s=s) for s in (500, 100, 300, 200)]
    got = fractions("gavel-min-jct", Cluster.uniform(1, 2), jobs, None)
    np.testing.assert_allclose(got[:, 0], [0, 1, 0, 1], atol=1e-6)


def test_equal_jobs_of_unknown_length_all_get_room_in_turn() -> None:
    jobs = [Job(workers=1), Job(workers=1)]
    got = fractions("gavel-min-jct", Cluster.uniform(1, 1), jobs, None)
    assert got.sum() == pytest.approx(1.0)


def test_a_job_bound_to_a_type_uses_no_other() -> None:
    jobs = [Job(workers=1, curve=0, gpu_type=1), Job(workers=1, curve=0, gpu_type=1)]
    for name in NAMES:
        got = fractions(name, FAST_AND_SLOW, jobs, curves_of([2, 1]))
        assert got[:, 0].tolist() == [0, 0]
        assert got[:, 1].sum() == pytest.approx(1.0)


def test_curves_may_list_the_types_in_another_order() -> None:
    curves = curves_of([4, 1], [1, 1])
    turned = Curves(
        curves.names, ("slow", "fast"), np.ascontiguousarray(curves.speed[:, ::-1]),
        by_nodes=True, measured=curves.measured,
    )  # fmt: skip
    jobs = [Job(workers=1, curve=0), Job(workers=1, curve=1)]
    got = fractions("gavel-max-min", FAST_AND_SLOW, jobs, turned)
    np.testing.assert_allclose(got, np.eye(2), atol=1e-6)


def test_a_gang_that_no_type_holds_runs_over_several() -> None:
    jobs = [Job(workers=2, curve=0), Job(workers=1, curve=0)]
    curves = curves_of([4, 1], workers=2)
    pools = TypePools.of(Snapshot.of(FAST_AND_SLOW, jobs, curves=curves))
    assert pools.speed.tolist() == [[0, 0, 2], [4, 1, 0]]  # as fast as its slower worker
    for name in NAMES:
        received = play(make_policy(name), FAST_AND_SLOW, jobs, curves, 40)
        assert (received.sum(axis=1) > 0.2).all()


def test_without_room_or_speed_nobody_is_entitled_to_anything() -> None:
    gain, share = np.zeros((2, 2)), np.eye(2)
    for program in (max_min, most_gain):
        assert not program(gain, np.array([1, 1]), np.array([1, 1]), share).any()
        # Room for nobody: all fractions are 0, and still it is an answer.
        assert not program(np.ones((2, 2)), np.array([1, 1]), np.array([0, 0]), share).any()


def test_a_type_that_is_down_is_not_counted_on() -> None:
    made = Snapshot.of(FAST_AND_SLOW, [Job(workers=1), Job(workers=1)])
    nodes = made.nodes.copy()
    nodes["up"][0], nodes["free"][0] = False, 0
    down = Snapshot(0.0, FAST_AND_SLOW, made.jobs, nodes, made.shares)
    for name in NAMES:
        decision = make_policy(name).decide(down)
        assert sorted(decision.share(j) for j in range(2)) == [(), ((1, 1, 0),)]


def test_a_program_without_an_answer_is_an_error_that_says_so() -> None:
    unbounded = Program(np.ones(1), [(np.array([0]), np.ones(1))], np.zeros(1), np.full(1, np.inf))
    with pytest.raises(PolicyError, match="HiGHS ended with"):
        unbounded.solve()


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=2, max_size=2),
    st.lists(st.integers(1, 2), min_size=2, max_size=2),
)
def test_nothing_on_a_grid_is_fairer(speeds: list[tuple[int, int]], has: list[int]) -> None:
    gain = np.array(speeds, np.float64)
    fraction = max_min(gain, np.array([1, 1]), np.array(has), np.eye(2))
    assert (fraction.sum(axis=1) <= 1 + 1e-6).all()
    assert (fraction.sum(axis=0) <= np.array(has) + 1e-6).all()
    levels = np.sort((fraction * gain).sum(axis=1))
    steps = np.linspace(0, 1, 11)
    a, b, c, d = (x.ravel() for x in np.meshgrid(steps, steps, steps, steps))
    possible = (a + b <= 1) & (c + d <= 1) & (a + c <= has[0]) & (b + d <= has[1])
    first, second = a * gain[0, 0] + b * gain[0, 1], c * gain[1, 0] + d * gain[1, 1]
    least, most = np.minimum(first, second)[possible], np.maximum(first, second)[possible]
    assert least.max() <= levels[0] + 1e-6
    assert most[least >= levels[0] - 1e-9].max(initial=0) <= levels[1] + 1e-6


def test_leases_come_to_the_fractions() -> None:
    curves = curves_of([2, 1], [2, 1], [1, 1])
    jobs = [Job(workers=1, curve=c) for c in range(3)]
    received = play(make_policy("gavel-max-min"), FAST_AND_SLOW, jobs, curves, 400)
    # Over the 64 rounds that count fully the error is about one round.
    np.testing.assert_allclose(received, [[0.5, 0.125], [0.5, 0.125], [0, 0.75]], atol=0.03)


def test_where_no_schedule_gives_all_their_due_all_fall_short_alike() -> None:
    cluster = Cluster.uniform(2, 4)
    jobs = [Job(workers=8), Job(workers=4), Job(workers=4), *[Job(workers=1)] * 4]
    wanted = fractions("gavel-max-min", cluster, jobs, None)
    received = play(make_policy("gavel-max-min"), cluster, jobs, None, 600)
    # No schedule gives everybody his due: when the gang of 8 runs nobody else does, and yet the
    # single jobs are to run all the time. They get 1/8 for 1/6 and 7/8 for 1.
    assert (received.sum(axis=1) > 0.7 * wanted.sum(axis=1)).all()


def test_a_job_that_keeps_its_type_keeps_its_nodes() -> None:
    cluster = Cluster(gpus=[2, 2, 2], gpu_types=("fast", "slow"), type=[0, 0, 1])
    jobs = [Job(workers=1, curve=0) for _ in range(3)]
    held = {0: [(1, 1)], 1: [(0, 1)], 2: [(0, 1)]}
    policy = make_policy("gavel-max-min")
    decision = policy.decide(at(3600.0, cluster, jobs, held, curves_of([2, 1])))
    assert [decision.share(j) for j in range(3)] == [((1, 1, 0),), ((0, 1, 0),), ((0, 1, 0),)]
    assert decision.wake_s == np.inf  # everybody runs where he is to run


def test_between_rounds_only_what_is_free_is_given_out() -> None:
    policy = make_policy("gavel-max-min")
    jobs = [Job(workers=1), Job(workers=1)]
    one = Cluster.uniform(1, 1)
    assert policy.decide(at(0.0, one, jobs[:1], {})).share(0) == ((0, 1, 0),)
    decision = policy.decide(at(100.0, one, jobs, {0: [(0, 1)]}))
    assert (decision.share(1), decision.wake_s) == ((), 360.0)
    later = policy.decide(at(360.0, one, jobs, {0: [(0, 1)]}))
    assert (later.share(0), later.share(1)) == ((), ((0, 1, 0),))


def test_a_policy_that_is_used_again_begins_anew() -> None:
    used = make_policy("gavel-max-min")
    jobs = [Job(workers=1, estimate_s=s) for s in (1, 2, 3)]
    first = play(used, Cluster.uniform(1, 1), jobs, None, 7)
    np.testing.assert_array_equal(play(used, Cluster.uniform(1, 1), jobs, None, 7), first)


def test_jobs_on_cpus_alone_run_beside_the_others() -> None:
    cluster = Cluster.uniform(1, 1, cpus=4)
    jobs = [Job(workers=1), Job(workers=2, gpus_per_worker=0, cpus_per_worker=1.0)]
    for name in NAMES:
        decision = make_policy(name).decide(Snapshot.of(cluster, jobs))
        assert [decision.share(j) for j in range(2)] == [((0, 1, 0),), ((0, 2, 0),)]


def test_a_lease_below_a_second_is_refused() -> None:
    with pytest.raises(ConfigError, match="seconds of a round"):
        make_policy("gavel-max-min:lease=0")
