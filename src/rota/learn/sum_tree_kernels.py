"""A sum tree: numbers that can be changed, and drawn in proportion to them, in logarithmic time.

The tree is one array of twice a power of two: node k has the children 2k and 2k + 1 and is
their sum, the root is node 1, the leaves are the second half.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.jit import kernel

if TYPE_CHECKING:
    from rota.core.types import Floats, Ints


@kernel
def put(tree: Floats, leaf: Ints, value: Floats) -> None:
    """Set leaves (n,); if a leaf is named twice, the last value counts."""
    half = tree.size // 2
    for k in range(leaf.size):
        node = half + leaf[k]
        tree[node] = value[k]
        while node > 1:
            node //= 2
            # Summed again instead of corrected, so that rounding errors do not grow.
            tree[node] = tree[2 * node] + tree[2 * node + 1]


@kernel
def draw(tree: Floats, chance: Floats, leaf: Ints) -> None:
    """Draw one leaf (n,) by each number (n,) in [0, 1); a leaf of 0 only if all are 0."""
    half = tree.size // 2
    for k in range(leaf.size):
        left, node = chance[k] * tree[1], 1
        while node < half:
            node *= 2
            # To the right only if that sum is not 0: rounding may leave a little too much.
            if left >= tree[node] and tree[node + 1] > 0.0:
                left -= tree[node]
                node += 1
        leaf[k] = node - half
