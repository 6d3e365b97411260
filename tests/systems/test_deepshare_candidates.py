"""DeepShare by candidates: the lens against the policies, its mask, and the network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rota.core import Cluster, Job, Snapshot
from rota.envs import BatchEnv, LensPolicy, PerfectCopy, WorldPool
from rota.policies import make_policy
from rota.scenarios import load
from rota.sim import simulate
from rota.systems.deepshare.candidate_lens import CandidateLens
from rota.systems.deepshare.candidate_network import CandidateNetwork
from rota.systems.deepshare.feature_kernels import CANDIDATE, CLUSTER

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
@pytest.mark.parametrize("name", ["contention-arrivals", "deepshare", "deepshare-published"])
def test_its_first_candidate_is_that_of_the_greedy_rule(name: str, threshold: float) -> None:
    scenario = load(name)
    worlds = [scenario.draw(seed) for seed in SEEDS]
    env = BatchEnv(WorldPool.of(worlds, SEEDS), CandidateLens(), batch=len(SEEDS))
    batched = played(env, threshold)
    single = LensPolicy(CandidateLens(), lambda obs, mask, *_: best(threshold, obs, mask))
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

    LensPolicy(CandidateLens(most=4), act).decide(snapshot)
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


def seen_by(network_rows: int, places: int, rng: np.random.Generator) -> dict[str, torch.Tensor]:
    many = rng.integers(1, places + 1, network_rows)
    return {
        "candidate": torch.from_numpy(
            rng.normal(size=(network_rows, places, CANDIDATE)).astype(np.float32)
        ),
        "cluster": torch.from_numpy(rng.normal(size=(network_rows, CLUSTER)).astype(np.float32)),
        "many": torch.from_numpy(many),
    }


def test_scores_do_not_depend_on_old_rows_other_clusters_or_the_number_of_places() -> None:
    torch.manual_seed(0)
    network, rng = CandidateNetwork(), np.random.default_rng(0)
    seen = seen_by(5, 9, rng)
    logits = network.act(seen)
    for b in range(5):
        many = int(seen["many"][b])
        alone = {name: array[b : b + 1] for name, array in seen.items()}
        alone["candidate"] = alone["candidate"][:, :many]
        torch.testing.assert_close(network.act(alone)[0], logits[b, :many])
    seen["candidate"][0, int(seen["many"][0]) :] = np.nan
    torch.testing.assert_close(network.act(seen)[0], logits[0])


def test_the_order_of_candidates_does_not_matter() -> None:
    torch.manual_seed(0)
    network, rng = CandidateNetwork(), np.random.default_rng(1)
    seen = seen_by(1, 6, rng) | {"many": torch.tensor([6])}
    order = torch.from_numpy(rng.permutation(6))
    turned = seen | {"candidate": seen["candidate"][:, order]}
    torch.testing.assert_close(network.act(turned)[0], network.act(seen)[0][order])
