"""What a job needs next, from facts made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rota.backends.local.next_step import Situation, next_step

WAITS = Situation(
    open=False, plain=False, cancelled=False, stopping=False, reaping=False, overdue=False,
    look_due=False, seats=frozenset(), leaving=False, members=None, free=lambda: True,
    ready=frozenset,
)  # fmt: skip
ONE, TWO = frozenset({"w0"}), frozenset({"w0", "w1"})
RUNS = replace(WAITS, open=True, seats=ONE, members=ONE, ready=lambda: ONE)


@pytest.mark.parametrize(
    ("now", "more", "step"),
    [
        (WAITS, {}, "wait"),
        (WAITS, {"cancelled": True}, "cancel"),
        (WAITS, {"seats": ONE}, "launch"),
        (WAITS, {"seats": ONE, "free": lambda: False}, "wait"),
        (RUNS, {}, "wait"),
        (RUNS, {"look_due": True, "cancelled": True}, "look"),
        (RUNS, {"cancelled": True}, "stop"),
        (RUNS, {"cancelled": True, "stopping": True}, "wait"),
        (RUNS, {"cancelled": True, "stopping": True, "overdue": True}, "kill"),
        (RUNS, {"seats": frozenset()}, "stop"),
        (RUNS, {"reaping": True}, "wait"),
        (RUNS, {"reaping": True, "look_due": True, "overdue": True}, "reap"),
        (RUNS, {"seats": TWO, "ready": lambda: TWO}, "resize"),
        (RUNS, {"seats": TWO, "ready": lambda: ONE}, "wait"),  # the new one cannot come yet
        (RUNS, {"ready": frozenset}, "stop"),  # nothing that could train by itself
        (RUNS, {"members": None, "seats": TWO}, "wait"),
        (RUNS, {"plain": True}, "wait"),
        (RUNS, {"plain": True, "seats": TWO}, "stop"),
        (RUNS, {"plain": True, "members": None}, "wait"),
        (RUNS, {"plain": True, "members": None, "leaving": True}, "stop"),
    ],
)
def test_next_step(now: Situation, more: dict[str, Any], step: str) -> None:
    assert next_step(replace(now, **more)) == step
