"""The memory: its tree against plain sums, and what it forgets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.learn.replay_memory import ReplayMemory
from rota.learn.sum_tree_kernels import draw, put


def slow_draw(sizes: list[float], chance: float) -> int:
    """Walk along the leaves until the part is used up."""
    left, last = chance * sum(sizes), 0
    for leaf, size in enumerate(sizes):
        if size > 0:
            last = leaf
            if left < size:
                break
            left -= size
    return last


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 7).map(float)), min_size=1, max_size=40),
    st.lists(st.integers(0, 999).map(lambda k: k / 1000), min_size=1, max_size=5),
)
def test_the_tree_draws_what_a_walk_along_the_leaves_does(
    changes: list[tuple[int, float]], chances: list[float]
) -> None:
    tree, sizes = np.zeros(32), [0.0] * 13
    leaves, values = zip(*changes, strict=True)
    put(tree, np.array(leaves), np.array(values))
    for leaf, value in changes:
        sizes[leaf] = value
    assert tree[1] == sum(sizes)
    assert tree[16:29].tolist() == sizes

    found = np.zeros(len(chances), np.int64)
    draw(tree, np.array(chances), found)
    if sum(sizes) > 0:
        assert found.tolist() == [slow_draw(sizes, chance) for chance in chances]


def test_draws_in_proportion_to_priorities_of_any_size() -> None:
    memory, rng = ReplayMemory(5), np.random.default_rng(0)
    priority = np.array([0.1, 0.0, 0.4, 0.2, 0.3])
    memory.add({"x": np.arange(5)}, priority)
    places = np.concatenate([memory.draw(rng.random(10)) for _ in range(1000)])
    np.testing.assert_allclose(np.bincount(places, minlength=5) / 10_000, priority, atol=0.01)
    memory.judge(np.array([1, 2]), np.array([9.4, 0.0]))
    assert (memory.draw(rng.random(100)) == 1).mean() == pytest.approx(0.94, abs=0.02)


def test_forgets_the_oldest_first() -> None:
    memory = ReplayMemory(3)
    assert not memory.full
    memory.add({"x": np.array([[1], [2]])}, np.ones(2))
    assert (len(memory), memory.full) == (2, False)
    memory.add({"x": np.array([[3], [4]])}, np.array([5.0, 6.0]))
    assert memory.full
    assert memory.rows["x"][:, 0].tolist() == [4, 2, 3]
    assert memory.priority.tolist() == [6, 1, 5]
    memory.add({"x": np.arange(10, 15)[:, None]}, np.arange(5.0))
    assert sorted(memory.rows["x"][:, 0].tolist()) == [12, 13, 14]
    assert sorted(memory.priority.tolist()) == [2, 3, 4]
