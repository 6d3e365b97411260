"""Pace 1 is the best that the cluster can give: by hand, by trying everything, in every world."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import cluster_of, examples, trace_of

from rota.core import Draft
from rota.core.speed import Curves
from rota.errors import InputError
from rota.perf.physics import Physics
from rota.perf.reference import Ask, best_speed
from rota.policies import make_policy
from rota.policies.elastic.climb import Known, survey
from rota.scenarios import load, names
from rota.sim import Conditions, Simulator, simulate

if TYPE_CHECKING:
    from rota.core import Cluster, Decision, Snapshot


def curves_of(speed: np.ndarray, *, by_nodes: bool = True) -> Curves:
    """One model "m" with this table (T, A, W)."""
    types = tuple(f"t{t}" for t in range(len(speed)))
    return Curves(("m",), types, speed[None].astype(float), by_nodes, np.full((1, 2), 64))


def falling(most_nodes: int, most_workers: int) -> np.ndarray:
    """Speed = workers / nodes, on one GPU type."""
    a, w = np.arange(most_nodes + 1)[:, None], np.arange(most_workers + 1)[None, :]
    return np.where(a > 0, w / np.maximum(a, 1), 0.0)[None]


def test_a_gang_larger_than_a_node_runs_at_pace_1_on_as_few_nodes_as_there_are() -> None:
    # 16 GPUs on nodes of 4: the best is 4 nodes, where the speed is 4, not one node at speed 16.
    cluster = cluster_of([4] * 6, gpu_types=("t0",))
    physics = Physics(curves=curves_of(falling(6, 16)))
    trace = trace_of([(0, 100, 16), (1000, 100, 4), (2000, 100, 3)], model=["m"] * 3)
    outcome = simulate(cluster, trace, make_policy("fifo"), physics=physics)
    assert outcome.done_s.tolist() == [100, 1100, 2100]
    # Over five nodes it is slower than that.
    slow = simulate(cluster, trace.take(np.array([0])), make_policy("fifo+spread"), physics=physics)
    assert slow.done_s.tolist() == pytest.approx([100 * 6 / 4])


def test_only_gpu_types_count_that_can_hold_the_job() -> None:
    # t0 is ten times as fast but has one GPU; t2 has no node at all.
    speed = np.concatenate([10 * falling(3, 4), falling(3, 4), 100 * falling(3, 4)])
    cluster = cluster_of([1, 2, 2], gpu_types=("t0", "t1", "t2"), type=np.array([0, 1, 1]))
    curves = curves_of(speed)

    def best(workers: int, gpu_type: int = -1, gpus: int = 1) -> float:
        return best_speed(curves, cluster, Ask(0, gpu_type, workers, 0, gpus, 0.0, 0.0))

    assert best(1) == 10
    assert best(1, gpu_type=1) == 1
    assert best(2) == 2  # on one node of t1
    assert best(3) == 1.5  # on two nodes of t1, or of both types: the slower one sets the pace
    assert best(4) == 2
    assert best(2, gpus=2) == 1  # workers of two GPUs: on both nodes of t1


@st.composite
def asks(draw: st.DrawFn) -> tuple[Curves, Cluster, Ask]:
    T, N = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    gpus = draw(st.lists(st.integers(0, 3), min_size=N, max_size=N))
    types = draw(st.lists(st.integers(0, T - 1), min_size=N, max_size=N))
    cpus = draw(st.lists(st.integers(0, 4), min_size=N, max_size=N))
    A, W = draw(st.integers(1, 5)), draw(st.integers(2, 6))
    speed = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 6, (T, A, W))
    by_nodes = draw(st.booleans())
    cluster = cluster_of(
        gpus, gpu_types=tuple(f"t{t}" for t in range(T)), type=np.array(types),
        cpus=np.array(cpus, float),
    )  # fmt: skip
    ask = Ask(
        0, draw(st.integers(-1, T - 1)), draw(st.integers(1, 5)), draw(st.integers(0, 5)),
        draw(st.integers(0, 2)), draw(st.sampled_from([0.0, 1.0, 1.5])), 0.0,
    )  # fmt: skip
    return curves_of(speed, by_nodes=by_nodes), cluster, ask


def by_trying(curves: Curves, cluster: Cluster, ask: Ask) -> float:
    """The best over every way to put the workers on nodes."""
    A, W = curves.speed.shape[2:]
    best = -1.0
    for share in product(range(ask.workers + 1), repeat=len(cluster)):
        on = [n for n, workers in enumerate(share) if workers]
        if sum(share) != ask.workers or any(
            share[n] * ask.gpus_per_worker > cluster.gpus[n]
            or share[n] * ask.cpus_per_worker > cluster.cpus[n]
            or ask.gpu_type not in (-1, cluster.type[n])
            for n in on
        ):
            continue
        a = min(len(on) if curves.by_nodes else ask.servers, A - 1)
        w = min(ask.workers, W - 1)
        best = max(best, min(float(curves.speed[0, cluster.type[n], a, w]) for n in on))
    return best


@examples(300)
@given(asks())
def test_no_place_is_better_and_one_is_as_good(world: tuple[Curves, Cluster, Ask]) -> None:
    best = by_trying(*world)
    if best >= 0:  # it fits at all
        assert best_speed(*world) == best


def places(cluster: Cluster, each: int, workers: int) -> list[tuple[int, list[tuple[int, int]]]]:
    """Type and shares of a job: over every number of nodes of every type that can hold it."""
    found = []
    for t in range(len(cluster.gpu_types)):
        nodes = np.flatnonzero((cluster.type == t) & (cluster.gpus >= each))
        nodes = nodes[np.argsort(-cluster.gpus[nodes], kind="stable")].tolist()
        for span in range(1, min(len(nodes), workers) + 1):
            room = [int(cluster.gpus[n]) // max(1, each) or workers for n in nodes[:span]]
            if sum(room) >= workers:
                found.append((t, spread_over(nodes[:span], room, workers)))
    return found


def spread_over(nodes: list[int], room: list[int], workers: int) -> list[tuple[int, int]]:
    """One worker each, then fill up in order."""
    share, left = [1] * len(nodes), workers - len(nodes)
    for k, most in enumerate(room):
        more = min(left, most - 1)
        share[k], left = share[k] + more, left - more
    return sorted(zip(nodes, share, strict=True))


class Put:
    """Starts the only job there is on these nodes."""

    def __init__(self, share: list[tuple[int, int]]) -> None:
        self.share = share

    def decide(self, snapshot: Snapshot) -> Decision:
        draft = Draft(snapshot)
        if snapshot.jobs.waiting.any():
            servers, count = int(snapshot.jobs.servers[0]), len(self.share)
            beside = [(n, servers // count + (k < servers % count))
                      for k, (n, _) in enumerate(self.share)]  # fmt: skip
            draft.place(0, self.share, beside if servers else ())
        return draft.commit()


@pytest.mark.parametrize("name", names())
def test_a_job_alone_in_its_best_place_takes_as_long_as_it_says(name: str) -> None:
    try:
        world = load(name).draw(0)
    except InputError:
        if not load(name).measured:
            raise
        pytest.skip("needs measured tables that are not there")
    curves = world.physics.curves
    if curves is None:  # durations are as the trace has them, wherever a job is put
        return
    A, W = curves.speed.shape[2:]
    trace, cluster = world.trace, world.cluster
    kinds = np.unique(np.stack([trace.model, trace.num_gpus, trace.num_servers,
                                trace.gpus_per_worker]), axis=1, return_index=True)[1]  # fmt: skip
    for job in kinds[np.linspace(0, len(kinds) - 1, 6).astype(int)].tolist():
        each, gpus = int(trace.gpus_per_worker[job]), int(trace.num_gpus[job])
        workers, curve = gpus // max(1, each), curves.index(trace.models[trace.model[job]])
        speeds = []
        for t, share in places(cluster, each, workers):
            a = len(share) if curves.by_nodes else int(trace.num_servers[job])
            speeds.append((curves.speed[curve, t, min(a, A - 1), min(workers, W - 1)], share))
        _, share = max(speeds, key=lambda found: found[0])
        alone = trace.take(np.array([job]))
        outcome = simulate(cluster, alone, Put(share), Conditions(), physics=Physics(curves=curves))
        took_s = float(outcome.done_s[0] - outcome.submit_s[0])
        assert took_s == pytest.approx(float(trace.duration_s[job]), rel=1e-9)


@pytest.mark.parametrize("name", ["das-small", "das-medium", "das-large"])
def test_policies_count_work_in_the_speed_that_the_simulator_does(name: str) -> None:
    world = load(name).draw(0)
    sim = Simulator(world.cluster, world.trace.head(40), physics=world.physics)
    while sim.finished < 0 or int(sim.clock["live"]) < 5:
        assert sim.wait()
    view = survey(sim.observe(), Known())
    seen = view.work / view.snapshot.jobs.remaining_s
    np.testing.assert_allclose(seen, sim.state.truth["unit"][view.snapshot.jobs.uid])
