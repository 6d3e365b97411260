"""Mean completion times that unrelated public simulators give on real traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from worlds import assert_same, by_rounds

from rota.core import Cluster
from rota.policies import make_policy
from rota.sim import Conditions, simulate
from rota.traces import load_trace

if TYPE_CHECKING:
    from pathlib import Path

    from rota.run.outcome import Outcome

CLUSTERS = {
    "tiresias60": (1, 8),
    "philly_ee9e8c": (24, 8),
    "muri3": (8, 8),
    "philly_103959": (4, 8),
}

GOLDEN = [
    ("tiresias60", "fifo", 1556.4833333333),
    ("tiresias60", "srtf", 519.8666666667),
    ("philly_ee9e8c", "fifo+best-fit", 191076.109211776),
    ("philly_ee9e8c", "fifo-skip+first-fit", 142464.842355176),
    ("muri3", "srtf+first-fit", 190377.377379501),
]
"""Trace, policy, mean JCT of Tiresias, Helios and Muri's own simulators."""

MEASURED = [
    # As measured by others: free preemption, best-fit, printed to the second.
    ("philly_103959", "fifo-skip", 55_593),
    ("philly_ee9e8c", "fifo-skip", 144_206),
    ("muri3", "fifo-skip", 520_028),
    ("philly_103959", "srsf", 33_297),
    ("philly_ee9e8c", "srsf", 115_268),
    ("muri3", "srsf", 183_966),
    ("philly_103959", "srtf", 32_307),
    ("philly_ee9e8c", "srtf", 115_309),
    ("muri3", "srtf", 190_377),
    ("muri3", "srtf:b=0.75", 170_253),
    ("philly_103959", "las:quantum=900", 61_602),
    ("philly_ee9e8c", "las:quantum=900", 138_428),
    ("muri3", "las:quantum=900", 539_201),
    # The same without preemption.
    ("philly_103959", "sjf-skip", 36_838),
    ("philly_ee9e8c", "sjf-skip", 123_935),
    ("muri3", "sjf-skip", 247_466),
]

RESTARTS = [
    # As measured by others: 60 s per restart, sticky and defragmenting.
    ("philly_103959", "srtf", 32_395),
    ("philly_ee9e8c", "srtf", 115_395),
    ("muri3", "srtf", 191_850),
    ("philly_103959", "gittins", 38_413),
    ("philly_ee9e8c", "gittins", 136_874),
    ("muri3", "gittins", 308_110),
]


def replayed(
    golden: Path, trace: str, policy: str, when: Conditions | None = None, *, both: bool = False
) -> Outcome:
    jobs = load_trace(golden / f"{trace}.csv")
    cluster, made = Cluster.uniform(*CLUSTERS[trace]), make_policy(policy)
    outcome = simulate(cluster, jobs, made, when)
    if both:
        assert_same(outcome, by_rounds(cluster, jobs, made, when))
    return outcome


def mean_jct_s(outcome: Outcome) -> float:
    return float((outcome.done_s - outcome.submit_s).mean())


@pytest.mark.parametrize(("trace", "policy", "expected_s"), GOLDEN)
def test_golden(golden: Path, trace: str, policy: str, expected_s: float) -> None:
    outcome = replayed(golden, trace, policy, both=True)
    # The table is printed with ten decimals.
    assert mean_jct_s(outcome) == pytest.approx(expected_s, rel=1e-9, abs=6e-11)


@pytest.mark.parametrize(("trace", "policy", "expected_s"), MEASURED)
def test_measured_to_the_printed_digit(
    golden: Path, trace: str, policy: str, expected_s: int
) -> None:
    assert round(mean_jct_s(replayed(golden, trace, policy))) == expected_s


@pytest.mark.parametrize(("trace", "policy", "best_s"), RESTARTS)
def test_with_restart_costs_at_most_a_percent_above_the_best_known(
    golden: Path, trace: str, policy: str, best_s: int
) -> None:
    when = Conditions(restart_s=60)
    outcome = replayed(golden, trace, policy, when)
    assert mean_jct_s(outcome) <= 1.01 * best_s
    if policy == "srtf":
        assert round(mean_jct_s(outcome)) == best_s


def test_the_published_muri_result_includes_its_restarts(golden: Path) -> None:
    # Muri charges restarts otherwise, so this is a matter of a few per cent, not of digits.
    when = Conditions(restart_s=60)
    assert mean_jct_s(replayed(golden, "muri3", "srtf", when)) == pytest.approx(193_081.8, rel=0.01)


@pytest.mark.parametrize("policy", ["srtf", "tiresias", "fifo-easy"])
def test_a_real_trace_round_by_round_with_restart_costs(golden: Path, policy: str) -> None:
    replayed(golden, "philly_103959", policy, Conditions(restart_s=60, min_run_s=120), both=True)
