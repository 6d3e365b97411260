"""One job on this machine: what it shall hold, and its processes on their way there."""

from __future__ import annotations

from contextlib import suppress
from time import monotonic, strftime
from typing import TYPE_CHECKING, Any, Final

from rota.backends.local.agent_calls import AgentCalls
from rota.backends.local.healing import Healing
from rota.backends.local.held import Ended
from rota.backends.local.next_step import Situation, next_step
from rota.backends.local.orders import Orders
from rota.backends.local.run_end import (
    NEVER,
    RunEnd,
    adopt_state,
    count_failure,
    drop_states,
    end_time,
    may_still_come,
    no_state,
)
from rota.backends.local.run_spec import job_spec, launched_members, members_of
from rota.backends.local.seating import reseat, share_of
from rota.backends.local.speed_meter import SpeedMeter
from rota.backends.local.start_hint import start_hint
from rota.elastic.job import AGENT_KILLED
from rota.elastic.protocol import ENDED, JOB_FILE
from rota.errors import DamagedError, JobError, RotaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from concurrent.futures import Future
    from pathlib import Path

    from rota.backends.local.agent_calls import Asked, Means
    from rota.backends.local.seating import Seat
    from rota.backends.local.state_dir import StateDir
    from rota.core.plan import Share
    from rota.elastic.protocol import Status

LOOK_S: Final = 0.25
"""Seconds between two looks at a running job."""
FORCE_S: Final = 30.0
"""Seconds after its grace period in which an agent may end its run; then both are killed."""


class LiveJob:
    """A job that is not over."""

    def __init__(self, store: StateDir, uid: int, means: Means) -> None:
        self.store, self.uid, self._means = store, uid, means
        self.request, self.held = store.load(uid)
        self.submit_s = store.submit_s(self.request)
        """Never later than its arrival, whatever the clocks say."""
        self.ended: Ended | None = None
        self.record: bytes | None = None
        """Its row in snapshots while it is fresh."""
        self.cancelled = store.cancelled(uid)
        """Its user asked for its end: nothing else is done with it any more."""
        self.on_hold = False
        """Its user has put it on hold: no policy sees it. The backend sets it."""
        self.trouble = ""
        self.meter, self.orders = SpeedMeter(self.request, self.held), Orders(self.held)
        self._agent = AgentCalls(means)
        self._members: frozenset[str] | None = None  # that its agent was asked for; None: unknown
        self._healing = Healing()
        self._stopping, self._looked_s = False, -1e9
        self._run_end: RunEnd | None = None  # of a run whose processes are not all gone yet
        self._stop_by_s = float("inf")  # on this process' clock
        if not self.held.open:
            self.held.leaving = {}  # without a run no member is there that could leave
        elif not (self._folder() / JOB_FILE).exists():
            # The daemon was killed before the launch, or has made sure that no late agent starts
            self._run_end = RunEnd(NEVER, "", 0.0, told=False)

    @property
    def status(self) -> Status | None:
        """What its agent said last."""
        return self.meter.status

    @property
    def share(self) -> Share:
        """What it shall hold: (node, workers, servers), by node."""
        return share_of(self.held.seats)

    @property
    def fresh(self) -> bool:
        """Whether it has never been given anything."""
        return not (self.held.seats or self.held.run) and self.held.started_s is None

    @property
    def busy(self) -> bool:
        """Whether there is anything to do about it but to wait."""
        held, told = self.held, self.orders.told
        return bool(held.seats or held.open or told or self._agent.pending or self.cancelled)

    def leaves(self, seat: Seat, other: LiveJob) -> bool:
        """Whether processes that it is to lose may still be on a seat that `other` gets."""
        if self is other and self.request.kind == "plain":  # which waits for its old processes
            return False
        return any(left.meets(seat) for left in self.held.leaving.values())

    # What it shall hold.

    def take(
        self, share: Share, others: Iterable[Seat], has: Mapping[int, int], now_s: float
    ) -> None:
        """Shall hold `share` from now on; written down before anything is done."""
        held, each = self.held, self.request.gpus_per_worker
        seats, serial = reseat(held.seats, share, each, others, has, held.serial)
        with self.store.changing(self.uid, self.held):
            held.attained_gpu_s, held.settled_s = held.attained_by(now_s), now_s
            may_run, hold = self.orders.may_run, self.on_hold
            held.change_seats(seats, serial, now_s, may_run=may_run, preempted=not hold)
        self.meter.unsettle()

    # On its way there.

    def step(self, blocked: Callable[[LiveJob, Seat], bool], now_s: float) -> None:
        """Do the next thing that is to be done, if one can be."""
        answer = self._agent.answer()
        if answer is not None:
            self._heed(*answer, now_s)
        if self.ended is not None or self._agent.pending:
            return
        self.orders.catch_up()
        # Whoever has just looked acts on it, however slow the loop is: it would look for ever.
        looked = answer is not None and answer[0] == "look"
        step = next_step(self._situation(blocked, looked=looked))
        if step in ("launch", "resize") and not self.orders.fresh:
            return  # it is about to be told something else
        match step:
            case "cancel":
                self._end(Ended("cancelled", now_s))
            case "launch":
                self._launch()
            case "reap":
                self._reap()
            case "kill":
                self._force("its agent did not end it in time", now_s)
            case "look":
                self._looked_s = monotonic()
                self._agent.look(self._folder())
            case "stop":
                self._stop()
            case "resize":
                self._members = self._ready(blocked)
                members = members_of(self.held, self._members, self._means.env)
                self._agent.resize(self._folder(), members)

    def _situation(self, blocked: Callable[[LiveJob, Seat], bool], *, looked: bool) -> Situation:
        held, told, plain = self.held, self.orders.told, self.request.kind == "plain"
        return Situation(
            open=held.open,
            plain=plain,
            cancelled=self.cancelled,
            stopping=self._stopping,
            reaping=self._run_end is not None,
            overdue=monotonic() > self._stop_by_s,
            look_due=not looked and monotonic() - self._looked_s >= LOOK_S,
            seats=frozenset(told),
            leaving=bool(held.leaving),
            members=self._launched() if plain and held.open else self._members,
            free=lambda: not any(blocked(self, seat) for seat in told.values()),
            ready=lambda: self._ready(blocked),
        )

    def _launched(self) -> frozenset[str] | None:
        """The members of a plain job, the same from its beginning to its end; None: unknown."""
        if self._members is None:
            self._members = launched_members(self._folder())
        return self._members

    def _ready(self, blocked: Callable[[LiveJob, Seat], bool]) -> frozenset[str]:
        """Members that can be there now; empty if these could not train by themselves."""
        seats, there = self.orders.told, self._members or ()
        names = [name for name in seats if name in there or not blocked(self, seats[name])]
        kinds = {seats[name].kind for name in names}
        enough = kinds >= ({"worker", "server"} if self.request.kind == "servers" else {"worker"})
        return frozenset(names if enough else ())

    def _launch(self) -> None:
        with self.store.changing(self.uid, self.held):
            self.held.run, self.held.open = self.held.run + 1, True
        self.orders.begin()
        self._members, self._stopping = frozenset(self.held.seats), False
        self.meter.launch()
        spec = job_spec(self.store, self.uid, self.request, self.held, self._means.env)
        self._agent.launch(self._folder(), spec)

    def _stop(self) -> None:
        self._stopping = self.held.stop_asked = True
        with suppress(OSError):  # a full disk must not keep a job from being stopped
            self._keep()
        self._stop_by_s = min(self._stop_by_s, monotonic() + self.request.grace_s + FORCE_S)
        self._agent.stop(self._folder(), self.request.grace_s)

    # What came of it.

    def _heed(self, asked: Asked, call: Future[Any], now_s: float) -> None:
        """Take note of an answer, or of its failure."""
        if asked == "reap":
            self._heed_reap(call)
            return
        try:
            answer = call.result()
        except DamagedError as error:
            self._note(f"{error} Its agent cannot be reached")
            if self._stopping and asked == "stop":
                self._force(f"{error} It was ended by force", now_s)
        except JobError as error:
            if asked == "launch":
                self._finish(RunEnd("failed", f"{error}", now_s, told=False))
            elif asked == "look":
                self._note(f"{error}")
            else:  # to be tried again, unless it is over
                self._members, self._stopping, self._looked_s = None, False, -1e9
        except (RotaError, OSError, ValueError, TypeError, KeyError) as error:
            if asked == "launch":
                self._finish(RunEnd("failed", str(error), now_s, told=False))
            else:
                self._note(f"its agent cannot be asked: {error!r}")
                self._members, self._stopping = None, False
        else:
            if asked == "look":
                self._hear(answer, now_s)

    def _hear(self, status: Status, now_s: float) -> None:
        """Take note of what its agent says."""
        if status.error == AGENT_KILLED and may_still_come(self._folder()):
            return
        if status.state in ENDED:
            end_s = end_time(self._folder(), self.store.origin, self.held.since_s or 0.0, now_s)
            self._finish(RunEnd(status.state, status.error, end_s, told=True))
            return
        self._note("")
        if self._members is None and self.request.kind != "plain":
            here = {*status.active, *status.waiting}
            self._members = frozenset(here & {*self.held.seats, *self.held.leaving})
        changed = self.meter.hear(status, now_s)
        changed |= self.request.kind != "plain" and self.held.let_go(
            {*status.active, *status.waiting, *status.pids}
        )
        self._heal(status)
        in_place = self._members == frozenset(self.held.seats)
        changed |= self.meter.settle(status, now_s, in_place=in_place)
        if changed:
            self._keep()

    def _heal(self, status: Status) -> None:
        """Have lost workers replaced in their seats, which are the job's anyway."""
        lost = [name for name in self.held.seats if name in status.refused]
        if not lost or self.request.kind == "plain" or self._stopping:
            return
        self.trouble = f"{lost[0]} was lost: {status.refused[lost[0]]}"
        if not self._healing.may_replace(status):
            self._stop()
            return
        with self.store.changing(self.uid, self.held):
            self.held.rename(lost)
        self._healing.note()

    # The end of a run.

    def _finish(self, end: RunEnd) -> None:
        """A run is over; its seats stay taken until none of its processes is left."""
        self._run_end = end
        self._reap()

    def _force(self, error: str, now_s: float) -> None:
        """End a run whose agent does not."""
        self.trouble = error
        self._finish(RunEnd("stopped", "", now_s, told=True))

    def _reap(self) -> None:
        self._looked_s = monotonic()
        self._agent.reap(self._folder())

    def _heed_reap(self, call: Future[list[int]]) -> None:
        assert self._run_end is not None
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
        end, self._run_end = self._run_end, None
        self._conclude(end)

    def _conclude(self, end: RunEnd) -> None:
        """A run is over and nothing of it is left; decide whether the job is over, too."""
        held, wanted = self.held, self.held.stop_asked
        self.meter.end()
        held.open, held.stop_asked, held.leaving, self._stopping = False, False, {}, False
        self._members, self._stop_by_s = None, float("inf")
        if end.state == NEVER:
            self._keep()
        elif end.state == "done":
            self._end(Ended("done", end.time_s))
        elif self.cancelled:
            self._end(Ended("cancelled", end.time_s))
        elif end.state == "stopped" and wanted and not self._healing.gave_up:
            if self.request.kind != "plain":
                self.trouble = no_state(self.store, self.uid, self.held) or self.trouble
            self._keep()  # waits, or is started again elsewhere
        else:
            if not self._healing.gave_up:
                self.trouble = end.error or "it was stopped, but not by rota"
            self._fail(end)

    def _fail(self, end: RunEnd) -> None:
        adopt_state(self.store, self.uid, self.held)
        killed = not end.told or end.error == AGENT_KILLED
        if count_failure(self.held, self.request, end.time_s, killed=killed):
            hint = start_hint(self.request, self.trouble)
            self._end(Ended("failed", end.time_s, self.trouble, hint))
            return
        self._healing.forget()
        tries = f", retry {self.held.faults} of {self.request.retries}" if not killed else ""
        self.held.stopped = f"failed at {strftime('%H:%M')}{tries}: {self.trouble}"
        self.orders.halt()
        self.take((), (), {}, end.time_s)

    def _end(self, ended: Ended) -> None:
        now_s = ended.time_s
        self.held.attained_gpu_s = self.held.attained_by(now_s)
        self.held.settled_s = now_s
        self.held.seats, self.held.leaving = {}, {}
        self._keep()
        self.store.end(self.uid, ended)
        drop_states(self.store, self.uid, self.held)
        self.ended = ended

    def _note(self, text: str) -> None:
        """Have the queue say `text` of it, until it is replaced by another text or by none."""
        if text != self.held.note:
            self.held.note, self.trouble = text, text or self.trouble
            self._keep()

    def _keep(self) -> None:
        self.store.keep(self.uid, self.held)

    def _folder(self) -> Path:
        return self.store.run_folder(self.uid, self.held.run)
