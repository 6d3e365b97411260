"""A journal as a world: its jobs as a trace, and its rounds, lived through once more.

A journal keeps who got what and when, not what the scheduler saw. What it saw follows: the
recorded decisions are carried out again in the simulator, in the world that the journal names.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core import layout
from rota.core.cluster import Cluster
from rota.core.decision import Decision
from rota.core.layout import SHARE
from rota.errors import ConfigError, DecisionError, InputError, JournalError, UnknownNameError
from rota.perf.physics import Physics
from rota.run.reader import read_journal
from rota.scenarios import load
from rota.sim import Conditions, Faults
from rota.sim.simulator import Simulator
from rota.traces import Trace, load_trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.core.snapshot import Snapshot
    from rota.core.types import Records
    from rota.run.reader import Events, JournalView
    from rota.scenarios import Scenario

PREFIX: Final = "journal:"
"""How a teacher is named that is a journal."""
SLACK_S: Final = 1.0
"""Seconds by which a job may end sooner or later than the journal says."""
_SQLITE: Final = b"SQLite format 3"
_GIVES: Final = (layout.START, layout.MOVE, layout.RESIZE)
_TAKES: Final = (layout.STOP, layout.KILL)
_ENDS: Final = (layout.FINISH, layout.GIVE_UP)


def jobs_of(source: str) -> Trace:
    """The jobs of a journal or of a job log, whichever the file is; or those of a preset."""
    path = Path(source)
    try:
        with path.open("rb") as file:
            is_journal = file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        is_journal = False
    if not is_journal:
        return load_trace(source)
    with _opened(path) as view:
        return _trace(view)


class Record:
    """The run that a journal keeps."""

    def __init__(self, path: Path, scenario: Scenario, data: Path | None = None) -> None:
        """Read it; `scenario` is the one to learn for, which is often the journal's own."""
        self.path = path
        with _opened(path) as view:
            self.trace = _trace(view)
            self._events = _checked(view.events(), len(self.trace), path)
            self._rounds_s = np.unique(view.rounds()["time_s"])
            meta = dict(view.meta)
            submitted = view.jobs.submit_s
        self._row = np.empty(len(submitted), np.int64)  # a job's number → its row in the trace
        self._row[np.argsort(submitted, kind="stable")] = np.arange(len(submitted))
        self.cluster, self.when = _settings(path, meta)
        self.seed = int(meta.get("seed") or 0)
        self._own = _scenario(path, meta.get("scenario") or {}, scenario)
        self.physics = Physics() if self._own is None else self._own.physics(data, self.cluster)

    def rounds(self) -> Iterator[tuple[Snapshot, Decision]]:
        """What the scheduler saw, and what it decided, round by round."""
        sim = Simulator(self.cluster, self.trace, self.when, seed=self.seed, physics=self.physics)
        held: dict[int, Records] = {}
        ended_s = np.full(len(self.trace), np.inf)
        events, shares, offsets = self._events
        ends = np.isin(events["kind"], _ENDS)
        ended_s[self._row[events["job"][ends]]] = events["time_s"][ends]
        last_s = float(self._rounds_s[-1]) if len(self._rounds_s) else -np.inf
        done, now_s = 0, -np.inf
        while now_s < last_s and sim.wait(self._next_s(now_s)):
            snapshot = sim.observe()
            now_s = snapshot.time_s
            until = int(np.searchsorted(events["time_s"], now_s, "right"))
            for e in range(done, until):
                kind = int(events["kind"][e])
                if kind in _GIVES:
                    row = int(self._row[events["job"][e]])
                    held[row] = shares[offsets[e] : offsets[e + 1]]
                elif kind in _TAKES or kind in _ENDS:
                    held.pop(int(self._row[events["job"][e]]), None)
            done = until
            self._check_alive(snapshot, ended_s)
            if (ended_s[snapshot.jobs.uid] <= now_s).any():
                continue  # by the journal over already, here in a moment: others wait for its room
            decision = self._decision(snapshot, held)
            yield snapshot, decision
            sim.apply(decision.diff(snapshot))

    def _next_s(self, now_s: float) -> float:
        """When the next round was."""
        k = int(np.searchsorted(self._rounds_s, now_s, "right"))
        return float(self._rounds_s[k]) if k < len(self._rounds_s) else np.inf

    def _check_alive(self, snapshot: Snapshot, ended_s: Any) -> None:
        """Raise unless the same jobs live here as in the journal."""
        now_s, here = snapshot.time_s, np.zeros(len(self.trace), np.bool_)
        here[snapshot.jobs.uid] = True
        came = self.trace.submit_s <= now_s
        wrong = here & (ended_s < now_s - SLACK_S) | came & ~here & (ended_s > now_s + SLACK_S)
        if not wrong.any():
            return
        row = int(wrong.argmax())
        job, here_too = str(self.trace.job_id[row]), "still runs" if here[row] else "has ended"
        said = f"ended at {ended_s[row]:g} s" if ended_s[row] < np.inf else "never ended"
        where = "as fast as its trace says" if self._own is None else f"in {self._own.name!r}"
        raise InputError(
            f"{self.path}: By the journal job {job!r} {said}, but {where} it {here_too} at "
            f"{now_s:g} s: the run took place in another world. Name that world's scenario as "
            "[world] scenario, or learn from a journal that `rota simulate` wrote."
        )

    def _decision(self, snapshot: Snapshot, held: dict[int, Records]) -> Decision:
        jobs = snapshot.jobs
        parts = [held.get(uid, np.zeros(0, SHARE)) for uid in jobs.uid.tolist()]
        length = np.array([len(part) for part in parts], np.int64)
        joined = np.concatenate([*parts, np.zeros(0, SHARE)])
        decision = Decision(jobs.uid.copy(), length.cumsum() - length, length, joined)
        try:
            decision.check(snapshot)
        except DecisionError as error:
            raise InputError(
                f"{self.path}: What the journal says was decided at {snapshot.time_s:g} s cannot "
                f"be: {error}"
            ) from None
        return decision


@contextmanager
def _opened(path: Path) -> Iterator[JournalView]:
    """A journal that the user named: what is wrong with it is wrong with the input."""
    try:
        with read_journal(path) as view:
            yield view
    except JournalError as error:
        raise InputError(str(error)) from None


def _trace(view: JournalView) -> Trace:
    """The jobs, as far as the journal describes them."""
    jobs = view.jobs
    if not len(jobs.submit_s):
        raise InputError(f"{view.path}: The journal holds no jobs to learn from.")
    names: dict[str, Any] = {f"{key}s": texts for key, texts in jobs.names.items()}
    return Trace.build(
        str(view.path), job_id=jobs.job_id, submit_s=jobs.submit_s, duration_s=jobs.duration_s,
        num_gpus=jobs.num_gpus, user=jobs.user, users=jobs.users, **jobs.more, **names,
    )  # fmt: skip


def _checked(found: Events, jobs: int, path: Path) -> Events:
    """The events, whose jobs exist and which are in order of time."""
    job = found.events["job"][found.events["kind"] < layout.NODE_DOWN]
    if len(job) and not (job.min() >= 0 and job.max() < jobs):
        raise InputError(f"{path}: The journal speaks of jobs that it does not list.")
    if np.any(np.diff(found.events["time_s"]) < 0):
        raise InputError(f"{path}: The journal's events are not in order of time.")
    return found


def _settings(path: Path, meta: dict[str, Any]) -> tuple[Cluster, Conditions]:
    """The machines and conditions that the journal's facts tell of."""
    try:
        when = dict(meta["conditions"])
        cluster: dict[str, Any] = {
            name: tuple(value) if name in ("names", "gpu_types") else np.asarray(value)
            for name, value in meta["cluster"].items()
        }
        return Cluster(**cluster), Conditions(**when | {"faults": Faults(**when["faults"])})
    except (KeyError, TypeError, AttributeError, ValueError, ConfigError) as error:
        raise InputError(
            f"{path}: The journal does not tell what cluster it is about "
            f"({type(error).__name__}: {error}); learn from one that `rota simulate` wrote."
        ) from None


def _scenario(path: Path, named: dict[str, Any], wanted: Scenario) -> Scenario | None:
    """The scenario that the journal was written in; None if it was a plain trace."""
    if not named:
        return None
    if named.get("digest") == wanted.digest:
        return wanted
    try:
        found = load(str(named.get("name")))
    except UnknownNameError:
        found = None
    if found is None or found.digest != named.get("digest"):
        raise InputError(
            f"{path}: The journal was written in version {named.get('version')} of the scenario "
            f"{named.get('name')!r} ({named.get('digest')}), which is not what is called so "
            "here; name the file of that scenario as [world] scenario."
        )
    return found
