"""What a command does when it is told to end."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def on_signals(heed: Callable[..., None], *numbers: signal.Signals) -> Iterator[None]:
    """Have these signals call `heed`; SIGHUP only where it is not ignored, as `nohup` has it."""
    heard = [
        number
        for number in numbers
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
    ]
    before = {number: signal.signal(number, heed) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
