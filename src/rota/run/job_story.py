"""What a journal tells of one job: what happened to it, by which policy, and for which jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core.layout import (
    ARRIVE,
    FINISH,
    GIVE_UP,
    KILL,
    MOVE,
    NODE_DOWN,
    RESIZE,
    START,
    STOP,
)
from rota.run.lengths import lengths

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rota.core.plan import Share
    from rota.run.reader import Events, JournalView

STOPS: Final = "stops"
"""Where the note of a round lists the jobs that its plan has stopped, by uid."""
WHAT: Final = {
    ARRIVE: "submitted", START: "started", STOP: "stopped", MOVE: "moved", RESIZE: "resized",
    FINISH: "done", KILL: "cancelled", GIVE_UP: "failed",
}  # fmt: skip
_GAINS: Final = (START, MOVE, RESIZE)


@dataclass(frozen=True)
class Happened:
    """One thing that happened to a job."""

    time_s: float
    """Seconds of the backend's clock."""
    what: str
    """One of `WHAT`."""
    share: Share = ()
    """What it held from then on."""
    by: str = ""
    """The policy that decided it; "" if none did."""
    why: str = ""
    """What the policy has said of it."""
    gainers: tuple[int, ...] = ()
    """Jobs (uid) that got a share of the nodes which it left."""


@dataclass(frozen=True)
class JobStory:
    """Everything that a journal has of one job."""

    uid: int
    submit_s: float
    asked_gpus: int
    happened: tuple[Happened, ...]

    @property
    def end(self) -> Happened | None:
        """How it ended; None if it has not."""
        last = self.happened[-1] if self.happened else None
        return last if last is not None and last.what in ("done", "cancelled", "failed") else None

    @property
    def waited_s(self) -> float:
        """Seconds from its submission to its first start; NaN if it never started."""
        starts = [one.time_s for one in self.happened if one.what == "started"]
        return starts[0] - self.submit_s if starts else float("nan")

    @property
    def ran_s(self) -> float:
        """Seconds in which it held something, runs that have come to an end only."""
        total, since_s = 0.0, None
        for one in self.happened:
            if one.what == "started":
                since_s = one.time_s
            elif one.what in ("stopped", "done", "cancelled", "failed") and since_s is not None:
                total, since_s = total + one.time_s - since_s, None
        return total


def story_of(view: JournalView, uid: int) -> JobStory | None:
    """What happened to a job; None if the journal does not know it."""
    with view.frozen():
        jobs, found = view.jobs, view.events()
        rounds, notes = view.rounds()["time_s"], view.notes()
    ids = jobs.job_id.tolist()
    if str(uid) not in ids:
        return None
    number = ids.index(str(uid))
    by_time = {float(time_s): notes.get(k, {}) for k, time_s in enumerate(rounds.tolist())}
    happened = tuple(_told(found, number, ids, uid, by_time))
    return JobStory(uid, float(jobs.submit_s[number]), int(jobs.num_gpus[number]), happened)


def usual_length_s(view: JournalView) -> float:
    """Half of the jobs that are over were shorter; NaN if none is over."""
    found = lengths(view)
    known = found.work_s[found.over & (found.work_s > 0)]
    return float(np.median(known)) if len(known) else float("nan")


def _told(
    found: Events, number: int, ids: list[str], uid: int, by_time: Mapping[float, Mapping[str, Any]]
) -> Iterator[Happened]:
    """The events of one job, each with the round that decided it."""
    events, before = found.events, frozenset[int]()
    mine = np.flatnonzero((events["job"] == number) & (events["kind"] < NODE_DOWN))
    for e in mine.tolist():
        kind, time_s = int(events["kind"][e]), float(events["time_s"][e])
        share = _share(found, e)
        note = by_time.get(time_s, {})
        decided = kind in _GAINS or (kind == STOP and uid in note.get(STOPS, ()))
        left = before - {node for node, *_ in share}
        yield Happened(
            time_s, WHAT[kind], share, str(note.get("by", "")) if decided else "",
            str(note.get("reasons", {}).get(str(uid), "")) if decided else "",
            _gainers(found, time_s, number, left, ids) if decided and left else (),
        )  # fmt: skip
        if kind in WHAT and kind != ARRIVE:
            before = frozenset(node for node, *_ in share)


def _gainers(
    found: Events, time_s: float, number: int, left: frozenset[int], ids: list[str]
) -> tuple[int, ...]:
    """Other jobs that were given something on these nodes at that time."""
    events = found.events
    at = (events["time_s"] == time_s) & np.isin(events["kind"], _GAINS) & (events["job"] != number)
    return tuple(
        int(ids[int(events["job"][e])])
        for e in np.flatnonzero(at).tolist()
        if left & {node for node, *_ in _share(found, e)}
    )


def _share(found: Events, e: int) -> Share:
    entries = found.shares[found.offsets[e] : found.offsets[e + 1]].tolist()
    return tuple(tuple(entry) for entry in entries)
