"""Processes of a test's own, gone with all they have started when the test is over."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import contextmanager, suppress
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PATIENCE_S = 600.0
"""What takes a second may take minutes where others use the machine: only a hang takes longer."""


def _heed_interrupts() -> None:
    """A shell lets what it starts in the background ignore them, and so would our children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def child(command: Sequence[str], **more: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process in a group of its own; the group is killed at the end, however that comes."""
    with subprocess.Popen(
        command,
        start_new_session=True,
        preexec_fn=_heed_interrupts,  # noqa: PLW1509  it does nothing that threads could spoil
        **more,
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def eventually(what: Callable[[], Any], about: Callable[[], object] = str) -> Any:
    """Wait until something is so, and give it; `about` tells more if it never is."""
    until_s = monotonic() + PATIENCE_S
    while not (found := what()):
        assert monotonic() < until_s, about()
        sleep(0.01)
    return found
