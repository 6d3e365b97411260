"""DeepShare by candidates: the lens against the policies, its mask, and the network."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from slow_rounds import pairs

from rota.core import Cluster, Job, Snapshot
from rota.envs import BatchEnv, LensPolicy, PerfectCopy, WorldPool
from rota.envs.view import view_of_snapshot
from rota.learn.deploy import as_policy
from rota.learn.lens_reader import LensReader
from rota.policies import make_policy
from rota.policies.contention.neighbours import PlacementModel
from rota.scenarios import load
from rota.sim import simulate
from rota.systems.deepshare import candidate_lens
from rota.systems.deepshare.candidate_lens import CandidateLens
from rota.systems.deepshare.candidate_network import CandidateNetwork
from rota.systems.deepshare.feature_kernels import CANDIDATE, CLUSTER
from rota.systems.registry import system

SEEDS = (1, 2)


def best(threshold: float, obs: Any, mask: Any) -> Any:
    """The greedy rule: the first candidate while it gains enough, or if nothing runs."""
    gains = (obs["candidate"][:, 1, 1] > threshold) & mask[:, 1]
    return np.where(gains | ~mask[:, 0], 1, 0)


def completions(policy: Any, world: Any, seed: int) -> Any:
    run = simulate(world.cluster, world.trace, policy, world.when, seed=seed, physics=world.physics)
    return run.done_s - run.submit_s


def played(env: BatchEnv, threshold: float) -> Any:
    """Completion times (B, J) of the first episode of every cluster."""
    obs, info = env.reset()
    found, left = np.full(env.ends.jcts_s.shape, np.nan), np.ones(env.num_envs, bool)
    while left.any():
        obs, _, _, cut, info = env.step(best(threshold, obs, info["mask"]))
        assert not cut.any()
        now = info["_episode"] & left
        if now.any():
            found[now] = info["episode"]["jcts_s"][now]
            left &= ~now
    return found


@pytest.mark.parametrize("threshold", [0.0, 0.3])
@pytest.mark.parametrize(
    "name", ["contention-arrivals", "deepshare", "deepshare-published", "contention-large"]
)
def test_its_first_candidate_is_that_of_the_greedy_rule(name: str, threshold: float) -> None:
    scenario = load(name, ["workload.jobs=120"] if name == "contention-large" else [])
    worlds = [scenario.draw(seed) for seed in SEEDS]
    env = BatchEnv(WorldPool.of(worlds, SEEDS), CandidateLens(moves=0), batch=len(SEEDS))
    batched = played(env, threshold)
    single = LensPolicy(CandidateLens(moves=0), lambda obs, mask, *_: best(threshold, obs, mask))
    for world, seed, jcts_s in zip(worlds, SEEDS, batched, strict=True):
        rule = make_policy(f"contention-greedy:threshold={threshold}")
        np.testing.assert_array_equal(completions(single, world, seed), jcts_s)
        np.testing.assert_allclose(completions(rule, world, seed), jcts_s, rtol=1e-12)


@pytest.mark.parametrize("teacher", ["contention-greedy", "contention-rollout"])
@pytest.mark.parametrize("name", ["contention-arrivals", "deepshare"])
def test_a_perfect_copy_does_what_its_teacher_does(name: str, teacher: str) -> None:
    world = load(name).draw(3)
    copy = PerfectCopy(CandidateLens(), make_policy(teacher))
    np.testing.assert_array_equal(
        completions(copy, world, 3), completions(make_policy(teacher), world, 3)
    )


def test_a_teacher_that_places_otherwise_is_not_followed_there() -> None:
    world = load("contention-arrivals").draw(3)
    copy = PerfectCopy(CandidateLens(most=1), make_policy("fifo-skip+spread"))
    assert np.isfinite(completions(copy, world, 3)).all()


def test_jobs_that_no_even_spread_suits_are_started_too() -> None:
    uneven = Cluster(np.array([3, 2, 2]))
    jobs = [Job(workers=5, estimate_s=9.0), Job(workers=2, estimate_s=9.0)]
    policy = LensPolicy(CandidateLens(), lambda _obs, mask, *_: mask.argmax(1))
    decision = policy.decide(Snapshot.of(uneven, jobs[:1]))
    assert decision.share(0) == ((0, 3, 0), (1, 2, 0))
    decision = policy.decide(Snapshot.of(uneven, jobs, {1: [(0, 2)]}))
    decision.check(Snapshot.of(uneven, jobs, {1: [(0, 2)]}))
    assert sum(workers for _, workers, _ in decision.share(0)) == 5


@pytest.mark.parametrize("slots", [2_000, 0])
def test_more_jobs_than_a_node_can_list_wait(slots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidate_lens, "MOST_LISTED", slots)
    cpus = Cluster.uniform(1, 4, cpus=2000.0)
    jobs = [
        Job(workers=1, gpus_per_worker=0, cpus_per_worker=1.0, estimate_s=9.0) for _ in range(600)
    ]
    policy = LensPolicy(CandidateLens(moves=0), lambda *_: np.ones(1, np.int64))
    decision = policy.decide(Snapshot.of(cpus, jobs))
    assert sum(bool(decision.share(j)) for j in range(600)) == (600 if slots else 513)


def test_rounds_of_two_threads_do_not_mix() -> None:
    rng = np.random.default_rng(0)
    policy = LensPolicy(CandidateLens(), lambda _obs, mask, *_: mask[:, ::-1].argmax(1))
    snapshots = [
        Snapshot.of(
            Cluster.uniform(6, 4),
            [Job(workers=int(rng.integers(1, 9)), estimate_s=9.0) for _ in range(12)],
        )
        for _ in range(40)
    ]

    def shares(snapshot: Snapshot) -> list[Any]:
        decision = policy.decide(snapshot)
        return [decision.share(j) for j in range(12)]

    alone = list(map(shares, snapshots))
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(shares, snapshots)) == alone


def test_whole_numbers_and_tables_in_any_order_are_read_alike() -> None:
    # Compiled code reads what it is given as it was given first.
    kind = np.full((2, 3, 5), -1)
    kind[0, 2] = 0
    laws = pairs(kind, [[0.5]], floor=0)
    turned = laws._replace(kind=np.asfortranarray(kind), floor=0.25)
    jobs = [Job(workers=4, curve=0, estimate_s=100.0)]
    one, other = (Snapshot.of(Cluster.uniform(2, 4), jobs, contention=c) for c in (laws, turned))
    for snapshot in (one, other):
        t = PlacementModel.of(snapshot, None).tables
        assert (type(t.law.floor), type(t.law.mode), type(t.by_nodes)) == (float, int, bool)
        assert t.kind.flags.c_contiguous
        np.testing.assert_array_equal(t.kind, kind)
    assert view_of_snapshot(Snapshot.of(Cluster.uniform(1, 1), [], time_s=3)).now_s.dtype == float


def test_several_gpu_types_without_speeds_are_no_trouble() -> None:
    odd = Cluster(np.array([16]), gpu_types=("old", "new", "odd"), type=np.array([2]))
    policy = LensPolicy(CandidateLens(), lambda _obs, mask, *_: mask.argmax(1))
    assert policy.decide(Snapshot.of(odd, [Job(workers=1, estimate_s=1.0)])).share(0) == (
        (0, 1, 0),
    )


def looked(snapshot: Snapshot) -> tuple[Any, Any]:
    """The observation and the mask of the first step of a round."""
    seen: list[Any] = []

    def act(obs: Any, mask: Any, *_: Any) -> Any:
        seen.append(({name: array.copy() for name, array in obs.items()}, mask.copy()))
        return np.zeros(1, np.int64) if mask[0, 0] else np.ones(1, np.int64)

    LensPolicy(CandidateLens(most=4, moves=0), act).decide(snapshot)
    return seen[0]


def test_it_may_wait_only_while_something_runs_or_nothing_could() -> None:
    two = Cluster.uniform(2, 4)
    waiting = [Job(workers=2, estimate_s=100.0), Job(workers=2, estimate_s=100.0)]
    obs, mask = looked(Snapshot.of(two, waiting))
    assert not mask[0, 0]
    assert obs["many"].tolist() == [3]  # both jobs are alike: on one node or on two, and to wait
    obs, mask = looked(Snapshot.of(two, waiting, {0: [(0, 2)]}))
    assert mask[0, 0]
    obs, mask = looked(Snapshot.of(two, [Job(workers=16, estimate_s=1.0)]))
    assert obs["many"].tolist() == [1]
    assert mask[0].tolist() == [True, False, False, False, False]


def test_features_are_finite_with_unknown_lengths_and_jobs_without_gpus() -> None:
    jobs = [
        Job(workers=2), Job(workers=3, gpus_per_worker=0, cpus_per_worker=1.0),
        Job(workers=1, estimate_s=0.0), Job(workers=4, estimate_s=1e12),
    ]  # fmt: skip
    snapshot = Snapshot.of(Cluster.uniform(3, 4, cpus=16.0), jobs, {0: [(0, 2)]})
    obs, mask = looked(snapshot)
    many = int(obs["many"][0])
    assert many > 2
    assert np.isfinite(obs["candidate"][0, :many]).all()
    assert np.isfinite(obs["cluster"]).all()
    assert mask[0].sum() == many


@pytest.mark.parametrize(("name", "jobs"), [("contention-arrivals", 60), ("contention-large", 80)])
def test_a_compiled_round_is_what_lens_and_network_write_edit_by_edit(name: str, jobs: int) -> None:
    torch.manual_seed(3)
    kind, lens, network = system("deepshare"), CandidateLens(), CandidateNetwork()
    with torch.no_grad():
        network.score[-1].weight.mul_(-1.0)  # as drawn, it would rather wait than place
    whole = as_policy(kind, lens, network, "whole")
    assert whole.play is not None
    world = load(name, [f"workload.jobs={jobs}"]).draw(1)
    np.testing.assert_allclose(
        completions(whole, world, 1), completions(replace(whole, play=None), world, 1), rtol=1e-9
    )


def test_compiled_scores_are_those_of_the_network() -> None:
    torch.manual_seed(0)
    network = CandidateNetwork()
    player = network.player(CandidateLens(most=8))
    seen: list[Any] = []

    def act(obs: Any, *_: Any) -> Any:
        seen.append({n: torch.from_numpy(array.copy()) for n, array in obs.items()})
        return np.zeros(1, np.int64)

    world = load("contention-large", ["workload.jobs=30"]).draw(0)
    jobs = [Job(workers=8, curve=c % 6, estimate_s=600.0 + c) for c in range(12)]
    held = {0: [(0, 4), (9, 4)], 1: [(1, 2), (2, 2), (3, 2), (10, 2)]}
    snapshot = Snapshot.of(world.cluster, jobs, held, curves=world.physics.curves,
                           contention=world.physics.contention)  # fmt: skip
    LensPolicy(CandidateLens(most=8), act).decide(snapshot)
    LensPolicy(CandidateLens(most=8), act, play=lambda v, b, _: player(v, b, 1) or True).decide(
        snapshot
    )
    many = int(seen[0]["many"][0])
    seen[0]["candidate"] = seen[0]["candidate"][0, :many]
    logits = network(seen[0])[0].detach().numpy()
    np.testing.assert_allclose(player.logits[:many], logits, rtol=1e-4, atol=1e-5)


def seen_by(counts: list[int], rng: np.random.Generator) -> dict[str, torch.Tensor]:
    return {
        "candidate": torch.from_numpy(rng.normal(size=(sum(counts), CANDIDATE))).float(),
        "cluster": torch.from_numpy(rng.normal(size=(len(counts), CLUSTER))).float(),
        "many": torch.tensor(counts),
    }


def test_scores_do_not_depend_on_the_candidates_of_other_clusters() -> None:
    torch.manual_seed(0)
    network, rng = CandidateNetwork(), np.random.default_rng(0)
    counts = [3, 1, 9, 4, 2]
    seen = seen_by(counts, rng)
    logits, begins = network(seen)[0], np.cumsum([0, *counts])
    for b, many in enumerate(counts):
        alone = {name: array[b : b + 1] for name, array in seen.items()}
        alone["candidate"] = seen["candidate"][begins[b] : begins[b + 1]]
        torch.testing.assert_close(network(alone)[0], logits[begins[b] : begins[b] + many])


def test_the_order_of_candidates_does_not_matter() -> None:
    torch.manual_seed(0)
    network, rng = CandidateNetwork(), np.random.default_rng(1)
    seen = seen_by([6], rng)
    order = torch.from_numpy(rng.permutation(6))
    turned = seen | {"candidate": seen["candidate"][order]}
    torch.testing.assert_close(network(turned)[0], network(seen)[0][order])


def test_rows_beyond_the_candidates_are_left_out() -> None:
    seen = {"candidate": np.arange(12.0).reshape(2, 3, 2), "many": np.array([1, 3])}
    states = LensReader(CandidateLens(2)).states(seen, np.zeros((2, 1), np.int64))
    assert states["candidate"].tolist() == [[0, 1], [6, 7], [8, 9], [10, 11]]
    assert states.take(np.array([1, 0]))["candidate"][:, 0].tolist() == [6, 8, 10, 0]
    assert states.between(1, 2)["candidate"][:, 0].tolist() == [6, 8, 10]
