"""Keeping the journal of a live loop: the difference between a round and what the journal says.

A recorder remembers only what the journal itself says, so a new one can take over at any time.
What a crash prevented from being written is written with the next round.
"""

from __future__ import annotations

from collections import ChainMap
from dataclasses import asdict, dataclass, replace
from math import inf, isfinite, nan
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core.layout import (
    ARRIVE,
    EVENT,
    FINISH,
    GIVE_UP,
    KILL,
    MOVE,
    NODE_DOWN,
    RESIZE,
    ROUND,
    SHARE,
    START,
    STOP,
)
from rota.errors import JournalError
from rota.run.job_facts import GivenJobs, HeldJobs, MeasuredJobs, WatchedFacts
from rota.run.lengths import ENDED
from rota.run.reader import read_journal
from rota.run.round_record import note_of, state_after

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rota.core.plan import Share
    from rota.core.types import Records
    from rota.run.job_facts import HeldChange, JobFacts, Listing
    from rota.run.journal import Journal
    from rota.run.loop import Round

QUIET_S: Final = 60.0
"""Least seconds between two written rounds that change nothing."""
_IN_TURN: Final = (STOP, RESIZE, MOVE, START)
"""Order of the changes of one round: what frees GPUs comes before what takes them."""
_FURTHER: Final = (
    "estimate_s", "gpus_per_worker", "min_workers", "max_workers", "num_servers", "min_servers",
    "max_servers", "cpus_per_worker", "memory_gb_per_worker", "restart_s", "stoppable",
)  # fmt: skip
"""Fields of a listing that are kept as further columns."""
_NAMED: Final = ("model", "gpu_type")
"""Fields that are kept as columns of codes for texts."""
_OVER: Final = (FINISH, GIVE_UP)
_ENDS: Final = {FINISH: (FINISH,), GIVE_UP: (GIVE_UP,), KILL: (KILL, GIVE_UP)}
"""Events written for an ending; a kill alone would mean that the job waits again."""


@dataclass(frozen=True)
class _Happening:
    """An event to be written."""

    time_s: float
    uid: int
    kind: int
    share: Share = ()


class Recorder:
    """Writes rounds into a journal that is new or was reopened; the caller closes the journal."""

    def __init__(self, journal: Journal, facts: JobFacts) -> None:
        self._journal, self._facts = journal, facts
        self._number: dict[int, int] = {}  # uid → the journal's number, of all jobs ever
        self._held: dict[int, Share] = {}  # of those that have not ended
        self._last_s = -inf  # time of the last event
        self._round: Records = np.zeros(0, ROUND)  # (1,) the last one written
        self._names: dict[str, list[str]] = {name: [] for name in _NAMED}
        self._wished: Sequence[Any] = ()  # what shadow mode would have done in the last one
        self._quiet = 0  # rounds since the last one written
        self._weights = ""  # of the last round written
        self._recall()

    @property
    def path(self) -> Path:
        """The journal's file."""
        return self._journal.path

    def write(self, turn: Round) -> None:
        """Append what `turn` brings: arrivals, endings, changes, then the state of the cluster.

        All of it is one transaction. If that fails, the next call writes it.
        """
        now_s = self._now(turn.snapshot.time_s)
        uids = turn.snapshot.jobs.uid.tolist()
        shares = self._given(turn, uids)
        new, events, seen = self._since(uids, now_s)
        if seen is None:
            events += self._changes(uids, shares, now_s)
        after = state_after(turn, shares, now_s)
        note = note_of(turn)
        if ended := self._measured(events):
            note[ENDED] = ended
        wishes = note.get("shadow", [])
        said = note.keys() & {"trouble", "tunes"} or wishes != self._wished
        swapped = turn.weights != self._weights
        if not (events or said or swapped or self._differs(after)):
            self._quiet += 1
            return
        if self._quiet and turn.shadow is not None:
            note["quiet"] = self._quiet
        with self._journal.together():
            number = self._add_jobs(new)
            self._add_events(events, number)
            self._journal.add_rounds(after, [note])
        self._learn(events, number, seen)
        self._round, self._wished, self._quiet = after, wishes, 0
        self._weights = turn.weights

    def _since(
        self, uids: Sequence[int], now_s: float
    ) -> tuple[list[Listing], list[_Happening], int | None]:
        """What has happened by itself since the last round: new jobs, events in order of time.

        The number is of the changes that the backend was seen to go through; None: it makes them.
        """
        changes: Sequence[HeldChange] = ()
        watches = isinstance(self._facts, WatchedFacts)
        if isinstance(self._facts, WatchedFacts):
            changes = self._facts.changes()
        told = [change.uid for change in changes if change.share]
        fresh = [uid for uid in dict.fromkeys([*uids, *told]) if uid not in self._number]
        new = [self._listing(uid) for uid in fresh]
        came = [_Happening(self._clip(one.submit_s, now_s), int(one.job_id), ARRIVE) for one in new]
        moves = [_Happening(self._clip(at_s, now_s), uid, START, share)
                 for at_s, uid, share in changes]  # fmt: skip
        ended = self._endings(set(uids), fresh, now_s)
        events = sorted([*came, *moves, *ended, *self._put_on_hold(now_s)], key=_time)
        return new, self._real(events), len(changes) if watches else None

    def _real(self, events: Sequence[_Happening]) -> list[_Happening]:
        """The events without changes that change nothing, each change with its own kind."""
        found: list[_Happening] = []
        held: dict[int, Share] = {}
        for event in events:
            if event.kind != START:
                found.append(event)
                held[event.uid] = ()
                continue
            before = held.get(event.uid, self._held.get(event.uid, ()))
            if event.share != before and (event.uid in self._held or event.uid in held):
                found.append(replace(event, kind=_kind(before, event.share)))
                held[event.uid] = event.share
        return found

    def close(self, time_s: float) -> None:
        """Append the endings since the last round, and what was measured of these jobs."""
        now_s = self._now(time_s)
        new, events, seen = self._since((), now_s)
        if not events:
            return
        measured = self._measured(events)
        with self._journal.together():
            number = self._add_jobs(new)
            self._add_events(events, number)
            if measured:
                self._journal.add_rounds(self._left(events, now_s), [{ENDED: measured}])
        self._learn(events, number, seen)

    def _left(self, events: Sequence[_Happening], now_s: float) -> Records:
        """The state of the cluster (1,) after these endings, computed from the last round."""
        ended = {event.uid for event in events if event.kind in _OVER}
        shares = [share for uid, share in self._held.items() if share and uid not in ended]
        row = self._round.copy() if len(self._round) else np.zeros(1, ROUND)
        row["time_s"], row["running"] = now_s, len(shares)
        if not shares:
            row["held_gpus"] = row["stray_gpus"] = 0
        return row

    def _recall(self) -> None:
        """Read back which jobs are known, which have ended, and what the others hold."""
        with read_journal(self._journal.path) as view:
            jobs, found, rounds, notes = view.jobs, view.events(), view.rounds(), view.notes()
        job_id = jobs.job_id.tolist()
        self._names = {name: list(jobs.names.get(name, ())) for name in _NAMED}
        strange = [name for name in job_id if not name.removeprefix("-").isdecimal()]
        if strange:
            raise JournalError(
                f"The journal {self._journal.path} names a job {strange[0]!r}, which no live "
                "cluster does; go on with one that a recorder has begun."
            )
        self._number = {int(name): k for k, name in enumerate(job_id)}
        events, shares, offsets = found
        at = np.flatnonzero(events["kind"] < NODE_DOWN)
        latest = np.full(len(job_id), -1)
        np.maximum.at(latest, events["job"][at], at)
        for (uid, _), e in zip(self._number.items(), latest.tolist(), strict=True):
            kind = int(events["kind"][e]) if e >= 0 else ARRIVE
            if kind not in _OVER:
                given = shares[offsets[e] : offsets[e + 1]] if kind in _IN_TURN else ()
                self._held[uid] = tuple(tuple(entry) for entry in np.asarray(given).tolist())
        self._last_s = float(events["time_s"].max(initial=-inf))
        self._round = rounds[-1:]
        self._wished = notes.get(len(rounds) - 1, {}).get("shadow", [])

    def _now(self, time_s: float) -> float:
        """The time; if a clock was set back, the time at which the journal stopped."""
        return max([time_s, self._last_s, *map(float, self._round["time_s"])])

    def _clip(self, time_s: float, now_s: float) -> float:
        return min(max(self._last_s, time_s), now_s)

    def _listing(self, uid: int) -> Listing:
        found = self._facts.listing(uid)
        if found.job_id != str(uid):
            raise JournalError(
                f"Job {uid} is listed as {found.job_id!r}; a recorder knows jobs by their uid."
            )
        return found

    def _endings(self, there: set[int], fresh: Sequence[int], now_s: float) -> Iterator[_Happening]:
        """The endings of known and `fresh` jobs that are not `there`."""
        known = sorted(self._held.keys() - there, key=self._number.__getitem__)
        for uid in [*known, *(uid for uid in fresh if uid not in there)]:
            try:
                kind, time_s = self._facts.ending(uid)
            except LookupError:
                continue
            if kind not in _ENDS:
                raise JournalError(
                    f"Job {uid} ended by an event of kind {kind}; known: "
                    f"{FINISH} finish, {KILL} kill, {GIVE_UP} give up."
                )
            for one in _ENDS[kind]:
                yield _Happening(self._clip(time_s, now_s), uid, one)

    def _put_on_hold(self, now_s: float) -> Iterator[_Happening]:
        """The stops of jobs that ran and were put on hold by their users since."""
        if isinstance(self._facts, HeldJobs):
            for uid, share in self._held.items():
                if share and self._facts.on_hold(uid):
                    yield _Happening(now_s, uid, STOP)

    def given(self, uid: int) -> Share | None:
        """What a job has been given, perhaps on other nodes than decided; None: as was decided."""
        return self._facts.given(uid) if isinstance(self._facts, GivenJobs) else None

    def _given(self, turn: Round, uids: Sequence[int]) -> list[Share]:
        """What the jobs of a round hold after it, in order."""
        shares = [turn.plan.decision.share(job) for job in range(len(uids))]
        if not isinstance(self._facts, GivenJobs):
            return shares
        given = map(self._facts.given, uids)
        return [b if a is None else a for a, b in zip(given, shares, strict=True)]

    def _measured(self, events: Sequence[_Happening]) -> dict[str, dict[str, float]]:
        """What was measured of the jobs that have ended, by uid."""
        if not isinstance(self._facts, MeasuredJobs):
            return {}
        told = {e.uid: asdict(self._facts.measured(e.uid)) for e in events if e.kind in _OVER}
        return {
            str(uid): known
            for uid, facts in told.items()
            if (known := {key: value for key, value in facts.items() if isfinite(value)})
        }

    def _changes(
        self, uids: Sequence[int], shares: Sequence[Share], now_s: float
    ) -> list[_Happening]:
        """Jobs that are to hold something else than the journal says."""
        found = []
        for uid, share in zip(uids, shares, strict=True):
            held = self._held.get(uid, ())
            if share != held and (uid in self._held or uid not in self._number):
                found.append(_Happening(now_s, uid, _kind(held, share), share))
        return sorted(found, key=lambda change: _IN_TURN.index(change.kind))

    def _differs(self, after: Records) -> bool:
        """Whether a round without events has to be written."""
        if not len(self._round) or after["time_s"][0] - self._round["time_s"][0] >= QUIET_S:
            return True
        return after.tolist()[0][1:] != self._round.tolist()[0][1:]  # type: ignore[no-any-return]

    def _add_jobs(self, new: Sequence[Listing]) -> dict[int, int]:
        """The numbers of the new jobs by uid."""
        users = list(dict.fromkeys(one.user for one in new if one.user))
        first = self._journal.add_jobs(
            [one.job_id for one in new],
            [users.index(one.user) if one.user else -1 for one in new],
            users,
            [one.num_gpus for one in new],
            [one.submit_s for one in new],
            [nan] * len(new),
            {key: np.array([getattr(one, key) for one in new], np.float64) for key in _FURTHER}
            | {
                key: np.array([self._code(key, getattr(one, key)) for one in new], np.float64)
                for key in _NAMED
            },
            self._names,
        )
        return {int(one.job_id): first + k for k, one in enumerate(new)}

    def _code(self, column: str, name: str) -> int:
        """The number of a name in a column, −1 for none."""
        known = self._names[column]
        if name and name not in known:
            known.append(name)
        return known.index(name) if name else -1

    def _add_events(self, events: Sequence[_Happening], new: dict[int, int]) -> None:
        number = ChainMap(new, self._number)
        rows = [(e.time_s, number[e.uid], e.kind, len(e.share)) for e in events]
        entries = [entry for e in events for entry in e.share]
        self._journal.add_events(np.array(rows, EVENT), np.array(entries, SHARE))

    def _learn(self, events: Sequence[_Happening], new: dict[int, int], seen: int | None) -> None:
        """Remember what has been written."""
        self._number |= new
        if seen and isinstance(self._facts, WatchedFacts):
            self._facts.written(seen)
        for event in events:
            self._last_s = event.time_s
            if event.kind in _OVER:
                del self._held[event.uid]
            else:
                self._held[event.uid] = event.share


def _time(event: _Happening) -> float:
    return event.time_s


def _kind(held: Share, share: Share) -> int:
    if not held:
        return START
    if not share:
        return STOP
    before, after = ([sum(entry[k] for entry in one) for k in (1, 2)] for one in (held, share))
    return MOVE if before == after else RESIZE
