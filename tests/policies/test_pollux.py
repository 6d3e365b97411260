"""The search behind `pollux`: sound books, more budget never worse, the optimum where known."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core import Cluster, Job, Snapshot
from rota.core.jobs import JobTable
from rota.core.speed import Curves
from rota.errors import ConfigError
from rota.policies import make_policy
from rota.policies.gpu_types.pollux import search_state
from rota.policies.gpu_types.search_kernels import search
from rota.testing import check_policy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.policies.gpu_types.search_state_kernels import SearchState

W = 9


def curves_of(*models: Sequence[float], across: float = 0.5, types: int = 1) -> Curves:
    """Models by their speed with 1, 2, … workers; over nodes `across` of it, on type t 1/(t+1)."""
    table = np.zeros((len(models), types, 5, W))
    for c, speeds in enumerate(models):
        known = [0.0, *speeds, *[speeds[-1]] * (W - 1 - len(speeds))]
        for t in range(types):
            table[c, t, 1] = np.array(known) / (t + 1)
            table[c, t, 2:] = across * table[c, t, 1]
            table[c, t, 2:, 1] = 0.0
    names = tuple(f"model-{c}" for c in range(len(models)))
    measured = np.full((len(models), 2), 4)
    return Curves(names, ("gpu", "old")[:types], table, by_nodes=True, measured=measured)


LINEAR = [1.0, 2, 3, 4, 5, 6, 7, 8]
FLAT = [1.0, 1.1, 1.2, 1.25]


def searched(snapshot: Snapshot, moves: int, seed: int = 0, power: float = -1.0) -> SearchState:
    state = search_state(snapshot, power)
    queue = np.flatnonzero((state.held == 0) & ~state.fixed)
    search(state, queue, np.random.default_rng(seed).random((moves, 7)))
    return state


def since(
    time_s: float,
    cluster: Cluster,
    jobs: Sequence[Job],
    held: Mapping[int, Sequence[tuple[int, int]]],
    began_s: float,
    curves: Curves | None = None,
) -> Snapshot:
    """A snapshot in which those who run have held what they hold since `began_s`."""
    made = Snapshot.of(cluster, jobs, held, time_s=time_s, curves=curves)
    rows = made.jobs.rows.copy()
    rows["since_s"][rows["share_len"] > 0] = began_s
    return Snapshot(time_s, cluster, JobTable(rows), made.nodes, made.shares, curves)


def workers(decision: Any, jobs: int) -> list[int]:
    return [sum(w for _, w, _ in decision.share(j)) for j in range(jobs)]


@st.composite
def worlds(draw: st.DrawFn, most_jobs: int = 8) -> Snapshot:
    """Small clusters, jobs of all kinds, some of which run."""
    gpus = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    types = [draw(st.integers(0, 1)) for _ in gpus]
    cluster = Cluster(gpus=gpus, gpu_types=("gpu", "old"), type=types, cpus=[8.0] * len(gpus))
    jobs, held, free = [], {}, list(gpus)
    for index in range(draw(st.integers(1, most_jobs))):
        least = draw(st.integers(1, 3))
        job = Job(
            workers=least, min_workers=least, max_workers=least + draw(st.integers(0, 4)),
            gpus_per_worker=draw(st.sampled_from([1, 1, 1, 2, 0])),
            cpus_per_worker=draw(st.sampled_from([0.0, 0.5, 1.0])),
            curve=draw(st.integers(-1, 1)), gpu_type=draw(st.sampled_from([-1, -1, -1, 0, 1])),
            restart_s=draw(st.sampled_from([0.0, 30.0])),
        )  # fmt: skip
        jobs.append(job)
        node = draw(st.integers(0, len(gpus) - 1))
        fits = least * job.gpus_per_worker <= free[node] and job.gpu_type in (-1, types[node])
        if draw(st.booleans()) and fits and index < 4:
            held[index] = [(node, least)]
            free[node] -= least * job.gpus_per_worker
    curves = draw(st.sampled_from([None, curves_of(LINEAR, FLAT, types=2)]))
    return since(1000.0, cluster, jobs, held, draw(st.sampled_from([0.0, 990.0])), curves)


def test_the_contract_is_kept() -> None:
    check_policy(lambda: make_policy("pollux:evals=500"))


@given(worlds(), st.integers(0, 300), st.sampled_from([-1.0, 0.0, 0.5, 1.0, -3.0]))
def test_the_books_are_right_and_nothing_is_overfull(
    snapshot: Snapshot, moves: int, power: float
) -> None:
    state = searched(snapshot, moves, power=power)
    rows, cluster = snapshot.jobs.rows, snapshot.cluster
    used = (state.share * rows["gpus_per_worker"][:, None]).sum(axis=0)
    np.testing.assert_array_equal(state.free, cluster.gpus - used)
    cpus = (state.share * rows["cpus_per_worker"][:, None]).sum(axis=0)
    np.testing.assert_allclose(state.free_cpus, cluster.cpus - cpus, atol=1e-9)
    assert (state.free >= 0).all()
    assert (state.free_cpus >= -1e-6).all()
    held = state.share.sum(axis=1)
    np.testing.assert_array_equal(state.held, held)
    fits = (held >= rows["min_workers"]) & (held <= rows["max_workers"])
    assert (fits | (held == 0)).all()
    np.testing.assert_allclose(state.worth, [slow_worth(state, j) for j in range(len(rows))])


def slow_worth(state: SearchState, job: int) -> float:
    """What `value` says, plainly."""
    share = state.share[job]
    nodes = np.flatnonzero(share)
    gain = state.idle[job]
    if len(nodes):
        count = share.sum()
        speeds = [
            count if state.curve[job] < 0
            else state.speed[state.curve[job], state.type[n], min(len(nodes), 4), min(count, W - 1)]
            for n in nodes
        ]  # fmt: skip
        gain = min(speeds) / state.unit[job]
    if (share != state.before[job]).any():
        gain *= state.change_factor[job]
    gain = max(gain, 1e-6)
    if state.power == 0:
        return float(np.log(gain))
    return float(np.sign(state.power) * gain**state.power)


@given(worlds(), st.sampled_from(["pollux:evals=500", "gavel-max-min", "gavel-min-jct"]))
def test_what_is_decided_can_be_carried_out(snapshot: Snapshot, name: str) -> None:
    replace(make_policy(name).decide(snapshot), drafted=None).check(snapshot)


@given(worlds(), st.integers(0, 9))
def test_more_budget_is_never_worse(snapshot: Snapshot, seed: int) -> None:
    worth = [searched(snapshot, moves, seed).worth.sum() for moves in (0, 1, 3, 10, 30, 100, 300)]
    assert (np.diff(worth) >= 0).all()


def test_more_budget_is_better_where_there_is_much_to_find() -> None:
    rng = np.random.default_rng(0)
    jobs = [Job(workers=1, max_workers=8, curve=c) for c in rng.integers(0, 2, 40).tolist()]
    snapshot = Snapshot.of(Cluster.uniform(16, 8), jobs, curves=curves_of(LINEAR, FLAT))
    worth = [searched(snapshot, moves).worth.sum() for moves in (20, 200, 2000)]
    assert worth[0] < worth[1] < worth[2]


@given(
    st.lists(st.sampled_from([(1, 1), (1, 2), (1, 4), (2, 2), (2, 3)]), min_size=1, max_size=3),
    st.lists(st.integers(-1, 1), min_size=3, max_size=3),
    st.integers(0, 9),
)
@settings(max_examples=40)
def test_small_worlds_are_solved_to_the_optimum(
    sizes: list[tuple[int, int]], models: list[int], seed: int
) -> None:
    jobs = [
        Job(workers=least, max_workers=most, curve=c)
        for (least, most), c in zip(sizes, models, strict=False)
    ]
    snapshot = Snapshot.of(Cluster.uniform(2, 2), jobs, curves=curves_of(LINEAR, FLAT))
    found = searched(snapshot, 2000, seed)
    best = -np.inf
    options = [(a, b) for a in range(3) for b in range(3)]
    trial = search_state(snapshot, -1.0)
    for shares in product(options, repeat=len(jobs)):
        trial.share[:] = shares
        held = trial.share.sum(axis=1)
        sound = (held == 0) | ((held >= trial.least) & (held <= trial.most))
        if sound.all() and (trial.share.sum(axis=0) <= 2).all():
            best = max(best, sum(slow_worth(trial, j) for j in range(len(jobs))))
    assert found.worth.sum() == pytest.approx(best)


def test_a_job_that_spans_nodes_for_nothing_makes_room() -> None:
    # Job 1 is as fast on one node as on two. Only if it sits on one can job 0 have two workers.
    jobs = [Job(workers=1, max_workers=2, curve=curve) for curve in (0, -1)]
    snapshot = Snapshot.of(Cluster.uniform(2, 2), jobs, curves=curves_of(LINEAR, FLAT))
    assert searched(snapshot, 2000).worth.sum() == pytest.approx(-2.0)


def test_jobs_change_places_if_one_of_them_can_grow_by_it() -> None:
    # Over nodes job 1 is half as fast, so it needs the three GPUs that job 0 has no use for.
    jobs = [Job(workers=2, curve=0), Job(workers=2, max_workers=3, curve=0)]
    cluster, held = Cluster(gpus=[3, 2]), {0: [(0, 2)], 1: [(1, 2)]}
    snapshot = since(1000.0, cluster, jobs, held, 0.0, curves_of(LINEAR))
    decision = make_policy("pollux").decide(snapshot)
    assert [decision.share(j) for j in range(2)] == [((1, 2, 0),), ((0, 3, 0),)]


def test_a_gang_takes_the_place_of_a_job_that_could_only_shrink() -> None:
    # Waiting counts for twice as much with two workers, and job 0 runs with one or not at all.
    jobs = [Job(workers=1, max_workers=2), Job(workers=2), Job(workers=2)]
    snapshot = since(5.0, Cluster.uniform(2, 2), jobs, {0: [(0, 2)], 1: [(1, 2)]}, 0.0)
    assert workers(make_policy("pollux").decide(snapshot), 3) == [0, 2, 2]


def test_workers_go_to_the_job_that_scales() -> None:
    jobs = [Job(workers=1, max_workers=8, curve=c) for c in (0, 1)]
    snapshot = Snapshot.of(Cluster.uniform(1, 8), jobs, curves=curves_of(LINEAR, FLAT))
    assert workers(make_policy("pollux:p=1").decide(snapshot), 2) == [7, 1]
    # With power −1: 4 / w₀ + 1.25 / s(w₁) is least with 6 and 2, .667 + 1.136.
    assert workers(make_policy("pollux").decide(snapshot), 2) == [6, 2]


def test_without_gain_nothing_changes() -> None:
    jobs = [Job(workers=2, min_workers=1, max_workers=4) for _ in range(2)]
    held = {0: [(0, 2), (1, 2)], 1: [(0, 2), (1, 2)]}  # spread out, but no curve says it is slower
    snapshot = since(5000.0, Cluster.uniform(2, 4), jobs, held, 0.0)
    decision = make_policy("pollux").decide(snapshot)
    assert len(decision.diff(snapshot)) == 0
    assert decision.wake_s == np.inf  # nobody can hold more


def test_without_budget_nothing_changes() -> None:
    snapshot = since(5.0, Cluster.uniform(1, 4), [Job(workers=1)] * 2, {0: [(0, 1)]}, 0.0)
    decision = make_policy("pollux:evals=0").decide(snapshot)
    assert (len(decision.diff(snapshot)), decision.wake_s) == (0, 65.0)


def test_without_budget_an_idle_cluster_still_starts_who_fits() -> None:
    snapshot = Snapshot.of(Cluster.uniform(1, 4), [Job(workers=1)] * 2)
    decision = make_policy("pollux:evals=0").decide(snapshot)
    assert (decision.length.tolist(), decision.wake_s) == ([1, 1], 60.0)


def test_a_restart_must_pay() -> None:
    # Growing from 3 to 4 workers gains a third. After 100 s a restart of 60 s leaves 100/160 of
    # it, after 1,000 s it leaves 1,000/1,060.
    jobs = [Job(workers=3, max_workers=4, restart_s=60)]
    soon, late = (
        since(t, Cluster.uniform(1, 4), jobs, {0: [(0, 3)]}, 0.0) for t in (100.0, 1000.0)
    )
    assert workers(make_policy("pollux").decide(soon), 1) == [3]
    assert workers(make_policy("pollux").decide(late), 1) == [4]


def test_a_cheap_resize_pays_where_a_restart_would_not() -> None:
    jobs = [Job(workers=3, max_workers=4, restart_s=60, resize_s=1)]
    soon = since(100.0, Cluster.uniform(1, 4), jobs, {0: [(0, 3)]}, 0.0)
    assert workers(make_policy("pollux").decide(soon), 1) == [4]


def test_rigid_jobs_start_or_wait() -> None:
    jobs = [Job(workers=3), Job(workers=3), Job(workers=1)]
    decision = make_policy("pollux").decide(Snapshot.of(Cluster.uniform(1, 4), jobs))
    assert workers(decision, 3) == [3, 0, 1]


def test_a_gang_that_has_waited_long_gets_its_room() -> None:
    held = {j: [(0, 1)] for j in range(4)}
    for time_s, wanted in ((7000.0, [0, 0, 0, 0, 4]), (3000.0, [1, 1, 1, 1, 0])):
        jobs = [*[Job(workers=1, submit_s=time_s - 100) for _ in range(4)], Job(workers=4)]
        snapshot = since(time_s, Cluster.uniform(1, 4), jobs, held, 0.0)
        assert workers(make_policy("pollux").decide(snapshot), 5) == wanted


def test_shrinking_makes_room_for_who_waits() -> None:
    jobs = [Job(workers=4, min_workers=1, restart_s=60), Job(workers=1)]
    snapshot = since(100.0, Cluster.uniform(1, 4), jobs, {0: [(0, 4)]}, 100.0)
    assert workers(make_policy("pollux").decide(snapshot), 2) == [3, 1]


def test_the_faster_type_is_found_and_types_are_not_mixed() -> None:
    cluster = Cluster(gpus=[2, 2], gpu_types=("gpu", "old"), type=[1, 0])
    curves = curves_of(LINEAR, types=2)
    one = Snapshot.of(cluster, [Job(workers=1, max_workers=4, curve=0)], curves=curves)
    assert make_policy("pollux").decide(one).share(0) == ((1, 2, 0),)
    # A gang that neither type holds takes both, at the speed of the slower.
    gang = Snapshot.of(cluster, [Job(workers=4, curve=0)], curves=curves)
    assert make_policy("pollux").decide(gang).share(0) == ((0, 2, 0), (1, 2, 0))


def test_a_curve_that_knows_no_speed_is_taken_for_none() -> None:
    curves = curves_of([0.0])
    jobs = [Job(workers=2, curve=0)]
    for name in ("pollux", "gavel-max-min", "gavel-min-jct"):
        decision = make_policy(name).decide(Snapshot.of(Cluster.uniform(1, 4), jobs, curves=curves))
        assert workers(decision, 1) == [2]


def test_the_same_seed_gives_the_same_decision() -> None:
    jobs = [Job(workers=1, max_workers=8, curve=j % 2) for j in range(12)]
    snapshot = Snapshot.of(Cluster.uniform(4, 8), jobs, curves=curves_of(LINEAR, FLAT))
    first, again, other = (
        make_policy(f"pollux:evals=50,seed={seed}").decide(snapshot) for seed in (1, 1, 2)
    )
    shares = [[d.share(j) for j in range(12)] for d in (first, again, other)]
    assert shares[0] == shares[1] != shares[2]


def test_settings_out_of_range_are_refused() -> None:
    for text in ("lease=0", "evals=-1", "p=x", "seed=-1"):
        with pytest.raises(ConfigError, match="must be"):
            make_policy(f"pollux:{text}")
