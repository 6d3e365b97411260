"""The paired bootstrap: known answers, honest intervals, bounded cost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import InputError
from rota.run import stats
from rota.run.stats import paired


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_the_ratio_is_one_of_means_not_a_mean_of_ratios() -> None:
    got = paired(np.array([1.0, 8.0]), np.array([2.0, 10.0]), rng())
    assert got.ratio == pytest.approx(9 / 12 - 1)
    assert got.difference == -1.5
    assert got.n == 2


def test_two_units_give_an_interval_that_can_be_counted() -> None:
    # Draws: (0, 0) with chance 1/4, (1, 1) with 1/4, else both: the tails are at the extremes.
    got = paired(np.array([1.0, 8.0]), np.array([2.0, 10.0]), rng())
    assert got.ratio_ci == pytest.approx((1 / 2 - 1, 8 / 10 - 1))
    assert got.difference_ci == pytest.approx((-2, -1))
    half = paired(np.array([1.0, 8.0]), np.array([2.0, 10.0]), rng(), level=0.4)
    assert half.difference_ci == pytest.approx((-1.5, -1.5))


def test_a_constant_factor_has_no_uncertainty() -> None:
    b = rng().lognormal(size=500)
    got = paired(0.5 * b, b, rng())
    assert got.ratio == pytest.approx(-0.5)
    assert got.ratio_ci == pytest.approx((-0.5, -0.5))


@given(st.lists(st.floats(0.01, 1e6), min_size=2, max_size=20))
def test_identical_inputs_do_not_differ_at_all(values: list[float]) -> None:
    a = np.array(values)
    got = paired(a, a.copy(), rng(), resamples=50)
    assert (got.ratio, got.ratio_ci) == (0, (0, 0))
    assert (got.difference, got.difference_ci) == (0, (0, 0))


def test_a_single_unit_has_no_interval() -> None:
    got = paired(np.array([3.0]), np.array([2.0]), rng())
    assert (got.n, got.ratio, got.difference) == (1, 0.5, 1.0)
    assert got.ratio_ci is None
    assert got.difference_ci is None


def test_pairs_of_one_group_are_one_unit() -> None:
    a, b = rng(1).lognormal(size=(2, 40))
    once = paired(a, b, rng(5))
    # Every pair three times over, told to be the same: nothing is learned from the copies.
    thrice = paired(np.tile(a, 3), np.tile(b, 3), rng(5), group=np.tile(np.arange(40), 3))
    assert thrice.n == once.n == 40
    assert thrice.ratio_ci == pytest.approx(once.ratio_ci)
    assert thrice.difference_ci == pytest.approx(once.difference_ci)
    alone = paired(a, b, rng(), group=np.full(40, 7))
    assert (alone.n, alone.ratio_ci, alone.difference_ci) == (1, None, None)


def test_no_ratio_is_given_where_the_base_is_zero() -> None:
    got = paired(np.array([1.0, 2.0]), np.zeros(2), rng())
    assert (got.ratio, got.ratio_ci, got.difference) == (None, None, 1.5)
    # One of two is zero: a quarter of the resamples has no ratio, so nor has the interval.
    some = paired(np.array([1.0, 2.0]), np.array([0.0, 3.0]), rng())
    assert (some.ratio, some.ratio_ci) == (0.0, None)
    assert some.difference_ci is not None


def test_the_same_seed_gives_the_same_interval() -> None:
    a, b = rng(1).lognormal(size=(2, 300))
    assert paired(a, b, rng(5)) == paired(a, b, rng(5))
    assert paired(a, b, rng(5)) != paired(a, b, rng(6))


def test_the_interval_is_as_wide_as_theory_says() -> None:
    # The difference has standard deviation 2, so its mean over 400 has 0.1.
    noise = rng(3).normal(size=400)
    noise = 2 * (noise - noise.mean()) / noise.std()
    b = np.full(400, 10.0)
    low, high = paired(b + noise, b, rng()).difference_ci or (np.nan, np.nan)
    assert (low, high) == pytest.approx((-0.196, 0.196), abs=0.008)


def test_intervals_cover_the_truth_about_as_often_as_they_claim() -> None:
    source, hits = rng(11), 0
    for _ in range(400):
        b = source.lognormal(sigma=0.5, size=60)
        a = b * source.uniform(0.6, 1.0, 60)  # the ratio of the true means is 0.8
        low, high = paired(a, b, source, resamples=400).ratio_ci or (np.nan, np.nan)
        hits += low <= -0.2 <= high
    assert 0.91 <= hits / 400 <= 0.98


def test_many_units_are_grouped_without_changing_the_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b = rng(1).lognormal(size=7_777)
    a = b * rng(2).lognormal(0.1, 0.3, 7_777)
    plain = paired(a, b, rng(), resamples=4_000)
    monkeypatch.setattr(stats, "GROUPS", 2_000)
    grouped = paired(a, b, rng(), resamples=4_000)
    assert (grouped.ratio, grouped.n) == (plain.ratio, 7_777)
    for x, y in ((plain.ratio_ci, grouped.ratio_ci), (plain.difference_ci, grouped.difference_ci)):
        assert x is not None
        assert y is not None
        assert y == pytest.approx(x, abs=0.12 * (x[1] - x[0]))


def test_memory_stays_small_for_many_units(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    source = rng()

    class Watched:
        permutation = source.permutation

        def integers(self, low: int, high: int, size: tuple[int, int]) -> np.ndarray:
            drawn.append(size[0] * size[1])
            return source.integers(low, high, size)

    monkeypatch.setattr(stats, "GROUPS", 3_000)
    a = rng().lognormal(size=100_000)
    paired(a, a + 1, Watched(), resamples=1_000)  # type: ignore[arg-type]
    assert sum(drawn) == 3_000 * 1_000
    assert max(drawn) <= 1_000_000


@pytest.mark.parametrize(
    ("a", "b", "says"),
    [
        ([1.0, 2.0], [1.0], "equally long"),
        ([], [], "equally long"),
        ([1.0, np.nan], [1.0, 2.0], "Unit 1 has the values nan and 2.0"),
        ([1.0, 2.0], [np.inf, 2.0], "Unit 0"),
    ],
)
def test_values_that_are_no_pairs_are_refused(a: list[float], b: list[float], says: str) -> None:
    with pytest.raises(InputError, match=says):
        paired(np.array(a), np.array(b), rng())


def test_settings_out_of_range_are_refused() -> None:
    for wrong in ({"level": 1.0}, {"level": 0.0}, {"resamples": 0}):
        with pytest.raises(InputError, match="must be positive"):
            paired(np.ones(3), np.ones(3), rng(), **wrong)
