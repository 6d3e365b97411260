"""Keeping the journal of a live loop: the difference between a round and what the journal says.

A recorder remembers only what the journal itself says, so a new one can take over at any time.
What a crash prevented from being written is written with the next round.
"""

from __future__ import annotations

from collections import ChainMap
from dataclasses import asdict, dataclass
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
from rota.core.plan import Stop, Tune
from rota.errors import JournalError
from rota.run.job_facts import GivenJobs, HeldJobs, MeasuredJobs
from rota.run.lengths import ENDED
from rota.run.reader import read_journal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rota.core.plan import Plan, Share
    from rota.core.types import Records
    from rota.run.job_facts import JobFacts, Listing
    from rota.run.journal import Journal
    from rota.run.loop import Round

QUIET_S: Final = 60.0
"""Least seconds between two written rounds that change nothing."""
_IN_TURN: Final = (STOP, RESIZE, MOVE, START)
"""Order of the changes of one round: what frees GPUs comes before what takes them."""
_FURTHER: Final = (
    "estimate_s", "gpus_per_worker", "min_workers", "max_workers", "num_servers", "min_servers",
    "max_servers", "cpus_per_worker", "memory_gb_per_worker",
)  # fmt: skip
"""Fields of a listing that are kept as further columns."""
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
        self._models: list[str] = []
        self._weights = ""  # of the last round written
        self._recall()

    def write(self, turn: Round) -> None:
        """Append what `turn` brings: arrivals, endings, changes, then the state of the cluster.

        All of it is one transaction. If that fails, the next call writes it.
        """
        now_s = self._now(turn.snapshot.time_s)
        uids = turn.snapshot.jobs.uid.tolist()
        new = [self._listing(uid) for uid in uids if uid not in self._number]
        came = [_Happening(self._clip(one.submit_s, now_s), int(one.job_id), ARRIVE) for one in new]
        shares = self._given(turn, uids)
        since = [*came, *self._endings(set(uids), now_s), *self._put_on_hold(now_s)]
        events = [*sorted(since, key=_time), *self._changes(uids, shares, now_s)]
        after = _after(turn, shares, now_s)
        note = _note(turn)
        if ended := self._measured(events):
            note[ENDED] = ended
        said = note.keys() & {"trouble", "shadow", "tunes"}
        swapped = turn.weights != self._weights
        if not (events or said or swapped or self._differs(after)):
            return
        with self._journal.together():
            number = self._add_jobs(new)
            self._add_events(events, number)
            self._journal.add_rounds(after, [note])
        self._learn(events, number)
        self._round, self._weights = after, turn.weights

    def close(self, time_s: float) -> None:
        """Append the endings since the last round, and what was measured of these jobs."""
        now_s = self._now(time_s)
        events = sorted(self._endings(set(), now_s), key=_time)
        if not events:
            return
        measured = self._measured(events)
        with self._journal.together():
            self._add_events(events, {})
            if measured:
                self._journal.add_rounds(self._left(events, now_s), [{ENDED: measured}])
        self._learn(events, {})

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
            jobs, found, rounds = view.jobs, view.events(), view.rounds()
        job_id, self._models = jobs.job_id.tolist(), list(jobs.names.get("model", ()))
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

    def _endings(self, there: set[int], now_s: float) -> Iterator[_Happening]:
        """The endings of known jobs that are not `there`."""
        for uid in sorted(self._held.keys() - there, key=self._number.__getitem__):
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
            | {"model": np.array([self._model(one.model) for one in new], np.float64)},
            {"model": self._models},
        )
        return {int(one.job_id): first + k for k, one in enumerate(new)}

    def _model(self, name: str) -> int:
        """The number of a model's name, −1 for none."""
        if name and name not in self._models:
            self._models.append(name)
        return self._models.index(name) if name else -1

    def _add_events(self, events: Sequence[_Happening], new: dict[int, int]) -> None:
        number = ChainMap(new, self._number)
        rows = [(e.time_s, number[e.uid], e.kind, len(e.share)) for e in events]
        entries = [entry for e in events for entry in e.share]
        self._journal.add_events(np.array(rows, EVENT), np.array(entries, SHARE))

    def _learn(self, events: Sequence[_Happening], new: dict[int, int]) -> None:
        """Remember what has been written."""
        self._number |= new
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


def _after(turn: Round, shares: Sequence[Share], now_s: float) -> Records:
    """The state of the cluster after a round (1,)."""
    nodes, used = turn.snapshot.nodes, np.zeros(len(turn.snapshot.nodes), np.int64)
    for each, share in zip(turn.snapshot.jobs.gpus_per_worker.tolist(), shares, strict=True):
        for node, workers, _ in share:
            used[node] += workers * each
    running = sum(1 for share in shares if share)
    up, has = nodes["up"], nodes["gpus"].astype(np.int64)
    # A job may still hold GPUs of a node that is down or drained; these count as up.
    stray = int((has - used)[up & (used > 0)].sum())
    there = int(np.where(up, has, used).sum())
    row = (now_s, len(shares) - running, running, int(used.sum()), there, stray)
    return np.array([row], ROUND)


def _note(turn: Round) -> dict[str, Any]:
    """What the journal keeps of a round beside the state of the cluster."""
    note: dict[str, Any] = {"by": turn.by, **turn.note()}
    if turn.trouble:
        note["trouble"] = turn.trouble
    if turn.shadow is not None and (actions := _actions(turn.shadow)):
        note["shadow"] = actions
    return note


def _actions(plan: Plan) -> list[dict[str, Any]]:
    """What a plan would have done, as plain data."""
    return [
        {
            "uid": action.uid,
            "do": type(action).__name__.lower(),
            "share": () if isinstance(action, Stop) else action.share,
        }
        for action in plan
        if not isinstance(action, Tune)
    ]
