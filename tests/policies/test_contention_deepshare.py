"""On DeepShare's measured table: its own trace, and arrivals."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from slow_rounds import LENGTH_S, MODELS, play, tables

from rota.policies import make_policy

if TYPE_CHECKING:
    from pathlib import Path

    from rota.core.speed import Contention, Curves


@pytest.fixture(scope="module")
def measured() -> tuple[Curves, Contention]:
    return tables()


@pytest.fixture(scope="module")
def trace(golden: Path) -> list[tuple[int, int, float, float]]:
    with (golden / "deepshare_trace0.csv").open() as file:
        return [
            (MODELS.index(row["model"]), int(row["num_gpus"]), 0.0, float(row["total_samples"]))
            for row in csv.DictReader(file)
        ]


PUBLISHED = [
    # As measured by others: mean completion, makespan, utilisation.
    ("contention-greedy", 74_146, 177_900, 0.975),
    ("contention-greedy:min_ratio=0.6", 78_227, 197_400, 0.813),
    ("contention-greedy:size=0.5", 63_559, None, None),
    ("contention-greedy:fraction=1", 63_239, 171_000, None),
]


@pytest.mark.parametrize(("name", "mean_s", "makespan_s", "used"), PUBLISHED)
def test_published_numbers_within_three_per_cent(
    measured: Any, trace: Any, name: str, mean_s: float, makespan_s: float, used: float
) -> None:
    took_s, end_s, utilisation = play(make_policy(name), trace, *measured)
    assert took_s.mean() == pytest.approx(mean_s, rel=0.03)
    if makespan_s:
        assert end_s == pytest.approx(makespan_s, rel=0.03)
    if used:
        assert utilisation == pytest.approx(used, rel=0.03)


def arrivals(curves: Curves, seed: int, load: float, jobs: int = 256) -> Any:
    """Poisson arrivals of DeepShare's job types; load is isolated GPU-seconds over capacity."""
    rng = np.random.default_rng(seed)
    curve, gpus = rng.integers(0, len(MODELS), jobs), rng.choice([2, 4, 8], jobs)
    at_s = rng.exponential(gpus.mean() * LENGTH_S / (32 * load), jobs).cumsum()
    speeds = curves.speed[curve, 0][:, [2, 4]][np.arange(jobs), :, gpus]
    samples = LENGTH_S * speeds.sum(axis=1) / (speeds > 0).sum(axis=1)
    return list(zip(curve.tolist(), gpus.tolist(), at_s.tolist(), samples.tolist(), strict=True))


def test_looking_ahead_pays_with_arrivals(measured: Any) -> None:
    curves, laws = measured
    names = ("contention-greedy:threshold=0.2", "contention-rollout")
    greedy_s, rollout_s = (
        np.mean([
            play(make_policy(name), arrivals(curves, seed, 0.65), curves, laws, round_s=0)[0]
            for seed in range(3)
        ])
        for name in names
    )  # fmt: skip
    assert rollout_s < 0.97 * greedy_s


@pytest.mark.parametrize("settings", ["threshold=0", "threshold=0.2", "threshold=0,fraction=1"])
def test_without_arrivals_looking_ahead_never_ends_worse(measured: Any, settings: str) -> None:
    # What the greedy rule would do is always among what is tried, so each step can only improve.
    curves, laws = measured
    jobs = [(c, gpus, 0.0, samples) for c, gpus, _, samples in arrivals(curves, 5, 1.0, 40)]
    greedy_s, rollout_s = (
        play(make_policy(f"{name}:{settings}"), jobs, curves, laws, round_s=0)[0].mean()
        for name in ("contention-greedy", "contention-rollout")
    )
    assert rollout_s <= greedy_s * (1 + 1e-9)
