"""The networks that ship: they do what the tables say."""

from __future__ import annotations

import numpy as np
import pytest

from rota.learn.deploy import load_policy
from rota.policies import make_policy
from rota.scenarios import load
from rota.sim import simulate
from rota.systems.catalogue import presets, trained

SEEDS = (1000, 1001)


@pytest.mark.parametrize("name", sorted(trained()))
def test_a_shipped_network_keeps_the_claim(name: str) -> None:
    scenario = load("dl2-small-published")

    def mean_jct_s(policy: object) -> float:
        found = []
        for seed in SEEDS:
            world = scenario.draw(seed)
            outcome = simulate(
                world.cluster, world.trace, policy, world.when, seed=seed, physics=world.physics
            )  # fmt: skip
            found.append(float(np.mean(outcome.done_s - outcome.submit_s)))
        return float(np.mean(found))

    drf, optimus = (mean_jct_s(make_policy(scenario.policy(n))) for n in ("drf", "optimus"))
    own = mean_jct_s(load_policy(trained()[name]))
    assert own < 0.559 * drf
    assert own < 0.825 * optimus


def test_what_ships_can_be_trained_by_name() -> None:
    assert set(trained()) <= set(presets())
    assert {"dl2", "dl2-onepass"} <= set(trained())
