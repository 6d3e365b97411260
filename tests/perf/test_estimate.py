"""Curves estimated from watching jobs run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from worlds import cluster_of, examples, trace_of

from rota.core import Cluster, Job, JobTable, Snapshot
from rota.core.layout import RUNNING, SHARE
from rota.core.speed import PAIRS, no_contention
from rota.perf import curve_reach
from rota.perf.estimate import Estimator
from rota.perf.shape_pools import FIRST_SHAPE, terms
from rota.policies import make_policy
from rota.run.loop import rounds
from rota.sim import Conditions, Simulator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core import Decision
    from rota.core.types import Floats

MOST = 8
SPREAD_OUT = [(1, 1), (8, 1), (1, 8), (8, 8), (2, 4), (4, 2), (3, 6)]


@dataclass
class Watched:
    """A job with a true curve, whose sizes and speeds the test decides."""

    theta: Floats
    model: int = -1
    by_nodes: bool = False
    asks: tuple[int, int] = (2, 2)
    progress_s: float = 0.0
    held: tuple[int, int] = (0, 0)

    def pace(self, a: int, w: int) -> float:
        """Relative to what it has at the size it asks for."""
        at, there = (terms(self.by_nodes, *size) @ self.theta for size in (self.asks, (a, w)))
        return float(at / there)

    def table(self) -> Floats:
        return np.array([[self.pace(a, w) for w in range(1, MOST + 1)] for a in range(1, MOST + 1)])


@dataclass
class World:
    """Jobs that are shown to an estimator minute by minute."""

    jobs: list[Watched]
    by_nodes: bool = False
    noise: float = 0.05
    now_s: float = 0.0
    estimator: Estimator = field(init=False)
    seen: Snapshot = field(init=False)

    def __post_init__(self) -> None:
        self.estimator = Estimator(by_nodes=self.by_nodes, noise=self.noise)
        self.look()

    def look(self) -> None:
        table = JobTable.of(
            [
                Job(
                    workers=job.asks[1], min_workers=1, max_workers=MOST, model=job.model,
                    servers=0 if self.by_nodes else job.asks[0],
                    max_servers=0 if self.by_nodes else MOST,
                )
                for job in self.jobs
            ]
        )  # fmt: skip
        for row, job in zip(table.rows, self.jobs, strict=True):
            row["progress_s"] = job.progress_s
            if job.held[0]:
                row["status"], row["held_workers"] = RUNNING, job.held[1]
                row["share_len" if self.by_nodes else "held_servers"] = job.held[0]
        cluster = Cluster.uniform(8, 1)
        snapshot = Snapshot(self.now_s, cluster, table, cluster.empty(), np.zeros(0, SHARE))
        self.seen = self.estimator.see(snapshot)

    def run(self, held: Sequence[tuple[int, int]], *, error: Floats | float = 0.0) -> None:
        """A minute in which job j holds held[j]; speeds are off by the factor 1 + error."""
        self.now_s += 60
        off = np.broadcast_to(error, len(held))
        for job, size, e in zip(self.jobs, held, off, strict=True):
            job.held = size
            if size[0]:
                job.progress_s += 60 * job.pace(*size) * (1 + float(e))
        self.look()

    def curve(self, j: int = 0) -> Floats:
        assert self.seen.curves is not None
        table: Floats = self.seen.curves.speed[j, 0, 1:, 1:]
        return table


def off(estimate: Floats, truth: Floats) -> Floats:
    return np.abs(np.log(estimate / truth))


thetas = st.lists(st.sampled_from([0.0, 1.0]) | st.floats(0.02, 1), min_size=5, max_size=5).map(
    lambda parts: np.array([1.0, 0.2, 0.1, 0.05, 0.05]) * np.array([1.0, *parts[1:]])
)


@examples(30)
@given(thetas, st.tuples(st.integers(1, 8), st.integers(1, 8)))
def test_exact_sights_of_a_curve_of_the_family_give_it_back(
    theta: Floats, asks: tuple[int, int]
) -> None:
    job = Watched(theta, asks=asks)
    world = World([job], noise=1e-6)
    for size in SPREAD_OUT[:5]:
        world.run([size])

    assert off(world.curve(), job.table()).max() < 1e-6


@examples(30)
@given(thetas)
def test_so_it_is_with_all_reduce(theta: Floats) -> None:
    job = Watched(theta, by_nodes=True, asks=(1, 2))
    world = World([job], by_nodes=True, noise=1e-6)
    for size in [(1, 1), (1, 8), (2, 2), (4, 4), (2, 8), (1, 4)]:
        world.run([size])

    assert off(world.curve(), job.table()).max() < 1e-6
    assert world.seen.curves is not None
    assert world.seen.curves.by_nodes


@examples(30)
@given(thetas, st.lists(st.tuples(st.integers(1, 8), st.integers(1, 8)), min_size=1, max_size=8))
def test_seeing_more_never_makes_the_spread_larger(
    theta: Floats, sizes: list[tuple[int, int]]
) -> None:
    world = World([Watched(theta)])
    before = world.estimator.spread()
    for size in sizes:
        world.run([size])
        after = world.estimator.spread()
        assert (after <= before * (1 + 1e-9)).all()
        before = after


@examples(30)
@given(st.integers(0, 10**6), st.booleans())
@example(529, True)  # computing shrank a thousandfold at every level of the pools
def test_estimates_are_finite_and_positive_whatever_is_seen(seed: int, by_nodes: bool) -> None:
    rng = np.random.default_rng(seed)
    jobs = [
        Watched(10.0 ** rng.uniform(-3, 3, 5), model=int(m), by_nodes=by_nodes)
        for m in rng.integers(-1, 2, 4)
    ]
    world = World(jobs, by_nodes=by_nodes)
    for _ in range(12):
        held = [(int(a), int(max(a, w))) for a, w in rng.integers(0, MOST + 1, (4, 2))]
        world.run(held, error=rng.uniform(-0.9, 9, 4))

    for j in range(4):
        assert ((world.curve(j) > 0) & (world.curve(j) < 1e9)).all()
    assert (world.estimator.spread()[:, :, 1:, 1:] > 0).all()


def test_before_anything_runs_a_job_has_pace_1_at_the_size_it_asks_for() -> None:
    world = World([Watched(np.ones(5), asks=(2, 4)), Watched(np.ones(5), asks=(1, 1))])

    assert world.curve(0)[1, 3] == pytest.approx(1)
    assert world.curve(1)[0, 0] == pytest.approx(1)
    prior = 1 / (terms(False, np.arange(1, 9)[:, None], np.arange(1, 9)) @ FIRST_SHAPE[False])
    np.testing.assert_allclose(world.curve(1) / prior, world.curve(1)[0, 0] / prior[0, 0])
    # More workers are expected to help, and ever less so.
    assert (np.diff(world.curve(0)[7]) > 0).all()
    assert (np.diff(world.curve(0)[7], 2) < 0).all()


def test_one_sight_sets_the_scale_and_leaves_the_shape() -> None:
    job = Watched(np.array([1.0, 0.3, 0.2, 0.1, 0.1]))
    world = World([job])
    shape = world.curve() / world.curve()[0, 0]

    world.run([(4, 4)])
    job.asks = (1, 1)  # three times as fast as its unit says: the scale is not known beforehand
    world.run([(4, 4)])

    seen = job.progress_s / 120
    assert world.curve()[3, 3] == pytest.approx(seen, rel=0.01)
    assert off(world.curve() / world.curve()[0, 0], shape).max() < 0.02
    assert world.estimator.spread()[0, 0, 4, 4] < 0.05


def test_noise_averages_out() -> None:
    theta = np.array([1.0, 0.1, 0.1, 0.05, 0.02])
    errors = {}
    for minutes in (1, 16):
        rng, found = np.random.default_rng(0), []
        for _ in range(12):
            job = Watched(theta)
            world = World([job], noise=0.1)
            for _ in range(minutes):
                for size in SPREAD_OUT:
                    world.run([size], error=0.1 * rng.standard_normal())
            found.append(off(world.curve(), job.table()).mean())
        errors[minutes] = np.mean(found)

    assert errors[1] < 0.12
    assert errors[16] < 0.12 / 4 * 1.5


def test_the_spread_says_how_far_off_estimates_are() -> None:
    rng, scores = np.random.default_rng(1), []
    for _ in range(20):
        base = np.array([1.0, 0.1, 0.1, 0.05, 0.02])
        jobs = [Watched(base * rng.uniform(0.7, 1.3, 5)) for _ in range(5)]
        world = World(jobs, noise=0.1)
        for _ in range(6):
            held = [tuple(size) for size in rng.integers(1, MOST + 1, (5, 2)).tolist()]
            world.run(held, error=0.1 * rng.standard_normal(5))
        spread = world.estimator.spread()[:, 0, 1:, 1:]
        scores += [off(world.curve(j), jobs[j].table()) / spread[j] for j in range(5)]

    # Of a normal error two thirds lie within one standard deviation.
    assert 0.6 < float(np.mean(np.array(scores) < 1)) < 0.98


def test_a_new_job_starts_from_what_its_model_has_shown() -> None:
    slow, quick = np.array([1.0, 0.9, 0.3, 0.2, 0.2]), np.array([1.0, 0.01, 0.01, 0.0, 0.0])
    jobs = [Watched(theta, model=m) for m, theta in [(0, slow), (1, quick)] for _ in range(6)]
    world = World(jobs)
    rng = np.random.default_rng(0)
    for _ in range(12):
        world.run([tuple(size) for size in rng.integers(1, MOST + 1, (12, 2)).tolist()])

    ready = [Watched(slow, model=0, asks=(1, 3)), Watched(quick, model=1, asks=(4, 2)),
             Watched(quick, model=7)]  # fmt: skip
    world.jobs += ready
    world.look()

    assert off(world.curve(12), ready[0].table()).max() < 0.05
    assert off(world.curve(13), ready[1].table()).max() < 0.05
    # A model that nobody has seen: something between, and said to be less certain.
    spread = world.estimator.spread()[:, 0, 8, 8]
    slowest, new, quickest = (
        table[7, 7] / table[0, 0] for table in (ready[0].table(), world.curve(14), ready[1].table())
    )
    assert slowest < new < quickest
    assert spread[14] > spread[12]


def test_jobs_keep_what_was_seen_of_them_when_others_come_and_go() -> None:
    job, other = Watched(np.array([1.0, 0.2, 0.1, 0.05, 0.05])), Watched(np.ones(5))
    world = World([job], noise=1e-6)
    for size in SPREAD_OUT[:4]:
        world.run([size])
    # Uids are numbered by place here, so newcomers go to the end.
    world.jobs.append(other)
    world.run([SPREAD_OUT[4], (1, 1)])
    world.jobs.pop()
    world.look()

    assert off(world.curve(), job.table()).max() < 1e-6
    assert len(world.estimator.book) == 1
    assert list(world.estimator.cells) == [0]


def test_the_snapshot_is_the_same_but_for_speed() -> None:
    world = World([Watched(np.ones(5)), Watched(np.ones(5))])
    rows = world.seen.jobs.rows

    assert rows["curve"].tolist() == [0, 1]
    assert np.isnan(rows["estimate_s"]).all()
    assert world.seen.curves is not None
    assert world.seen.curves.measured.tolist() == [[0, 0], [0, 0]]
    world.run([(2, 3), (0, 0)])
    assert world.seen.curves.measured.tolist() == [[2, 3], [0, 0]]


def test_jobs_without_servers_have_no_curve_by_servers() -> None:
    cluster = Cluster.uniform(1, 8)
    snapshot = Snapshot.of(cluster, [Job(workers=2), Job(workers=2, servers=1)])

    seen = Estimator(by_nodes=False).see(snapshot)

    assert seen.jobs.curve.tolist() == [-1, 1]
    assert snapshot.jobs.curve.tolist() == [-1, -1]
    empty = Estimator(by_nodes=False).see(Snapshot.of(cluster, []))
    assert empty.curves is not None
    assert empty.curves.speed.shape[0] == 0


def test_contention_follows_the_jobs_to_their_own_curves() -> None:
    kind = np.arange(3)[:, None, None] + np.zeros((3, 2, 2), np.int64)  # two models, and none
    contention = no_contention()._replace(mode=PAIRS, kind=kind)
    jobs = [Job(workers=1, curve=1), Job(workers=1, curve=-1), Job(workers=1, curve=0)]

    seen = Estimator(by_nodes=True).see(
        Snapshot.of(Cluster.uniform(1, 8), jobs, contention=contention)
    )

    assert seen.contention is not None
    assert seen.contention.kind[:, 0, 0].tolist() == [1, 2, 0, 2]


def test_restart_pauses_do_not_count_as_running() -> None:
    """In the simulator a job of a plain trace has pace 1 at its own size, after any pause."""

    @dataclass
    class Onlooker:
        estimator: Estimator
        seen: int = 0

        def decide(self, snapshot: Snapshot) -> Decision:
            estimated = self.estimator.see(snapshot)
            for job in self.estimator.book[self.estimator.book["run_s"] > 0]:
                assert job["work_s"] / job["run_s"] == pytest.approx(1)
                self.seen += 1
            assert estimated.curves is not None
            return make_policy("srtf").decide(snapshot)

    jobs = [(0, 500, 4), (10, 100, 2), (30, 60, 4), (50, 200, 3), (60, 5, 4), (90, 300, 1)]
    simulator = Simulator(cluster_of([4, 2]), trace_of(jobs), Conditions(restart_s=20))
    onlooker = Onlooker(Estimator(by_nodes=True))
    for _ in rounds(onlooker, simulator):
        pass

    assert onlooker.seen > 10


sizes_of_two = st.tuples(*[st.tuples(st.integers(1, 8), st.integers(1, 8))] * 2)


@examples(30)
@given(
    st.lists(thetas, min_size=2, max_size=2),
    st.lists(sizes_of_two, min_size=2, max_size=8),
    st.integers(1, 7),
    st.booleans(),
)
def test_another_goes_on_with_what_was_packed(
    shapes: list[Floats], course: list[tuple[tuple[int, int], ...]], moment: int, by_nodes: bool
) -> None:
    one, other = (
        World([Watched(theta, model, by_nodes) for model, theta in enumerate(shapes)], by_nodes)
        for _ in range(2)
    )
    for number, held in enumerate(course):
        if number == moment:
            one.estimator.book["seen_s"] = np.inf
            kept = {name: array.copy() for name, array in one.estimator.pack().items()}
            other.estimator = Estimator(by_nodes=by_nodes)
            other.estimator.unpack(kept)
        for world in (one, other):
            world.run(held)
        assert (one.curve() == other.curve()).all()
        assert (one.curve(1) == other.curve(1)).all()


def test_one_huge_job_makes_no_huge_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curve_reach, "MOST_POINTS", 4000)
    cluster = Cluster.uniform(1000, 4)
    jobs = [Job(workers=900), *(Job(workers=2, min_workers=1, max_workers=900) for _ in range(9))]
    estimator = Estimator(by_nodes=True)
    snapshot = Snapshot.of(cluster, jobs)
    seen = estimator.see(snapshot)
    assert seen.curves is not None
    assert seen.curves.speed.size <= 4000
    assert seen.jobs.curve.tolist() == [-1, *range(1, 10)]
    assert seen.curves.speed.shape[3] > 15  # and still reaches beyond what the others ask for
    for name in ("srtf", "hull-greedy", "optimus", "gavel-min-jct", "pollux", "deepshare"):
        decision = make_policy(name).decide(seen)
        assert decision.share(0), name
    # One job fewer than before is no reason for another table; without the huge one it fits whole.
    few = Estimator(by_nodes=True)
    assert few.see(Snapshot.of(cluster, jobs[1:2])).curves.speed.shape[2:] == (57, 57)


def test_a_job_that_was_larger_than_curves_reach_is_followed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World([Watched(np.ones(5), by_nodes=True)], by_nodes=True)
    world.run([(4, 4)])
    monkeypatch.setattr(curve_reach, "MOST_POINTS", 4)
    world.run([(4, 4)])
    assert world.seen.jobs.curve.tolist() == [-1]
    world.run([(1, 1)])
    world.run([(1, 1)])
    assert world.curve().shape == (1, 1)
    assert np.isfinite(world.curve()).all()
