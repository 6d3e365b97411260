"""The random-walk kernel as published: one solve on the product of both graphs."""

from __future__ import annotations

import torch


def printed_kernel(
    P1: torch.Tensor,
    P2: torch.Tensor,
    decay: float,
    starts: tuple[torch.Tensor, torch.Tensor] | None = None,
    values: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> torch.Tensor:
    """startᵀ (I − decay · P1⊗P2)⁻¹ value, summed over the columns of value; all ones if left out.

    P1 is (n, n) and P2 (m, m), so the system has n · m rows. Starts are (n,) and (m,), values
    (n, d) and (m, d).
    """
    q1, q2 = starts or (P1.new_ones(len(P1)), P2.new_ones(len(P2)))
    z1, z2 = values or (P1.new_ones(len(P1), 1), P2.new_ones(len(P2), 1))
    product = torch.kron(P1, P2)
    ends = torch.stack([torch.kron(a, b) for a, b in zip(z1.T, z2.T, strict=True)], 1)
    walks = torch.linalg.solve(torch.eye(len(product), dtype=P1.dtype) - decay * product, ends)
    return (torch.kron(q1, q2) @ walks).sum()
