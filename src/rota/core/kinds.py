"""Which rows of a table are equal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rota.core.types import Ints


def kinds_of(columns: Iterable[Any]) -> tuple[Ints, Ints]:
    """One row of each kind (K,), and the kind of every row (J,); rows of one kind are equal.

    Column by column, numbered anew after each: sorting whole rows takes ten times as long.
    """
    kind: Ints = np.zeros(0, np.int64)
    for column in columns:
        if kind.size == 0:
            kind = np.zeros(len(column), np.int64)
        if len(column) and (column == column[0]).all():
            continue
        values, code = np.unique(column, return_inverse=True)
        if kind.any():
            _, code = np.unique(kind * len(values) + code, return_inverse=True)
        kind = code
    _, first = np.unique(kind, return_index=True)
    return first, kind
