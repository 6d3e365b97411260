"""What a loop waits on: threads that are done, files that appear in folders, and the time."""

from __future__ import annotations

import ctypes
import os
import select
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_CHANGES: Final = 0x100 | 0x80 | 0x4 | 0x200  # IN_CREATE, IN_MOVED_TO, IN_ATTRIB, IN_DELETE
_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC
BLIND_S: Final = 0.05
"""Where the kernel tells nothing of folders, they are looked at so often."""


class Wakeups:
    """Wakes one waiting thread; any thread, and a signal handler, may call `wake`."""

    def __init__(self, folders: Iterable[Path] = ()) -> None:
        """A change in one of `folders` wakes, too, if it is made on this machine."""
        self._awake, self._bell = os.pipe2(_FLAGS)
        self._poll = select.poll()
        self._poll.register(self._awake, select.POLLIN)
        self._inotify = self._watch(folders)
        if self._inotify >= 0:
            self._poll.register(self._inotify, select.POLLIN)

    @staticmethod
    def _watch(folders: Iterable[Path]) -> int:
        """A descriptor that tells of changes in folders; −1 if that is not to be had here."""
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            number = int(libc.inotify_init1(_FLAGS))
            watches = [libc.inotify_add_watch(number, os.fsencode(f), _CHANGES) for f in folders]
        except (OSError, AttributeError):
            return -1
        if number >= 0 and min(watches, default=0) < 0:
            os.close(number)
            return -1
        return number

    @property
    def sees_folders(self) -> bool:
        """Whether changes in the folders wake."""
        return self._inotify >= 0

    def wake(self) -> None:
        """End the wait of now, or the next one."""
        with suppress(BlockingIOError, OSError):  # full: it is awake already
            os.write(self._bell, b"!")

    def wait(self, most_s: float) -> None:
        """Until something wakes, but no longer than that."""
        span_s = most_s if self.sees_folders else min(most_s, BLIND_S)
        for number, _ in self._poll.poll(max(0.0, 1000.0 * min(span_s, 3600.0))):
            with suppress(BlockingIOError):
                while os.read(number, 65536):
                    pass

    def __del__(self) -> None:
        # Not sooner: a thread that is done late must not write into another file.
        for number in (self._awake, self._bell, self._inotify):
            if number >= 0:
                os.close(number)
