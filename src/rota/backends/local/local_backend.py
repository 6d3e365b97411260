"""One machine as a cluster that schedules real processes; a Backend."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from rota.backends.local.housekeeping import Housekeeping
from rota.backends.local.job_listing import listing_of, measured_of
from rota.backends.local.job_notes import starting_reasons, stop_notes
from rota.backends.local.live_job import LOOK_S
from rota.backends.local.live_snapshot import snapshot_of
from rota.backends.local.local_driver import LocalDriver
from rota.backends.local.seating import stayers
from rota.backends.local.state_dir import SPEEDS
from rota.backends.reconciler import Intent, Reconciler, Seen, Traits
from rota.backends.waits_file import WAITS, WaitsFile
from rota.backends.wakeups import Wakeups
from rota.core.layout import FINISH, GIVE_UP, KILL
from rota.errors import RotaError
from rota.run.job_facts import Measured
from rota.run.speeds import Speeds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rota.backends.local.aside import AsideJobs
    from rota.backends.local.live_job import LiveJob
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
MOST_TURNS: Final = 8
"""Times in a row that orders may follow from what came of others, before time has to pass."""
_ENDINGS: Final = {"done": FINISH, "failed": GIVE_UP, "cancelled": KILL}


class LocalBackend:
    """Runs the jobs of a state directory on the nodes of `cluster`, all of them this machine.

    What a job shall hold is written in its own file. A reconciler compares that with what the
    driver says of the jobs about which something is to be done, and gives the driver orders.
    """

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
        self._say = say
        self._wakeups = Wakeups((store.jobs, store.asked))
        self._house = Housekeeping(store, keep_s, keep_jobs)
        self.driver = LocalDriver(
            store, cluster, real_gpus=real_gpus, fork_server=fork_server, say=say,
            wake=self._wakeups.wake, over=self._house.add,
        )  # fmt: skip
        # A start takes as long as it takes for processes on its GPUs to end.
        self._mind = Reconciler(start_s=math.inf)
        self._users: dict[str, int] = {}
        self._speeds, self._waits = Speeds(store.root / SPEEDS, say, laws), WaitsFile(store.root)
        self._round_s, self._news = -math.inf, self._scan()

    @property
    def now_s(self) -> float:
        """Seconds since the state directory was made."""
        return self.driver.clock.now_s

    @property
    def _jobs(self) -> dict[int, LiveJob]:
        return self.driver.jobs

    @property
    def _aside(self) -> AsideJobs:
        return self.driver.aside

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
                self._jobs[uid].take(share, others, self.driver.has, now_s)
                self.driver.active.add(uid)
            except (RotaError, OSError) as error:
                self._say(f"job {uid}: {error}; tried again in the next round")
            taken[uid] = self._jobs[uid].held.seats
        self._news |= self._push()

    def _may_change(self, job: LiveJob, share: Share) -> bool:
        """Refuse to touch a running job that would have to begin again."""
        self._know(job)
        may = share == job.share or self._mind.wanting(job.uid, share) is not None
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
                self.driver.say_once(uid, f"{error.strerror or error}; tried again")

    def wait(self, wake_s: float) -> bool:
        """Until something happens that calls for a decision, or `wake_s`; False when it is over."""
        while True:
            if self._push():
                self._news = True
            if self.driver.settled:
                self.driver.settled = False
                self.observe()  # what a job does from now on tells how fast it is with what it has
            self._clean_up()
            now_s = self.now_s
            if self.stopped or (self.drain and self._drained() and not self._news):
                return False
            due = bool(self._jobs) and now_s >= self._round_s + self.every_s
            if self._news or due or now_s >= wake_s:
                self._news, self._round_s = False, now_s
                return True
            busy = self.driver.active or not self._aside.gone
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
        self.driver.cancel(uid)

    def note_waits(self, reasons: Mapping[int, WaitReason]) -> None:
        """Have `rota queue` say why jobs wait; starting jobs are added."""
        try:
            self._waits.write({**reasons, **starting_reasons(self._jobs.values())})
        except OSError as error:
            self.driver.say_once(0, f"{WAITS} cannot be written: {error.strerror}; tried again")

    def stop(self) -> None:
        """Have `wait` return False; jobs go on."""
        self.stopped = True
        self._wakeups.wake()

    def close(self) -> None:
        """Leave the jobs to themselves."""
        self._house.finish(self.now_s, self._say)
        self._speeds.keep()
        self.driver.close()

    def _scan(self) -> bool:
        """Take in what was submitted since; True if something was."""
        return self.driver.scan()

    def _push(self) -> bool:
        """Bring every job a bit further; True if something calls for a decision."""
        news = self._scan() | self.driver.hear()
        for _ in range(MOST_TURNS):
            if not self._give_orders():
                break
        news, self.driver.news = news | self.driver.news, False
        return news

    def _give_orders(self) -> bool:
        """Have done what is to be done for each job; False if that is nothing."""
        driver, mind = self.driver, self._mind
        look = mind.begin_look()
        sights = {int(one.name): one for one in driver.observe(driver.active).jobs}
        for uid in [uid for uid in mind if uid not in sights]:
            mind.forget(uid)
        for uid in sights:
            self._know(driver.jobs[uid])
        seen = {uid: Seen(one.phase, driver.share(one.place)) for uid, one in sights.items()}
        for intent in mind.saw(look, seen, driver.free()):
            mind.take(intent)
        orders = [order for order, _ in mind.orders(self.now_s)]
        for order in orders:
            place = driver.place(order.share)
            mind.done(order, driver.carry_out(order.action, sights[order.uid], place).outcome)
        return bool(orders)

    def _know(self, job: LiveJob) -> None:
        """Have the reconciler go by what is written down of a job."""
        able = job.request.resumes or not job.share  # what it is to lose anyway, it may lose
        traits = Traits(
            gpus_per_worker=job.request.gpus_per_worker, stoppable=able,
            in_place=job.request.kind != "plain",
        )  # fmt: skip
        intent = Intent(job.uid, job.share)
        self._mind.add(intent, traits)
        if (self._mind.intent(job.uid).share or ()) != job.share:
            self._mind.take(intent)

    def _drained(self) -> bool:
        """Whether all jobs are over, or on hold or set aside with none of their processes left."""
        idle = all(job.on_hold and not job.busy for job in self._jobs.values())
        return idle and self._aside.drained(self.store)

    def _clean_up(self) -> None:
        def fresh() -> list[int]:
            return [uid for uid, job in self._jobs.items() if job.fresh]

        for uid in self._house.work(self.now_s, fresh, self._say):
            self.driver.forget(uid)
