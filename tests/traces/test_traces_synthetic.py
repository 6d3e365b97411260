"""Generators and presets, held against the real traces where those are at hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from calls import python_calls
from hypothesis import given
from hypothesis import strategies as st
from worlds import examples

from rota.errors import ConfigError, UnknownNameError
from rota.traces import PRESETS, Workload, generate, load_trace
from rota.traces.distributions import Bursts, Exponential, Lognormals, Quantiles
from rota.traces.presets import preset, preset_cluster
from rota.traces.synthetic import WEEK_S, Rhythm, _offering_span

if TYPE_CHECKING:
    from pathlib import Path

    from rota.core.types import Floats, Ints

REAL = {
    "philly": "philly/philly_jobs.csv.gz",
    "venus": "helios_venus/venus_jobs.csv.gz",
    "pai": "alibaba_pai2020/pai_tasks.csv.gz",
}


def distance(one: Floats | Ints, other: Floats | Ints) -> float:
    """Two-sample Kolmogorov-Smirnov distance: the largest gap between the distributions."""
    points = np.concatenate([one, other])
    shares = [
        np.searchsorted(np.sort(sample), points, side="right") / sample.size
        for sample in (one, other)
    ]
    return float(np.abs(shares[0] - shares[1]).max())


def test_distance_is_zero_for_the_same_and_one_for_disjoint_samples() -> None:
    one = np.array([1.0, 2.0, 3.0])
    assert distance(one, one) == 0
    assert distance(one, one + 10) == 1


@pytest.mark.logs
@pytest.mark.parametrize("name", list(REAL))
def test_calibrated_presets_resemble_the_real_trace(logs: Path, name: str) -> None:
    real = load_trace(logs / "traces" / REAL[name])
    gpus = PRESETS[name].workload.total_gpus
    for seed in (1, 2):
        made = load_trace(f"{name}:jobs={len(real)}", seed=seed)
        assert distance(made.duration_s, real.duration_s) <= 0.025
        assert distance(made.num_gpus, real.num_gpus) <= 0.01
        assert distance(np.diff(made.submit_s), np.diff(real.submit_s)) <= 0.05
        assert made.load(gpus) == pytest.approx(real.load(gpus), rel=0.15)


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_preset_is_a_function_of_its_seed(name: str) -> None:
    one, same, other = (load_trace(f"{name}:jobs=500", seed=seed) for seed in (7, 7, 8))

    np.testing.assert_array_equal(one.submit_s, same.submit_s)
    np.testing.assert_array_equal(one.duration_s, same.duration_s)
    assert one.duration_s.tolist() != other.duration_s.tolist()
    assert len(one) == 500
    assert one.submit_s[0] == 0


@pytest.mark.parametrize("name", list(PRESETS))
def test_load_is_what_was_asked_for(name: str) -> None:
    gpus = PRESETS[name].workload.total_gpus
    assert load_trace(f"{name}:jobs=2000,load=0.9").load(gpus) == pytest.approx(0.9, rel=1e-3)


def test_a_load_can_be_had_even_if_all_jobs_come_at_once() -> None:
    together = Workload(jobs=3, total_gpus=8, load=0.5, gaps=Quantiles((0,) * 32))
    trace = generate(together, np.random.default_rng(0))
    assert trace.load(8) == pytest.approx(0.5, rel=0.01)


def test_work_after_the_last_arrival_can_be_left_out_of_the_load() -> None:
    # Two GPUs are asked for by a job that outlasts all, and 10 GPU-seconds by the short ones:
    # of four GPUs, 3 are asked for on average over s = 10 / (3 - 2) seconds.
    span_s = _offering_span(np.array([2, 1, 1]), np.array([1000.0, 4.0, 6.0]), 3.0)
    assert span_s == 10
    # All end in time: the plain definition.
    assert _offering_span(np.array([1, 1]), np.array([4.0, 6.0]), 0.5) == 20
    # Not even all at once hold so many.
    assert _offering_span(np.array([1, 1]), np.array([4.0, 6.0]), 2.0) == 5


@examples(100)
@given(
    st.lists(st.tuples(st.integers(1, 8), st.integers(1, 5000)), min_size=2, max_size=30),
    st.floats(0.05, 20.0),
)
def test_so_many_gpus_are_asked_for_while_jobs_arrive(
    jobs: list[tuple[int, int]], wanted: float
) -> None:
    gpus, duration_s = (np.array(column) for column in zip(*jobs, strict=True))
    span_s = _offering_span(gpus, duration_s.astype(float), wanted)
    assert span_s > 0
    if wanted < gpus.sum():
        asked = float(gpus @ np.minimum(duration_s, span_s)) / span_s
        assert asked == pytest.approx(wanted)


def test_a_smaller_cluster_gets_smaller_gangs_at_the_usual_load() -> None:
    trace = load_trace("venus:jobs=2000,total_gpus=16")
    assert trace.num_gpus.max() <= 16
    assert trace.load(16) == pytest.approx(PRESETS["venus"].usual_load, rel=1e-3)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("jobs=0", "jobs=0 must lie between 1"),
        ("jobs=many", "jobs=many needs a whole number"),
        ("jobs=1.5", "needs a whole number"),
        ("load=0", "must lie in"),
        ("load=nan", "must lie in"),
        ("load=1e-30", "load=1e-30 is too low: .* jobs would arrive over"),
        ("load=high", "needs a number"),
        ("jobs=1,load=0.5", "at least two jobs"),
        ("gpus=64", "write total_gpus=64, the GPUs of the whole cluster"),
        ("total_gpus=0", "total_gpus=0 must lie between"),
        ("jobs=5,jobs=6", "set twice"),
        ("jobs", "needs a whole number"),
    ],
)
def test_settings_out_of_range_are_refused(settings: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_trace(f"venus:{settings}")


def test_an_unknown_setting_suggests_another() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'jobs'"):
        load_trace("venus:job=5")


def test_an_unknown_preset_suggests_another() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'philly'"):
        preset("phily")


def test_bursts_bunch_arrivals_and_days_follow_the_sun() -> None:
    even, bursty, daily = (
        load_trace(f"{name}:jobs=20000") for name in ("poisson", "bursty", "diurnal")
    )
    spread = [
        np.std(np.diff(one.submit_s)) / np.mean(np.diff(one.submit_s)) for one in (even, bursty)
    ]
    assert 0.9 < spread[0] < 1.1  # Poisson: 1
    assert spread[1] > 3

    hour = daily.submit_s % 86400 // 3600
    noon, night = np.sum(hour == 12), np.sum(hour == 2)
    assert 3.5 < noon / night < 5.5  # rates 1.8 and 0.4


def test_a_rhythm_bends_time_back_and_forth() -> None:
    rhythm = Rhythm(hours=(*(0.5,) * 12, *(1.5,) * 12), days=(2.0, *(1.0,) * 6))
    even_s = np.linspace(0, 3 * WEEK_S, 1000)

    np.testing.assert_allclose(rhythm.to_even(rhythm.to_clock(even_s)), even_s, atol=1e-3)
    assert rhythm.to_clock(np.array([WEEK_S]))[0] == pytest.approx(WEEK_S)


def test_long_jobs_may_be_the_large_ones() -> None:
    short, long = Lognormals((1,), (10.0,), (0.1,)), Lognormals((1,), (1000.0,), (0.1,))
    trace = generate(
        Workload(jobs=500, durations=((1, short), (np.inf, long))), np.random.default_rng(0)
    )
    assert trace.duration_s[trace.num_gpus == 1].max() < 20
    assert trace.duration_s[trace.num_gpus > 1].min() > 500


def test_a_mixture_respects_weights_and_cap() -> None:
    law = Lognormals((3, 1), (1.0, 1e6), (0.1, 0.1), cap=1000.0)
    values = law.sample(np.random.default_rng(0), 10000)

    assert values.max() == 1000
    assert np.mean(values > 100) == pytest.approx(0.25, abs=0.02)


def test_users_follow_zipf() -> None:
    trace = load_trace("poisson:jobs=30000,users=3")
    shares = np.bincount(trace.user) / len(trace)
    np.testing.assert_allclose(shares, np.array([6, 3, 2]) / 11, atol=0.02)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Exponential(0),
        lambda: Bursts(jobs=0.5, within=1, between=1),
        lambda: Lognormals((1,), (1, 2), (1,)),
        lambda: Lognormals((1,), (1,), (-1,)),
        lambda: Quantiles((1, 2, 3)),
        lambda: Rhythm(hours=(1,) * 23),
        lambda: Workload(durations=((4, Exponential(1)),)),
        lambda: replace(Workload(), total_gpus=2, sizes=((4, 1.0),)),
    ],
)
def test_a_law_that_makes_no_sense_is_refused(make: object) -> None:
    with pytest.raises(ConfigError):
        make()  # type: ignore[operator]


def test_a_fitted_preset_comes_with_the_cluster_that_its_load_refers_to() -> None:
    for name, shape in (("venus", (133, 1064)), ("philly", (352, 2816)), ("pai", (1814, 6742))):
        found = preset_cluster(f"{name}:jobs=50,load=0.5")
        assert found is not None
        assert (len(found[0]), found[0].total_gpus) == shape
        assert found[0].total_gpus == PRESETS[name].workload.total_gpus
        real = load_trace(f"{name}:jobs=20000").load(found[0].total_gpus)
        assert real == pytest.approx(PRESETS[name].usual_load, rel=0.2)
    smaller = preset_cluster("venus:total_gpus=20")
    assert smaller is not None
    assert smaller[0].gpus.tolist() == [8, 8, 4]
    assert preset_cluster("poisson") is None
    assert preset_cluster("jobs.csv") is None


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_jobs_are_drawn_by_columns_however_many_there_are(preset: str) -> None:
    load_trace(f"{preset}:jobs=10")  # imports what is imported late
    few = python_calls(lambda: load_trace(f"{preset}:jobs=1000"))
    assert python_calls(lambda: load_trace(f"{preset}:jobs=100000")) == few


def test_a_million_jobs_are_drawn() -> None:
    assert len(load_trace("venus:jobs=1000000")) == 1_000_000
