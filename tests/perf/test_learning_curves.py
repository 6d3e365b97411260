"""Fits of learning curves: exact where they can be, sane where they cannot, and bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import examples

from rota.errors import InputError, UnknownNameError
from rota.perf.learning_curves import (
    LearningCurve,
    extrapolation_error,
    fit_curve,
    fit_family,
    learning_curves,
    shipped_learning,
)

TRUE = LearningCurve(top=0.9, span=0.8, scale=6.0, power=1.2)
EPOCHS = np.arange(0, 60, 2.0)


def test_a_curve_without_noise_is_found_again_and_goes_on_beyond() -> None:
    found = fit_curve(EPOCHS, TRUE.accuracy(EPOCHS))
    np.testing.assert_allclose(found.accuracy(EPOCHS), TRUE.accuracy(EPOCHS), atol=2e-3)
    assert found.accuracy(200.0) == pytest.approx(TRUE.accuracy(200.0), abs=0.01)
    assert extrapolation_error(EPOCHS, TRUE.accuracy(EPOCHS)) < 0.02


def test_noise_and_an_outlier_bend_it_little() -> None:
    noisy = TRUE.accuracy(EPOCHS) + 0.01 * np.random.default_rng(0).standard_normal(len(EPOCHS))
    noisy = np.clip(noisy, 0, 1)
    noisy[20] = 0.1  # an evaluation that went wrong
    found = fit_curve(EPOCHS, noisy)
    np.testing.assert_allclose(found.accuracy(EPOCHS), TRUE.accuracy(EPOCHS), atol=0.03)


def test_a_known_start_is_kept() -> None:
    found = fit_curve(EPOCHS[1:], TRUE.accuracy(EPOCHS[1:]), start=0.1)
    assert found.top - found.span == pytest.approx(0.1)
    assert found.accuracy(0.0) == pytest.approx(0.1)


measurements = st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 1)), min_size=1, max_size=8)


@examples(25)
@given(measurements, st.none() | st.floats(0, 0.99))
def test_whatever_was_measured_a_fit_is_a_rising_curve(
    measured: list[tuple[float, float]], start: float | None
) -> None:
    epochs, accuracy = zip(*measured, strict=True)
    found = fit_curve(epochs, accuracy, start=start)

    grid = found.accuracy(np.linspace(0, 2e4, 200))
    assert np.isfinite(grid).all()
    assert (np.diff(grid) >= 0).all()
    assert grid.min() >= -1e-9
    assert grid.max() <= 1 + 1e-9
    assert found.span >= 0
    assert found.scale > 0


@pytest.mark.parametrize(
    ("epochs", "accuracy", "says"),
    [
        ([], [], "one at least"),
        ([1, 2], [0.5], r"shapes \(2,\) and \(1,\)"),
        ([[1.0]], [[0.5]], "as many accuracies as epochs"),
        ([1, np.nan], [0.5, 0.5], r"epochs\[1\]=nan"),
        ([1, -2], [0.5, 0.5], r"epochs\[1\]=-2"),
        ([1, np.inf], [0.5, 0.5], r"epochs\[1\]=inf"),
        ([1, 2], [0.5, 50.0], r"accuracy\[1\]=50.0 .* from 0 to 1"),
        ([1, 2], [np.nan, 0.5], r"accuracy\[0\]=nan"),
    ],
)
def test_measurements_that_cannot_be_are_refused(epochs: Any, accuracy: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        fit_curve(epochs, accuracy)


def test_a_start_and_a_split_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match=r"start=1 must lie in \[0, 1\)"):
        fit_curve([1], [0.5], start=1)
    with pytest.raises(InputError, match=r"known=1.0 of 3 measurements leaves 0"):
        extrapolation_error([1, 2, 3], [0.1, 0.2, 0.3], known=1.0)


def test_a_family_starts_alike_and_its_costs_count_in_the_smallest() -> None:
    large = LearningCurve(top=0.95, span=0.85, scale=9.0, power=1.2)
    runs = [(30.0, EPOCHS, TRUE.accuracy(EPOCHS)), (45.0, EPOCHS, large.accuracy(EPOCHS))]
    levels = fit_family(runs)

    assert [level["cost"] for level in levels] == [1.0, 1.5]
    starts = [level["top"] - level["span"] for level in levels]
    assert starts == pytest.approx([starts[0]] * 2)
    family = learning_curves({"mine": {"epochs": 60, "levels": levels}})
    assert family.accuracy(0, 1, 30.0) == pytest.approx(large.accuracy(30.0), abs=0.01)
    with pytest.raises(InputError, match="none below the first"):
        fit_family(runs[::-1])
    with pytest.raises(InputError, match="one level or more"):
        fit_family([])


def test_families_may_have_different_numbers_of_sizes() -> None:
    level = {"top": 0.9, "span": 0.8, "scale": 1.0, "power": 1.0, "cost": 1.0}
    made = learning_curves({
        "one": {"epochs": 5, "levels": [level]},
        "two": {"epochs": 9, "levels": [level, {**level, "cost": 2.0}]},
    })  # fmt: skip
    assert (made.levels.tolist(), made.index("two"), made.index("none")) == ([1, 2], 1, -1)


def test_the_shipped_curves_are_sound_and_an_unknown_model_is_named() -> None:
    found = shipped_learning()
    for family, epochs in enumerate(found.epochs):
        for level in range(1, found.levels[family]):
            assert found.cost[family, level] > found.cost[family, level - 1]
            ends = found.accuracy(family, [level - 1, level], 20 * epochs)
            assert ends[1] > ends[0], "in the long run a larger network is more accurate"
    with pytest.raises(UnknownNameError, match="model with learning curves"):
        shipped_learning(["resnet"])
