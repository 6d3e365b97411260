"""The jobs of a state directory and their processes on this machine, as a driver.

Nothing here waits: what takes time is begun, and the next looks tell how far it is.
"""

from __future__ import annotations

from threading import RLock
from time import time
from typing import TYPE_CHECKING

from rota.backends.calls import Calls
from rota.backends.driver import Answer, ClusterSight
from rota.backends.local.agent_calls import Means
from rota.backends.local.aside import Aside, AsideJobs
from rota.backends.local.folder_watch import NewJobs, Wishes
from rota.backends.local.held import Ended
from rota.backends.local.holds import obey_hold
from rota.backends.local.job_sights import NEEDS_SERVERS, nodes_of, sight_of
from rota.backends.local.live_job import LiveJob
from rota.backends.local.live_snapshot import asked
from rota.backends.local.machine import device_names, seat_env
from rota.backends.local.seating import free_gpus, misplaced
from rota.backends.local.state_clock import StateClock
from rota.core.jobs import JobTable
from rota.errors import RotaError
from rota.run.why import too_large

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from rota.backends.driver import JobSight, Place
    from rota.backends.local.seating import Seat
    from rota.backends.local.state_dir import StateDir
    from rota.backends.reconciler import Action
    from rota.core.cluster import Cluster
    from rota.core.plan import Share
    from rota.elastic.agent_forkserver import AgentForkServer


class LocalDriver:
    """Runs jobs on the nodes of `cluster`, all of them this machine."""

    def __init__(
        self,
        store: StateDir,
        cluster: Cluster,
        *,
        real_gpus: bool = False,
        fork_server: AgentForkServer | None = None,
        say: Callable[[str], None] = lambda _text: None,
        wake: Callable[[], None] = lambda: None,
        over: Callable[[int, Ended | None], None] = lambda _uid, _ended: None,
    ) -> None:
        """Agents are started by `fork_server` if it can do that.

        `wake` is called, in any thread, when there is something new to look at; `over` when a job
        has ended, or, with None, when one is found that had ended before.
        """
        self.store, self.cluster, self.clock = store, cluster, StateClock(store)
        self.has = dict(enumerate(cluster.gpus.tolist()))
        self.jobs: dict[int, LiveJob] = {}
        """Those that are not over, nor set aside."""
        self.active: set[int] = set()
        """Jobs about which something is to be done."""
        self.aside = AsideJobs()
        self.news = self.settled = False
        """Something calls for a decision; a job now trains with what it shall hold."""
        self._say, self._said, self._over = say, dict[int, str](), over
        self._pool, self._lock = Calls(wake), RLock()
        devices = device_names(cluster, real_gpus)
        self._means = Means(self._pool, lambda seat: seat_env(cluster, devices, seat), fork_server)
        self._new, self._wishes = NewJobs(store), Wishes(store)
        self._number = {name: k for k, name in enumerate(cluster.names)}
        self._nodes = nodes_of(cluster)

    # The seam.

    def observe(self, only: Collection[int] | None = None) -> ClusterSight:
        """Bring every job a bit further, and tell how all are, or only some."""
        with self._lock:
            if only is None:
                self.news |= self.scan() | self.hear()
            for uid in sorted(self.active):
                self._step(uid)
            self.news |= self.aside.step(self.clock.now_s, self.store, self.say_once)
            for uid, ended in self.aside.over():
                self._end(uid, ended)
            uids = self.jobs if only is None else self.jobs.keys() & only
            jobs = [self.jobs[uid] for uid in uids]
            left = {str(job.uid): NEEDS_SERVERS for job in jobs if job.request.kind == "servers"}
            sights = [sight_of(job, self.cluster) for job in jobs]
            return ClusterSight(time(), sights, self._nodes, left)

    def carry_out(self, action: Action, job: JobSight, place: Place) -> Answer:
        """Have a job hold `place` from now on, or nothing; seats for it are chosen if need be."""
        with self._lock:
            if (live := self.jobs.get(int(job.name))) is None:
                return Answer("refused", "it is over")
            self.active.add(live.uid)
            if action == "cancel":
                live.cancelled = True
                return Answer("done")
            try:
                self._write_down(live, self.share(place))
            except (RotaError, OSError) as error:
                return Answer("refused", f"{getattr(error, 'strerror', None) or error}")
            if action in ("start", "resize"):
                live.orders.obey()
            elif action in ("stop", "withdraw"):
                live.orders.halt()
            return Answer("done")

    def fate(self, name: str, _submit_s: float) -> tuple[str, float]:
        """How and when a job ended that is not listed any more."""
        try:
            ended = self.store.ended(int(name))
        except RotaError:
            ended = None
        if ended is None:  # its files are damaged, or gone
            return "cancelled", time()
        return ended.state, self.store.origin + ended.time_s

    def close(self) -> None:
        """Leave the jobs to themselves."""
        self._pool.close()

    def share(self, place: Place) -> Share:
        """A place by the numbers of nodes."""
        return tuple(sorted((self._number[name], w, s) for name, w, s in place))

    def place(self, share: Share) -> Place:
        """A share by the names of nodes."""
        return tuple((self.cluster.names[node], w, s) for node, w, s in share)

    def free(self) -> dict[int, int]:
        """GPUs by node on which no process of any job may be, and none is about to start."""
        if not self.aside.gone:
            return dict.fromkeys(self.has, 0)
        jobs = [self.jobs[uid] for uid in self.active]
        taken = [seat for job in jobs for seat in job.orders.occupied]
        awaited = [seat for job in jobs for seat in job.orders.awaited]
        return free_gpus(self.has, taken, awaited)

    # What its users leave in the state directory.

    def scan(self) -> bool:
        """Take in what was submitted since; True if something was."""
        news = False
        try:
            found = self._new.found()
        except OSError as error:  # such as a file server that is away
            self.say_once(0, f"{self.store.jobs}: {error.strerror or error}; tried again")
            return False
        for uid in found:
            try:
                if self.store.ended(uid) is None:
                    self._admit(uid)
                else:
                    self._over(uid, None)
            except RotaError as error:
                self._set_aside(uid, str(error))
            except OSError as error:  # such as too many open files
                self.forget(uid)
                self.say_once(uid, f"{error.strerror or error}; tried again")
                continue
            news = True
        return news

    def hear(self) -> bool:
        """Take note of what users want of their jobs; True if that calls for a decision."""
        news = False
        for uid in self._wishes.found(self.jobs):
            if (job := self.jobs.get(uid)) is not None:
                if self.store.cancelled(uid):
                    self.cancel(uid)
                news |= self._obey_hold(job)
        return news

    def cancel(self, uid: int) -> None:
        """End a job that is not over."""
        self.jobs[uid].cancelled = True
        self.active.add(uid)

    def forget(self, uid: int) -> None:
        """Look at a job anew, if it is still there."""
        self._new.forget(uid)

    def say_once(self, uid: int, text: str) -> None:
        """Say of a job, or of none (0), what was not said of it last."""
        if self._said.get(uid) != text:
            self._said[uid] = text
            self._say(f"job {uid}: {text}" if uid else text)

    def _obey_hold(self, job: LiveJob) -> bool:
        try:
            changed = obey_hold(job, self.clock.now_s, self._say)
        except OSError as error:
            changed = True
            self.say_once(job.uid, f"{error.strerror or error}; tried again")
        if job.busy:
            self.active.add(job.uid)
        return changed

    def _admit(self, uid: int) -> None:
        job = LiveJob(self.store, uid, self._means)
        self.clock.reach(job.held.latest_s())
        job.submit_s = min(job.submit_s, self.clock.now_s)
        row = JobTable.of([asked(job)]).rows[0]
        if not job.held.seats and (why := too_large(self.cluster, row, job.request.workers)):
            ended = Ended("failed", self.clock.now_s, f"it never fits: {why}")
            self.store.end(uid, ended)
            self._end(uid, ended)
            return
        others = [seat for other in self.jobs.values() for seat in other.held.seats.values()]
        if trouble := misplaced(list(job.held.seats.values()), others, self.has):
            self._say(f"job {uid} is stopped: it was on GPUs {trouble}")
            job.orders.halt()
            job.take((), (), {}, self.clock.now_s)
        self.jobs[uid] = job
        self._obey_hold(job)

    def _set_aside(self, uid: int, why: str) -> None:
        self.aside[uid] = Aside(self.store, uid, why, self._pool)
        self._say(f"job {uid} is set aside: {why}")

    # The jobs.

    def _step(self, uid: int) -> None:
        job = self.jobs[uid]
        before, trouble, settled_s = len(job.held.seats), job.trouble, job.meter.settled_s
        try:
            job.step(self._blocked, self.clock.now_s)
        except (OSError, RotaError) as error:  # one job's trouble is no other's
            job.trouble = f"{getattr(error, 'strerror', None) or error}; tried again"
        if job.trouble and job.trouble != trouble:
            self._say(f"job {uid}: {job.trouble}")
        self.settled |= job.meter.settled and job.meter.settled_s != settled_s
        if not job.busy or job.ended:
            self.active.discard(uid)
        if job.ended is not None:
            del self.jobs[uid]
            self._end(uid, job.ended)
        self.news |= job.ended is not None or (before > 0 and not job.held.seats)

    def _end(self, uid: int, ended: Ended) -> None:
        self._over(uid, ended)
        self._say(f"job {uid} {ended.state}" + (f": {ended.error}" if ended.error else ""))

    def _blocked(self, job: LiveJob, seat: Seat) -> bool:
        """Whether processes of another run may still be on a seat."""
        return not self.aside.gone or any(x.leaves(seat, job) for x in self.jobs.values())

    def _write_down(self, job: LiveJob, share: Share) -> None:
        """Give a job seats for what it shall hold, if it has others."""
        if share != job.share:
            others = [seat for other in self.jobs.values() if other is not job
                      for seat in other.held.seats.values()]  # fmt: skip
            job.take(share, others, self.has, self.clock.now_s)
