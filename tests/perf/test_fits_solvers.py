"""The solvers and surfaces against cases solved by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rota.perf.interpolate import near_points, through_points
from rota.perf.least_squares import levenberg_marquardt, robust_nnls
from rota.perf.nnls import nnls
from rota.perf.quality import explained, held_out, relative_error
from rota.perf.sharing import fit_ranks


def test_nnls_solves_what_least_squares_solves_when_that_is_positive() -> None:
    A = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])

    np.testing.assert_allclose(nnls(A, np.array([1.0, 2.0, 3.0])), [1.0, 2.0])


def test_nnls_puts_a_coefficient_at_zero_where_it_would_be_negative() -> None:
    # Plain least squares gives (2, −1); with x2 = 0 the best x1 is (2 + 1)/2.
    A = np.array([[1.0, 0.0], [1.0, 1.0]])

    np.testing.assert_allclose(nnls(A, np.array([2.0, 1.0])), [1.5, 0.0])


def test_nnls_gives_nothing_when_everything_points_the_other_way() -> None:
    assert nnls(np.eye(2), np.array([-1.0, -3.0])).tolist() == [0.0, 0.0]


@given(st.integers(0, 10_000))
def test_nnls_meets_the_conditions_of_optimality(seed: int) -> None:
    rng = np.random.default_rng(seed)
    A, b = rng.normal(size=(12, 4)), rng.normal(size=12)
    x = nnls(A, b)
    slope = A.T @ (A @ x - b)

    assert (x >= 0).all()
    assert (slope > -1e-8).all(), "a coefficient at 0 must not want to grow"
    np.testing.assert_allclose(slope[x > 0], 0.0, atol=1e-8)


def test_an_outlier_hardly_moves_the_robust_fit() -> None:
    x = np.arange(1.0, 21.0)
    b = 3.0 * x
    b[7] = 500.0
    A = x[:, None]

    assert abs(robust_nnls(A, b)[0] - 3.0) < 0.02 < abs(nnls(A, b)[0] - 3.0)


def test_levenberg_marquardt_finds_the_decay_it_was_given() -> None:
    t = np.linspace(0, 4, 30)
    goal = 5.0 * np.exp(-0.7 * t)
    found = levenberg_marquardt(lambda x: x[0] * np.exp(-x[1] * t) - goal, np.array([1.0, 0.1]))

    np.testing.assert_allclose(found, [5.0, 0.7], rtol=1e-5)


def test_levenberg_marquardt_crosses_the_valley_of_rosenbrock() -> None:
    found = levenberg_marquardt(
        lambda x: np.array([10 * (x[1] - x[0] ** 2), 1 - x[0]]), np.array([-1.2, 1.0])
    )
    np.testing.assert_allclose(found, [1.0, 1.0], rtol=1e-4)


def test_the_surface_goes_through_its_points() -> None:
    rng = np.random.default_rng(0)
    points, values = rng.uniform(0, 10, (15, 2)), rng.uniform(1, 9, 15)

    np.testing.assert_allclose(through_points(points, values, points), values, rtol=1e-9)
    np.testing.assert_allclose(
        near_points(points, values, points, smoothing=0.0), values, rtol=1e-9
    )


def test_smoothing_pulls_an_outlier_towards_its_neighbours() -> None:
    points = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])
    values = np.array([1.0, 1.0, 5.0, 1.0])
    smooth = near_points(points, values, points, smoothing=1.0)

    assert 1.0 < smooth[2] < 5.0


def test_ranks_recover_a_product_whose_entries_are_partly_unknown() -> None:
    hurt, harm = np.array([0.1, 0.5, 0.9]), np.array([0.2, 0.4, 0.8])
    lost = np.outer(hurt, harm)
    known = ~np.eye(3, dtype=bool)
    a, b = fit_ranks(np.where(known, lost, 0.0), known)

    np.testing.assert_allclose(np.outer(a, b), lost, rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(a), np.linalg.norm(b))


def test_a_held_out_group_is_predicted_without_itself() -> None:
    groups, value = np.array([0, 0, 1, 2]), np.array([1.0, 3.0, 5.0, 9.0])
    means = held_out(groups, lambda fit, out: np.full(out.sum(), value[fit].mean()))

    assert means.tolist() == [7.0, 7.0, 13 / 3, 3.0]


def test_errors_are_parts_of_what_was_measured() -> None:
    assert relative_error(np.array([11.0, 8.0]), np.array([10.0, 10.0])).round(9).tolist() == [
        0.1,
        0.2,
    ]
    assert explained(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0])) == 1.0
    assert explained(np.array([2.0, 2.0, 2.0]), np.array([1.0, 2.0, 3.0])) == 0.0
