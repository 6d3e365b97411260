"""One machine as a cluster that schedules real processes; a Backend."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from rota.backends.calls import Calls
from rota.backends.local.agent_calls import Means
from rota.backends.local.aside import Aside, AsideJobs
from rota.backends.local.folder_watch import NewJobs, Wishes
from rota.backends.local.held import Ended
from rota.backends.local.holds import obey_hold
from rota.backends.local.housekeeping import Housekeeping
from rota.backends.local.job_listing import listing_of, measured_of
from rota.backends.local.job_notes import starting_reasons, stop_notes
from rota.backends.local.live_job import LOOK_S, LiveJob
from rota.backends.local.live_snapshot import asked, snapshot_of
from rota.backends.local.machine import device_names, seat_env
from rota.backends.local.seating import misplaced, stayers
from rota.backends.local.state_clock import StateClock
from rota.backends.local.state_dir import SPEEDS
from rota.backends.waits_file import WAITS, WaitsFile
from rota.backends.wakeups import Wakeups
from rota.core.jobs import JobTable
from rota.core.layout import FINISH, GIVE_UP, KILL
from rota.errors import RotaError
from rota.run.job_facts import Measured
from rota.run.speeds import Speeds
from rota.run.why import too_large

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rota.backends.local.seating import Seat
    from rota.backends.local.state_dir import StateDir
    from rota.core.cluster import Cluster
    from rota.core.plan import Plan, Share
    from rota.core.snapshot import Snapshot
    from rota.elastic.agent_forkserver import AgentForkServer
    from rota.perf.job_laws import JobLaws
    from rota.run.job_facts import Listing
    from rota.run.wait_reason import WaitReason

IDLE_S: Final = 1.0
"""Seconds after which it is looked for what no event has told of, if no job is busy."""
_ENDINGS: Final = {"done": FINISH, "failed": GIVE_UP, "cancelled": KILL}


class LocalBackend:
    """Runs the jobs of a state directory on the nodes of `cluster`, all of them this machine."""

    def __init__(
        self,
        store: StateDir,
        cluster: Cluster,
        *,
        real_gpus: bool = False,
        every_s: float = 10.0,
        drain: bool = False,
        min_run_s: float = 0.0,
        keep_s: float = math.inf,
        keep_jobs: int = 1 << 53,
        fork_server: AgentForkServer | None = None,
        laws: JobLaws | None = None,
        say: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """Rounds are at most `every_s` apart while there are jobs.

        With `drain`, `wait` returns False when there are no jobs left. A job is not stopped or
        moved in its first `min_run_s`. Jobs that are over are forgotten after `keep_s`, and all
        but the last `keep_jobs` of them. Agents are started by `fork_server` if it can do that.
        With `laws` snapshots say how jobs slow each other down. `say` is told what happens.
        """
        self.store, self.cluster, self.every_s, self.drain = store, cluster, every_s, drain
        self.min_run_s = min_run_s
        self.stopped = False
        """`wait` returns False; jobs go on."""
        self._say, self._said = say, dict[int, str]()
        self._has = dict(enumerate(cluster.gpus.tolist()))
        self._wakeups = Wakeups((store.jobs, store.asked))
        self._pool = Calls(self._wakeups.wake)
        devices = device_names(cluster, real_gpus)
        self._means = Means(self._pool, lambda seat: seat_env(cluster, devices, seat), fork_server)
        self._jobs: dict[int, LiveJob] = {}
        self._active: set[int] = set()  # jobs about which something is to be done
        self._aside = AsideJobs()
        self._users: dict[str, int] = {}
        self._speeds = Speeds(store.root / SPEEDS, say, laws)
        self._settled = False  # whether a job has settled since the last look at all of them
        self._new, self._wishes, self._waits = NewJobs(store), Wishes(store), WaitsFile(store.root)
        self._house, self._clock = Housekeeping(store, keep_s, keep_jobs), StateClock(store)
        self._round_s, self._news = -math.inf, self._scan()

    @property
    def now_s(self) -> float:
        """Seconds since the state directory was made."""
        return self._clock.now_s

    @property
    def jobs(self) -> list[LiveJob]:
        """Jobs that are not over, in order of submission."""
        return sorted(self._jobs.values(), key=lambda job: (job.submit_s, job.uid))

    def observe(self) -> Snapshot:
        """The cluster and its jobs now, with speed curves estimated from what was observed."""
        jobs = [job for job in self.jobs if not job.on_hold]
        for job in jobs:
            self._users.setdefault(job.request.user, len(self._users))
        snapshot = snapshot_of(
            self.cluster, jobs, self.now_s, self._users, self._speeds.number, self.min_run_s
        )
        by_nodes = not jobs or any(job.request.kind != "servers" for job in jobs)
        told = {job.uid for job in jobs if job.request.kind != "plain"}
        return self._speeds.see(snapshot, by_nodes=by_nodes, told=told)

    def apply(self, plan: Plan) -> None:
        """Write down what every job shall hold; `wait` brings it about."""
        now_s, decision = self.now_s, plan.decision
        wanted = {int(decision.uid[k]): decision.share(k) for k in plan.job.tolist()}
        wanted = {
            uid: share
            for uid, share in wanted.items()
            if (job := self._jobs.get(uid))
            and not (job.cancelled or job.on_hold)
            and self._may_change(job, share)
        }
        # Jobs may exchange seats: first note which seats each job gives up.
        taken = {
            uid: stayers(job.held.seats, wanted[uid])[0] if uid in wanted else job.held.seats
            for uid, job in self._jobs.items()
        }
        for uid, share in wanted.items():
            others = [s for other, own in taken.items() if other != uid for s in own.values()]
            try:
                self._jobs[uid].take(share, others, self._has, now_s)
                self._active.add(uid)
            except (RotaError, OSError) as error:
                self._say(f"job {uid}: {error}; tried again in the next round")
            taken[uid] = self._jobs[uid].held.seats
        self._news |= self._push()

    def _may_change(self, job: LiveJob, share: Share) -> bool:
        """Refuse to touch a running job that would have to begin again."""
        may = job.request.resumes or not job.held.seats or share == job.share
        if not may:
            self._say(f"job {job.uid} is left as it is: it cannot go on where it was stopped")
        return may

    def call(self, uid: int) -> str:
        """The name by which users know a job: its number."""
        return str(uid)

    def remark(self, plan: Plan, by: str) -> None:
        """Note in the jobs that a plan stops which policy stopped them, and for which jobs."""
        for uid, text in stop_notes(plan, by, self._jobs).items():
            self._jobs[uid].held.stopped = text
            try:
                self.store.keep(uid, self._jobs[uid].held)
            except OSError as error:
                self._say_once(uid, f"{error.strerror or error}; tried again")

    def wait(self, wake_s: float) -> bool:
        """Until something happens that calls for a decision, or `wake_s`; False when it is over."""
        while True:
            if self._push():
                self._news = True
            if self._settled:
                self._settled = False
                self.observe()  # what a job does from now on tells how fast it is with what it has
            self._clean_up()
            now_s = self.now_s
            if self.stopped or (self.drain and self._drained() and not self._news):
                return False
            due = bool(self._jobs) and now_s >= self._round_s + self.every_s
            if self._news or due or now_s >= wake_s:
                self._news, self._round_s = False, now_s
                return True
            busy = self._active or not self._aside.gone
            self._wakeups.wait(min(LOOK_S if busy else IDLE_S, self.every_s, wake_s - now_s))

    def listing(self, uid: int) -> Listing:
        """What is known of a job when it arrives; its file may be damaged by now."""
        request = self._jobs[uid].request if uid in self._jobs else self.store.request(uid)
        return listing_of(uid, request, self.store.submit_s(request))

    def measured(self, uid: int) -> Measured:
        """What was measured of a job that is over."""
        try:
            request, held = self.store.request(uid), self.store.held(uid)
            ended = self._house.ended.get(uid) or self.store.ended(uid)
        except (RotaError, OSError):  # it could not be read in the first place
            return Measured()
        return measured_of(request, held, ended)

    def ending(self, uid: int) -> tuple[int, float]:
        """How and when a job ended, or LookupError."""
        try:
            ended = self._house.ended.get(uid) or self.store.ended(uid)
        except RotaError as error:  # its files are damaged: it is set aside
            raise LookupError(f"job {uid}: {error}") from None
        if ended is None:
            raise LookupError(f"job {uid} has not ended")
        return _ENDINGS[ended.state], ended.time_s

    def on_hold(self, uid: int) -> bool:
        """Whether the user of a job has put it on hold."""
        return (job := self._jobs.get(uid)) is not None and job.on_hold

    def cancel(self, uid: int) -> None:
        """End a job that is not over."""
        self._jobs[uid].cancelled = True
        self._active.add(uid)

    def note_waits(self, reasons: Mapping[int, WaitReason]) -> None:
        """Have `rota queue` say why jobs wait; starting jobs are added."""
        try:
            self._waits.write({**reasons, **starting_reasons(self._jobs.values())})
        except OSError as error:
            self._say_once(0, f"{WAITS} cannot be written: {error.strerror}; tried again")

    def stop(self) -> None:
        """Have `wait` return False; jobs go on."""
        self.stopped = True
        self._wakeups.wake()

    def close(self) -> None:
        """Leave the jobs to themselves."""
        self._house.finish(self.now_s, self._say)
        self._speeds.keep()
        self._pool.close()

    def _push(self) -> bool:
        """Bring every job a bit further; True if something calls for a decision."""
        news = self._scan() | self._hear()
        for uid in sorted(self._active):
            job = self._jobs[uid]
            before, trouble, settled_s = len(job.held.seats), job.trouble, job.meter.settled_s
            try:
                job.step(self._blocked, self.now_s)
            except (OSError, RotaError) as error:  # one job's trouble is no other's
                job.trouble = f"{getattr(error, 'strerror', None) or error}; tried again"
            if job.trouble and job.trouble != trouble:
                self._say(f"job {uid}: {job.trouble}")
            self._settled |= job.meter.settled and job.meter.settled_s != settled_s
            if not job.busy or job.ended:
                self._active.discard(uid)
            if job.ended is not None:
                del self._jobs[uid]
                self._note_end(uid, job.ended)
            news |= job.ended is not None or (before > 0 and not job.held.seats)
        return self._push_aside() or news

    def _push_aside(self) -> bool:
        """See to the jobs that were set aside; True if that makes seats free."""
        news = self._aside.step(self.now_s, self.store, self._say_once)
        for uid, ended in self._aside.over():
            self._note_end(uid, ended)
        return news

    def _say_once(self, uid: int, text: str) -> None:
        """Say of a job, or of none (0), what was not said of it last."""
        if self._said.get(uid) != text:
            self._said[uid] = text
            self._say(f"job {uid}: {text}" if uid else text)

    def _note_end(self, uid: int, ended: Ended) -> None:
        self._house.add(uid, ended)
        self._say(f"job {uid} {ended.state}" + (f": {ended.error}" if ended.error else ""))

    def _hear(self) -> bool:
        """Take note of what users want of their jobs; True if that calls for a decision."""
        news = False
        for uid in self._wishes.found(self._jobs):
            if (job := self._jobs.get(uid)) is not None:
                if self.store.cancelled(uid):
                    self.cancel(uid)
                news |= self._obey_hold(job)
        return news

    def _obey_hold(self, job: LiveJob) -> bool:
        try:
            changed = obey_hold(job, self.now_s, self._say)
        except OSError as error:
            changed = True
            self._say_once(job.uid, f"{error.strerror or error}; tried again")
        if job.busy:
            self._active.add(job.uid)
        return changed

    def _drained(self) -> bool:
        """Whether all jobs are over, or on hold or set aside with none of their processes left."""
        idle = all(job.on_hold and not job.busy for job in self._jobs.values())
        return idle and self._aside.drained(self.store)

    def _clean_up(self) -> None:
        def fresh() -> list[int]:
            return [uid for uid, job in self._jobs.items() if job.fresh]

        for uid in self._house.work(self.now_s, fresh, self._say):
            self._new.forget(uid)

    def _scan(self) -> bool:
        """Take in what was submitted since; True if something was."""
        news = False
        try:
            found = self._new.found()
        except OSError as error:  # such as a file server that is away
            self._say_once(0, f"{self.store.jobs}: {error.strerror or error}; tried again")
            return False
        for uid in found:
            try:
                if self.store.ended(uid) is None:
                    self._admit(uid)
                else:
                    self._house.add(uid)
            except RotaError as error:
                self._set_aside(uid, str(error))
            except OSError as error:  # such as too many open files
                self._new.forget(uid)
                self._say_once(uid, f"{error.strerror or error}; tried again")
                continue
            news = True
        return news

    def _set_aside(self, uid: int, why: str) -> None:
        self._aside[uid] = Aside(self.store, uid, why, self._pool)
        self._say(f"job {uid} is set aside: {why}")

    def _admit(self, uid: int) -> None:
        request = self.store.request(uid)
        job = LiveJob(self.store, uid, self._means)
        self._clock.reach(job.held.latest_s())
        job.submit_s = min(job.submit_s, self.now_s)
        row = JobTable.of([asked(job)]).rows[0]
        if not job.held.seats and (why := too_large(self.cluster, row, request.workers)):
            ended = Ended("failed", self.now_s, f"it never fits: {why}")
            self.store.end(uid, ended)
            self._note_end(uid, ended)
            return
        others = [seat for other in self._jobs.values() for seat in other.held.seats.values()]
        if trouble := misplaced(list(job.held.seats.values()), others, self._has):
            self._say(f"job {uid} is stopped: it was on GPUs {trouble}")
            job.take((), (), {}, self.now_s)
        self._jobs[uid] = job
        self._obey_hold(job)

    def _blocked(self, job: LiveJob, seat: Seat) -> bool:
        """Whether processes of another run may still be on a seat."""
        return not self._aside.gone or any(x.leaves(seat, job) for x in self._jobs.values())
