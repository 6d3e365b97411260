"""Kernels of several policies are compiled side by side, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rota.core import Cluster
from rota.policies import make_policy
from rota.sim import Conditions
from rota.sim.beside import compiled_beside
from rota.traces import Trace

if TYPE_CHECKING:
    from pathlib import Path

module: Any = import_module("rota.sim.beside")
TRACE = Trace.build(
    "two", submit_s=np.zeros(2), duration_s=np.ones(2), num_gpus=np.ones(2, np.int64)
)  # fmt: skip
NAMES = ["fifo", "srtf", "las", "fifo-easy"]


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes that this one has made by copying itself."""
    found, fork = [], os.fork

    def noted() -> int:
        pid = fork()
        found.append(pid)
        return pid

    monkeypatch.setattr(os, "fork", noted)
    return found


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(("cores", "others"), [(1, 0), (2, 1), (3, 2), (16, 3)])
def test_all_but_the_first_are_compiled_by_others(
    cores: int,
    others: int,
    tmp_path: Path,
    forked: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notes = tmp_path / "notes"
    notes.touch()

    def warm_up(_: Any, policy: Any) -> None:
        with notes.open("a") as file:
            file.write(f"{os.getpid()} {policy.name}\n")

    monkeypatch.setattr(module, "warm_up", warm_up)
    monkeypatch.setattr(module, "_cores", lambda: cores)
    policies = [make_policy(name) for name in NAMES]
    waited = 0
    with compiled_beside(policies, Cluster.uniform(1), Conditions(), TRACE):
        while others and len(notes.read_text().splitlines()) < len(NAMES) - 1:
            assert waited < 600 * 20
            waited += 1
            time.sleep(0.05)
    lines = [line.split() for line in notes.read_text().splitlines()]
    assert len({pid for pid, _ in lines}) == others
    assert str(os.getpid()) not in {pid for pid, _ in lines}
    assert sorted(name for _, name in lines) == (sorted(NAMES[1:]) if others else [])
    assert sorted(map(str, forked)) == sorted({pid for pid, _ in lines})
    assert not [pid for pid in forked if is_alive(pid)]


def test_a_process_that_fails_or_hangs_is_no_loss(
    forked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Any, policy: Any) -> None:
        if policy.name == "las":
            signal.pause()
        raise ValueError("no")

    monkeypatch.setattr(module, "warm_up", fail)
    monkeypatch.setattr(module, "_cores", lambda: 4)
    with compiled_beside(list(map(make_policy, NAMES)), Cluster.uniform(1), Conditions(), TRACE):
        pass
    assert len(forked) == 3
    assert not [pid for pid in forked if is_alive(pid)]
