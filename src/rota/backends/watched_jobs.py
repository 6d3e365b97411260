"""Jobs that others start and stop, as a journal is told of them: each run at its own time."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from rota.run.job_facts import HeldChange

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rota.backends.driver import JobSight
    from rota.backends.job_roll import JobRoll
    from rota.core.plan import Share
    from rota.run.job_facts import Listing, Measured


class WatchedJobs:
    """What jobs came to hold and when, as far as it is not written down yet."""

    def __init__(self, origin_s: float) -> None:
        """`origin_s` is the Unix time from which seconds are counted."""
        self._origin_s = origin_s
        self._runs: dict[int, tuple[float, Share]] = {}  # start and share of what runs now
        self._idle: set[int] = set()
        self._over: set[int] = set()
        self._changes: list[HeldChange] = []

    def see(self, uid: int, sight: JobSight, share: Share, time_s: float) -> None:
        """Take in how a job was seen at `time_s`; `share` is what it holds or, if over, held.

        What this daemon sees first is told in any case: the journal knows whether it is new.
        """
        if uid in self._over:
            return
        before = self._runs.get(uid)
        if share and isfinite(sight.start_s):
            if before is None or before[0] != sight.start_s:
                if before is not None:
                    self._note(sight.start_s, uid, ())
                self._note(sight.start_s, uid, share)
            elif before[1] != share and not sight.end:
                self._note(time_s, uid, share)
            self._runs[uid] = sight.start_s, share
        elif not sight.end and (before is not None or uid not in self._idle):
            self._note(time_s, uid, ())
            self._runs.pop(uid, None)
            self._idle.add(uid)
        if sight.end:
            self.forget(uid)

    def forget(self, uid: int) -> None:
        """A job is over."""
        self._over.add(uid)
        self._runs.pop(uid, None)
        self._idle.discard(uid)

    def drop(self, uids: Iterable[int]) -> None:
        """These are over, and not listed any more."""
        self._over.difference_update(uids)

    def changes(self) -> Sequence[HeldChange]:
        """What has changed and is not written yet."""
        return tuple(self._changes)

    def written(self, count: int) -> None:
        """The first `count` changes are written."""
        del self._changes[:count]

    def _note(self, time_s: float, uid: int, share: Share) -> None:
        self._changes.append(HeldChange(max(0.0, time_s - self._origin_s), uid, share))


class WatchedRoll:
    """What a recorder asks of jobs that are watched: their roll, and what changed."""

    def __init__(self, roll: JobRoll, watched: WatchedJobs) -> None:
        self._roll, self._watched = roll, watched

    def listing(self, uid: int) -> Listing:
        """What a job asked for when it came."""
        return self._roll.listing(uid)

    def ending(self, uid: int) -> tuple[int, float]:
        """How and when a job ended, or LookupError."""
        return self._roll.ending(uid)

    def measured(self, uid: int) -> Measured:
        """What was measured of a job that is over."""
        return self._roll.measured(uid)

    def given(self, uid: int) -> Share | None:
        """What a job holds."""
        return self._roll.given(uid)

    def changes(self) -> Sequence[HeldChange]:
        """What has changed and is not in the journal yet."""
        return self._watched.changes()

    def written(self, count: int) -> None:
        """The first `count` of these changes are in the journal now."""
        self._watched.written(count)
