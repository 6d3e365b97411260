"""DeepShare's moves of running jobs, and what its candidates lead to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from slow_rounds import pairs

from rota.core import Cluster, Job, Snapshot
from rota.core.layout import FUTURE
from rota.core.speed import Curves
from rota.envs import BatchEnv, LensPolicy, WorldPool
from rota.errors import ConfigError
from rota.policies import make_policy
from rota.scenarios import load
from rota.sim import simulate
from rota.systems.deepshare.candidate_lens import CandidateLens
from rota.systems.deepshare.feature_kernels import CANDIDATE, HIDDEN, HIDDEN_OF_MOVES
from rota.systems.deepshare.foresight import Foresight

RULE = "contention-greedy:threshold=0.2"


def side_by_side(count: int = 2, nodes: int = 4, **more: Any) -> Snapshot:
    """Jobs of 4 workers over nodes 0 and 1 of 8 GPUs, where each halves the others' speed."""
    columns = {"pace": 0.5, **more}
    speed = np.zeros((1, 1, 3, 5))
    speed[0, 0, 2, 4] = 10.0
    kind = np.full((2, 3, 5), -1)
    kind[0, 2] = 0
    curves = Curves(("model",), ("gpu",), speed, by_nodes=True, measured=np.full((1, 2), 8))
    jobs = [Job(workers=4, curve=0, estimate_s=100.0, resize_s=60.0) for _ in range(count)]
    held = {j: [(0, 2), (1, 2)] for j in range(count)}
    made = Snapshot.of(
        Cluster.uniform(nodes, 8), jobs, held, curves=curves, contention=pairs(kind, [[0.5]])
    )
    rows = made.jobs.rows.copy()
    for name, values in columns.items():
        rows[name] = values
    return Snapshot(0.0, made.cluster, type(made.jobs)(rows), made.nodes, made.shares,
                    made.curves, made.contention)  # fmt: skip


def played(snapshot: Snapshot, choose: Any, **lens: Any) -> tuple[Any, list[Any]]:
    """The decision, and what was seen and foreseen at every step of the round."""
    steps: list[Any] = []

    def act(obs: Any, mask: Any, view: Any, book: Any) -> Any:
        costs = Foresight(book, 0, ["contention-greedy"]).costs(view, book)
        steps.append((obs["candidate"][0].copy(), mask[0].copy(), costs[0].copy()))
        return np.array([choose(mask[0], costs[0])])

    decision = LensPolicy(CandidateLens(**lens), act).decide(snapshot)
    decision.check(snapshot)
    return decision, steps


def cheapest(_mask: Any, costs: Any) -> int:
    return int(costs.argmin())


def test_a_job_moves_away_from_one_that_it_disturbs() -> None:
    decision, steps = played(side_by_side(), cheapest)
    seen, mask, costs = steps[0]
    assert mask.sum() == 3  # to wait, or to move one of the two
    # To wait: both end after 200 s. To move: one after 60 + 100 s, the other after 100 s.
    np.testing.assert_allclose(costs[:3], [200.0, 130.0, 130.0])  # of two jobs
    # Per GPU it gains the half of its speed, and its neighbour gains as much.
    np.testing.assert_allclose(seen[1:3, 1], 1.0)
    assert seen[1:3, 22].tolist() == [1.0, 1.0]
    np.testing.assert_allclose(seen[1:3, 23], 0.6)
    assert decision.share(0) == ((2, 2, 0), (3, 2, 0))
    assert decision.share(1) == ((0, 2, 0), (1, 2, 0))
    assert len(steps) == 1  # then nobody gains by a move


def test_a_move_that_costs_more_than_it_brings_is_seen_as_such() -> None:
    _, steps = played(side_by_side(resize_s=150.0), cheapest)
    np.testing.assert_allclose(steps[0][2][:3], [200.0, 175.0, 175.0])
    decision, steps = played(side_by_side(resize_s=210.0), cheapest)
    np.testing.assert_allclose(steps[0][2][:3], [200.0, 205.0, 205.0])
    assert decision.share(0) == ((0, 2, 0), (1, 2, 0))


def test_no_job_moves_twice_in_a_round() -> None:
    decision, steps = played(
        side_by_side(3, nodes=8), lambda mask, _: int(np.flatnonzero(mask)[-1])
    )
    places = [tuple(n for n, _, _ in decision.share(j)) for j in range(3)]
    assert len(set(places)) == 3
    assert len(steps) == 2


@pytest.mark.parametrize(
    "pinned", [{"min_run_s": 10.0, "since_s": -5.0}, {"min_run_s": 1e9, "since_s": -1e6}]
)
def test_jobs_that_may_not_be_stopped_are_not_moved(pinned: dict[str, float]) -> None:
    _, steps = played(side_by_side(**pinned), cheapest)
    assert steps[0][1].sum() == 1


def test_no_moves_are_shown_if_none_are_wanted() -> None:
    _, steps = played(side_by_side(), cheapest, moves=0)
    assert steps[0][1].tolist() == [True] + 16 * [False]


def all_jcts_s(world: Any, seed: int, first: list[int], threshold: float) -> float:
    """The sum of completion times after these actions, then by the greedy rule."""
    env = BatchEnv(WorldPool.of([world], [seed]), CandidateLens(moves=0), batch=1)
    obs, info = env.reset()
    actions = iter(first)
    while True:
        gains = info["mask"][0, 1] and obs["candidate"][0, 1, 1] > threshold
        rule = int(gains or not info["mask"][0, 0])
        obs, _, _, _, info = env.step(np.array([next(actions, rule)]))
        if info["_episode"][0]:
            return float(info["episode"]["jcts_s"][0].sum())


@pytest.mark.parametrize("name", ["contention-arrivals", "deepshare"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_with_all_arrivals_costs_are_what_the_simulator_says(name: str, seed: int) -> None:
    world = load(name, ["workload.jobs=24"]).draw(seed)
    env = BatchEnv(WorldPool.of([world], [seed]), CandidateLens(moves=0), batch=1)
    _, info = env.reset()
    foresight, rng = Foresight(env.book, 64, [RULE]), np.random.default_rng(seed)
    taken: list[int] = []
    for step in range(16):
        allowed = np.flatnonzero(info["mask"][0])
        if step % 5 == 4 and len(allowed) > 1:
            costs = foresight.costs(env.view, env.book)[0]
            assert np.flatnonzero(np.isfinite(costs)).tolist() == allowed.tolist()
            true = [all_jcts_s(world, seed, [*taken, a], 0.2) for a in allowed.tolist()]
            # What was before is in one of them and not in the other.
            jobs = int((env.view.jobs[0]["status"] <= FUTURE).sum())
            found = jobs * np.diff(costs[allowed])
            np.testing.assert_allclose(found, np.diff(true), rtol=1e-6, atol=0.1)
        taken.append(int(rng.choice(allowed)))
        info = env.step(np.array(taken[-1:]))[-1]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", [RULE, f"{RULE},fraction=1", "contention-greedy:min_ratio=0.5"])
def test_with_all_arrivals_an_action_costs_what_the_rule_leads_to(name: str, seed: int) -> None:
    world = load("contention-arrivals", ["workload.jobs=40"]).draw(seed)
    env = BatchEnv(WorldPool.of([world], [seed]), CandidateLens(moves=0), batch=1)
    env.reset()
    costs = Foresight(env.book, 64, [name]).costs(env.view, env.book)[0]
    rule = make_policy(name)
    run = simulate(world.cluster, world.trace, rule, world.when, seed=seed, physics=world.physics)
    assert np.isinf(costs[0])  # nothing runs, so it may not wait
    jct_s = (run.done_s - run.submit_s).mean()
    assert np.isclose(costs, jct_s, rtol=1e-9, atol=0.0).any()  # that of the rule's own action


@pytest.mark.parametrize("seed", range(4))
def test_the_rule_counts_that_makes_most_of_a_candidate(seed: int) -> None:
    world = load("deepshare", ["workload.jobs=60"]).draw(seed)
    env = BatchEnv(WorldPool.of([world], [seed]), CandidateLens(), batch=1)
    _, info = env.reset()
    rules = [RULE, f"{RULE},fraction=1", "contention-greedy:threshold=0.85"]
    plays = [Foresight(env.book, 64, names) for names in (*([name] for name in rules), rules)]
    for _ in range(20):
        *each, chosen = (play.costs(env.view, env.book)[0].copy() for play in plays)
        best = np.min(each, 0)
        np.testing.assert_array_equal(chosen, best)
        assert np.isfinite(best).tolist() == info["mask"][0].tolist()
        info = env.step(np.array([int(best.argmin())]))[-1]


def test_only_the_greedy_rule_can_play_on() -> None:
    env = BatchEnv(WorldPool.of([load("deepshare").draw(0)], [0]), CandidateLens(), batch=1)
    with pytest.raises(ConfigError, match="'contention-rollout' cannot play on"):
        Foresight(env.book, 4, ["contention-rollout"])


def test_a_job_that_others_stop_altogether_ends_some_day() -> None:
    stuck = side_by_side()
    laws = stuck.contention._replace(ratio=np.zeros((1, 1)), floor=0.0)
    _, steps = played(replace(stuck, contention=laws), cheapest)
    for seen, allowed, costs in steps:
        assert np.isfinite(seen).all()
        assert np.isfinite(costs[allowed]).all()


def test_whoever_does_not_see_contention_sees_no_more_of_a_move() -> None:
    mild, hard = side_by_side(), side_by_side()
    hard = replace(hard, contention=hard.contention._replace(ratio=np.full((1, 1), 0.3)))
    first, second = (played(s, cheapest, contention=False)[1][0][0] for s in (mild, hard))
    np.testing.assert_array_equal(first, second)


def test_without_contention_its_features_are_hidden() -> None:
    _, shown = played(side_by_side(), cheapest)
    _, hidden = played(side_by_side(), cheapest, contention=False)
    both = shown[0][0][1:3], hidden[0][0][1:3]
    assert not both[1][:, HIDDEN].any()
    left = [f for f in range(CANDIDATE) if f not in (*HIDDEN, *HIDDEN_OF_MOVES)]
    np.testing.assert_array_equal(both[0][:, left], both[1][:, left])


def test_whoever_may_not_wait_starts_what_can_start() -> None:
    lens = CandidateLens(wait=False)
    world = load("contention-arrivals", ["workload.jobs=24"]).draw(0)
    env = BatchEnv(WorldPool.of([world], [0]), lens, batch=1)
    obs, info = env.reset()
    for _ in range(40):
        assert info["mask"][0, 0] == (obs["many"][0] == 1)
        obs, _, _, _, info = env.step(np.array([int(not info["mask"][0, 0])]))
