"""Lets one process compile a kernel while others that need the same one wait for its result.

Without it, programs that start together (the workers of a test run, or of `rota compare`) would
each compile the same kernels. The lock is the kernel's name and types as one byte of a file in the
folder of compiled code. The operating system releases it when a process ends, however it ends.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE: Final = "rota-compiling.lock"
LONGEST_WAIT_S: Final = 120.0
"""After this time a process compiles for itself: the other one may have been suspended."""
_PAUSE_S: Final = 0.05
_counts = [0, 0]


def compilations() -> tuple[int, int]:
    """How many kernels this process has begun to compile or to wait for, and how many it has."""
    begun, ended = _counts
    return begun, ended


@contextmanager
def alone(folder: str, what: str, longest_wait_s: float = LONGEST_WAIT_S) -> Iterator[bool]:
    """Hold the lock on `what` in `folder`, waiting for others first; says whether it is held.

    Where no lock can be had (a folder that cannot be written, a file system without locks) all
    goes on without one: the worst is that two processes do the same work.
    """
    _counts[0] += 1
    try:
        with _locked(folder, what, longest_wait_s) as held:
            yield held
    finally:
        _counts[1] += 1


@contextmanager
def _locked(folder: str, what: str, longest_wait_s: float) -> Iterator[bool]:
    try:
        import fcntl

        lock = os.open(os.path.join(folder, FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except (ImportError, OSError):
        yield False
        return
    place = int.from_bytes(hashlib.sha256(what.encode()).digest()[:7], "big")  # fits 64 bits
    until_s = time.monotonic() + longest_wait_s
    held = False
    try:
        while not held:
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
                held = True
            except (BlockingIOError, PermissionError):  # another process has it
                if time.monotonic() >= until_s:
                    break
                time.sleep(_PAUSE_S)
            except OSError:  # no locks here
                break
        yield held
    finally:
        os.close(lock)  # which releases it
