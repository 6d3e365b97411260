"""Brings what jobs hold to what they shall hold, one thing at a time per job.

It knows no clock, no socket and no file, and takes events in any order. Whoever owns it writes
intents down before orders are carried out, looks at the cluster, and tells what came of each order.
A look that began before an order was answered says nothing about that job.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Final, Literal

from rota.backends.next_action import JobStanding, next_action

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rota.core.plan import Share

Phase = Literal["waiting", "starting", "running", "stopping"]
Action = Literal["wait", "start", "withdraw", "notice", "stop", "resize", "cancel"]
"""`withdraw`: take a start back that has not happened; `notice`: have a job save its progress."""
Outcome = Literal["done", "refused", "unknown"]
"""`refused`: it has certainly not happened; `unknown`: it may have happened, or still may."""

MOST_TRIES: Final = 3
"""Refused orders in a row after which a job is left as it is until a policy decides anew."""


@dataclass(frozen=True)
class Seen:
    """What the cluster says of a job."""

    phase: Phase
    share: Share = ()
    """What it holds, or is about to be given."""
    saved: bool = False
    """It has saved its progress since it was given notice."""


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What can be done with a job, and what each of its workers takes."""

    gpus_per_worker: int = 0
    stoppable: bool = False
    """It goes on where it was stopped; another one is left as it is once it runs."""
    in_place: bool = False
    """It can be resized while it runs."""
    notice_s: float = 0.0
    """Seconds it is given to save its progress before it is stopped."""


@dataclass(frozen=True)
class Intent:
    """What a job shall hold; written down before anything is done."""

    uid: int
    share: Share | None = None
    """None: whatever it holds; no policy has decided about it yet."""
    cancelled: bool = False
    noticed_s: float = inf
    """Since when it knows that it is about to be stopped."""


@dataclass(frozen=True)
class JobOrder:
    """One thing to be done to one job."""

    uid: int
    action: Action
    share: Share = ()
    number: int = 0


@dataclass
class _Job:
    intent: Intent
    traits: Traits
    seen: Seen | None = None
    stale: bool = False
    """An order for it was carried out since it was seen."""
    order: JobOrder | None = None
    """Under way; its outcome has not been told."""
    ordered: Share = ()
    """What the last order was to bring it, until a look tells what it holds."""
    blind_until: int = 0
    """Looks that began before this one say nothing about it."""
    had: Share = ()
    """What it held when it ran; when it stops, its nodes come free one by one."""
    stopped: bool = False
    """It was ordered to stop: that it holds nothing any more is no loss."""
    refused: int = 0
    since_s: float = inf
    """Since when it is to start, while it has not."""

    @property
    def ready(self) -> bool:
        """Whether it is known how it is, and nothing is under way for it."""
        return self.seen is not None and self.order is None and not self.stale


@dataclass
class Reconciler:
    """The jobs of a cluster on their way to what they shall hold."""

    start_s: float = 300.0
    """Seconds a start may take, with the stops that make room for it; then it is given up, so
    that a policy can decide anew."""
    _jobs: dict[int, _Job] = field(default_factory=dict)
    _free: dict[int, int] = field(default_factory=dict)
    _looks: int = 0
    _orders: int = 0

    def __contains__(self, uid: int) -> bool:
        return uid in self._jobs

    def __iter__(self) -> Iterator[int]:
        return iter(self._jobs)

    def add(self, intent: Intent, traits: Traits) -> None:
        """Take in a job, or what is known of it by now."""
        if known := self._jobs.get(intent.uid):
            known.traits = traits
        else:
            self._jobs[intent.uid] = _Job(intent, traits)

    def forget(self, uid: int) -> None:
        """A job is over."""
        del self._jobs[uid]

    def intent(self, uid: int) -> Intent:
        """What a job shall hold."""
        return self._jobs[uid].intent

    def seen(self, uid: int) -> Seen | None:
        """What the last look that counts said of a job."""
        return self._jobs[uid].seen

    def share(self, uid: int) -> Share:
        """What a job shall hold or, where nobody has decided that, holds."""
        job = self._jobs[uid]
        if job.intent.share is not None:
            return job.intent.share
        return () if job.seen is None else job.seen.share

    def settled(self, uid: int) -> bool:
        """Whether a job holds what it shall hold, and nothing is under way for it."""
        job = self._jobs[uid]
        if job.seen is None or not job.ready:
            return False
        return job.seen.phase in ("waiting", "running") and job.seen.share == self.share(uid)

    # What is wanted.

    def wanting(self, uid: int, share: Share) -> Intent | None:
        """The intent to write down for a decision; None if there is none or it may not be.

        A job that cannot go on where it was stopped is left as it is once it runs.
        """
        job = self._jobs[uid]
        if job.intent.cancelled:
            return None
        runs = job.seen is not None and job.seen.phase in ("running", "stopping")
        if job.seen is not None and runs and not self._may_become(share, job.seen, job.traits):
            return None
        return None if share == job.intent.share else replace(job.intent, share=share)

    @staticmethod
    def _may_become(share: Share, seen: Seen, traits: Traits) -> bool:
        """Whether a running job can come to hold `share`."""
        return traits.stoppable or (traits.in_place and bool(share)) or share == seen.share

    def take(self, intent: Intent) -> None:
        """An intent was written down: from now on it holds."""
        job = self._jobs[intent.uid]
        job.intent, job.refused, job.since_s = intent, 0, inf

    # What is the case.

    def begin_look(self) -> int:
        """Call before the cluster is looked at, and hand the number to `saw`."""
        self._looks += 1
        return self._looks

    def saw(self, look: int, sights: Mapping[int, Seen], free: Mapping[int, int]) -> list[Intent]:
        """Take in what a look found: jobs by uid, and free GPUs by node.

        Returns intents that follow from it, to be written down and taken. Jobs that were not
        found stay as they were: whether they are over is for the owner to find out.
        """
        self._free = dict(free)
        changed = []
        for uid, seen in sights.items():
            job = self._jobs.get(uid)
            if job is None or job.order is not None or look < job.blind_until:
                continue
            if (intent := self._follows(job, seen)) is not None:
                changed.append(intent)
            if seen.phase == "running" or not job.had:
                job.had = seen.share
            job.seen, job.stale, job.ordered = seen, False, ()
        return changed

    def _follows(self, job: _Job, seen: Seen) -> Intent | None:
        """What a job shall hold now, if that changes; one that lost its nodes is decided anew."""
        intent, before = job.intent, job.seen
        ran = before is not None and before.phase in ("running", "stopping")
        lost = ran and not job.stopped and job.had == intent.share
        if seen.phase == "running":
            if not job.traits.in_place or seen.share == intent.share:
                job.since_s = inf
            if job.traits.in_place and lost and set(seen.share) < set(job.had):
                return replace(intent, share=seen.share)  # it has lost nodes, and goes on
            if not intent.cancelled and self._is_overtaken(intent, seen, job.traits, ran=ran):
                return replace(intent, share=None)
            if intent.share == seen.share and intent.noticed_s < inf:
                return replace(intent, noticed_s=inf)
        elif seen.phase == "starting" and lost and intent.share:
            # Its cluster has put it back in line, for the same nodes.
            return replace(intent, share=(), noticed_s=inf)
        elif seen.phase == "waiting":
            job.stopped, job.had = False, ()
            if intent.share is not None and (lost or not intent.share):
                return replace(intent, share=None, noticed_s=inf)
            if intent.noticed_s < inf:
                return replace(intent, noticed_s=inf)
        return None

    def _is_overtaken(self, intent: Intent, seen: Seen, traits: Traits, *, ran: bool) -> bool:
        """Whether a job runs somewhere else than it was to start: nobody has decided to move it."""
        if intent.share is None or intent.share == seen.share:
            return False
        if traits.in_place and set(seen.share) < set(intent.share):
            return False  # it has started small, and grows
        return (bool(intent.share) and not ran) or not self._may_become(intent.share, seen, traits)

    # What is to be done.

    def overdue(self, now_s: float) -> list[Intent]:
        """Intents that give a start up because it takes too long; to be written down and taken."""
        found = []
        for job in self._jobs.values():
            if job.seen is None or not job.ready or not job.intent.share or job.intent.cancelled:
                continue
            grows = job.traits.in_place and job.seen.share not in ((), job.intent.share)
            if job.seen.phase in ("waiting", "starting") or (job.seen.phase == "running" and grows):
                job.since_s = min(job.since_s, now_s)
                if now_s >= job.since_s + self.start_s:
                    found.append(self.giving_up(job.intent.uid))
        return found

    def giving_up(self, uid: int) -> Intent:
        """The intent by which a job gets no more than it has, until a policy decides anew."""
        job = self._jobs[uid]
        starting = job.seen is not None and job.seen.phase == "starting"
        return replace(job.intent, share=() if starting else None)

    def orders(self, now_s: float) -> Iterator[tuple[JobOrder, Intent | None]]:
        """What is to be done now, each with an intent to write down and take before it is.

        Every order is under way from here on, until its outcome is told.
        """
        free = dict(self._free)
        for job in self._jobs.values():
            # What is on its way to its nodes is not free, whether or not the cluster knows it.
            if job.seen is not None and (not job.ready or job.seen.phase == "starting"):
                self._take_room(job, self._may_get(job), free)
        for job in self._jobs.values():
            action = self._action(job, free, now_s)
            if action == "wait":
                continue
            share = job.intent.share or ()
            if action in ("start", "resize"):
                self._take_room(job, share, free)
            job.stopped = job.stopped or action == "stop"
            self._orders += 1
            job.order, job.ordered = JobOrder(job.intent.uid, action, share, self._orders), share
            notice = action == "notice"
            yield job.order, replace(job.intent, noticed_s=now_s) if notice else None

    def _action(self, job: _Job, free: dict[int, int], now_s: float) -> Action:
        seen, intent = job.seen, job.intent
        if seen is None or not job.ready or (intent.share is None and not intent.cancelled):
            return "wait"
        wanted = intent.share or ()
        holds = seen.share
        if job.traits.in_place and seen.phase == "starting" and holds and set(holds) < set(wanted):
            holds = wanted  # it starts small, and grows when it runs
        standing = JobStanding(
            seen.phase, wanted, holds, job.traits.in_place, intent.cancelled,
            lambda: self._has_room(job, wanted, free),
        )  # fmt: skip
        action = next_action(standing)
        if action == "stop" and not intent.cancelled and job.traits.notice_s > 0:
            if intent.noticed_s == inf:
                return "notice"
            if not seen.saved and now_s < intent.noticed_s + job.traits.notice_s:
                return "wait"
        return action

    def done(self, order: JobOrder, outcome: Outcome) -> Intent | None:
        """What came of an order; only a look that begins from now on tells how the job is.

        Returns the intent, to be written down and taken, by which a job is left as it is after
        too many refusals.
        """
        job = self._jobs.get(order.uid)
        if job is None or job.order != order:
            return None
        job.order, job.stale, job.blind_until = None, True, self._looks + 1
        job.stopped = job.stopped and outcome != "refused"
        job.refused = job.refused + 1 if outcome == "refused" else 0
        if job.refused < MOST_TRIES or job.intent.cancelled:
            return None
        return replace(job.intent, share=None, noticed_s=inf)

    def _may_get(self, job: _Job) -> Share:
        """The most that a job may come to hold on each node by what is known and under way."""
        seen, most = job.seen, dict[int, tuple[int, int]]()
        starts = seen.share if seen is not None and seen.phase == "starting" else ()
        for share in (self.share(job.intent.uid), job.ordered, starts):
            for node, workers, servers in share:
                before = most.get(node, (0, 0))
                most[node] = (max(workers, before[0]), max(servers, before[1]))
        return tuple((node, *count) for node, count in most.items())

    @staticmethod
    def _take_room(job: _Job, share: Share, free: dict[int, int]) -> None:
        """Of what is free, what a job gets beside what it has."""
        runs = job.seen is not None and job.seen.phase in ("running", "stopping")
        has = {node: workers for node, workers, _ in job.seen.share} if runs and job.seen else {}
        for node, workers, _ in share:
            more = max(0, workers - has.get(node, 0))
            free[node] = free.get(node, 0) - more * job.traits.gpus_per_worker

    @staticmethod
    def _has_room(job: _Job, share: Share, free: Mapping[int, int]) -> bool:
        each = job.traits.gpus_per_worker
        return all(free.get(node, 0) >= workers * each for node, workers, _ in share)
