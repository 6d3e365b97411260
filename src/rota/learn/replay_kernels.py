"""A sum tree: numbers that can be changed, and drawn in proportion to their size, in log time.

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
    """Set leaves (n,); of a leaf that is named twice the last value holds."""
    half = tree.size // 2
    for k in range(leaf.size):
        node = half + leaf[k]
        tree[node] = value[k]
        while node > 1:
            node //= 2
            # Summed anew instead of corrected, so that errors do not grow.
            tree[node] = tree[2 * node] + tree[2 * node + 1]


@kernel
def draw(tree: Floats, chance: Floats, leaf: Ints) -> None:
    """One leaf (n,) by each number (n,) in [0, 1); one of size 0 never, unless all are."""
    half = tree.size // 2
    for k in range(leaf.size):
        left, node = chance[k] * tree[1], 1
        while node < half:
            node *= 2
            # To the right only if there is anything: rounding may leave a little too much.
            if left >= tree[node] and tree[node + 1] > 0.0:
                left -= tree[node]
                node += 1
        leaf[k] = node - half
