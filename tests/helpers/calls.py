"""Work counted in calls, not in seconds: the count is the same on every machine."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def python_calls(do: Callable[[], object]) -> int:
    """How many functions in Python were called; each item of a generator counts as a call."""
    calls, before = 0, sys.getprofile()

    def count(_frame: Any, event: str, _about: Any) -> None:
        nonlocal calls
        calls += event == "call"

    gc.collect()  # what is collected meanwhile may call functions, too
    gc.disable()
    sys.setprofile(count)
    try:
        do()
    finally:
        sys.setprofile(before)
        gc.enable()
    return calls
