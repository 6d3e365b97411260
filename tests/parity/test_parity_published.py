"""The published settings of DL2 and DeepShare against what others measured in them.

Mean completion times: in slots for DL2, on the same traces; for DeepShare's own trace one
implementation's numbers, hence within 3 %.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from rota.policies import make_policy
from rota.run.metrics import summarise
from rota.scenarios import load
from rota.sim import simulate
from rota.traces import load_trace

if TYPE_CHECKING:
    from pathlib import Path

BASELINES = ("drf", "fifo", "srtf", "tetris", "optimus")
UNIFORM = {
    "drf": (40.752, 229.78), "fifo": (92.908, 345.75), "srtf": (93.480, 348.08),
    "tetris": (146.918, 255.75), "optimus": (28.911, 165.26),
}  # fmt: skip
ALI = {
    "dl2-small-published": (100, (10.119, 13.028, 13.029, 19.067, 6.670)),
    "dl2-large-published": (20, (9.390, 9.177, 9.133, 9.075, 6.437)),
    "dl2-template-published": (30, (23.66, 112.7, 112.7, 202.3, 17.83)),
}


def played(name: str, policy: str, seeds: range) -> tuple[float, float]:
    """Mean completion time and makespan in slots, over the seeds."""
    scenario = load(name)
    jct, makespan = [], []
    for seed in seeds:
        world = scenario.draw(seed)
        result = summarise(
            simulate(
                world.cluster, world.trace, make_policy(scenario.policy(policy)), world.when,
                seed=seed, physics=world.physics,
            )
        )  # fmt: skip
        jct.append(result["mean_jct_s"] / world.when.slot_s)
        makespan.append(result["makespan_s"] / world.when.slot_s)
    return float(np.mean(jct)), float(np.mean(makespan))


@pytest.mark.parametrize("policy", BASELINES)
def test_dl2_uniform_to_the_digit(policy: str) -> None:
    assert played("dl2-small-uniform-published", policy, range(3)) == pytest.approx(
        UNIFORM[policy], abs=0.006
    )


@pytest.mark.slow
@pytest.mark.parametrize("policy", BASELINES)
@pytest.mark.parametrize("name", ALI)
def test_dl2_ali_means(name: str, policy: str) -> None:
    count, means = ALI[name]
    jct, _ = played(name, policy, range(count))
    assert jct == pytest.approx(means[BASELINES.index(policy)], rel=0.002)


@pytest.mark.parametrize(
    ("policy", "mean", "makespan", "utilisation"),
    [
        ("contention-greedy", 74_146, 177_900, 0.975),
        ("contention-greedy:min_ratio=0.6", 78_227, 197_400, 0.813),
    ],
)
def test_deepshare_trace0(
    golden: Path, policy: str, mean: float, makespan: float, utilisation: float
) -> None:
    trace = load_trace(golden / "deepshare_trace0.csv")
    world = load("deepshare-published").draw(0, trace=trace)
    result = summarise(
        simulate(world.cluster, world.trace, make_policy(policy), world.when, physics=world.physics)
    )
    found = result["mean_jct_s"], result["makespan_s"], result["utilisation"]
    assert found == pytest.approx((mean, makespan, utilisation), rel=0.03)
