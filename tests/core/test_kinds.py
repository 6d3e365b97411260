"""Rows that are alike are found as by comparing whole rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rota.core.kinds import kinds_of

ROW = st.tuples(st.integers(-1, 2), st.sampled_from([0.0, 0.1, 0.1 + 1e-16, 3.0]), st.booleans())


@given(st.lists(ROW, max_size=30))
def test_two_rows_are_of_one_kind_exactly_if_all_their_columns_are_equal(
    rows: list[tuple[int, float, bool]],
) -> None:
    table = [np.array([row[c] for row in rows]) for c in range(3)]
    first, kind = kinds_of(table)
    assert len(first) == len(set(rows))
    assert [rows[first[k]] for k in kind] == rows


def test_one_column_that_never_differs_is_one_kind() -> None:
    first, kind = kinds_of([np.ones(4), np.zeros(4)])
    assert first.tolist() == [0]
    assert kind.tolist() == [0, 0, 0, 0]
