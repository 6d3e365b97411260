"""Compiled rules against slow, obvious twins: placements, the node index, sorting, Gittins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba
import numpy as np
import pytest
import slow_place
from hypothesis import given
from hypothesis import strategies as st
from slow_place import Ask, Node
from worlds import cluster_of, examples, trace_of, worlds

from rota.core import Cluster, Draft, Job, Snapshot
from rota.ledger.node_kernels import hold, new_index
from rota.policies import PLACEMENTS, Placer, make_policy
from rota.policies.classic.gittins import gittins_table
from rota.policies.classic.sort_kernels import sort
from rota.sim import Simulator, simulate
from rota.sim.replay_kernels import MORE, replay

if TYPE_CHECKING:
    from worlds import Jobs

    from rota.core.types import Floats, Ints, Records

# -- placements --------------------------------------------------------------------------

amounts = st.sampled_from([0.0, 1.0, 2.0, 4.0, 8.0, np.inf])


@st.composite
def nodes_and_gang(draw: st.DrawFn, *, limited: bool) -> tuple[list[Node], Ask]:
    count = draw(st.integers(1, 6))
    largest = draw(st.sampled_from([1, 2, 4, 8]))
    nodes = []
    for _ in range(count):
        gpus = draw(st.sampled_from([largest, largest, largest, max(1, largest // 2)]))
        free = draw(st.sampled_from([gpus, gpus, 0]) | st.integers(0, gpus))
        node = Node(gpus, free, draw(st.integers(0, 1)), draw(st.integers(0, 2)))
        if limited:
            node.cpus, node.memory_gb = draw(amounts), draw(amounts)
        nodes.append(node)
    ask = Ask(draw(st.integers(1, 2 * largest + 2)))
    if limited:
        ask.each = draw(st.sampled_from([1, 1, 2]))
        ask.gpus *= ask.each
        ask.type = draw(st.sampled_from([-1, -1, 0, 1]))
        ask.cpus, ask.memory_gb = draw(st.sampled_from([0.0, 1.0, 1.5])), draw(st.integers(0, 2))
    return nodes, ask


def drafted(nodes: list[Node], ask: Ask) -> Draft:
    """A draft in which so much is free, and the gang waits."""
    cluster = cluster_of(
        [node.gpus for node in nodes],
        gpu_types=("a", "b"),
        type=np.array([node.type for node in nodes]),
        rack=np.array([node.rack for node in nodes]),
    )
    job = Job(
        workers=ask.gpus // ask.each,
        gpus_per_worker=ask.each,
        gpu_type=ask.type,
        cpus_per_worker=ask.cpus,
        memory_gb_per_worker=ask.memory_gb,
    )
    draft = Draft(Snapshot.of(cluster, [job]))
    draft.nodes["free"] = [node.free for node in nodes]
    draft.nodes["cpus"] = draft.nodes["free_cpus"] = [node.cpus for node in nodes]
    draft.nodes["memory_gb"] = draft.nodes["free_memory_gb"] = [node.memory_gb for node in nodes]
    return draft


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("place", PLACEMENTS)
@examples(150)
@given(data=st.data())
def test_finds_the_same_place(place: str, limited: bool, data: st.DataObject) -> None:
    nodes, ask = data.draw(nodes_and_gang(limited=limited))
    typical = np.array(data.draw(st.lists(st.sampled_from([0.0, 0.5, 0.25]), max_size=10)) or [0.0])
    found = Placer(place, typical)(drafted(nodes, ask), 0)
    expected = slow_place.find(place, nodes, ask, typical.tolist())
    assert found == (expected and [(n, gpus // ask.each) for n, gpus in expected])


@pytest.mark.parametrize("place", ["consolidate", "topology"])
@examples(200)
@given(data=st.data())
def test_as_few_nodes_as_possible_are_few(place: str, data: st.DataObject) -> None:
    nodes, ask = data.draw(nodes_and_gang(limited=False))
    if place == "topology":  # within one rack; over racks it may have to take more
        for node in nodes:
            node.rack = 0
    found = Placer(place)(drafted(nodes, ask), 0)
    assert (found and len(found)) == slow_place.fewest_possible(nodes, ask)


@pytest.mark.parametrize("place", ["consolidate", "topology", "spread"])
def test_a_split_gang_takes_from_a_node_no_more_workers_than_it_has_cpus_for(place: str) -> None:
    # 8 workers with a CPU each; both nodes have 8 GPUs but only 4 CPUs: 4 + 4.
    cluster = Cluster.uniform(2, 8, cpus=4)
    draft = Draft(Snapshot.of(cluster, [Job(workers=8, cpus_per_worker=1.0)]))
    assert Placer(place)(draft, 0) == [(0, 4), (1, 4)]


def test_spreading_is_a_preference_not_a_duty() -> None:
    # Of three nodes of 4 GPUs two are taken: a gang of 2 rather runs on the third than waits.
    cluster, gang = Cluster.uniform(3, 4), Job(workers=2)
    full = [Job(workers=4), Job(workers=4), gang]
    draft = Draft(Snapshot.of(cluster, full, {0: [(0, 4)], 1: [(1, 4)]}))
    assert Placer("spread")(draft, 2) == [(2, 2)]
    partly = Snapshot.of(cluster, full, {0: [(0, 4)], 1: [(1, 3)]})
    assert Placer("spread")(Draft(partly), 2) == [(2, 2)]  # 4, then 3 free, both more than 1
    assert Placer("spread")(Draft(Snapshot.of(cluster, [gang])), 0) == [(0, 1), (1, 1)]


def test_a_gang_of_a_gpu_type_spans_nodes_that_are_smaller_than_the_others() -> None:
    # 8 GPUs of type a are two nodes of 4; that type b has nodes of 8 is of no concern.
    cluster = cluster_of([4, 4, 8], gpu_types=("a", "b"), type=np.array([0, 0, 1]))
    draft = Draft(Snapshot.of(cluster, [Job(workers=8, gpu_type=0)]))
    assert Placer("best-fit")(draft, 0) == [(0, 4), (1, 4)]


def test_a_placer_serves_clusters_of_different_nodes() -> None:
    # As many nodes as before, but larger ones.
    find = Placer("best-fit")
    for gpus in (2, 64, 1, 8):
        draft = Draft(Snapshot.of(Cluster.uniform(2, gpus), [Job(workers=gpus)]))
        assert find(draft, 0) == [(0, gpus)]


def test_a_job_with_servers_goes_where_both_fit() -> None:
    # Node 0 has CPUs for the worker, but not for its server too; node 1 has.
    cluster = cluster_of([4, 4], cpus=np.array([4.0, 100.0]))
    trace = trace_of([(0, 10, 1)], cpus_per_worker=[4], num_servers=[1], cpus_per_server=[4])
    assert simulate(cluster, trace, make_policy("fifo")).done_s.tolist() == [10]


@pytest.mark.parametrize("place", ["best-fit", "spread", "consolidate"])
def test_what_a_placer_finds_has_room_for_servers_too(place: str) -> None:
    # Two nodes of 2 GPUs and 6 CPUs; a gang of 4 takes both. Of its 3 servers two go beside the
    # first two workers and one beside the others: 2 + 2 × 2 = 6 CPUs there and 2 + 2 = 4 here.
    cluster = Cluster.uniform(2, 2, cpus=6)
    gang = Job(workers=4, servers=3, cpus_per_worker=1.0, cpus_per_server=2.0)
    draft = Draft(Snapshot.of(cluster, [gang]))
    share = Placer(place)(draft, 0)
    assert share == [(0, 2), (1, 2)]
    draft.place(0, share)
    assert draft.held(0) == [(0, 2, 2), (1, 2, 1)]
    # With 4 servers that need 3 CPUs each there is room for the workers only.
    wider = Job(workers=4, servers=4, cpus_per_worker=1.0, cpus_per_server=3.0)
    assert Placer(place)(Draft(Snapshot.of(cluster, [wider])), 0) is None


def test_a_job_that_grows_need_not_find_room_for_the_servers_it_has() -> None:
    cluster = Cluster.uniform(1, 4, cpus=4)
    job = Job(workers=1, max_workers=2, servers=1, cpus_per_worker=1.0, cpus_per_server=2.0)
    draft = Draft(Snapshot.of(cluster, [job]))
    draft.place(0, [(0, 1)])
    assert Placer("best-fit")(draft, 0, workers=1) == [(0, 1)]


# -- the index of free nodes -------------------------------------------------------------


@numba.njit
def hold_all(nodes: Records, level: Any, jobs: Records, moves: Ints) -> None:
    for k in range(len(moves)):
        hold(nodes, level, jobs[0], moves[k, 0], moves[k, 1], 0, -1)


@examples(60)
@given(st.lists(st.tuples(st.integers(0, 129), st.integers(-8, 8)), max_size=40))
def test_the_index_is_kept_right(wishes: list[tuple[int, int]]) -> None:
    nodes = cluster_of([8, 4] * 65).empty()  # three words of bits
    level = new_index(nodes)
    moves, free = [], nodes["free"].tolist()
    for node, gpus in wishes:
        gpus = max(min(gpus, free[node]), free[node] - int(nodes["gpus"][node]))
        free[node] -= gpus
        moves.append((node, gpus))
    hold_all(nodes, level, np.array(Snapshot.of(Cluster.uniform(1), [Job(workers=1)]).jobs.rows),
             np.array(moves or np.zeros((0, 2)), np.int64))  # fmt: skip
    assert nodes["free"].tolist() == free
    np.testing.assert_array_equal(level, new_index(nodes))
    for gpus in range(9):
        bits = [int(level[gpus, n >> 6]) >> (n & 63) & 1 for n in range(len(nodes))]
        assert bits == [int(have == gpus) for have in free]


# -- sorting -----------------------------------------------------------------------------


@numba.njit
def sorted_by(order: Ints, n: int, key: Floats) -> None:
    sort(order, n, key)


@examples(200)
@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, np.inf]) | st.floats(-9, 9), max_size=150),
       st.randoms(use_true_random=False), st.booleans())  # fmt: skip
def test_sorts_by_score_and_then_by_submission(key: list[float], random: Any, nearly: bool) -> None:
    expected = sorted(range(len(key)), key=lambda j: (key[j], j))
    order = list(expected)
    if nearly and order:
        order.append(order.pop(0))
    else:
        random.shuffle(order)
    found = np.array(order, np.int64)
    sorted_by(found, len(key), np.array(key))
    assert found.tolist() == expected


# -- the queue with an index -------------------------------------------------------------


@pytest.mark.parametrize("name", ["fifo", "fifo-skip", "sjf", "sjf-skip"])
@examples(50)
@given(world=worlds(equal_nodes=True), place=st.sampled_from(sorted(set(PLACEMENTS) - {"fgd"})))
def test_the_indexed_queue_serves_like_trying_all(
    name: str, world: tuple[list[int], Jobs], place: str
) -> None:
    cluster, trace = cluster_of(world[0]), trace_of(world[1])
    policy: Any = make_policy(f"{name}+{place}")
    fast = simulate(cluster, trace, policy)
    plain = Simulator(cluster, trace)
    status = np.zeros(1, np.int64)
    replay(policy.rule, plain.batch, 100_000, status)
    assert status[0] != MORE
    np.testing.assert_array_equal(fast.done_s, plain.state.truth["done_s"])
    assert fast.rounds == plain.clock["rounds"]


@examples(40)
@given(worlds(equal_nodes=True, most_jobs=30), st.sampled_from(["fifo-skip", "sjf-skip", "fifo"]))
def test_the_indexed_queue_knows_shapes_apart(world: tuple[list[int], Jobs], name: str) -> None:
    # CPUs make jobs of equal GPUs differ; what does not fit must not hide what does.
    gpus, jobs = world
    cluster = Cluster.uniform(len(gpus), gpus[0], cpus=4.0)
    cpus = [(0.0, 2.0, 3.0)[k % 3] if size == 1 else 0.0 for k, (_, _, size) in enumerate(jobs)]
    trace = trace_of(jobs, cpus_per_worker=cpus)
    policy: Any = make_policy(name)
    fast, plain, status = (
        simulate(cluster, trace, policy),
        Simulator(cluster, trace),
        np.zeros(1, int),
    )
    replay(policy.rule, plain.batch, 100_000, status)
    np.testing.assert_array_equal(fast.done_s, plain.state.truth["done_s"])


# -- the Gittins index -------------------------------------------------------------------


@examples(100)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=12), st.integers(2, 10))
def test_the_gittins_index_is_the_best_rate_of_finishing(needed: list[int], classes: int) -> None:
    limits, worth = gittins_table(np.array(needed, np.float64), classes)
    assert len(worth) == len(limits) + 1
    for a, index in zip([0.0, *limits], worth, strict=True):
        live = [s for s in needed if s > a]
        rates = [
            sum(s <= x for s in live) / sum(min(s, x) - a for s in live) for x in sorted(set(live))
        ]
        assert index == pytest.approx(max(rates), rel=1e-9)


def test_gittins_of_equal_jobs_never_preempts() -> None:
    # If all need the same, whoever has had most is nearest its end.
    jobs = [(0, 50, 1), (10, 50, 1), (20, 50, 1)]
    outcome = simulate(cluster_of([1]), trace_of(jobs), make_policy("gittins"))
    assert outcome.done_s.tolist() == [50, 100, 150]
    assert outcome.preemptions.sum() == 0
