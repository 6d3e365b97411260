"""Prioritised experience replay (Schaul et al., 2016): a memory that drops the oldest states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rota.learn.sum_tree_kernels import draw, put

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rota.core.types import Floats, Ints


class ReplayMemory:
    """Rows of arrays by name, the oldest replaced first, drawn in proportion to a priority."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self._next, self._count = capacity, 0, 0
        self._tree = np.zeros(2 << (capacity - 1).bit_length())
        self.rows: dict[str, NDArray[Any]] = {}
        """Arrays (capacity, …) by name; places that were never filled are 0."""

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        """Whether all places are filled."""
        return self._count == self.capacity

    @property
    def priority(self) -> Floats:
        """The priorities of all rows, as a view."""
        half = self._tree.size // 2
        return self._tree[half : half + self._count]

    def add(self, rows: Mapping[str, NDArray[Any]], priority: Floats) -> None:
        """Add rows, the oldest first; if they are more than the capacity, only the last ones."""
        count = min(len(priority), self.capacity)
        place = (self._next + np.arange(count)) % self.capacity
        for name, array in rows.items():
            if name not in self.rows:
                self.rows[name] = np.zeros((self.capacity, *array.shape[1:]), array.dtype)
            self.rows[name][place] = array[len(array) - count :]
        put(self._tree, place, np.ascontiguousarray(priority[len(priority) - count :]))
        self._next = (self._next + count) % self.capacity
        self._count = min(self._count + count, self.capacity)

    def draw(self, chance: Floats) -> Ints:
        """The places of n drawn rows, one from each of n equal parts of the sum of priorities.

        chance  (n,) uniform in [0, 1)
        """
        place = np.zeros(chance.size, np.int64)
        draw(self._tree, (np.arange(chance.size) + chance) / chance.size, place)
        return place

    def judge(self, place: Ints, priority: Floats) -> None:
        """Set the priorities of these rows."""
        put(self._tree, place, priority)
