"""A cluster that others run, as a Backend: looks at it through a driver, and carries out plans.

Looks and commands are made in threads, so that a slow cluster delays nothing else; what they find
comes back as events, on which `wait` wakes.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from math import inf
from time import monotonic, time
from typing import TYPE_CHECKING, Final

from rota.backends.book_keeper import BookKeeper
from rota.backends.cluster_calls import ClusterCalls
from rota.backends.cluster_snapshot import snapshot_of
from rota.backends.cluster_waits import ClusterWaits
from rota.backends.crowding import crowded_out, giving, laid_out, room_beside
from rota.backends.fitting import Fitter
from rota.backends.heartbeat_file import EVERY_S
from rota.backends.job_roll import JobRoll, measures, traits_of
from rota.backends.node_table import NodeTable
from rota.backends.preemption_limits import HOUR_S, PreemptionLimits
from rota.backends.reconciler import Reconciler
from rota.backends.waits_file import WAITS, WaitsFile
from rota.errors import RotaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from rota.backends.cluster_calls import CallEvent
    from rota.backends.driver import Answer, ClusterSight, Driver
    from rota.backends.heartbeat_file import HeartbeatFile
    from rota.backends.job_book import JobBook
    from rota.backends.job_roll import ClusterJob
    from rota.backends.reconciler import Intent, JobOrder
    from rota.core.decision import Decision
    from rota.core.plan import Plan, Share
    from rota.core.snapshot import Snapshot
    from rota.run.speeds import Speeds
    from rota.run.wait_reason import WaitReason

MOST_CALLS: Final = 8
"""Commands under way at a time: a controller has other things to do, too."""


class ClusterBackend:
    """Runs the jobs of one cluster by plans; jobs go on without it."""

    def __init__(
        self,
        driver: Driver,
        book: JobBook,
        speeds: Speeds,
        *,
        every_s: float = 30.0,
        look_s: float = 2.0,
        min_run_s: float = 0.0,
        passive: bool = False,
        drain: bool = False,
        limits: PreemptionLimits | None = None,
        root: Path | None = None,
        heartbeat: HeartbeatFile | None = None,
        say: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """Rounds are at most `every_s` apart, looks at least `look_s`.

        With `passive` nothing is ever done to any job. With `drain`, `wait` returns False when no
        job of ours is left. Why jobs wait is written below `root`.
        """
        self.driver, self.book, self.every_s = driver, book, every_s
        self.min_run_s, self.passive, self.drain = min_run_s, passive, drain
        self.stopped = False
        """`wait` returns False; jobs go on."""
        self._say, self._said, self._speeds = say, dict[object, str](), speeds
        self._limits = limits or PreemptionLimits()
        self._began_s, self._clock_s = max(0.0, time() - book.origin_s), monotonic()
        for stop_s in book.stops_since(self._began_s - HOUR_S):
            self._limits.note(min(stop_s, self._began_s))  # a clock may have been set back since
        self._nodes = NodeTable(book.nodes())
        self._mind = Reconciler()
        self.roll = JobRoll(book, self._nodes, self._mind, passive=passive)
        """Its jobs; what the journal asks of them."""
        self._fitter = Fitter(self._nodes)
        self._intents = book.intents()
        self._waits = None if root is None else WaitsFile(root)
        self._why, self._unplaced = ClusterWaits(self._nodes), set[int]()
        self._fits: Mapping[int, Share] = {}  # what the last plan has come to, on paper if passive
        self._left: Mapping[str, str] = {}
        self._heartbeat = heartbeat
        self._calls = ClusterCalls(driver, look_s)
        self._flying: dict[int, JobOrder] = {}  # by the number of the command
        self._news, self._round_s, self._blind = False, -inf, True
        self._keeper = BookKeeper(book, self.roll, say)

    # The seam.

    @property
    def now_s(self) -> float:
        """Seconds since the state directory was made."""
        return self._began_s + monotonic() - self._clock_s

    @property
    def jobs(self) -> list[ClusterJob]:
        """Jobs that are not over, ours and others'."""
        return list(self.roll.jobs.values())

    def observe(self) -> Snapshot:
        """The cluster and its jobs as they were last seen, with what they shall hold by now."""
        self._serve()
        if self._blind:
            self._first_look()
        jobs = [job for job in self.roll.jobs.values() if self._is_shown(job)]
        shares = {job.uid: self.roll.share(job) for job in jobs}
        allowed = self._limits.left(self.now_s) > 0
        snapshot = snapshot_of(
            self._nodes, jobs, shares, self.now_s, self.book.origin_s,
            lambda job: (self.roll.user(job), self._speeds.number(self.roll.model(job))),
            lambda job: not (allowed and self._may_stop(job)), self.roll.restart_s, self.min_run_s,
        )  # fmt: skip
        told = {job.uid for job in jobs if measures(job.sight)}
        return self._speeds.see(snapshot, by_nodes=True, told=told)

    def apply(self, plan: Plan) -> None:
        """Write down what jobs shall hold; threads bring it about, unless it is `passive`."""
        wanted = {int(plan.decision.uid[k]): plan.decision.share(k) for k in plan.job.tolist()}
        self._fits = {}
        if not wanted:
            return
        stops = [uid for uid, share in wanted.items() if self.roll.stops(uid, share)]
        for uid in [] if self.passive else stops[self._limits.left(self.now_s) :]:
            del wanted[uid]
        laid = laid_out(wanted, self.roll, self._nodes, self._mind, self._fitter, self.now_s)
        self._fits = {uid: self._mind.share(uid) if share is None else share
                      for uid, share in laid.items()}  # fmt: skip
        self._unplaced = {uid for uid, share in laid.items() if share is None}
        for uid in self._unplaced:
            self._say_once(uid, f"job {self.call(uid)} fits none of the nodes that it may use")
        if not self.passive:
            self._carry_out({uid: share for uid, share in laid.items() if share is not None})

    def _carry_out(self, shares: Mapping[int, Share]) -> None:
        intents = []
        for uid, found in shares.items():
            job, held = self.roll.jobs[uid], self._mind.share(uid)
            intent = self._mind.wanting(uid, found)
            if intent is None:
                continue
            if self.roll.stops(uid, found):
                self._limits.note(self.now_s)
                job.known.preemptions += 1
            if found and found != held:
                job.since_s = self.now_s
            intents.append(intent)
        self._keep(intents)
        self._keeper.write()
        self._serve()

    def fitted(self, plan: Plan) -> Decision:
        """The decision of the plan that was applied last, on the nodes that its jobs may use."""
        return giving(plan.decision, self._fits)

    def wait(self, wake_s: float) -> bool:
        """Until something happens that calls for a decision, or `wake_s`; False when it is over."""
        while not self.stopped:
            self.book.check_file()
            self._serve()
            now_s = self.now_s
            if not self._blind:
                if self.drain and not self.roll.ours() and not self._news:
                    return False
                due = now_s >= self._round_s + self.every_s
                if self._news or due or now_s >= wake_s:
                    self._news, self._round_s = False, now_s
                    return True
            self._sleep(min(wake_s, self._round_s + self.every_s) - now_s)
        return False

    def call(self, uid: int) -> str:
        """The name by which a job's users know it."""
        return self.roll.known(uid).name

    def remark(self, plan: Plan, by: str) -> None:
        """Remember of the jobs that a plan stops which policy stopped them, and for which jobs."""
        if not self.passive:
            self.roll.remark(plan, by)

    def note_waits(self, reasons: Mapping[int, WaitReason]) -> None:
        """Write down why jobs wait."""
        if self._waits is not None:
            try:
                told = self._why.all(reasons, self.roll, self._unplaced)
                self._waits.write(told, self._left)
            except OSError as error:
                self._say_once("waits", f"{WAITS} cannot be written: {error.strerror}; tried again")

    def stop(self) -> None:
        """End `wait`; may be called from a signal handler."""
        self.stopped = True
        self._calls.wake()

    def close(self) -> None:
        """Leave the jobs to themselves."""
        self._calls.close()
        self._serve(look=False)
        self._speeds.keep()

    # What happens.

    def _serve(self, *, look: bool = True) -> None:
        """Take in what has come, look again when it is time, and give orders."""
        # Whoever cannot see or write can do nothing: the watchdog shall take over.
        if self._heartbeat is not None and self._calls.sees and not self._keeper.failed:
            self._heartbeat.beat()
        while (event := self._calls.event(0.0)) is not None:
            self._heed(event)
        if look and self._calls.look_due:
            self._calls.look(self._mind.begin_look())
        if not self.passive and not self._blind:
            self._order()

    def _sleep(self, most_s: float) -> None:
        """Until something comes, the next look is due, or the time is over."""
        if (event := self._calls.event(min(most_s, self.every_s, EVERY_S))) is not None:
            self._heed(event)

    def _first_look(self) -> None:
        """Nothing is known yet: wait for the first look that succeeds."""
        while self._blind and not self.stopped:
            self._serve()
            if self._blind:
                self._sleep(self.every_s)

    def _heed(self, event: CallEvent) -> None:
        if event.kind == "look":
            self._heed_look(event)
        elif event.kind == "answer":
            self._heed_answer(event)

    def _heed_look(self, event: CallEvent) -> None:
        try:
            sight: ClusterSight = event.result()
        except Exception as error:  # a driver's own, too: the next answer may be another
            text = str(error) if isinstance(error, RotaError | OSError) else repr(error)
            self._say_once("look", f"{text}; asked again")
            return
        if self._said.pop("look", None):
            self._say("the cluster answers again")
        self._see(event.number, sight)
        self._blind = False
        self._keeper.write()

    def _see(self, number: int, sight: ClusterSight) -> None:
        """Take a look in: nodes, jobs that came, went or changed, and what follows for intents."""
        (new, changed), self._left = self._nodes.see(sight.nodes), sight.left
        self._keeper.note_nodes(new)
        came, over = self.roll.see(sight, self.driver.fate, forget_rows=changed)
        for uid in over:
            if uid in self._mind:
                self._mind.forget(uid)
            self._fitter.forget(uid)
            self._intents.pop(uid, None)
            self._keeper.forget(uid)
            self._said.pop(uid, None)
        for job in self.roll.jobs.values():
            if job.sight.managed:
                self._mind.add(self.roll.intent(job, self._intents), traits_of(job.sight.request))
        sights = {uid: self.roll.seen(job) for uid, job in self.roll.jobs.items()
                  if job.sight.managed}  # fmt: skip
        held = {uid: self.roll.physical(job) for uid, job in self.roll.jobs.items()}
        before = {uid: self._mind.share(uid) for uid in sights}
        self._keep(self._mind.saw(number, sights, room_beside(held, self.roll, self._nodes).gpus))
        now = {uid: self._mind.share(uid) for uid in sights}
        lost = any((share and not now[uid]) or (self.passive and share != now[uid])
                   for uid, share in before.items())  # fmt: skip
        if not self.passive:
            late = [*crowded_out(self.roll, self._nodes, self._mind), *self.roll.refused()]
            self._keep([*self.roll.to_hold(), *map(self._mind.giving_up, late)])
        self._news |= bool(came or over or changed or lost)

    def _order(self) -> None:
        """Carry out what is to be done, as far as calls are left and all is written down."""
        late = self._mind.overdue(self.now_s)
        self._keep(late)
        self._news |= bool(late)
        if not self._keeper.write():
            return
        left = MOST_CALLS - len(self._flying)
        for order, intent in islice(self._mind.orders(self.now_s), left):
            if not self._begin(order, intent):
                return

    def _begin(self, order: JobOrder, intent: Intent | None) -> bool:
        """Carry an order out once it is written down; False if it cannot be."""
        self._keep([] if intent is None else [intent])
        number = self._keeper.begin(order, self.now_s)
        if number is None:
            self._mind.done(order, "refused")
            # What was not given, a notice for example, must not count as given.
            self._keep([] if intent is None else [replace(intent, noticed_s=inf)])
            return False
        self._flying[number] = order
        place = tuple((self._nodes.names[node], w, s) for node, w, s in order.share)
        self._calls.carry_out(number, order.action, self.roll.jobs[order.uid].sight, place)
        return True

    def _heed_answer(self, event: CallEvent) -> None:
        order = self._flying.pop(event.number)
        try:
            answer: Answer = event.result()
            outcome, said = answer.outcome, answer.said
        except Exception as error:
            outcome, said = "unknown", f"{type(error).__name__}: {error}"
        given_up = self._mind.done(order, outcome)
        if said and order.uid in self.roll.jobs:
            self._say_once(order.uid, f"job {self.call(order.uid)}: {said}")
        if order.action != "resize":  # which may take as long as a node takes to become free
            self._calls.look_soon()
        self._keeper.note_answer(event.number, outcome, said, event.took_s)
        if given_up is not None:
            self._keep([given_up])
            self._news = True
        self._keeper.write()

    # Intents and room.

    def _keep(self, intents: list[Intent]) -> None:
        """From now on these intents hold; they are written down before any order is given."""
        for intent in intents:
            if intent.uid in self._mind:
                self._mind.take(intent)
                self._keeper.note_intent(intent)

    def _is_shown(self, job: ClusterJob) -> bool:
        """Whether policies see a job: what waits for something else, or in vain, is left out."""
        waits = job.sight.managed and not job.sight.waits_for
        return bool(self.roll.share(job)) or (waits and not self._why.never(job.sight.request))

    def _may_stop(self, job: ClusterJob) -> bool:
        request = job.sight.request
        able = job.sight.managed and (request.stoppable or request.in_place)
        return able and self._limits.spares(job.known.preemptions)

    def _say_once(self, about: object, text: str) -> None:
        if self._said.get(about) != text:
            self._said[about] = text
            self._say(text)
