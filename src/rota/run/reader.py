"""Reading a journal, whole or while it grows, from any process, even after its writer has died."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from rota.core import layout
from rota.core.layout import EVENT, ROUND, SHARE
from rota.run.journal_file import LISTED, SUMS, chunk_rows, connect, reading
from rota.run.outcome import Outcome
from rota.run.packing import read_columns, unpack

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

    from rota.core.types import Floats, Ints, Records
    from rota.run.journal_file import FileName


class Events(NamedTuple):
    """What happened: event e came with `shares[offsets[e] : offsets[e + 1]]`."""

    events: Records  # (E,) EVENT
    shares: Records  # (S,) SHARE
    offsets: Ints  # (E+1,)


@dataclass(frozen=True)
class Jobs:
    """The jobs of a journal, or of one chunk of it, by number."""

    job_id: Any  # (J,) str
    user: Ints  # (J,) into `users`, −1: none
    users: tuple[str, ...]
    """In a chunk: the names that it adds to those of earlier chunks."""
    num_gpus: Ints  # (J,)
    submit_s: Floats  # (J,)
    duration_s: Floats  # (J,)
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further columns (J,), if the writer gave any."""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Texts that the codes in such a column stand for, by column."""


class Tuned(NamedTuple):
    """Settings of a job that a round changed."""

    round: int
    uid: str
    """A live journal's `job_id`; a simulation's number of the job."""
    live: bool
    settings: Mapping[str, float]


class Deciding(NamedTuple):
    """Weights of a trained policy that decided written rounds in a row."""

    weights: str
    """The first digits of their hash."""
    from_s: float
    until_s: float
    rounds: int


@dataclass(frozen=True)
class JobChunk:
    """Jobs that were added together."""

    id: int
    first: int
    """Number of the first job, by which events name it."""
    jobs: Jobs


@dataclass(frozen=True)
class EventChunk:
    """Events that were added together."""

    id: int
    first: int
    events: Events


@dataclass(frozen=True)
class RoundChunk:
    """Rounds that were added together."""

    id: int
    first: int
    rounds: Records  # (R,) ROUND
    notes: tuple[Mapping[str, Any], ...] | None
    """One per round, if the writer gave any."""


Chunk: TypeAlias = JobChunk | EventChunk | RoundChunk


class JournalView:
    """The reader's side of a journal; made by `read_journal`.

    Each call sees what was committed when the call began. Nothing is cached, so a view of a
    journal that is being written grows with it.
    """

    def __init__(self, path: Path, db: sqlite3.Connection, meta: Mapping[str, Any]) -> None:
        self.path, self._db, self.meta = path, db, meta

    @property
    def finished(self) -> bool:
        """Whether the run has ended; if not, it still runs, or it was killed."""
        with reading(self.path):
            return self._db.execute("SELECT 1 FROM ending").fetchone() is not None

    @property
    def jobs(self) -> Jobs:
        """All jobs."""
        with reading(self.path):
            return _as_jobs(self._rows("jobs"))

    def events(self, since: int = 0) -> Events:
        """All events, or those of the chunks after `since`."""
        with reading(self.path):
            return _as_events(self._rows("events", since))

    def rounds(self, since: int = 0) -> Records:
        """All rounds (R,), or those of the chunks after `since`."""
        with reading(self.path):
            return unpack(self._rows("rounds", since), "rounds", ROUND)

    def notes(self) -> dict[int, Mapping[str, Any]]:
        """What the writer noted of its rounds, by the number of the round."""
        with reading(self.path):
            noted = [row for row in self._rows("rounds") if row["notes"] is not None]
            return {
                row["first"] + k: note
                for row in noted
                for k, note in enumerate(json.loads(row["notes"]))
            }

    def weights(self) -> list[Deciding]:
        """Which weights of a trained policy decided, one after another; [] if none did."""
        with reading(self.path):
            rows = [row for row in self._rows("rounds") if '"weights":' in (row["notes"] or "")]
            said = [
                (str(note["weights"]), float(time_s))
                for row in rows
                for note, time_s in zip(
                    json.loads(row["notes"]), unpack([row], "rounds", ROUND)["time_s"], strict=True
                )
                if "weights" in note
            ]
        found: list[Deciding] = []
        for weights, time_s in said:
            if found and found[-1].weights == weights:
                found[-1] = found[-1]._replace(rounds=found[-1].rounds + 1, until_s=time_s)
            else:
                found.append(Deciding(weights, time_s, time_s, 1))
        return found

    def tunes(self) -> list[Tuned]:
        """What was tuned, in the order in which it was decided."""
        with reading(self.path):
            noted = [row for row in self._rows("rounds") if '"tunes":' in (row["notes"] or "")]
            return [
                Tuned(row["first"] + k, uid, "by" in note, settings)
                for row in noted
                for k, note in enumerate(json.loads(row["notes"]))
                for uid, settings in note.get("tunes", {}).items()
            ]

    def chunks(self, since: int = 0) -> Iterator[Chunk]:
        """The chunks after `since` that are there now, in the order they were written."""
        union = " UNION ALL ".join(
            f"SELECT id, '{table}' FROM {table} WHERE id > :since" for table in _AS_CHUNK
        )
        with reading(self.path):
            listed = self._db.execute(f"{union} ORDER BY id", {"since": since}).fetchall()
        for chunk, table in listed:
            with reading(self.path):
                made = _AS_CHUNK[table](self._rows(table, chunk - 1, chunk))
            yield made

    def outcome(self) -> Outcome:
        """How the run went so far; sums that its writer left out are computed from the rounds."""
        with reading(self.path):
            with self.frozen():
                jobs, events, rounds = self.jobs, self.events().events, self.rounds()
                ending = self._rows("ending")
            J, left = len(jobs.submit_s), dict(ending[0]) if ending else {}
            sums = {name: left[name] for name in SUMS if left.get(name) is not None}
            lost_s, fee = (
                np.zeros(J) if blob is None else np.frombuffer(blob, "<f8")
                for blob in (left.get("lost_s"), left.get("fee"))
            )
            job = events["job"][events["kind"] < layout.NODE_DOWN]
            if len(lost_s) != J or (len(job) and not (job.min() >= 0 and job.max() < J)):
                raise ValueError(f"it lists {J} jobs, but its events name others")
            return Outcome(
                policy=str(self.meta["policy"]), seed=int(self.meta.get("seed") or 0),
                total_gpus=int(self.meta["total_gpus"]), job_id=jobs.job_id, user=jobs.user,
                users=jobs.users, num_gpus=jobs.num_gpus, submit_s=jobs.submit_s,
                duration_s=jobs.duration_s, lost_s=lost_s, fee=fee,
                series=rounds,
                **_fates(events, J), **(_sums(events, rounds) | sums),
            )  # fmt: skip

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let all calls in the body see the same state of the file, even while it is written."""
        if self._db.in_transaction:  # within another `frozen`
            yield
            return
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            self._db.execute("ROLLBACK")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> JournalView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()

    def _rows(self, table: str, since: int = 0, until: int = 2**62) -> list[sqlite3.Row]:
        return list(chunk_rows(self._db, table, since, until))


def read_journal(path: FileName) -> JournalView:
    """Open a journal for reading: finished, still being written, or left by a crash."""
    path = Path(path)
    return JournalView(path, *connect(path, "ro"))


def follow(
    path: FileName, since: int = 0, *, poll_s: float = 0.2, patience_s: float = np.inf
) -> Iterator[Chunk]:
    """Yield the chunks after `since` as they are written, until the run has ended.

    A writer that died cannot be told from a slow one, so `patience_s` without a new chunk ends
    the iteration too. To continue later, give the `id` of the last chunk as `since`.
    """
    heard_s = time.monotonic()
    while True:
        # Opened anew each time, so that a finishing writer can remove its log in between.
        with read_journal(path) as view:
            finished = view.finished  # read first: all chunks before the end are there then
            for chunk in view.chunks(since):
                since, heard_s = chunk.id, time.monotonic()
                yield chunk
        if finished or time.monotonic() - heard_s >= patience_s:
            return
        time.sleep(poll_s)


def _as_jobs(rows: Sequence[sqlite3.Row]) -> Jobs:
    jobs = unpack(rows, "jobs", LISTED)
    columns: dict[str, Any] = {name: jobs[name].copy() for name in LISTED.names or ()}
    return Jobs(
        job_id=np.array([name for row in rows for name in json.loads(row["job_id"])], np.str_),
        users=tuple(name for row in rows for name in json.loads(row["users"])),
        **columns,
        **read_columns(rows),
    )


def _as_events(rows: Sequence[sqlite3.Row]) -> Events:
    events, shares = unpack(rows, "events", EVENT), unpack(rows, "shares", SHARE)
    offsets = np.concatenate(([0], events["entries"].cumsum(dtype=np.int64)))
    if offsets[-1] != len(shares):
        raise ValueError(f"events announce {offsets[-1]} shares, but {len(shares)} are there")
    return Events(events, shares, offsets)


def _as_round_chunk(rows: Sequence[sqlite3.Row]) -> RoundChunk:
    row = rows[0]
    notes = None if row["notes"] is None else tuple(json.loads(row["notes"]))
    return RoundChunk(row["id"], row["first"], unpack(rows, "rounds", ROUND), notes)


_AS_CHUNK: Final[Mapping[str, Callable[[Sequence[sqlite3.Row]], Chunk]]] = {
    "jobs": lambda rows: JobChunk(rows[0]["id"], rows[0]["first"], _as_jobs(rows)),
    "events": lambda rows: EventChunk(rows[0]["id"], rows[0]["first"], _as_events(rows)),
    "rounds": _as_round_chunk,
}


def _fates(events: Records, jobs: int) -> dict[str, Any]:
    """Start, end and preemptions of each job (J,), from the events."""
    kind, job, time_s = events["kind"], events["job"], events["time_s"]
    started_s, done_s = np.full((2, jobs), np.nan)
    whose, first = np.unique(job[kind == layout.START], return_index=True)
    started_s[whose] = time_s[kind == layout.START][first]
    ended, gave_up = (kind == layout.FINISH) | (kind == layout.GIVE_UP), np.zeros(jobs, np.bool_)
    done_s[job[ended]] = time_s[ended]
    gave_up[job[kind == layout.GIVE_UP]] = True
    preemptions = np.bincount(job[kind == layout.STOP], minlength=jobs)
    return {
        "started_s": started_s, "done_s": done_s, "gave_up": gave_up, "preemptions": preemptions,
    }  # fmt: skip


def _sums(events: Records, rounds: Records) -> dict[str, Any]:
    """The sums of a run that has left none.

    The numbers of a round hold until the next round, those of the last until the last event.
    """
    times_s = np.concatenate((events["time_s"], rounds["time_s"]))
    begin_s, end_s = (float(times_s.min()), float(times_s.max())) if len(times_s) else (0.0, 0.0)
    span_s = np.diff(rounds["time_s"], append=end_s)
    held, up, stray = (
        float(rounds[name] @ span_s) for name in ("held_gpus", "up_gpus", "stray_gpus")
    )
    if len(rounds):  # before the first round no GPU is held, but the nodes are up
        up += float(rounds["up_gpus"][0] * (rounds["time_s"][0] - begin_s))
    count = np.bincount(events["kind"], minlength=layout.NODE_UP + 1).tolist()
    return {
        "begin_s": begin_s, "end_s": end_s, "held_gpu_s": held, "up_gpu_s": up,
        "stray_gpu_s": stray, "rounds": len(rounds), "moves": count[layout.MOVE],
        "resizes": count[layout.RESIZE], "kills": count[layout.KILL],
    }  # fmt: skip
