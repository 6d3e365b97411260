"""All jobs that were ever known: in memory while they matter, in the book for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rota.backends.job_book import JobBook, KnownJob

KEPT_S: Final = 600.0
"""Seconds for which a job that is over stays in memory after its cluster listed it last."""


class KnownJobs:
    """Jobs by uid; of those that are over, only the latest are in memory."""

    def __init__(self, book: JobBook) -> None:
        self._book = book
        self._jobs: dict[int, KnownJob] = {}
        self._uid: dict[tuple[str, float], int] = {}
        self._named: dict[str, int] = {}
        for job in book.open_jobs():
            self._remember(job)
        self.open = set(self._jobs)
        """The uids of those that are not over."""
        self._next = book.last_uid() + 1
        self._over: dict[int, float] = {}  # Unix time at which each was listed last
        self._unwritten: set[int] = set()
        self._new: set[int] = set()  # of these, the ones that were never written

    def __getitem__(self, uid: int) -> KnownJob:
        """What is remembered of a job; KeyError if it was never known."""
        return self._jobs.get(uid) or self._book.job(uid)

    def next_uid(self) -> int:
        """A number that no job has had."""
        self._next += 1
        return self._next - 1

    def add(self, job: KnownJob) -> None:
        """A job has come."""
        self._remember(job)
        self.open.add(job.uid)
        self._unwritten.add(job.uid)
        self._new.add(job.uid)

    def note(self, uid: int) -> None:
        """Something has changed that has to outlast the daemon."""
        self._unwritten.add(uid)

    def end(self, uid: int, time_s: float) -> None:
        """A job was found to be over at a Unix time."""
        self.open.discard(uid)
        self._over[uid] = time_s
        self._unwritten.add(uid)

    def in_book(self, uid: int) -> bool:
        """Whether the book knows of a job; after a crash, its number is not given again."""
        return uid not in self._new

    def find(self, name: str, submit_s: float, time_s: float) -> int | None:
        """The uid of a job that is listed at a Unix time, if it is in memory."""
        return self._listed(self._uid.get((name, submit_s)), time_s)

    def named(self, name: str) -> int | None:
        """The uid of the job of that name that is not over."""
        uid = self._named.get(name)
        return uid if uid in self.open else None

    def recall(
        self, name: str, submit_s: float, time_s: float, *, resubmitted: bool
    ) -> int | None:  # fmt: skip
        """The uid of a job that is over, though it may not be in memory any more.

        One that was put back in line before it ended is known by its name.
        """
        uid = self._named.get(name) if resubmitted else None
        if uid is None and (job := self._book.find(name, submit_s, resubmitted)) is not None:
            uid = job.uid
            self._remember(job)
            self._over[uid] = time_s
        return self._listed(uid, time_s)

    def forget(self, time_s: float) -> list[int]:
        """Let go of jobs that are over and were not listed for a while; their uids."""
        gone = [
            uid
            for uid, listed_s in self._over.items()
            if abs(time_s - listed_s) > KEPT_S and uid not in self._unwritten
        ]
        for uid in gone:
            del self._over[uid]
            job = self._jobs.pop(uid)
            if self._uid.get((job.name, job.submit_s)) == uid:
                del self._uid[job.name, job.submit_s]
            if self._named.get(job.name) == uid:
                del self._named[job.name]
        return gone

    def write(self) -> None:
        """Write down what has changed; what could not be written is tried again."""
        if self._unwritten:
            self._book.keep_jobs([self._jobs[uid] for uid in sorted(self._unwritten)])
            self._unwritten.clear()
            self._new.clear()

    def _remember(self, job: KnownJob) -> None:
        self._jobs[job.uid] = job
        self._uid[job.name, job.submit_s] = self._named[job.name] = job.uid

    def _listed(self, uid: int | None, time_s: float) -> int | None:
        """The same uid; if that job is over, it was listed at this time."""
        if uid is not None and uid in self._over:
            self._over[uid] = time_s
        return uid
