"""The memory: its tree against plain sums, and what it forgets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.learn.replay_memory import Played, ReplayMemory
from rota.learn.states import Allowed, Decisions, States, begins_of
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


def batch(numbers: list[int]) -> Played:
    """State k has k % 3 + 1 decisions, and each of them k % 2 + 1 candidates."""
    states = np.array(numbers)
    decisions = np.repeat(states, states % 3 + 1)
    begins = begins_of(states % 3 + 1)
    candidates = np.repeat(decisions, decisions % 2 + 1)
    options = Allowed(candidates % 5 == 0, begins_of(decisions % 2 + 1))
    seen = States({"x": states[:, None], "many": states % 4, "y": np.repeat(states, states % 4)},
                  ("y",))  # fmt: skip
    judged = States({"z": -states})
    return Played(seen, judged, Decisions(options, {"action": decisions}, begins))


def check(memory: ReplayMemory, numbers: list[int]) -> None:
    """The memory holds these states, and all that belongs to them."""
    for place in (np.arange(len(numbers)), np.array([2, 0, 2])):
        found, wanted = memory.take(place), batch([numbers[k] for k in place])
        for a, b in ((found.seen, wanted.seen), (found.judged, wanted.judged)):
            assert a is not None
            assert b is not None
            assert a.lists == b.lists
            for name in b.arrays:
                assert a[name].tolist() == b[name].tolist()
        for x, y in ((found.decisions.begins, wanted.decisions.begins),
                     (found.decisions["action"], wanted.decisions["action"]),
                     (found.decisions.allowed.begins, wanted.decisions.allowed.begins),
                     (found.decisions.allowed.flags, wanted.decisions.allowed.flags)):  # fmt: skip
            np.testing.assert_array_equal(x, y)


def test_draws_in_proportion_to_priorities_of_any_size() -> None:
    memory, rng = ReplayMemory(5), np.random.default_rng(0)
    priority = np.array([0.1, 0.0, 0.4, 0.2, 0.3])
    memory.add(batch([0, 1, 2, 3, 4]), np.zeros(5), priority)
    places = np.concatenate([memory.draw(rng.random(10)) for _ in range(1000)])
    np.testing.assert_allclose(np.bincount(places, minlength=5) / 10_000, priority, atol=0.01)
    memory.judge(np.array([1, 2]), np.array([9.4, 0.0]))
    assert (memory.draw(rng.random(100)) == 1).mean() == pytest.approx(0.94, abs=0.02)


def test_forgets_the_oldest_first() -> None:
    memory = ReplayMemory(3)
    assert not memory.full
    memory.add(batch([1, 2]), np.zeros(2), np.ones(2))
    assert (len(memory), memory.full) == (2, False)
    memory.add(batch([3, 4]), np.array([7.0, 8.0]), np.array([5.0, 6.0]))
    assert memory.full
    check(memory, [4, 2, 3])
    assert memory.paid.tolist() == [8, 0, 7]
    assert memory.priority.tolist() == [6, 1, 5]
    memory.add(batch([10, 11, 12, 13, 14]), np.zeros(5), np.arange(5.0))
    check(memory, [14, 12, 13])
    assert sorted(memory.priority.tolist()) == [2, 3, 4]
