"""A journal as a world to learn from: its jobs as a trace, and its rounds, carried out again.

A journal records what each job held and when, not what the scheduler saw. To find that, the
recorded decisions are carried out again in the simulator, in the world that the journal names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core import layout
from rota.core.decision import Decision
from rota.core.layout import SHARE
from rota.errors import ConfigError, DecisionError, InputError, UnknownNameError
from rota.perf.physics import Physics
from rota.scenarios import load
from rota.sim import Conditions, Faults
from rota.sim.past import count_clusters, is_journal, lived_jobs, opened, past_cluster, past_jobs
from rota.sim.simulator import Simulator
from rota.traces import load_trace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rota.core.cluster import Cluster
    from rota.core.snapshot import Snapshot
    from rota.core.types import Records
    from rota.scenarios import Scenario
    from rota.traces import Trace

SLACK_S: Final = 1.0
"""Seconds by which the end of a job may differ from what the journal says."""
_GIVES: Final = (layout.START, layout.MOVE, layout.RESIZE)
_TAKES: Final = (layout.STOP, layout.KILL)
_ENDS: Final = (layout.FINISH, layout.GIVE_UP)


def jobs_of(source: str) -> Trace:
    """The jobs of a file, which is a journal or a job log, or of a preset."""
    return past_jobs(source) if is_journal(source) else load_trace(source)


class JournalReplay:
    """The run that a journal records, carried out again."""

    def __init__(self, path: Path, scenario: Scenario, data: Path | None = None) -> None:
        """Read the journal; `scenario` is the one to learn for, often the journal's own."""
        self.path = path
        with opened(path) as view:
            self.trace, self._row, self._left_s = lived_jobs(view)
            self._events = view.events()
            meta = dict(view.meta)
            self._rounds_s = np.unique(view.rounds()["time_s"])
            if meta.get("shadow"):  # then others decided, between the rounds
                events = self._events.events
                decided = np.isin(events["kind"], _GIVES + _TAKES)
                self._rounds_s = np.union1d(self._rounds_s, events["time_s"][decided])
        self.cluster, self.when = _settings(path, meta)
        self.seed = int(meta.get("seed") or 0)
        self._own = _scenario(path, meta.get("scenario") or {}, scenario)
        self.physics = Physics() if self._own is None else self._own.physics(data, self.cluster)

    def rounds(self) -> Iterator[tuple[Snapshot, Decision]]:
        """The snapshot that the scheduler saw and the decision it took, round by round."""
        sim = Simulator(self.cluster, self.trace, self.when, seed=self.seed, physics=self.physics)
        held: dict[int, Records] = {}
        last_s = float(self._rounds_s[-1]) if len(self._rounds_s) else -np.inf
        done, told, now_s = 0, 0, -np.inf
        while now_s < last_s and sim.wait(self._next_s(now_s)):
            snapshot = sim.observe()
            now_s = snapshot.time_s
            done = self._follow(held, done, now_s)
            self._check_alive(snapshot)
            if (self._left_s[snapshot.jobs.uid] <= now_s).any():
                continue  # it has ended in the journal and is about to here: its room is needed
            decision = self._decision(snapshot, held)
            # On a live cluster a round comes a moment after a job arrived or ended, not at once.
            due = int(np.searchsorted(self._rounds_s, now_s, "right"))
            if due > told:
                yield snapshot, decision
            told = due
            sim.apply(decision.diff(snapshot))

    def _follow(self, held: dict[int, Records], done: int, now_s: float) -> int:
        """Bring `held` from the first `done` events up to now; returns the number of events."""
        events, shares, offsets = self._events
        until = int(np.searchsorted(events["time_s"], now_s, "right"))
        for e in range(done, until):
            kind = int(events["kind"][e])
            row = int(self._row[events["job"][e]]) if kind < layout.NODE_DOWN else -1
            if row < 0:
                continue
            if kind in _GIVES:
                held[row] = shares[offsets[e] : offsets[e + 1]]
            elif kind in _TAKES or kind in _ENDS:
                held.pop(row, None)
        return until

    def _next_s(self, now_s: float) -> float:
        """The time of the next round."""
        k = int(np.searchsorted(self._rounds_s, now_s, "right"))
        return float(self._rounds_s[k]) if k < len(self._rounds_s) else np.inf

    def _check_alive(self, snapshot: Snapshot) -> None:
        """Raise unless the same jobs wait or run here as in the journal."""
        ended_s = self._left_s
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
                f"{self.path}: The decision that the journal records at {snapshot.time_s:g} s is "
                f"not possible: {error}"
            ) from None
        return decision


def _settings(path: Path, meta: dict[str, Any]) -> tuple[Cluster, Conditions]:
    """The machines and conditions in the journal's facts; a live journal has no conditions."""
    cluster = past_cluster(meta)
    if (clusters := count_clusters(meta)) > 1:
        raise InputError(
            f"{path}: The journal was written on {clusters} clusters in turn, so its rounds cannot "
            "be carried out again on one; learn from a journal whose cluster did not change."
        )
    try:
        if cluster is None:
            raise KeyError("cluster")
        when = dict(meta.get("conditions") or {})
        faults = Faults(**when.pop("faults", {}))
        return cluster, Conditions(**when, faults=faults)
    except (KeyError, TypeError, AttributeError, ValueError, ConfigError) as error:
        raise InputError(
            f"{path}: The journal does not say which cluster it was written on "
            f"({type(error).__name__}: {error}); learn from one that `rota simulate` or `rota run` "
            "wrote."
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
            f"{named.get('name')!r} ({named.get('digest')}), which differs from the one of that "
            "name here; name the file of that scenario as [world] scenario."
        )
    return found
