"""A layer whose inputs are mostly 0: windows with few jobs, and one-hot features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.jit import kernel, wide_kernel
from rota.systems.dl2.product_kernels import copy

if TYPE_CHECKING:
    from rota.core.types import Ints


@kernel
def compress(rows: Any, begins: Ints, index: Any, value: Any) -> None:
    """List the inputs of rows (n, I) that are not 0; those of row r are begins[r] : begins[r+1].

    index, value  (n · I + 1,): one place more, since each input is written before it is tested
    """
    count = 0
    begins[0] = 0
    for r in range(rows.shape[0]):
        for i in range(rows.shape[1]):  # without a branch, which the processor could not predict
            index[count], value[count] = i, rows[r, i]
            count += rows[r, i] != 0.0
        begins[r + 1] = count


@kernel
def gather(
    begins: Ints, index: Any, value: Any, which: Ints, to_begins: Ints, to_index: Any, to_value: Any
) -> None:
    """Copy the rows `which` (n,) of a matrix to where `to_begins` (n + 1,) says."""
    for r in range(which.size):
        at = to_begins[r]
        for k in range(begins[which[r]], begins[which[r] + 1]):
            to_index[at], to_value[at] = index[k], value[k]
            at += 1


@wide_kernel
def layer(begins: Ints, index: Any, value: Any, weights: Any, bias: Any, out: Any) -> None:
    """out (n, H) = rows · weights (I, H) + bias (H,); four inputs at a time, to store less."""
    for r in range(out.shape[0]):
        line, k, end = out[r], begins[r], begins[r + 1]
        copy(bias, line)
        while k + 4 <= end:
            p, q, s, t = value[k], value[k + 1], value[k + 2], value[k + 3]
            to_p, to_q = weights[index[k]], weights[index[k + 1]]
            to_s, to_t = weights[index[k + 2]], weights[index[k + 3]]
            for h in range(line.size):
                line[h] += (p * to_p[h] + q * to_q[h]) + (s * to_s[h] + t * to_t[h])
            k += 4
        while k < end:
            p, to_p = value[k], weights[index[k]]
            for h in range(line.size):
                line[h] += p * to_p[h]
            k += 1


@wide_kernel
def slope(begins: Ints, index: Any, value: Any, grad: Any, out: Any) -> None:
    """out (I, H) += rowsᵀ · grad (n, H): the gradient of the weights."""
    for r in range(grad.shape[0]):
        line = grad[r]
        for k in range(begins[r], begins[r + 1]):
            p, to = value[k], out[index[k]]
            for h in range(line.size):
                to[h] += p * line[h]
