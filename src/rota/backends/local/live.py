"""One job on this machine: what it shall hold, and its processes on their way there."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final

from rota.backends.local.held import STEADY_S, Ended
from rota.backends.local.seats import reseat, share_of
from rota.elastic.job import AGENT_KILLED, LAUNCH_S, ElasticJob
from rota.elastic.parking import ENV_PARK, ENV_RESUME, parked
from rota.elastic.protocol import AGENT_FILE, ENDED, JOB_FILE, RESULT_FILE, JobSpec, Member
from rota.elastic.run_processes import end_processes
from rota.errors import DamagedError, JobError, RotaError
from rota.files import read_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from concurrent.futures import Future
    from pathlib import Path

    from rota.backends.local.calls import Calls
    from rota.backends.local.seats import Seat
    from rota.backends.local.store import Store
    from rota.core.plan import Share
    from rota.elastic.agent_forkserver import AgentForkServer
    from rota.elastic.protocol import Status

LOOK_S: Final = 0.25
"""Between two looks at a running job."""
AHEAD_S: Final = 2.0
"""So long a job that trains is taken to go on as it did."""
MOST_HEALS: Final = 3
"""So many times in a row a lost worker is replaced; then the job has failed."""
MOST_KILLS: Final = 3
"""So many times in a row a job is started again because its agent, not its script, was lost."""
LONG_S: Final = 60.0
"""A run that took so long has come further, whether it tells or not."""
FORCE_S: Final = 30.0
"""After its grace a job has so long to end; then its processes are killed, agent and all."""
NEVER: Final = "never"
"""The state of a run that never began."""
_MODES: Final = {"plain": "plain", "elastic": "allreduce", "servers": "servers"}


@dataclass(frozen=True)
class _Outcome:
    """How a run ended."""

    state: str
    error: str
    time_s: float
    ours: bool
    """Whether it is known from its agent, which was there."""


@dataclass(frozen=True)
class Means:
    """What the jobs of a backend share."""

    pool: Calls
    """Speaks with agents, one call per job at a time."""
    env: Callable[[Seat], dict[str, str]]
    """What a member in a seat is told by its environment."""
    fork_server: AgentForkServer | None = None


class LiveJob:
    """A job that is not over."""

    def __init__(self, store: Store, uid: int, means: Means) -> None:
        self.store, self.uid, self._means = store, uid, means
        self.request, self.held = store.load(uid)
        self.submit_s = store.submit_s(self.request)
        """Never later than its arrival, whatever the clocks say."""
        self.status: Status | None = None
        """What its agent said last."""
        self.ended: Ended | None = None
        self.record: bytes | None = None
        """What snapshots say of it while it is fresh."""
        self.cancelled = store.cancelled(uid)
        """Whether somebody has asked for its end, so that nothing else is done with it any more; to
        be set when somebody does."""
        self.settled_s = float("inf")
        """Since when it has held what it shall hold, and trained."""
        self.trouble = ""
        self._asked: frozenset[str] | None = None  # members, last time; None: not known
        self._stopping = False
        self._heals, self._healed_at = 0, 0
        self._began = 0, 0.0  # samples when it settled, and what they took
        self._call: tuple[str, Future[Any]] | None = None
        self._looked_s = -1e9
        self._launched_s: float | None = None  # on this process' clock, until it trains
        self._counted: tuple[int, float, int] | None = None  # samples, their time, group, last look
        self._heard_s = 0.0  # when `status` was told
        self._job: ElasticJob | None = None
        self._outcome: _Outcome | None = None  # of a run whose processes are not all gone yet
        self._stop_by_s = float("inf")  # on this process' clock
        if not self.held.open:
            self.held.leaving = {}  # nobody is there who could leave
        if self.held.open:
            folder = self._folder()
            self._job = ElasticJob(folder)
            if not (folder / JOB_FILE).exists():
                # The daemon was killed before it could launch it, or after it had made sure that
                # a late agent finds nothing.
                self._outcome = _Outcome(NEVER, "", 0.0, ours=False)

    @property
    def share(self) -> Share:
        """What it shall hold: (node, workers, servers), by node."""
        return share_of(self.held.seats)

    @property
    def gpus(self) -> int:
        """GPUs that it holds."""
        return sum(len(seat.gpus) for seat in self.held.seats.values())

    @property
    def fresh(self) -> bool:
        """Whether it has never been given anything."""
        return not (self.held.seats or self.held.run) and self.held.started_s is None

    @property
    def settled(self) -> bool:
        """Whether it holds what it shall hold, and trains."""
        return self.settled_s < float("inf")

    @property
    def busy(self) -> bool:
        """Whether there is anything to do about it but to wait."""
        return bool(self.held.seats or self.held.open or self._call or self.cancelled)

    def attained_gpu_s(self, now_s: float) -> float:
        """GPU-seconds that it has held."""
        return self.held.attained_gpu_s + self.gpus * max(0.0, now_s - self.held.settled_s)

    def samples(self, now_s: float) -> float:
        """Samples that it has done: as was heard, and what it makes of the time since."""
        held, status = self.held, self.status
        if status is None or not self.settled:
            return held.samples
        since_s = min(max(0.0, status.ago_s + now_s - self._heard_s), AHEAD_S)
        more = status.samples_per_s * since_s
        if not 0 <= more < float("inf"):  # one job must not mislead the others
            return held.samples
        return min(held.samples + more, held.total or float("inf"))

    # What it shall hold.

    def take(
        self, share: Share, others: Iterable[Seat], has: Mapping[int, int], now_s: float
    ) -> None:
        """Shall hold `share` from now on; written down before anything is done."""
        held = self.held
        seats, serial = reseat(
            held.seats, share, self.request.gpus_per_worker, others, has, held.serial
        )
        attained = self.attained_gpu_s(now_s)
        if held.open:
            gone = {name: seat for name, seat in held.seats.items() if name not in seats}
            held.leaving = {**held.leaving, **gone}
        if held.seats and not seats:
            held.preemptions += 1
            held.ran_s += now_s - (held.since_s or now_s)
        held.attained_gpu_s, held.settled_s = attained, now_s
        if not held.seats:
            held.since_s = now_s
            held.started_s = now_s if held.started_s is None else held.started_s
        if not seats:
            held.since_s = None
        held.seats, held.serial = seats, serial
        self.settled_s = float("inf")
        self.store.keep(self.uid, held)

    # On its way there.

    def step(self, blocked: Callable[[LiveJob, Seat], bool], now_s: float) -> None:
        """Do the next thing that is to be done, if one can be."""
        if self._call is not None:
            what, call = self._call
            if not call.done():
                return
            self._call = None
            self._heed(what, call, now_s)
        if self.ended is not None or self._call is not None:
            return
        held = self.held
        if not held.open:
            if self.cancelled:
                self._end(Ended("cancelled", now_s))
            elif held.seats and not any(blocked(self, seat) for seat in held.seats.values()):
                self._launch()
        elif self._outcome is not None:
            if monotonic() - self._looked_s >= LOOK_S:
                self._clear()
        elif monotonic() > self._stop_by_s:
            self._force("stopped", "its agent did not end it in time", now_s)
        elif monotonic() - self._looked_s >= LOOK_S:  # first, lest it is over
            self._looked_s = monotonic()
            self._do("look", ElasticJob.observe)
        elif self._must_stop(blocked):
            self._stop()
        elif not self._stopping and self._asked not in (None, names := self._ready(blocked)):
            self._asked = names
            members = self._members(names)
            self._do("resize", lambda job: job.resize(members))

    def _must_stop(self, blocked: Callable[[LiveJob, Seat], bool]) -> bool:
        if self._stopping:
            return False
        if self.cancelled or not self.held.seats:
            return True
        if self.request.kind == "plain":
            try:
                return self._launched() != frozenset(self.held.seats)
            except (DamagedError, KeyError, TypeError):
                return bool(self.held.leaving)
        if self._asked is None:
            return False  # its agent has not said yet who is there
        return not self._ready(blocked)

    def _launched(self) -> frozenset[str]:
        """The members of a plain job, which are there from its beginning to its end."""
        if self._asked is None:
            members = (read_file(self._folder() / JOB_FILE) or {}).get("members", ())
            self._asked = frozenset(one["name"] for one in members)
        return self._asked

    def _ready(self, blocked: Callable[[LiveJob, Seat], bool]) -> frozenset[str]:
        """Who can be there now; empty if nobody who could train by themselves."""
        seats, there = self.held.seats, self._asked or ()
        names = [name for name in seats if name in there or not blocked(self, seats[name])]
        kinds = {seats[name].kind for name in names}
        enough = kinds >= ({"worker", "server"} if self.request.kind == "servers" else {"worker"})
        return frozenset(names if enough else ())

    def _launch(self) -> None:
        held, request = self.held, self.request
        held.run, held.open = held.run + 1, True
        self.store.keep(self.uid, held)
        names = frozenset(held.seats)
        env, resume = {"ROTA_JOB": str(self.uid)}, {}
        if request.kind != "plain":
            env[ENV_PARK] = str(self.store.park_folder(self.uid, held.run))
            if held.parked:
                resume[ENV_RESUME] = str(self.store.park_folder(self.uid, held.parked))
        spec = JobSpec(
            command=request.command,
            members=self._members(names, resume),
            mode=_MODES[request.kind],  # type: ignore[arg-type]
            env={**request.env, **env},
            cwd=request.cwd,
            threads=request.threads,
            preload=request.preload,
            park_every_s=request.park_every_s,
        )
        self._asked, self._stopping, self.status = names, False, None
        self._launched_s = monotonic()
        folder = self._folder()
        self._job = ElasticJob(folder)
        launched = self._means.pool.submit(ElasticJob.launch, folder, spec, self._means.fork_server)
        self._call = "launch", launched

    def _members(
        self, names: Iterable[str], env: Mapping[str, str] | None = None
    ) -> tuple[Member, ...]:
        chosen = set(names)
        return tuple(
            Member(name, seat.kind, {**self._means.env(seat), **(env or {})})
            for name, seat in self.held.seats.items()
            if name in chosen
        )

    def _stop(self) -> None:
        self._stopping = True
        self._stop_by_s = min(self._stop_by_s, monotonic() + self.request.grace_s + FORCE_S)
        self._do("stop", lambda job: job.stop(self.request.grace_s))

    def _do(self, what: str, call: Callable[[ElasticJob], Any]) -> None:
        assert self._job is not None
        self._call = (what, self._means.pool.submit(call, self._job))

    # What came of it.

    def _heed(self, what: str, call: Future[Any], now_s: float) -> None:
        """Take note of an answer, or of its failure."""
        assert self._job is not None
        if what == "clear":
            self._heed_clear(call)
            return
        try:
            status: Status = call.result()
        except DamagedError as error:
            self._note(f"{error} Nobody can speak with its agent")
            if self._stopping and what == "stop":
                self._force("stopped", f"{error} It was ended by force", now_s)
            return
        except JobError as error:
            if what == "launch":
                self._finish(_Outcome("failed", f"{error}", now_s, ours=False))
            elif what == "look":
                self._note(f"{error}")
            else:  # to be tried again, unless it is over
                self._asked, self._stopping, self._looked_s = None, False, -1e9
            return
        except (RotaError, OSError, ValueError, TypeError, KeyError) as error:
            if what == "launch":
                self._finish(_Outcome("failed", str(error), now_s, ours=False))
            else:
                self._note(f"its agent cannot be asked: {error!r}")
                self._asked, self._stopping = None, False
            return
        if what != "look":
            return
        if status.error == AGENT_KILLED and self._may_come():
            return
        if status.state in ENDED:
            end_s = self._end_time(now_s)
            self._finish(_Outcome(status.state, status.error, end_s, ours=True))
            return
        self.status, self._heard_s = status, now_s
        self._note("")
        if self._asked is None and self.request.kind != "plain":
            here = {*status.active, *status.waiting}
            self._asked = frozenset(here & {*self.held.seats, *self.held.leaving})
        self._note_start(status)
        self._count(status)
        if status.samples:
            self.held.samples, self.held.total = status.samples, status.total
        self._let_go(status)
        self._heal(status)
        there = status.reached == status.target and status.state == "running"
        trains = self.request.kind == "plain" or status.samples_per_s > 0.0
        if not (there and trains) or self._asked != frozenset(self.held.seats):
            self.settled_s = float("inf")
        elif not self.settled:
            self.settled_s, self._began = now_s, (status.samples, status.busy_s)
        self._measure(status, now_s)

    def _note_start(self, status: Status) -> None:
        """Once it trains: how long did that take from its launch?"""
        if self._launched_s is not None and status.busy_s > 0.0:
            self.held.starts += 1
            self.held.starting_s += max(0.0, monotonic() - self._launched_s - status.busy_s)
            self._launched_s = None
            self.store.keep(self.uid, self.held)

    def _may_come(self) -> bool:
        """Whether an agent that a former daemon has launched may still be on its way."""
        folder = self._folder()
        if (folder / AGENT_FILE).exists():
            return False
        try:
            return time() - (folder / JOB_FILE).stat().st_mtime < LAUNCH_S
        except OSError:
            return False

    def _let_go(self, status: Status) -> None:
        """The seats of members that have gone are free."""
        there = {*status.active, *status.waiting, *status.pids}
        gone = [name for name in self.held.leaving if name not in there]
        if gone and self.request.kind != "plain":
            for name in gone:
                del self.held.leaving[name]
            self.store.keep(self.uid, self.held)

    def _heal(self, status: Status) -> None:
        """Have lost workers replaced, in the seats that are the job's anyway."""
        lost = [name for name in self.held.seats if name in status.refused]
        if not lost or self.request.kind == "plain" or self._stopping:
            return
        if status.step > self._healed_at:
            self._heals, self._healed_at = 0, status.step
        self._heals += 1
        self.trouble = f"{lost[0]} was lost: {status.refused[lost[0]]}"
        if self._heals > MOST_HEALS:
            self._stop()
            return
        seats = self.held.seats
        for name in lost:
            seats[f"{name[0]}{self.held.serial}"] = seats.pop(name)
            self.held.serial += 1
        self.store.keep(self.uid, self.held)

    def _count(self, status: Status) -> None:
        """How fast it is with as many workers as it has, as long as nothing changes."""
        before, self._counted = self._counted, (status.samples, status.busy_s, status.generation)
        if before is None or not self.settled or status.generation != before[2]:
            return
        seats = list(self.held.seats.values())
        workers = sum(seat.kind == "worker" for seat in seats)
        tally = self.held.seen.setdefault(f"{workers}+{len(seats) - workers}", [0.0, 0.0])
        tally[0] += max(0, status.samples - before[0])
        tally[1] += max(0.0, status.busy_s - before[1])

    def _measure(self, status: Status, now_s: float) -> None:
        """Once it has trained steadily for a while: what is its unit of speed?

        What it has done until then has had no unit: its speed is seen from here on.
        """
        if self.held.rate or not self.settled:
            return
        done, span_s = status.samples - self._began[0], status.busy_s - self._began[1]
        workers = sum(seat.kind == "worker" for seat in self.held.seats.values())
        if span_s >= STEADY_S and done:
            self.held.rate = done / span_s / workers * self.request.workers
            self.settled_s = now_s
            self.store.keep(self.uid, self.held)

    # The end of a run.

    def _finish(self, outcome: _Outcome) -> None:
        """A run is over; its seats are its own until nothing of it is left there."""
        self._outcome = outcome
        self._clear()

    def _force(self, state: str, error: str, now_s: float) -> None:
        """End a run whose agent does not."""
        self.trouble = error
        self._finish(_Outcome(state, "", now_s, ours=True))

    def _clear(self) -> None:
        self._looked_s = monotonic()
        self._call = "clear", self._means.pool.submit(end_processes, self._folder())

    def _heed_clear(self, call: Future[list[int]]) -> None:
        assert self._outcome is not None
        try:
            left = call.result()
        except OSError as error:
            self._note(f"its processes cannot be looked for: {error}")
            return
        if left:
            numbers = ", ".join(map(str, left))
            self._note(f"processes {numbers} cannot be ended: its seats stay taken")
            return
        self._note("")
        outcome, self._outcome = self._outcome, None
        self._over(outcome.state, outcome.error, outcome.time_s, ours=outcome.ours)

    def _note(self, text: str) -> None:
        """What the queue shall say of it; once, and until that is no longer so."""
        if text != self.held.note:
            self.held.note, self.trouble = text, text or self.trouble
            self.store.keep(self.uid, self.held)

    def _over(self, state: str, error: str, time_s: float, *, ours: bool) -> None:
        """A run is over; is the job?"""
        held, wanted_stop = self.held, self._stopping
        healing = self._heals > MOST_HEALS
        killed = not ours or error == AGENT_KILLED
        if self.status is not None:  # the last that it said while it ran
            held.changes += self.status.changes
            held.paused_s += self.status.paused_s
        self.status = self._launched_s = self._counted = None
        held.open, held.leaving, self._job, self._stopping = False, {}, None, False
        self._asked, self.settled_s, self._stop_by_s = None, float("inf"), float("inf")
        if state == NEVER:
            self.store.keep(self.uid, held)
        elif self.cancelled and state != "done":
            self._end(Ended("cancelled", time_s))
        elif state == "done":
            self._end(Ended("done", time_s))
        elif state == "stopped" and wanted_stop and not healing:
            self._note_parked()
            self.store.keep(self.uid, held)  # waits, or is started again elsewhere
        else:
            self._adopt_state()
            held.failures += 1
            spent = self._count_failure(killed, time_s)
            self.trouble = self.trouble if healing else error or "it was stopped by somebody else"
            if spent:
                self._end(Ended("failed", time_s, self.trouble))
                return
            self._heals = 0
            self.take((), (), {}, time_s)

    def _count_failure(self, killed: bool, time_s: float) -> bool:
        """Whether that was one too many: of its own, or lost agents in a row without progress."""
        held = self.held
        if not killed:
            held.faults += 1
            return held.faults > self.request.retries
        ran_s = time_s - (time_s if held.since_s is None else held.since_s)
        came_further = held.samples > held.lost_at or ran_s >= LONG_S
        held.losses = 1 if came_further else held.losses + 1
        held.lost_at = held.samples
        return held.losses > max(MOST_KILLS, self.request.retries)

    def _note_parked(self) -> None:
        """Did the run leave the state of its training behind?"""
        if self.request.kind != "plain" and not self._adopt_state() and self.held.samples:
            self.trouble = "it was stopped, but left no state behind: it begins again" + (
                " where it was stopped before" if self.held.parked else ""
            )

    def _adopt_state(self) -> bool:
        """Let the next run go on from the last state that this one has kept, if there is any."""
        held = self.held
        runs = held.run, held.parked
        new, old = (self.store.park_folder(self.uid, run) for run in runs)
        if not parked(new):
            shutil.rmtree(new, ignore_errors=True)
            return False
        if new != old:
            held.parked = held.run
            self.store.keep(self.uid, held)  # before the former state goes
            shutil.rmtree(old, ignore_errors=True)
        return True

    def _end(self, ended: Ended) -> None:
        now_s = ended.time_s
        self.held.attained_gpu_s, self.held.settled_s = self.attained_gpu_s(now_s), now_s
        self.held.seats, self.held.leaving = {}, {}
        self.store.keep(self.uid, self.held)
        self.store.end(self.uid, ended)
        for run in {self.held.run, self.held.parked}:
            shutil.rmtree(self.store.park_folder(self.uid, run), ignore_errors=True)
        self.ended = ended

    def _end_time(self, now_s: float) -> float:
        """When the last run ended, even if nobody looked then."""
        try:
            written = (self._folder() / RESULT_FILE).stat().st_mtime - self.store.origin
        except OSError:
            return now_s
        return min(max(written, self.held.since_s or 0.0), now_s)

    def _folder(self) -> Path:
        return self.store.run_folder(self.uid, self.held.run)
