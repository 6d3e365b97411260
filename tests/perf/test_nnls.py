"""Non-negative least squares: solved by hand, held to the optimality conditions, held together."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rota.perf.nnls import nnls, nnls_normal


def test_what_needs_no_bound_is_plain_least_squares() -> None:
    # x + y = 3, x − y = 1, 2x = 4: x = 2, y = 1 exactly.
    A, b = np.array([[1.0, 1], [1, -1], [2, 0]]), np.array([3.0, 1, 4])

    np.testing.assert_allclose(nnls(A, b), [2, 1])


def test_what_would_be_negative_is_zero_and_the_rest_makes_up_for_it() -> None:
    # Unbounded: x = 2, y = −1. With y = 0: minimise (x − 1)² + (x − 3)², hence x = 2.
    np.testing.assert_allclose(nnls(np.array([[1.0, 1], [1, -1]]), np.array([1.0, 3])), [2, 0])
    # Unbounded: x = −1, y = 3. With x = 0: minimise (y − 2)² + (y − 3)², hence y = 2.5.
    np.testing.assert_allclose(nnls(np.array([[1.0, 1], [0, 1]]), np.array([2.0, 3])), [0, 2.5])


def test_where_nothing_helps_all_is_zero() -> None:
    assert nnls(np.eye(3), -np.ones(3)).tolist() == [0, 0, 0]
    assert nnls(np.zeros((4, 2)), np.ones(4)).tolist() == [0, 0]


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 7), st.floats(0, 4))
def test_the_optimality_conditions_hold(seed: int, rows: int, columns: int, size: float) -> None:
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((rows, columns)) * 10.0 ** rng.uniform(-size, size, columns)
    b = rng.standard_normal(rows)

    x = nnls(A, b)

    scaled = np.linalg.norm(A, axis=0)
    pull = A.T @ (b - A @ x) / scaled
    assert (x >= 0).all()
    assert (pull <= 1e-9).all()  # nothing at 0 wants to grow
    np.testing.assert_allclose(pull[x > 0], 0, atol=1e-9)  # nothing else wants to change


@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 6))
def test_many_at_once_and_one_at_a_time_agree(seed: int, problems: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((problems, k + 3, k)) * 10.0 ** rng.uniform(-2, 2, k)
    b = rng.standard_normal((problems, k + 3))

    at_once = nnls_normal(np.einsum("dni,dnj->dij", A, A), np.einsum("dni,dn->di", A, b))

    size = np.linalg.norm(A, axis=1)
    one_by_one = np.array([nnls(*problem) for problem in zip(A, b, strict=True)])
    np.testing.assert_allclose(at_once * size, one_by_one * size, atol=1e-8)
    assert (at_once >= 0).all()


def test_problems_on_which_pivoting_runs_in_circles_are_solved_all_the_same() -> None:
    # Strongly coupled variables make whole blocks swap back and forth.
    rng = np.random.default_rng(0)
    A = np.ones((500, 6, 5)) + 0.05 * rng.standard_normal((500, 6, 5))
    b = rng.standard_normal((500, 6))

    at_once = nnls_normal(np.einsum("dni,dnj->dij", A, A), np.einsum("dni,dn->di", A, b))

    for problem, x in zip(zip(A, b, strict=True), at_once, strict=True):
        best = np.linalg.norm(problem[0] @ nnls(*problem) - problem[1])
        assert np.linalg.norm(problem[0] @ x - problem[1]) <= best + 1e-9
