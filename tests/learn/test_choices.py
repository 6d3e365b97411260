"""Options in lists of any length: the same numbers as in tables, and no more memory than needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rota.learn.choices import chances
from rota.learn.states import Allowed, Decisions, States, begins_of, listed
from rota.systems.choice_kernels import GREEDY, pick_listed, pick_rows

COUNTS = np.array([3, 1, 5, 2, 4])
WIDTH = 5


def both(seed: int = 0) -> tuple[Any, Any, Any, Any]:
    """Logits and what is allowed, as a table with rows of any length and as a list."""
    rng = np.random.default_rng(seed)
    there = np.arange(WIDTH) < COUNTS[:, None]
    flags = there & (rng.random(there.shape) < 0.7)
    flags[:, 0] = True
    logits = rng.normal(size=there.shape).astype(np.float32) * 3
    return logits, Allowed(flags), logits[there], Allowed(flags[there], begins_of(COUNTS))


@pytest.mark.parametrize("seed", range(4))
def test_probabilities_of_lists_are_those_of_tables(seed: int) -> None:
    logits, table, flat, lists = both(seed)
    weights = torch.arange(1.0, len(COUNTS) + 1)
    slopes = []
    for scores, allowed in ((logits, table), (flat, lists)):
        given = torch.from_numpy(scores).requires_grad_()
        found = chances(given, allowed)
        action = found.likeliest()
        parts = (
            found.of(action), found.entropy(), found.even(), found.gap(action, square=True),
            found.gap(action, square=False), found.among(torch.from_numpy(allowed.flags)),
        )  # fmt: skip
        total = sum((part * weights).sum() for part in parts)
        assert isinstance(total, torch.Tensor)
        total.backward()  # type: ignore[no-untyped-call]
        assert given.grad is not None
        slopes.append(([part.detach() for part in parts], action, given.grad))
    (ours, mine, slope), (theirs, other, flat_slope) = slopes
    assert torch.equal(mine, other)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    there = torch.from_numpy(np.arange(WIDTH) < COUNTS[:, None])
    torch.testing.assert_close(slope[there], flat_slope, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(table.free, lists.free)
    np.testing.assert_array_equal(table.allows(mine.numpy()), lists.allows(mine.numpy()))
    assert not lists.allows(np.full(len(COUNTS), -1)).any()


@pytest.mark.parametrize("greedy", [True, False])
def test_picks_from_lists_as_from_tables(greedy: bool) -> None:
    logits, table, flat, lists = both()
    luck = np.random.default_rng(1).random(len(COUNTS)).astype(np.float32)
    luck = np.full_like(luck, GREEDY) if greedy else luck
    found = [(np.zeros(len(COUNTS), np.int64), np.zeros(len(COUNTS), np.float32)) for _ in "ab"]
    pick_rows(logits, table.flags, luck, *found[0])
    pick_listed(flat, lists.flags, lists.begins, luck, *found[1])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_takes_lists_in_any_order() -> None:
    places, begins = listed(begins_of(COUNTS), np.array([3, 1, 3]))
    assert places.tolist() == [9, 10, 3, 9, 10]
    assert begins.tolist() == [0, 2, 3, 5]
    # Two states, with two decisions and one, which have 3, 1 and 5 candidates.
    allowed = Allowed(np.arange(9) % 2 == 0, begins_of(COUNTS[:3]))
    decisions = Decisions(allowed, {"action": np.array([0, 1, 2])}, np.array([0, 2, 3]))
    turned = decisions.take(np.array([1, 0]))
    assert turned["action"].tolist() == [2, 0, 1]
    assert turned.state.tolist() == [0, 1, 1]
    assert turned.allowed.begins is not None
    assert turned.allowed.begins.tolist() == [0, 5, 8, 9]
    again = Decisions.joined([turned, decisions]).take(np.array([2, 3]))
    assert again["action"].tolist() == [0, 1, 2]
    np.testing.assert_array_equal(again.allowed.flags, allowed.flags)


def test_states_without_a_candidate_are_states() -> None:
    states = States({"x": np.arange(3), "many": np.array([2, 0, 1]), "y": np.arange(3)}, ("y",))
    assert len(states) == 3
    assert states.take(np.array([1, 2]))["y"].tolist() == [2]
    assert States.joined([states, states]).take(np.array([3]))["y"].tolist() == [0, 1]


def test_an_option_that_is_hardly_possible_still_teaches() -> None:
    logits = torch.tensor([0.0, -200.0, -201.0], requires_grad=True)
    right = torch.tensor([False, True, True])
    listed = chances(logits, Allowed(np.ones(3, bool), np.array([0, 3]))).among(right)
    table = chances(logits[None], Allowed(np.ones((1, 3), bool))).among(right[None])
    torch.testing.assert_close(listed, table)
    (-listed.sum()).backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
