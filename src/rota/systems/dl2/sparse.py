"""A linear layer for torch that computes only with inputs that are not 0.

With one-hot counts DL2's network has 900 inputs, of which about 64 are not 0. Training spent four
fifths of its time on products with the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn

from rota.systems.dl2.sparse_kernels import compress, gather, layer, slope

if TYPE_CHECKING:
    from rota.core.types import Ints


class Rows(NamedTuple):
    """A matrix (n, I): row r has value[k] at index[k], k from begins[r] to begins[r + 1]."""

    begins: Ints  # (n + 1,)
    index: Any  # int32
    value: Any  # float32
    inputs: int  # I

    def take(self, which: Ints) -> Rows:
        """Some of the rows."""
        begins = np.zeros(len(which) + 1, np.int64)
        np.cumsum(self.begins[which + 1] - self.begins[which], out=begins[1:])
        index, value = np.empty(begins[-1], np.int32), np.empty(begins[-1], np.float32)
        gather(self.begins, self.index, self.value, which, begins, index, value)
        return Rows(begins, index, value, self.inputs)


def rows_of(dense: torch.Tensor) -> Rows:
    """The same matrix (n, I) without its zeros."""
    rows = np.ascontiguousarray(dense.numpy(), np.float32)
    begins = np.empty(len(rows) + 1, np.int64)
    # The largest size that is possible; pages that are never written take no memory.
    index, value = np.empty(rows.size + 1, np.int32), np.empty(rows.size + 1, np.float32)
    compress(rows, begins, index, value)
    return Rows(begins, index, value, rows.shape[1])


class SparseLinear(nn.Linear):
    """`nn.Linear` with the same parameters, for inputs given as `Rows`, which get no gradient.

    Weights (out, in) are stored input by input, so that those of one input are contiguous.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.weight = nn.Parameter(self.weight.detach().t().contiguous().t())

    def forward(self, rows: Rows) -> torch.Tensor:  # type: ignore[override]
        """(n, out)."""
        if rows.inputs != self.in_features:  # compiled code would read beyond the weights
            raise ValueError(
                f"The rows have {rows.inputs} inputs, the layer takes {self.in_features}."
            )
        out: torch.Tensor = _Product.apply(self.weight, self.bias, rows)  # type: ignore[no-untyped-call]
        return out


class _Product(torch.autograd.Function):
    """Rows times weights plus bias."""

    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, bias: torch.Tensor, rows: Rows) -> torch.Tensor:
        ctx.rows, ctx.inputs = rows, weight.shape[1]
        by_input = weight.detach().t().contiguous().numpy()  # contiguous already: no copy
        out = np.empty((len(rows.begins) - 1, len(bias)), np.float32)
        layer(rows.begins, rows.index, rows.value, by_input, bias.detach().numpy(), out)
        return torch.from_numpy(out)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        rows: Rows = ctx.rows
        lines = grad.contiguous()
        out = np.zeros((ctx.inputs, lines.shape[1]), np.float32)
        slope(rows.begins, rows.index, rows.value, lines.numpy(), out)
        return torch.from_numpy(out).t(), lines.sum(0), None
