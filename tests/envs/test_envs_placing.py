"""Rounds that place: the batched environment against the simulator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from placing_lens import HeadToNodes

from rota.envs import BatchEnv, LensPolicy, WorldPool
from rota.errors import ConfigError
from rota.scenarios import load
from rota.sim import simulate


def choice(uid: int, obs: Any, b: int) -> int:
    """Some two nodes with room, by what both sides see; now and then none, if others run."""
    free, workers = obs["free"][b], int(obs["workers"][b, 0])
    nodes, half = range(len(free)), workers // 2
    pairs = [
        n * len(free) + m for n in nodes for m in nodes
        if n < m and free[n] >= workers - half and free[m] >= half
    ]  # fmt: skip
    luck = 31 * (uid + 1) + 3 * int(free.sum())
    if not pairs or (luck % 5 == 0 and obs["running"][b, 0] > 0):
        return len(free) ** 2
    return pairs[luck % len(pairs)]


def test_there_are_no_potentials_of_placements() -> None:
    pool = WorldPool.draw(load("deepshare"), [1])
    with pytest.raises(ConfigError, match="a lens that places has none"):
        BatchEnv(pool, HeadToNodes(4), batch=1, potentials=True)


def play(env: BatchEnv) -> Any:
    """Completion times by job (B, J) of the first episode of every cluster."""
    obs, _ = env.reset()
    jcts, left = np.full(env.ends.jcts_s.shape, np.nan), np.ones(env.num_envs, bool)
    while left.any():
        rows = env.book.rows[:, 0].tolist()
        obs, _, _, cut, info = env.step([choice(row, obs, b) for b, row in enumerate(rows)])
        assert not cut.any()
        now = info["_episode"] & left
        if now.any():
            jcts[now] = info["episode"]["jcts_s"][now]
            left &= ~now
    return jcts


@pytest.mark.parametrize(
    ("name", "stops"),
    [("contention-arrivals", False), ("deepshare", True), ("deepshare-published", False)],
)
def test_what_is_placed_in_a_batch_is_what_the_policy_places(name: str, stops: bool) -> None:
    scenario = load(name)
    worlds = [scenario.draw(seed) for seed in (1, 2)]
    lens = HeadToNodes(len(worlds[0].cluster), stops)
    jcts = play(BatchEnv(WorldPool.of(worlds, [1, 2]), lens, batch=2))

    def act(obs: Any, _mask: Any, view: Any, book: Any) -> list[int]:
        row = int(book.rows[0, 0])
        uid = int(view.jobs[0, row]["uid"]) if row >= 0 else -1
        return [choice(uid, obs, 0)]

    for k, (world, seed) in enumerate(zip(worlds, (1, 2), strict=True)):
        result = simulate(
            world.cluster, world.trace, LensPolicy(lens, act), world.when, seed=seed,
            physics=world.physics,
        )  # fmt: skip
        np.testing.assert_array_equal(result.done_s - result.submit_s, jcts[k, : len(world.trace)])


def test_clusters_that_are_kept_and_episodes_of_another_pool_place_as_before() -> None:
    scenario = load("contention-arrivals")
    drawn = [replace(w, trace=w.trace.head(20)) for w in map(scenario.draw, range(6))]
    first, second = WorldPool.of(drawn[:3], range(3)), WorldPool.of(drawn[3:], range(3, 6))
    lens = HeadToNodes(4)

    def steps(env: BatchEnv, obs: Any, count: int) -> tuple[Any, list[float]]:
        ends: list[float] = []
        for _ in range(count):
            rows = env.book.rows[:, 0].tolist()
            obs, _, _, _, info = env.step([choice(row, obs, b) for b, row in enumerate(rows)])
            if info["_episode"][-1]:
                ends.append(float(info["episode"]["jct_s"][-1]))
        return obs, ends

    whole, some = (BatchEnv(first, lens, batch=3) for _ in range(2))
    (obs, _), (part, _) = whole.reset(), some.reset()
    obs, _ = steps(whole, obs, 50)
    part, _ = steps(some, part, 50)
    part = some.keep(np.array([0, 2]))[0]
    for env in (whole, some):
        env.swap(second)
    _, expected = steps(whole, obs, 600)
    _, found = steps(some, part, 600)
    assert len(expected) > 1  # so that one is from the second pool
    assert found == expected
