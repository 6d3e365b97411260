"""The baselines of DAS that search and learn: `malo`, `mosa` and `rifling`."""

from __future__ import annotations

from itertools import permutations, product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_keys import SlowKeys

from rota.core import Cluster, Job, Snapshot
from rota.core.jobs import JobTable
from rota.core.speed import Curves
from rota.errors import ConfigError
from rota.policies import make_policy
from rota.policies.published.key_decoding_kernels import decode_one
from rota.policies.published.key_search import first_candidates, keyed_queue, room_to_decode
from rota.policies.published.malo import new_colony
from rota.policies.published.malo_kernels import EXTRA_DRAWS, hunt
from rota.policies.published.mosa import new_archive, picked
from rota.policies.published.mosa_kernels import MOVE_DRAWS, anneal
from rota.policies.published.rifling import Rifling
from rota.testing import policy_cases

if TYPE_CHECKING:
    from rota.policies.published.key_decoding_kernels import KeyedQueue
    from rota.testing.policy_contract import PolicyCase

NAMES = ["malo", "malo:evals=2,weight=1,window=2", "mosa", "mosa:weight=0,window=1,seed=3",
         "rifling", "rifling:epsilon=1,rate=1,discount=0,window=2"]  # fmt: skip
FAST, SLOW = 0, 1


@pytest.mark.parametrize("case", policy_cases(), ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_they_keep_the_contract(case: PolicyCase, name: str) -> None:
    case(make_policy(name))


def curves_of(slow: float = 0.5, across: float = 0.5) -> Curves:
    """A model that has parts of its speed on slow GPUs and over nodes, one that needs two nodes,
    and one of which there is no speed at all."""
    speed = np.zeros((3, 2, 4, 9))
    speed[:2, :, 1] = 10.0 * np.arange(9)
    speed[:2, :, 2:] = across * speed[:2, :, 1:2]
    speed[:, SLOW] *= slow
    speed[1, :, 1, 2:] = 0.0
    return Curves(("a", "b", "c"), ("fast", "slow"), speed, by_nodes=True,
                  measured=np.full((3, 2), 4))  # fmt: skip


def two_types(gpus: list[int], types: list[int], prices: list[float] | None = None) -> Cluster:
    return Cluster(gpus=gpus, gpu_types=("fast", "slow"), type=types, cpus=[8.0] * len(gpus),
                   memory_gb=[32.0] * len(gpus),
                   price_per_gpu_h=prices or [4.0 - 2.5 * t for t in types])  # fmt: skip


@st.composite
def rounds(draw: st.DrawFn) -> Snapshot:
    """Small clusters in which nodes may be down, and jobs of all kinds, some of which run."""
    gpus = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    cluster = two_types(gpus, [draw(st.integers(0, 1)) for _ in gpus])
    jobs: list[Job] = []
    held: dict[int, list[tuple[int, int, int]]] = {}
    for index in range(draw(st.integers(0, 8))):
        job = Job(
            workers=draw(st.integers(1, 5)), gpus_per_worker=draw(st.sampled_from([1, 1, 2, 0])),
            servers=draw(st.sampled_from([0, 0, 1, 3])), cpus_per_server=2.0,
            cpus_per_worker=draw(st.sampled_from([0.0, 0.5, 3.0])),
            memory_gb_per_worker=draw(st.sampled_from([0.0, 20.0])),
            curve=draw(st.integers(-1, 2)), gpu_type=draw(st.sampled_from([-1, -1, 0, 1, -2])),
            estimate_s=draw(st.sampled_from([0.0, 10.0, 5e3, 1e300, np.nan])),
        )  # fmt: skip
        jobs.append(job)
        node, need = draw(st.integers(0, len(gpus) - 1)), job.workers * job.gpus_per_worker
        alone = all(node != share[0][0] for share in held.values())
        small = job.workers == 1 and job.servers <= 1 and job.gpu_type in (-1, cluster.type[node])
        if draw(st.booleans()) and alone and small and need <= gpus[node]:
            held[index] = [(node, 1, job.servers)]
    curves = draw(st.sampled_from([None, curves_of()]))
    made = Snapshot.of(cluster, jobs, held, time_s=1000.0, curves=curves)
    nodes = made.nodes.copy()
    down = np.array([draw(st.integers(0, 4)) == 0 for _ in gpus])
    nodes["up"] &= ~down
    nodes["free"][down] = 0
    return Snapshot(1000.0, cluster, made.jobs, nodes, made.shares, curves)


@settings(deadline=None)  # the first call compiles
@given(rounds(), st.integers(0, 1000))
def test_the_decoder_and_its_slow_twin_agree(snapshot: Snapshot, seed: int) -> None:
    waiting = np.flatnonzero(snapshot.jobs.waiting)
    if not len(waiting):
        return
    queue = keyed_queue(snapshot, waiting)
    decoded, value = room_to_decode(queue), np.zeros(2)
    for x in (*first_candidates(queue), np.random.default_rng(seed).random(2 * len(waiting))):
        decode_one(queue, decoded, x, value)
        time_s, fee, started = SlowKeys(queue).decode(x.tolist())
        assert np.isfinite(value).all()
        np.testing.assert_allclose(value, [time_s, fee], rtol=1e-9)
        for j in range(len(waiting)):
            part = slice(decoded.at[j], decoded.at[j] + decoded.span[j])
            found = list(zip(decoded.node[part], decoded.part[part], strict=True))
            assert found == [(n, w) for n, w, _ in started.get(j, [])]


@settings(deadline=None)
@given(rounds(), st.sampled_from(["malo:evals=30", "mosa:evals=30", "rifling:epsilon=0.5"]))
def test_whatever_the_round_it_is_decided_soundly_and_without_preemption(
    snapshot: Snapshot, name: str
) -> None:
    decision = make_policy(name).decide(snapshot)
    decision.check(snapshot)
    for job in np.flatnonzero(snapshot.jobs.running).tolist():
        assert list(decision.share(job)) == snapshot.share(job)
    for job in np.flatnonzero(snapshot.jobs.waiting).tolist():
        workers = sum(entry[1] for entry in decision.share(job))
        assert workers in (0, snapshot.jobs.workers[job])


def nodes_of(name: str, snapshot: Snapshot) -> list[list[int]]:
    decision = make_policy(name).decide(snapshot)
    return [[entry[0] for entry in decision.share(job)] for job in range(len(snapshot.jobs))]


@pytest.mark.parametrize("name", ["malo", "mosa"])
def test_the_weight_says_whether_the_fast_or_the_cheap_node_is_taken(name: str) -> None:
    # 100 s at 4 an hour, or 200 s at 1.5: twice as fast, and 4 to 3 in price.
    jobs = [Job(workers=1, curve=0, estimate_s=100.0)]
    snapshot = Snapshot.of(two_types([1, 1], [FAST, SLOW]), jobs, curves=curves_of())
    assert nodes_of(f"{name}:weight=0", snapshot) == [[0]]
    assert nodes_of(f"{name}:weight=1", snapshot) == [[1]]


@pytest.mark.parametrize("name", ["malo:weight=0", "mosa:weight=0"])
def test_the_job_that_loses_most_on_the_slow_node_gets_the_fast_one(name: str) -> None:
    # Job 1 has no curve, so every node is as good: 10 + 100 s. The other way: 10 + 200 s.
    jobs = [Job(workers=1, estimate_s=10.0), Job(workers=1, curve=0, estimate_s=100.0)]
    snapshot = Snapshot.of(two_types([1, 1], [FAST, SLOW]), jobs, curves=curves_of())
    assert nodes_of(name, snapshot) == [[1], [0]]


@pytest.mark.parametrize("name", ["malo:weight=0", "mosa:weight=0"])
def test_of_two_jobs_and_room_for_one_the_short_one_starts(name: str) -> None:
    jobs = [Job(workers=1, estimate_s=100.0), Job(workers=1, estimate_s=10.0)]
    assert nodes_of(name, Snapshot.of(Cluster.uniform(1, 1), jobs)) == [[], [0]]


def test_the_objectives_of_a_round_solved_by_hand() -> None:
    # Job 0 runs on for 30 s. Job 2 starts: 10 s at 4 an hour. Job 1 waits for (30 + 10) / 2 s, and
    # runs for 100 s, at 4 an hour on average.
    jobs = [Job(workers=1, estimate_s=left) for left in (30.0, 100.0, 10.0)]
    cluster = Cluster(gpus=[1, 1], price_per_gpu_h=[4.0, 4.0])
    queue = keyed_queue(Snapshot.of(cluster, jobs, {0: [(0, 1)]}), np.array([1, 2]))
    value = np.zeros(2)
    decode_one(queue, room_to_decode(queue), np.array([0.9, 0.1, 0.0, 0.0]), value)
    np.testing.assert_allclose(value, [(10 + 120) / 2, (10 + 100) / 2 * 4 / 3600])


def small_queue() -> KeyedQueue:
    asked = ((1, 0, 900.0), (2, -1, 60.0), (1, 0, 300.0), (1, -1, 2000.0))
    jobs = [Job(workers=w, curve=c, estimate_s=s) for w, c, s in asked]
    snapshot = Snapshot.of(two_types([1, 2], [FAST, SLOW]), jobs, curves=curves_of())
    return keyed_queue(snapshot, np.arange(4))


def every_point(queue: KeyedQueue) -> np.ndarray[Any, Any]:
    """Time and fee of all schedules that can be decoded (K, 2)."""
    decoded, J, N = room_to_decode(queue), len(queue.workers), len(queue.free)
    points = []
    for order, first in product(permutations(range(J)), product(range(N), repeat=J)):
        value = np.zeros(2)
        x = np.concatenate([np.array(order) / J, (np.array(first) + 0.5) / N])
        decode_one(queue, decoded, x, value)
        points.append(value)
    return np.array(points)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_malo_finds_the_best_of_all_schedules_of_a_small_round(weight: float) -> None:
    queue = small_queue()
    first, decoded = first_candidates(queue), room_to_decode(queue)
    unit = np.zeros(2)
    decode_one(queue, decoded, first[0], unit)
    best = (every_point(queue) / unit @ [1 - weight, weight]).min()
    colony = new_colony(first)
    draws = np.random.default_rng(0).random((2000, first.shape[1] + EXTRA_DRAWS))
    hunt(queue, decoded, colony, len(first), weight, draws)
    assert colony.value / unit @ [1 - weight, weight] == pytest.approx(best)


def archive(queue: KeyedQueue, evals: int, seed: int = 0) -> np.ndarray[Any, Any]:
    first = first_candidates(queue)
    memory = new_archive(first.shape[1])
    draws = np.random.default_rng(seed).random((evals, MOVE_DRAWS))
    anneal(queue, room_to_decode(queue), memory, first, draws)
    for x, point in zip(memory.kept, memory.point[: memory.filled[0]], strict=False):
        value = np.zeros(2)
        decode_one(queue, room_to_decode(queue), x, value)
        np.testing.assert_array_equal(value, point)
    return memory.point[: memory.filled[0]]


def is_beaten(point: Any, others: Any) -> bool:
    return bool(((others <= point).all(axis=1) & (others < point).any(axis=1)).any())


def test_mosa_finds_the_front_of_a_small_round() -> None:
    every, found = every_point(small_queue()), archive(small_queue(), 4000)
    front = {tuple(point) for point in every if not is_beaten(point, every)}
    assert len(front) > 1
    assert {tuple(point) for point in found} == front


@settings(deadline=None)
@given(rounds(), st.integers(2, 100))
def test_no_point_of_the_archive_beats_another(snapshot: Snapshot, evals: int) -> None:
    waiting = np.flatnonzero(snapshot.jobs.waiting)
    if len(waiting):
        found = archive(keyed_queue(snapshot, waiting), evals)
        assert len({tuple(point) for point in found}) == len(found) > 0
        assert not any(is_beaten(point, found) for point in found)


def test_the_weight_picks_an_end_of_the_front_or_its_knee() -> None:
    front = np.array([[1.0, 9.0], [2.0, 3.0], [5.0, 2.0], [9.0, 1.0]])
    assert [picked(front, weight) for weight in (0.0, 0.5, 1.0)] == [0, 1, 3]


@pytest.mark.parametrize("name", ["malo", "mosa", "rifling:epsilon=0.5"])
def test_the_seed_says_all(name: str) -> None:
    rng = np.random.default_rng(5)
    jobs = [Job(workers=int(rng.integers(1, 4)), estimate_s=float(rng.integers(10, 9999)))
            for _ in range(30)]  # fmt: skip
    snapshot = Snapshot.of(two_types([4] * 8, [FAST, SLOW] * 4), jobs)
    sep = "," if ":" in name else ":"
    by_seed = [nodes_of(f"{name}{sep}seed={seed}", snapshot) for seed in (0, 0, 1, 2)]
    assert by_seed[0] == by_seed[1]
    assert len({str(one) for one in by_seed}) > 1


@pytest.mark.parametrize("name", ["malo:evals=10,window=2", "mosa:evals=10,window=2",
                                  "rifling:window=2"])  # fmt: skip
def test_who_is_behind_the_window_takes_what_is_left(name: str) -> None:
    jobs = [Job(workers=1, estimate_s=60.0) for _ in range(5)]
    found = nodes_of(name, Snapshot.of(Cluster.uniform(1, 4), jobs))
    assert found == [[0], [0], [0], [0], []]


def watched(policy: Rifling, rounds_seen: int) -> Snapshot:
    """Play rounds in which the job on the first node, whose type is 'fast', hardly gets on."""
    cluster = two_types([2, 2], [FAST, SLOW])
    jobs = [Job(workers=1, estimate_s=1e5) for _ in range(3)]
    for time_s in range(rounds_seen + 1):
        held = {0: [(0, 1)], 1: [(1, 1)]}
        made = Snapshot.of(cluster, jobs, held, time_s=float(time_s))
        rows = made.jobs.rows.copy()
        rows["pace"][:2] = 0.1, 0.9
        seen = Snapshot(float(time_s), cluster, JobTable(rows), made.nodes, made.shares)
        policy.decide(seen)
    return Snapshot.of(cluster, jobs, time_s=rounds_seen + 1.0)


def test_rifling_learns_to_avoid_the_node_that_is_slow() -> None:
    policy = Rifling(epsilon=0.0)
    last = watched(policy, 50)
    assert [entry[0] for entry in policy.decide(last).share(0)] == [1]
    # Nothing is left of it in another run: both are as good, and the first one is taken.
    again = Snapshot.of(last.cluster, [Job(workers=1)], time_s=0.0)
    assert [entry[0] for entry in policy.decide(again).share(0)] == [0]
    assert len(np.unique(policy.values)) == 1


def test_rifling_values_what_follows_by_the_discount() -> None:
    # A pace of 0.1 for ever is worth 0.1 / (1 − 0.5); what was never seen is hoped to be 1 / 0.5.
    policy = Rifling(epsilon=0.0, rate=0.5, discount=0.5)
    watched(policy, 200)
    row, fast, slow = 1 * 3 + 2, 0, 1  # one GPU, nothing known to be lost; empty beside itself
    np.testing.assert_allclose(policy.values[row, [fast, slow]], [0.2, 1.8], rtol=1e-6)
    assert (np.delete(policy.values, row, axis=0) == 2.0).all()


def test_rifling_learns_once_from_a_moment_however_often_it_is_asked() -> None:
    policy = Rifling(epsilon=0.0)
    watched(policy, 3)
    before = policy.values
    rows = [Job(workers=1, estimate_s=1e5) for _ in range(3)]
    policy.decide(Snapshot.of(two_types([2, 2], [FAST, SLOW]), rows, {1: [(0, 1)]}, time_s=3.0))
    np.testing.assert_array_equal(policy.values, before)


@pytest.mark.parametrize(
    "name",
    ["malo:evals=1", "malo:evals=x", "malo:weight=1.5", "malo:weight=nan", "mosa:window=0",
     "mosa:seed=-1", "mosa:weight=-0.1", "rifling:epsilon=2", "rifling:discount=1",
     "rifling:rate=-1", "rifling:evals=5", "malo+best-fit"],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        make_policy(name)
