"""Products of a vector, most of which is 0, and a matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.jit import part

if TYPE_CHECKING:
    from rota.core.types import Ints

ZERO: Final = np.float32(0.0)
"""A plain 0.0 is a float64 and would turn float32 results into float64."""


@part
def copy(source: Any, out: Any) -> None:
    """out = source."""
    for o in range(out.size):
        out[o] = source[o]


@part
def add_lines(source: Any, index: Ints, count: int, weights: Any, out: Any) -> None:
    """out += source · weights over the first `count` of `index`; four at a time, to store less."""
    k = 0
    while k + 4 <= count:
        p, q, r, s = index[k], index[k + 1], index[k + 2], index[k + 3]
        at_p, at_q, at_r, at_s = source[p], source[q], source[r], source[s]
        to_p, to_q, to_r, to_s = weights[p], weights[q], weights[r], weights[s]
        for o in range(out.size):
            out[o] += (at_p * to_p[o] + at_q * to_q[o]) + (at_r * to_r[o] + at_s * to_s[o])
        k += 4
    while k < count:
        p = index[k]
        at_p, to_p = source[p], weights[p]
        for o in range(out.size):
            out[o] += at_p * to_p[o]
        k += 1


@part
def add_product(source: Any, index: Ints, weights: Any, out: Any) -> None:
    """out += source · weights; `index` is scratch, as long as the source."""
    count = 0
    for i in range(source.size):  # without a branch, which the processor could not predict
        index[count] = i
        count += source[i] != 0.0
    add_lines(source, index, count, weights, out)
