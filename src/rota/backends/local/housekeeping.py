"""What the daemon does beside scheduling: jobs that are over are put away, the oldest forgotten."""

from __future__ import annotations

import math
from time import monotonic
from typing import TYPE_CHECKING, Final

from rota.backends.local.archive import forget, put_away
from rota.backends.local.overview import Overview
from rota.backends.local.private import put_aside
from rota.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rota.backends.local.held import Ended
    from rota.backends.local.state_dir import StateDir

BATCH: Final = 50
"""Jobs that are put away at a time."""
PURGE_S: Final = 600.0
"""Seconds between two times that the oldest jobs are forgotten."""
LISTED_S: Final = 5.0
"""Seconds between two times that waiting jobs are listed for `rota queue`."""
RETRY_S: Final = 60.0
"""Seconds after which it is tried again when files cannot be moved or written."""


class Housekeeping:
    """Jobs that are over and not put away yet, and when what is due."""

    def __init__(self, store: StateDir, keep_s: float, keep_jobs: int) -> None:
        self._store, self._keep_s, self._keep_jobs = store, keep_s, keep_jobs
        self.ended: dict[int, Ended] = {}
        """How jobs ended that are not put away yet."""
        self._done: list[int] = []
        self._overview = Overview(store)
        self._retry_s = self._purge_s = self._list_s = -math.inf
        self._said = ""

    def add(self, uid: int, ended: Ended | None = None) -> None:
        """A job is over; `ended` says how, unless it can be read from its folder."""
        if ended is not None:
            self.ended[uid] = ended
        self._done.append(uid)

    def work(
        self, now_s: float, fresh: Callable[[], Iterable[int]], say: Callable[[str], None]
    ) -> list[int]:
        """Do one of the things that are due; the jobs that were put away.

        `fresh` gives the jobs that have never run.
        """
        now = monotonic()
        if now < self._retry_s:
            return []
        try:
            if self._done:
                return self._put_away()
            if now >= self._list_s:
                self._list_s = now + LISTED_S
                self._overview.note(list(fresh()))
            elif now >= self._purge_s:
                self._purge_s = now + PURGE_S
                forget(self._store, now_s - self._keep_s, self._keep_jobs)
        except DamagedError as error:
            say(f"{error} It is put aside: {put_aside(self._store.history.path)}")
        except OSError as error:
            self._retry_s = now + RETRY_S
            text = f"jobs that are over cannot be put away: {error}; tried again"
            if text != self._said:
                self._said = text
                say(text)
        return []

    def finish(self, now_s: float, say: Callable[[str], None]) -> None:
        """Put away and forget what is due, unless that cannot be done now."""
        self._list_s = math.inf
        while (self._done or self._purge_s == -math.inf) and monotonic() >= self._retry_s:
            self.work(now_s, tuple, say)

    def _put_away(self) -> list[int]:
        """Jobs that are too many by now are forgotten in the next turn: the journal asks for the
        newest ones until then.
        """
        batch = self._done[:BATCH]
        put_away(self._store, [uid for uid in batch if self._store.folder(uid).exists()])
        for uid in batch:
            self.ended.pop(uid, None)
        del self._done[:BATCH]
        if self._store.history.count() > self._keep_jobs:
            self._purge_s = -math.inf
        return batch
