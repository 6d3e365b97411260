"""DeepShare's reward, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rota.envs import BatchEnv, Reward, WorldPool
from rota.errors import ConfigError
from rota.learn.recipe_file import load_recipe
from rota.scenarios import load
from rota.systems.deepshare.paper_lens import PaperLens

NOTHING = 7


def two_jobs() -> BatchEnv:
    """MobileNet and FSDP, 2 GPUs each, in two clusters; weights .3 and .7."""
    world = load("deepshare-published").draw(1)
    trace = world.trace
    wanted = [trace.models.index(name) for name in ("MobileNetV3", "FSDP")]
    chosen = [
        int(np.flatnonzero((trace.model == model) & (trace.num_gpus == 2))[0]) for model in wanted
    ]
    pool = WorldPool.of([replace(world, trace=trace.take(np.array(sorted(chosen))))], [1])
    reward = Reward(kind="deepshare", contention_weight=0.3, utilisation_weight=0.7)
    return BatchEnv(pool, PaperLens(), reward, batch=2)


def test_lost_speed_is_charged_and_recent_utilisation_paid_round_by_round() -> None:
    env = two_jobs()
    env.reset()
    # Cluster 0 starts one job, cluster 1 both on the same nodes: 2 and 4 of 32 GPUs.
    _, paid, *_ = env.step([0, 0])
    assert paid.tolist() == [0.0, 0.0]  # the round is not over
    _, paid, *_ = env.step([NOTHING, 0])
    assert paid == pytest.approx([0.7 * 2 / 32, 0.0])

    # MobileNet keeps .952 beside FSDP, which keeps .846: .101 is lost on average. With a span of
    # ten the weights of cluster 0's two rounds are 1 and 9/11.
    recent = (4 / 32 + 9 / 11 * 2 / 32) / (1 + 9 / 11)
    env.step([0, NOTHING])
    _, paid, _, _, info = env.step([NOTHING, NOTHING])
    assert paid == pytest.approx([0.7 * recent - 0.3 * 0.101, 0.7 * 4 / 32 - 0.3 * 0.101])
    gains = info["gains"]
    assert gains.sum(axis=1) == pytest.approx(paid)
    assert sorted(gains[1]) == pytest.approx(
        [(0.7 * 4 / 32 - 0.3 * 0.154) / 2, (0.7 * 4 / 32 - 0.3 * 0.048) / 2]
    )


def test_every_episode_begins_without_a_past() -> None:
    env = two_jobs()
    env.reset()
    returns: list[float] = []
    first = True
    while len(returns) < 3:
        _, paid, ended, _, info = env.step([0, 0])
        if first and info["closed"][0]:
            assert paid[0] == pytest.approx(0.7 * 4 / 32 - 0.3 * 0.101)
            first = False
        if ended[0]:
            returns.append(float(info["episode"]["return"][0]))
            first = True
    assert returns[0] == returns[1] == returns[2]


def test_weights_are_settings_of_recipes() -> None:
    recipe = load_recipe("dl2-onepass", ["world.reward=deepshare", "world.contention_weight=0.4"])
    assert recipe.world.rewards == Reward(kind="deepshare", contention_weight=0.4)
    with pytest.raises(ConfigError, match=r"contention_weight=-1.0 must be 0 or more"):
        Reward(kind="deepshare", contention_weight=-1.0)
    with pytest.raises(ConfigError, match=r"utilisation_weight = -1.0 must be 0 or more"):
        load_recipe("dl2-onepass", ["world.utilisation_weight=-1"])
