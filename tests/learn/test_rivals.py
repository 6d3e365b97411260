"""Which rules a network is compared with, world by world, and what the comparison says."""

from __future__ import annotations

import numpy as np
import pytest

from rota.learn.rivals import fitting_rules
from rota.learn.training_report import Standing, compared
from rota.policies import make_policy
from rota.scenarios import load


@pytest.mark.parametrize(
    ("name", "jobs", "strongest"),
    [
        ("dl2-busy", 0, "hull-greedy"),
        ("dl2-small-published", 0, "hull-greedy"),
        ("elastic-unknown", 0, "hull-greedy"),
        ("contention-arrivals", 20, "contention-rollout"),
        ("das-small", 20, "least-loss"),
        ("rigid-blind", 20, "gittins"),
        ("gang-nonpreemptive", 20, "srtf"),
    ],
)
def test_rules_fit_the_world(name: str, jobs: int, strongest: str) -> None:
    scenario = load(name, [f"workload.jobs={jobs}"] if jobs else [])
    rules = fitting_rules(scenario, scenario.draw(1000))
    assert strongest in rules
    assert len(set(rules)) == 3
    for rule in rules:
        assert make_policy(scenario.policy(rule))


def test_published_scenarios_have_the_published_drf() -> None:
    for name, drf in (("dl2-small-published", "drf"), ("dl2-small", "drf-bundles")):
        scenario = load(name)
        assert drf in fitting_rules(scenario, scenario.draw(1000))


def test_the_strongest_rival_is_the_one_with_the_lowest_mean() -> None:
    own = np.array([80.0, 120.0])
    rivals = compared(own, {"a": np.array([100.0, 150.0]), "b": np.array([70.0, 90.0])}, 10.0)
    standing = Standing(
        scenario="s", traces="2 traces", unit="slots of 10 s", jct=10.0, teacher="a", rivals=rivals
    )
    assert [rival.jct for rival in rivals] == [12.5, 8.0]
    assert rivals[0].change == pytest.approx(-0.2)
    assert rivals[1].change == pytest.approx(0.25)
    # Both traces are 20 % lower than under a, so every resample is.
    assert rivals[0].words() == "-20.0% [-20.0%, -20.0%]"
    assert standing.strongest is rivals[1]
    assert standing.facts()["strongest"] == "b"


def test_one_trace_gives_no_interval_and_no_rivals_no_strongest() -> None:
    (rival,) = compared(np.array([5.0]), {"a": np.array([4.0])}, 1.0)
    assert (rival.ci95, rival.words()) == (None, "+25.0%")
    (still,) = compared(np.array([0.0]), {"a": np.array([0.0])}, 1.0)
    assert (still.change, still.words()) == (None, "-")
    nobody = Standing(scenario="s", traces="", unit="hours", jct=1.0, teacher="", rivals=())
    assert nobody.facts()["strongest"] is None
