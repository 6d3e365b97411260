"""A policy that takes too long is interrupted; while kernels are compiled, no time counts."""

from __future__ import annotations

from time import monotonic, sleep
from typing import TYPE_CHECKING

import pytest

from rota.jit_lock import alone, compilations
from rota.run.ask import TooSlow, Watch

if TYPE_CHECKING:
    from pathlib import Path

RING_S = 0.05


def rest(seconds: float) -> None:
    """Sleep, in pieces that a signal can come between."""
    until_s = monotonic() + seconds
    while monotonic() < until_s:
        sleep(RING_S / 5)


def test_compiling_for_long_is_not_deciding_for_long(tmp_path: Path) -> None:
    watch = Watch(RING_S)
    try:
        with watch, alone(str(tmp_path), "a kernel"):
            rest(6 * RING_S)
        begun, ended = compilations()
        assert begun == ended
    finally:
        watch.stop()


def test_who_goes_on_after_compiling_is_interrupted(tmp_path: Path) -> None:
    def decide() -> None:
        with alone(str(tmp_path), "a kernel"):
            rest(3 * RING_S)
        rest(600)

    watch = Watch(RING_S)
    try:
        with pytest.raises(TooSlow), watch:
            decide()
    finally:
        watch.stop()
