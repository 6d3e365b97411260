"""One machine as a cluster that schedules real processes; a Backend."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from itertools import islice
from time import monotonic, sleep, strftime, time
from typing import TYPE_CHECKING, Final

import numpy as np

from rota.backends.local.archive import forget, put_away
from rota.backends.local.aside import Aside
from rota.backends.local.calls import Calls
from rota.backends.local.held import Ended
from rota.backends.local.live import LiveJob, Means
from rota.backends.local.machine import device_names
from rota.backends.local.overview import Overview
from rota.backends.local.private import put_aside
from rota.backends.local.seats import stayers
from rota.backends.local.store import SPEEDS
from rota.backends.local.view import snapshot_of
from rota.core.layout import FINISH, GIVE_UP, KILL
from rota.core.plan import Stop
from rota.errors import DamagedError, RotaError
from rota.run.job_facts import Listing, Measured
from rota.run.speeds import Speeds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rota.backends.local.seats import Seat
    from rota.backends.local.store import Store
    from rota.core.cluster import Cluster
    from rota.core.plan import Plan, Share
    from rota.core.snapshot import Snapshot
    from rota.elastic.cradle import Cradle

TICK_S: Final = 0.05
"""Between two looks at what is to be done."""
BATCH: Final = 50
"""Jobs that are put away at a time."""
PURGE_S: Final = 600.0
"""Between two times that the oldest jobs are forgotten."""
LISTED_S: Final = 5.0
"""Between two times that what waits is listed for others."""
TURN: Final = 1000
"""In so many ticks every job is looked at for a cancel that nobody told of."""
LIST_S: Final = 1.0
"""Between two looks for new jobs when the folder's time is the same, but young: it may be a coarse
one."""
COARSE_S: Final = 5.0
"""No folder's time is coarser."""
_ENDINGS: Final = {"done": FINISH, "failed": GIVE_UP, "cancelled": KILL}


class LocalBackend:
    """Runs the jobs of a state directory on the nodes of `cluster`, all of them this machine."""

    def __init__(
        self,
        store: Store,
        cluster: Cluster,
        *,
        real_gpus: bool = False,
        every_s: float = 10.0,
        drain: bool = False,
        min_run_s: float = 0.0,
        keep_s: float = math.inf,
        keep_jobs: int = 1 << 53,
        cradle: Cradle | None = None,
        say: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """A round comes at the latest after `every_s` while there are jobs; with `drain` it is over
        when there are none. Before `min_run_s` nobody is stopped or moved. Jobs that are over
        are forgotten after `keep_s`, and all but `keep_jobs` of them. Agents are born in `cradle`,
        if they can be. `say` is told what happens, in one line each.
        """
        self.store, self.cluster, self.every_s, self.drain = store, cluster, every_s, drain
        self.min_run_s, self._keep = min_run_s, (keep_s, keep_jobs)
        self._done: list[int] = []  # jobs that are over and not put away yet
        self._active: set[int] = set()  # jobs about which something is to be done
        self._turn: Iterator[int] = iter(())
        self._put_away_s = self._purge_s = self._list_s = -math.inf
        self._overview = Overview(store)
        self._settled = False  # whether a job has since the last look at all
        self.stopped = False
        """Set it to have `wait` return False; jobs go on."""
        self._say = say
        self._devices = device_names(cluster, real_gpus)
        self._has = dict(enumerate(cluster.gpus.tolist()))
        self._pool = Calls()
        self._means = Means(self._pool, self._env, cradle)
        self._jobs: dict[int, LiveJob] = {}
        self._aside: dict[int, Aside] = {}
        self._said: dict[int, str] = {}
        self._over: dict[int, Ended] = {}
        self._users: dict[str, int] = {}
        self._speeds = Speeds(store.root / SPEEDS, say)
        self._known: set[int] = set()
        self._seen_ns, self._changed_s, self._listed_s = -1, -math.inf, -math.inf
        self._began_s, self._clock_s = max(0.0, time() - store.origin), monotonic()
        self._round_s = -math.inf
        self._began_s = max(self._began_s, self._latest_s())
        self._news = self._scan()

    @property
    def now_s(self) -> float:
        """Seconds since the state directory was made.

        It never runs backwards, nor is it earlier than what is written down already: a clock that
        was set back between two daemons takes no service from anybody.
        """
        return self._began_s + monotonic() - self._clock_s

    @property
    def jobs(self) -> list[LiveJob]:
        """Those that are not over, in order of submission."""
        return sorted(self._jobs.values(), key=lambda job: (job.submit_s, job.uid))

    def observe(self) -> Snapshot:
        """What is the case now, speed curves as far as they can be known from what was seen."""
        jobs = self.jobs
        for job in jobs:
            self._users.setdefault(job.request.user, len(self._users))
        snapshot = snapshot_of(
            self.cluster, jobs, self.now_s, self._users, self._speeds.number, self.min_run_s
        )
        by_nodes = not jobs or any(job.request.kind != "servers" for job in jobs)
        return self._speeds.see(snapshot, by_nodes=by_nodes)

    def apply(self, plan: Plan) -> None:
        """Write down what every job shall hold; `wait` brings it about."""
        now_s, decision = self.now_s, plan.decision
        wanted = {int(decision.uid[k]): decision.share(k) for k in plan.job.tolist()}
        wanted = {
            uid: share
            for uid, share in wanted.items()
            if (job := self._jobs.get(uid)) and not job.cancelled and self._may_change(job, share)
        }
        # Jobs may exchange seats: first it is noted who gives up what.
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

    def remark(self, plan: Plan, by: str) -> None:
        """Have the queue say of the jobs that a plan stops who did so, and for whom."""
        decision, gains = plan.decision, dict[int, set[int]]()
        for action in plan:
            for node, *_ in getattr(action, "share", ()):
                gains.setdefault(node, set()).add(action.uid)
        for k, action in zip(plan.job.tolist(), plan, strict=True):
            job = self._jobs.get(action.uid)
            if not isinstance(action, Stop) or job is None or job.held.seats:
                continue
            nodes = {seat.node for seat in job.held.leaving.values()}
            whom = sorted({uid for node in nodes for uid in gains.get(node, ())})
            words = [f"stopped at {strftime('%H:%M')} by {by}"]
            words += [f"for job {', '.join(map(str, whom))}"] * bool(whom)
            why = f": {decision.reasons[k]}" if k in decision.reasons else ""
            job.held.stopped = " ".join(words) + why
            try:
                self.store.keep(job.uid, job.held)
            except OSError as error:
                self._say_once(job.uid, f"{error.strerror or error}; tried again")

    def wait(self, wake_s: float) -> bool:
        """Until something happens that calls for a decision, or `wake_s`; False when it is over."""
        while True:
            if self._push():
                self._news = True
            if self._settled:
                self._settled = False
                self.observe()  # what a job does from now on tells how fast it is with what it has
            self._put_away(BATCH)
            now_s = self.now_s
            if self.stopped or (self.drain and not self._jobs and not self._news):
                return False
            due = bool(self._jobs) and now_s >= self._round_s + self.every_s
            if self._news or due or now_s >= wake_s:
                self._news, self._round_s = False, now_s
                return True
            sleep(TICK_S)

    def listing(self, uid: int) -> Listing:
        """What is known of a job when it arrives."""
        request = self.store.request(uid)
        return Listing(
            job_id=str(uid),
            user=request.user,
            num_gpus=request.workers * max(1, request.gpus_per_worker),  # as in a trace
            submit_s=self.store.submit_s(request),
            estimate_s=np.nan if request.estimate_s is None else request.estimate_s,
            model=request.model,
            gpus_per_worker=request.gpus_per_worker,
            min_workers=request.min_workers,
            max_workers=request.max_workers,
            num_servers=request.servers,
            min_servers=request.min_servers,
            max_servers=request.max_servers,
            cpus_per_worker=request.cpus_per_worker,
            memory_gb_per_worker=request.memory_gb_per_worker,
        )

    def measured(self, uid: int) -> Measured:
        """What an elastic job did and what its changes cost; a script keeps that to itself."""
        try:
            request, held = self.store.request(uid), self.store.held(uid)
            ended = self._over.get(uid) or self.store.ended(uid)
        except (RotaError, OSError):  # it could not be read in the first place
            return Measured()
        if request.kind == "plain":
            return Measured()
        speed = held.speed(request.workers, request.servers)
        whole = ended is not None and ended.state == "done"
        samples = held.total if whole and held.total else held.samples
        return Measured(
            work_s=samples / speed if speed and samples else np.nan,
            restart_s=held.starting_s / held.starts if held.starts else np.nan,
            resize_s=held.paused_s / held.changes if held.changes else np.nan,
        )

    def ending(self, uid: int) -> tuple[int, float]:
        """How and when a job ended, or LookupError."""
        ended = self._over.get(uid) or self.store.ended(uid)
        if ended is None:
            raise LookupError(f"job {uid} has not ended")
        return _ENDINGS[ended.state], ended.time_s

    def close(self) -> None:
        """Leave the jobs to themselves."""
        while self._done and self._put_away(BATCH):
            pass
        self._speeds.keep()
        self._pool.close()

    def _push(self) -> bool:
        """Bring every job a bit further; True if something calls for a decision."""
        news = self._scan()
        self._hear()
        for uid in sorted(self._active):
            job = self._jobs[uid]
            before, trouble, settled_s = len(job.held.seats), job.trouble, job.settled_s
            try:
                job.step(self._blocked, self.now_s)
            except OSError as error:
                job.trouble = f"{error.strerror or error}; tried again"
            if job.trouble and job.trouble != trouble:
                self._say(f"job {uid}: {job.trouble}")
            self._settled |= job.settled and job.settled_s != settled_s
            if not job.busy or job.ended:
                self._active.discard(uid)
            if job.ended is not None:
                del self._jobs[uid]
                self._over[uid] = job.ended
                self._done.append(uid)
                why = f": {job.ended.error}" if job.ended.error else ""
                self._say(f"job {uid} {job.ended.state}{why}")
            news |= job.ended is not None or (before > 0 and not job.held.seats)
        return self._push_aside() or news

    def _push_aside(self) -> bool:
        """See to the jobs that were set aside; True if that makes seats free."""
        news = False
        for uid, aside in list(self._aside.items()):
            was_clear = aside.clear
            try:
                said = aside.step(self.now_s, cancelled=self.store.cancelled(uid))
            except OSError as error:
                said = f"{error.strerror or error}; tried again"
            if said:
                self._say_once(uid, said)
            if aside.ended is not None:
                del self._aside[uid]
                self._over[uid] = aside.ended
                self._done.append(uid)
                self._say(f"job {uid} cancelled")
            news |= aside.clear and not was_clear
        return news

    def _say_once(self, uid: int, text: str) -> None:
        """Say of a job what was not said of it last."""
        if self._said.get(uid) != text:
            self._said[uid] = text
            self._say(f"job {uid}: {text}")

    def _hear(self) -> None:
        """Take note of who is to be cancelled.

        One folder says so; should somebody have been killed before that was written, the jobs are
        looked at in turn, a few each time.
        """
        asked: set[int] = set()
        with suppress(OSError):
            for name in os.listdir(self.store.asked):
                (self.store.asked / name).unlink(missing_ok=True)
                if name.isdecimal():
                    asked.add(int(name))
        few = len(self._jobs) // TURN + 1
        looked = list(islice(self._turn, few))
        if len(looked) < few:
            self._turn = iter(list(self._jobs))
        for uid in (*asked, *looked):
            job = self._jobs.get(uid)
            if job and not job.cancelled and self.store.cancelled(uid):
                job.cancelled = True
                self._active.add(uid)

    def _put_away(self, most: int) -> bool:
        """Move jobs that are over into the history, and forget the oldest; True if it could."""
        now = monotonic()
        if now < self._put_away_s:
            return False
        try:
            if self._done:
                batch = [uid for uid in self._done[:most] if self.store.folder(uid).exists()]
                put_away(self.store, batch)
                for uid in self._done[:most]:
                    self._over.pop(uid, None)
                    self._known.discard(uid)
                del self._done[:most]
            elif now >= self._list_s:
                self._list_s = now + LISTED_S
                self._overview.note([uid for uid, job in self._jobs.items() if job.fresh])
            elif now >= self._purge_s:
                self._purge_s = now + PURGE_S
                keep_s, keep_jobs = self._keep
                forget(self.store, self.now_s - keep_s, keep_jobs)
        except DamagedError as error:
            self._say(f"{error} It is put aside: {put_aside(self.store.history.path)}")
        except OSError as error:
            self._put_away_s = now + PURGE_S / 10
            self._say_once(0, f"jobs that are over cannot be put away: {error}; tried again")
            return False
        return True

    def _latest_s(self) -> float:
        """The latest end that is written down."""
        try:
            return self.store.history.last()[1]
        except (RotaError, OSError):
            return 0.0

    def _scan(self) -> bool:
        """Take in what was submitted since; True if something was."""
        changed_ns, now = self.store.jobs.stat().st_mtime_ns, monotonic()
        if changed_ns != self._seen_ns:
            self._seen_ns, self._changed_s = changed_ns, now
        elif self._listed_s >= self._changed_s + COARSE_S or now < self._listed_s + LIST_S:
            return False
        self._listed_s = now
        new = [uid for uid in self.store.uids() if uid not in self._known]
        for uid in new:
            self._known.add(uid)
            try:
                if self.store.ended(uid) is None:
                    self._admit(uid)
                else:
                    self._done.append(uid)
            except RotaError as error:
                self._set_aside(uid, str(error))
            except OSError as error:  # such as too many open files
                self._known.discard(uid)
                self._say_once(uid, f"{error.strerror or error}; tried again")
        return any(uid in self._known for uid in new)

    def _set_aside(self, uid: int, why: str) -> None:
        self._aside[uid] = Aside(self.store, uid, why, self._pool)
        self._say(f"job {uid} is set aside: {why}")

    def _admit(self, uid: int) -> None:
        try:
            request = self.store.request(uid)
        except RotaError as error:
            if self.store.run_folders(uid):
                raise
            self._refuse(uid, str(error))
            return
        job = LiveJob(self.store, uid, self._means)
        self._began_s += max(0.0, job.held.latest_s() - self.now_s)
        job.submit_s = min(job.submit_s, self.now_s)
        each = max(request.gpus_per_worker, 1)
        room = sum(gpus // each for gpus in self._has.values())
        if request.gpus_per_worker and request.workers > room and not job.held.seats:
            self._refuse(
                uid,
                f"it asks for {request.workers} workers with {each} GPUs each, and "
                f"{self.cluster.describe()} have room for {room}",
            )
            return
        if trouble := self._misplaced(job):
            self._say(f"job {uid} is stopped: it was on GPUs {trouble}")
            job.take((), (), {}, self.now_s)
        self._jobs[uid] = job
        if job.busy:
            self._active.add(uid)

    def _misplaced(self, job: LiveJob) -> str:
        """What is wrong with the seats of a job that was there before, if anything is."""
        seats = list(job.held.seats.values())
        if any(s.node not in self._has or max(s.gpus, default=-1) >= self._has[s.node]
               for s in seats):  # fmt: skip
            return "that this cluster does not have"
        others = [s for other in self._jobs.values() for s in other.held.seats.values()]
        for k, seat in enumerate(seats):
            if any(seat.meets(other) for other in (*seats[:k], *others)):
                return "that another one has"
        return ""

    def _refuse(self, uid: int, why: str) -> None:
        ended = Ended("failed", self.now_s, why)
        self.store.end(uid, ended)
        self._over[uid] = ended
        self._done.append(uid)
        self._say(f"job {uid} failed: {why}")

    def _blocked(self, job: LiveJob, seat: Seat) -> bool:
        """Whether somebody who is to leave a seat still sits there."""
        if any(not aside.clear for aside in self._aside.values()):
            return True
        return any(
            left.meets(seat)
            for other in self._jobs.values()
            for left in other.held.leaving.values()
            if other is not job or other.request.kind != "plain"
        )

    def _env(self, seat: Seat) -> dict[str, str]:
        names = self._devices[seat.node]
        return {
            "ROTA_NODE": self.cluster.names[seat.node],
            "ROTA_GPUS": ",".join(map(str, seat.gpus)),
            "CUDA_VISIBLE_DEVICES": ",".join(names[gpu] for gpu in seat.gpus) if names else "",
        }
