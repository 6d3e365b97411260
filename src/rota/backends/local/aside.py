"""A job that was set aside: its files are damaged, so that it is not known what it holds."""

from __future__ import annotations

from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from rota.backends.local.held import Ended
from rota.elastic.job import ElasticJob
from rota.elastic.run_processes import agent_of, end_processes
from rota.errors import RotaError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from pathlib import Path

    from rota.backends.calls import Calls
    from rota.backends.local.state_dir import StateDir

GRACE_S: Final = 30.0
"""Seconds for its agent to end it and to save the state of its training."""
AGAIN_S: Final = 1.0
"""Seconds between two attempts."""


class Aside:
    """Ends its processes, since it is not known any more which GPUs are theirs.

    Until they have ended, no seat is given to any job. Then it stays as it is, for its user to
    restore or to cancel.
    """

    def __init__(self, store: StateDir, uid: int, why: str, pool: Calls) -> None:
        self.uid, self.why, self.clear = uid, why, False
        self.ended: Ended | None = None
        self._store, self._pool, self._due_s = store, pool, 0.0
        self._call: Future[list[int]] | None = None

    def step(self, now_s: float, *, cancelled: bool) -> str:
        """Do the next thing that is to be done; what is to be said of it, if anything."""
        if not self.clear:
            return self._end_processes()
        if cancelled and self.ended is None and monotonic() >= self._due_s:
            self._due_s = monotonic() + AGAIN_S
            ended = Ended("cancelled", now_s, self.why)
            self._store.end(self.uid, ended)
            self.ended = ended
        return ""

    def _end_processes(self) -> str:
        if self._call is None and monotonic() >= self._due_s:
            self._call = self._pool.submit(_put_down, self._store.run_folders(self.uid))
        if self._call is None or not self._call.done():
            return ""
        call, self._call, self._due_s = self._call, None, monotonic() + AGAIN_S
        left = call.result()
        self.clear = not left
        return f"processes {left} cannot be ended: no seat is given until they are" if left else ""


class AsideJobs(dict[int, Aside]):
    """All jobs that are set aside, by number."""

    @property
    def gone(self) -> bool:
        """Whether none of their processes is left."""
        return all(one.clear for one in self.values())

    def drained(self, store: StateDir) -> bool:
        """Whether nothing is left to do but for their users."""
        return all(one.clear and not store.cancelled(uid) for uid, one in self.items())

    def over(self) -> list[tuple[int, Ended]]:
        """Take out those that are over."""
        found = [(uid, one.ended) for uid, one in self.items() if one.ended is not None]
        for uid, _ in found:
            del self[uid]
        return found

    def step(self, now_s: float, store: StateDir, say: Callable[[int, str], None]) -> bool:
        """Do the next thing for each; True if that makes seats free."""
        news = False
        for uid, one in self.items():
            was_clear = one.clear
            try:
                said = one.step(now_s, cancelled=store.cancelled(uid))
            except OSError as error:
                said = f"{error.strerror or error}; tried again"
            if said:
                say(uid, said)
            news |= one.clear and not was_clear
        return news


def _put_down(folders: list[Path]) -> list[int]:
    """End all runs, those with an agent at a step; the processes that are there still."""
    until_s = monotonic() + GRACE_S
    for folder in folders:
        try:
            if agent_of(folder):
                ElasticJob(folder).stop(GRACE_S)
                while agent_of(folder) and monotonic() < until_s:
                    sleep(0.02)
        except (RotaError, OSError):
            continue  # then by force
    return end_processes(*folders)
