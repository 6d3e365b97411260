"""Sorting job indices by key, then by index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rota.jit import allocating_part, inline, part

if TYPE_CHECKING:
    from rota.core.types import Floats, Ints


@inline
def before(key: Floats, a: int, b: int) -> bool:
    """Whether job a is served before job b."""
    return key[a] < key[b] or (key[a] == key[b] and a < b)


@part
def sort(order: Ints, n: int, key: Floats) -> None:
    """Sort `order[:n]` (job indices) by (key[job], job), fast where it is nearly sorted already."""
    budget = 16 * n + 64
    for i in range(1, n):
        job, k = order[i], i
        while k > 0 and before(key, job, order[k - 1]):
            order[k] = order[k - 1]
            k -= 1
        order[k] = job
        budget -= i - k
        if budget < 0:  # not nearly sorted: do it properly, once
            merge_sort(order, n, key)
            return


@allocating_part
def merge_sort(order: Ints, n: int, key: Floats) -> None:
    """Sort `order[:n]` whatever state it is in."""
    spare, width = np.empty(n, np.int64), 1
    while width < n:
        for low in range(0, n, 2 * width):
            a, mid, high = low, min(low + width, n), min(low + 2 * width, n)
            b = mid
            for k in range(low, high):
                if a < mid and (b == high or not before(key, order[b], order[a])):
                    spare[k] = order[a]
                    a += 1
                else:
                    spare[k] = order[b]
                    b += 1
        for k in range(n):
            order[k] = spare[k]
        width *= 2
