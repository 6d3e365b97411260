"""Every policy by name in shipped worlds: it runs to the end, or says why it cannot."""

from __future__ import annotations

import numpy as np
import pytest

from rota.errors import PolicyError
from rota.policies import ORDERINGS, make_policy
from rota.policies.catalogue import speed_aware
from rota.scenarios import Scenario, load, names
from rota.sim import simulate

POLICIES = (*ORDERINGS, *speed_aware())
SPREAD_ONLY = ("contention-arrivals", "deepshare", "deepshare-published")
"""Worlds in which jobs have no speed on one node."""
PACKING = ("hull-greedy", "optimus", "drf-bundles", "srtf-bundles", "equal-units", "dl2-tetris",
           "gavel-max-min", "gavel-min-jct", "pollux", "grow", "grow-always")  # fmt: skip
"""Policies that place jobs themselves, on as few nodes as possible."""


def plays(name: str, policy: str, jobs: int = 12, seed: int = 0) -> None:
    scenario = load(name)
    world = scenario.draw(seed)
    arguments = (world.cluster, world.trace.head(jobs), make_policy(scenario.policy(policy)))
    if name.startswith(SPREAD_ONLY) and policy in PACKING:
        with pytest.raises(PolicyError, match=r"as few as possible|its speed is 0"):
            simulate(*arguments, world.when, seed=seed, physics=world.physics)
        return
    outcome = simulate(*arguments, world.when, seed=seed, physics=world.physics)
    assert np.isfinite(outcome.done_s).all()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["contention-arrivals", "deepshare-published", "das-small",
                                  "dl2-testbed"])  # fmt: skip
def test_a_named_policy_runs_or_says_why_not(name: str, policy: str) -> None:
    plays(name, policy)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", names())
def test_a_named_policy_runs_everywhere_or_says_why_not(name: str, policy: str) -> None:
    plays(name, policy, jobs=24, seed=1)


@pytest.mark.parametrize("policy", ["fifo", "fifo-skip"])
@pytest.mark.parametrize(
    "name",
    [
        "contention-arrivals-055",
        "contention-arrivals",
        "contention-arrivals-080",
        "deepshare",
        "deepshare-published",
    ],
)
def test_whole_worlds_run_under_the_placement_that_the_scenario_names(
    name: str, policy: str
) -> None:
    for seed in range(5):
        plays(name, policy, jobs=256, seed=seed)


def placed(placement: str, name: str) -> str:
    scenario = load("rigid-blind")
    settings = {**scenario.settings, "policies": {"placement": placement}}
    return Scenario("x", 1, "", settings, aliases={"shortest": "srtf", "ours": "gavel-min-jct"},
                    file="").policy(name)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("fifo", "fifo+spread"),
        ("srtf:b=0.5", "srtf:b=0.5+spread"),
        ("srtf@oracle", "srtf+spread@oracle"),
        ("srtf+elastic", "srtf+spread+elastic"),
        ("fifo+elastic@oracle", "fifo+spread+elastic@oracle"),
        ("fifo+best-fit", "fifo+best-fit"),
        ("fifo+elastic+fgd", "fifo+elastic+fgd"),
        ("shortest", "srtf+spread"),
        ("shortest@oracle", "srtf+spread@oracle"),
        ("ours:lease=60", "gavel-min-jct:lease=60"),
        ("contention-greedy:threshold=0.2", "contention-greedy:threshold=0.2"),
        ("mine.py:Mine", "mine.py:Mine"),
        ("run/best.ckpt", "run/best.ckpt"),
    ],
)
def test_an_ordering_without_a_placement_gets_the_scenarios(name: str, meant: str) -> None:
    assert placed("spread", name) == meant


def test_a_scenario_that_names_none_changes_no_name() -> None:
    assert load("rigid-blind").policy("fifo") == "fifo"
    assert "policies" in load("rigid-blind").settings
