"""The jobs of a cluster that others run: their numbers, and what became of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite, nan
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from rota.backends.driver import JobRequest, JobSight
from rota.backends.job_book import KnownJob
from rota.backends.known_jobs import KnownJobs
from rota.backends.reconciler import Intent, Seen, Traits
from rota.backends.restart_costs import RestartCosts
from rota.backends.watched_jobs import WatchedJobs, WatchedRoll
from rota.core.layout import FINISH, GIVE_UP, KILL
from rota.errors import JournalError
from rota.run.job_facts import Listing, Measured
from rota.run.why import stopped_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rota.backends.driver import ClusterSight
    from rota.backends.job_book import JobBook
    from rota.backends.node_table import NodeTable
    from rota.backends.reconciler import Reconciler
    from rota.core.plan import Plan, Share

MISSES: Final = 2
"""Looks in a row without a job until it counts as over: one look may have been cut short."""
_ENDINGS: Final = {"done": FINISH, "failed": GIVE_UP, "cancelled": KILL}

Fate: TypeAlias = "Callable[[str, float], tuple[str, float]]"


@dataclass
class ClusterJob:
    """A job that is not over: what is remembered of it, and how it was last seen."""

    known: KnownJob
    sight: JobSight
    missed: int = 0
    """Looks in a row in which it was not there."""
    since_s: float = nan
    """When it was last decided that it shall hold something else than before."""
    reported: float = nan
    """The start of the run from which it was last told how it gets on."""
    row: bytes | None = None
    """Its record while it waits."""
    steady: tuple[Share, float] | None = None
    """Of one that is resized in place: what it trains with, and since which round that is known."""

    @property
    def uid(self) -> int:
        """Its number."""
        return self.known.uid


class JobRoll:
    """Jobs by uid; what has to outlast the daemon is in the book."""

    def __init__(
        self, book: JobBook, nodes: NodeTable, mind: Reconciler, *, passive: bool = False
    ) -> None:
        """With `passive`, the journal is told what others do with the jobs."""
        self._book, self._nodes, self._mind = book, nodes, mind
        self._watched = WatchedJobs(book.origin_s) if passive else None
        self._every = KnownJobs(book)
        self._costs = RestartCosts(book.latest_jobs(RestartCosts.JOBS))
        self._users: dict[str, int] = {}
        self.jobs: dict[int, ClusterJob] = {}
        """Those that are not over."""

    @property
    def facts(self) -> JobRoll | WatchedRoll:
        """What a recorder asks of the jobs."""
        return self if self._watched is None else WatchedRoll(self, self._watched)

    def known(self, uid: int) -> KnownJob:
        """What is remembered of a job."""
        return self._every[uid]

    def remark(self, plan: Plan, by: str) -> None:
        """Remember of the jobs that a plan stops which policy stopped them, and for which jobs."""
        left = {
            uid: [node for node, *_ in self._nodes.share(job.sight.place)]
            for uid, job in self.jobs.items()
        }
        for uid, gainers in stopped_for(plan, left).items():
            if uid in self.jobs:
                names = ", ".join(self._every[one].name for one in gainers)
                self._every[uid].stopped = f"by {by}" + (f", for {names}" if names else "")
                self._every.note(uid)

    def ours(self) -> list[ClusterJob]:
        """Jobs that are not over and are ours to start and stop."""
        return [job for job in self.jobs.values() if job.sight.managed]

    def user(self, job: ClusterJob) -> int:
        """The number of a job's user."""
        return self._users.setdefault(job.sight.request.user, len(self._users))

    def model(self, job: ClusterJob) -> str:
        """By which speeds are learned: what jobs of one user report says nothing of another's."""
        request = job.sight.request
        return f"{request.user}/{request.model}" if request.model else ""

    def restart_s(self, job: ClusterJob) -> float:
        """Seconds without progress that a stop costs a job."""
        return self._costs.of(job.known, job.sight.request.restart_s)

    def intent(self, job: ClusterJob, kept: Mapping[int, Intent]) -> Intent:
        """What a job shall hold, as it was written down."""
        return kept.get(job.uid) or Intent(job.uid)

    def seen(self, job: ClusterJob) -> Seen:
        """A job as the reconciler sees it."""
        sight = job.sight
        return Seen(sight.phase, self._nodes.share(sight.place), sight.saved)

    def share(self, job: ClusterJob) -> Share:
        """What a job shall hold or, where nobody has decided that, holds."""
        if job.uid in self._mind:
            return self._mind.share(job.uid)
        return self._nodes.share(job.sight.place)

    def physical(self, job: ClusterJob) -> Share:
        """What a job takes up now."""
        runs = job.sight.phase in ("running", "stopping")
        return self._nodes.share(job.sight.place) if runs else ()

    def given(self, uid: int) -> Share | None:
        """What a job shall hold, perhaps on other nodes than was decided; None: it is over."""
        return self.share(self.jobs[uid]) if uid in self.jobs else None

    def stops(self, uid: int, share: Share) -> bool:
        """Whether a job has to be stopped to come to hold this."""
        if (job := self.jobs.get(uid)) is None:
            return False
        held, in_place = self.share(job), job.sight.request.in_place and bool(share)
        return bool(held) and share != held and not in_place

    def to_hold(self) -> list[Intent]:
        """Intents to take back starts that no plan has ordered: rota decides when jobs start."""
        found = []
        for uid, job in self.jobs.items():
            if job.sight.managed and job.sight.phase == "starting":
                intent = self._mind.intent(uid)
                if intent.share is None and self._mind.seen(uid) is not None:
                    found.append(replace(intent, share=()))
        return found

    def refused(self) -> list[int]:
        """Jobs that shall start, and that their cluster does not start."""
        found = [job.uid for job in self.ours() if job.sight.refused and job.uid in self._mind]
        return [uid for uid in found if self._mind.share(uid)]

    # What a look finds.

    def see(
        self, sight: ClusterSight, fate: Fate, *, forget_rows: bool
    ) -> tuple[list[int], list[int]]:
        """Take in all jobs; the uids of those that came and of those that are over."""
        came: list[int] = []
        over: list[int] = []
        there = set[int]()
        for one in sight.jobs:
            uid = self._known_as(one, sight.time_s)
            if uid is not None and uid not in self._every.open and not one.end:
                uid = None  # its cluster has forgotten that it was over: a job like a new one
            if uid is None and one.end and not self._was_missed(one):
                continue  # it was over before anybody asked
            if uid is None:
                uid = self._admit(one)
                came.append(uid)
            elif uid not in self.jobs and uid in self._every.open:
                self.jobs[uid] = ClusterJob(self._every[uid], one)
            there.add(uid)
            if (job := self.jobs.get(uid)) is not None and self._update(job, one, sight.time_s):
                self._every.note(uid)
            if self._watched is not None and (job is not None or one.end):
                # What is over was perhaps not written down before the last daemon was killed.
                self._watched.see(uid, one, self._nodes.share(one.place), sight.time_s)
            if one.end and uid in self.jobs:
                self._every[uid].end, self._every[uid].end_s = one.end, one.end_s
                over.append(uid)
            elif forget_rows and uid in self.jobs:
                self.jobs[uid].row = None
        over += self._gone(there, sight.time_s, fate)
        for uid in over:
            del self.jobs[uid]
            self._every.end(uid, sight.time_s)
            if self._watched is not None:
                self._watched.forget(uid)
        gone = self._every.forget(sight.time_s)
        if self._watched is not None:
            self._watched.drop(gone)
        return came, over

    def _was_missed(self, one: JobSight) -> bool:
        """Whether a job that is over has run since jobs are watched, and was never seen."""
        since = one.submit_s >= self._book.origin_s
        return self._watched is not None and one.managed and bool(one.place) and since

    def write(self) -> None:
        """Write down what has changed; what could not be written is tried again."""
        self._every.write()

    def _admit(self, one: JobSight) -> int:
        uid, request = self._every.next_uid(), one.request
        listing: dict[str, Any] = {
            "user": request.user, "model": request.model, "gpu_type": request.gpu_type,
            "num_gpus": request.workers * max(1, request.gpus_per_worker),
            "gpus_per_worker": request.gpus_per_worker, "min_workers": request.min_workers,
            "max_workers": request.max_workers, "cpus_per_worker": request.cpus_per_worker,
            "memory_gb_per_worker": request.memory_gb_per_worker,
        }  # fmt: skip
        if isfinite(request.estimate_s):
            listing["estimate_s"] = request.estimate_s
        known = KnownJob(uid, one.name, one.submit_s, listing=listing, ours=one.managed)
        listing["restart_s"] = self._costs.of(known, request.restart_s)
        listing["stoppable"] = int(one.managed and (request.stoppable or request.in_place))
        self._every.add(known)
        self.jobs[uid] = ClusterJob(known, one)
        return uid

    def _known_as(self, one: JobSight, time_s: float) -> int | None:
        """The number of a job; one that was put back in line has the time of that as its own.

        Only a journal that is told what others did has to know jobs that were over long ago.
        """
        uid = self._every.find(one.name, one.submit_s, time_s)
        if uid is None and one.resubmitted:
            uid = self._every.named(one.name)
        if uid is None and one.end and self._watched is not None:
            uid = self._every.recall(
                one.name, one.submit_s, time_s, resubmitted=one.resubmitted
            )  # fmt: skip
        return uid

    def _update(self, job: ClusterJob, one: JobSight, time_s: float) -> bool:
        """Take in how a job is now; True if that has to outlast the daemon."""
        before, job.sight, job.missed = job.sight, one, 0
        known, changed = job.known, False
        if before.request != one.request or before.phase != one.phase:
            job.row = None
        ran = before.place and isfinite(before.start_s)
        if ran and (one.place != before.place or one.start_s != before.start_s or one.end):
            self._end_run(known, before, min(one.end_s, time_s))
            changed, job.row = True, None
        runs = one.phase == "running" and isfinite(one.start_s)
        if runs and known.started_s is None:
            known.started_s, changed = max(0.0, one.start_s - self._book.origin_s), True
        return self._note_progress(job, before, one) or changed

    def _end_run(self, known: KnownJob, before: JobSight, end_s: float) -> None:
        """Add up what a run had since it began, or since it was resized."""
        ran_s = max(0.0, end_s - max(before.start_s, known.counted_s))
        known.counted_s = end_s
        workers = sum(workers for _, workers, _ in before.place)
        known.attained_gpu_s += ran_s * workers * before.request.gpus_per_worker
        known.ran_s += ran_s * workers / before.request.workers

    def _note_progress(self, job: ClusterJob, before: JobSight, one: JobSight) -> bool:
        """What a job says of its progress; the first speed that it tells counts as pace 1."""
        known, told = job.known, one.progress
        if told is None or before.progress == told:
            return False
        known.samples = max(known.samples, told.samples)
        known.total = told.total if isfinite(told.total) else known.total
        workers = sum(workers for _, workers, _ in one.place)
        if not known.rate and measures(one) and told.samples_per_s > 0:
            known.rate = told.samples_per_s / workers * one.request.workers
        runs = one.phase == "running"  # what is told at the end says nothing about the start
        if runs and job.reported != one.start_s and told.time_s >= one.start_s:
            job.reported = one.start_s
            self._costs.note(known, told.time_s - one.start_s)
        return True

    def _gone(self, there: set[int], time_s: float, fate: Fate) -> list[int]:
        """Jobs that were not listed again and again: they are over, somehow."""
        over = []
        for uid in self._every.open - there:
            known, job = self._every[uid], self.jobs.get(uid)
            if job is None:  # it ended while no daemon ran
                job = self.jobs[uid] = ClusterJob(known, _lost(known))
            job.missed += 1
            if job.missed >= MISSES:
                end, end_s = fate(known.name, known.submit_s)
                known.end, known.end_s = end, min(end_s, time_s)
                if job.sight.place and isfinite(job.sight.start_s):
                    self._end_run(known, job.sight, known.end_s)
                over.append(uid)
        return over

    # What the journal asks.

    def listing(self, uid: int) -> Listing:
        """What a job asked for when it came."""
        known = self._every[uid]
        if not self._every.in_book(uid):
            # The next daemon would give its number to another job, which the journal took for it.
            raise JournalError(f"Job {known.name} is not in the journal's tables of jobs yet.")
        return Listing(
            job_id=str(uid), submit_s=max(0.0, known.submit_s - self._book.origin_s),
            **known.listing,
        )  # fmt: skip

    def ending(self, uid: int) -> tuple[int, float]:
        """How and when a job ended, or LookupError."""
        known = self._every[uid]
        if not known.end:
            raise LookupError(f"job {known.name} has not ended")
        return _ENDINGS[known.end], max(0.0, known.end_s - self._book.origin_s)

    def measured(self, uid: int) -> Measured:
        """What was measured of a job that is over."""
        known = self._every[uid]
        work_s = known.samples / known.rate if known.rate > 0 and known.samples > 0 else nan
        restart_s = known.starting_s / known.starts if known.starts else nan
        return Measured(work_s=work_s, restart_s=restart_s)


def _lost(known: KnownJob) -> JobSight:
    """A job that is not listed, and of which only the book tells."""
    return JobSight(
        name=known.name, submit_s=known.submit_s, request=JobRequest(), managed=False,
        waits_for="its cluster does not list it",
    )  # fmt: skip


def measures(one: JobSight) -> bool:
    """Whether a job tells how fast it trains on what it holds."""
    told, workers = one.progress, sum(workers for _, workers, _ in one.place)
    if told is None or not workers or told.nodes not in (0, len(one.place)):
        return False
    return isfinite(told.samples_per_s)


def traits_of(request: JobRequest) -> Traits:
    """What can be done with a job."""
    return Traits(
        gpus_per_worker=request.gpus_per_worker, stoppable=request.stoppable,
        in_place=request.in_place, notice_s=request.notice_s,
    )  # fmt: skip
