"""What submitters and users leave in the state directory for the daemon: new jobs, and wishes."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from rota.backends.local.state_dir import StateDir

LIST_S: Final = 1.0
"""Seconds between two looks for new jobs while the folder's time is the same, but recent: the file
system may count in coarse steps."""
COARSE_S: Final = 5.0
"""No file system counts in coarser steps than this."""
TURN: Final = 200
"""Looks in which every job is looked at once, whether a wish for it was announced or not."""


class NewJobs:
    """Finds jobs that were submitted since the last look."""

    def __init__(self, store: StateDir) -> None:
        self._store, self._known = store, set[int]()
        self._seen_ns, self._changed_s, self._listed_s = -1, -1e9, -1e9

    def found(self) -> list[int]:
        """The numbers of jobs that were not there before; nothing is listed if nothing changed."""
        changed_ns, now = self._store.jobs.stat().st_mtime_ns, monotonic()
        if changed_ns != self._seen_ns:
            self._seen_ns, self._changed_s = changed_ns, now
        elif self._listed_s >= self._changed_s + COARSE_S or now < self._listed_s + LIST_S:
            return []
        self._listed_s = now
        new = [uid for uid in self._store.uids() if uid not in self._known]
        self._known.update(new)
        return new

    def forget(self, uid: int) -> None:
        """Find a job again at the next look, if it is still there."""
        self._known.discard(uid)


class Wishes:
    """Finds jobs whose users may have asked for something: to cancel, to hold, to resume."""

    def __init__(self, store: StateDir) -> None:
        self._store = store
        self._turn: Iterator[int] = iter(())

    def found(self, jobs: Collection[int]) -> set[int]:
        """Jobs to look at now.

        A folder names them. A user's command may be killed before it has written there, so that
        all `jobs` are looked at in turn as well, a few each time.
        """
        asked: set[int] = set()
        with suppress(OSError):
            for name in os.listdir(self._store.asked):
                (self._store.asked / name).unlink(missing_ok=True)
                if name.isdecimal():
                    asked.add(int(name))
        few = len(jobs) // TURN + 1
        looked = list(islice(self._turn, few))
        if len(looked) < few:
            self._turn = iter(list(jobs))
        return asked.union(looked)
