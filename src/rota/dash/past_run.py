"""A journal as a report needs it: read at one moment, checked, with times and sizes worked out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core.layout import GIVE_UP, KILL, MOVE, NODE_DOWN, RESIZE, STOP
from rota.dash.groups import cluster_facts, losses
from rota.dash.units import plural, time
from rota.errors import InputError
from rota.run.metrics import summarise
from rota.run.stints import Stints, down_times
from rota.sim.past import count_clusters, past_cluster

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.core import Cluster
    from rota.core.types import Bools, Floats, Ints, Records
    from rota.run.outcome import Outcome
    from rota.run.reader import Deciding, Jobs, JournalView

NOBODY: Final = "(no user)"
MARKED: Final = {STOP: "preempted", MOVE: "moved", KILL: "failed or killed", GIVE_UP: "gave up"}
"""Events that a chart of jobs marks, and what they are called."""
MOST_WEIGHTS: Final = 4
"""Weights that are named in a note, the latest ones."""


@dataclass(frozen=True)
class PastRun:
    """One journal, as it was when it was read."""

    name: str
    meta: Mapping[str, Any]
    finished: bool
    jobs: Jobs
    events: Records  # (E,) EVENT
    outcome: Outcome
    stints: Stints
    begin_s: float
    end_s: float
    cluster: Cluster | None
    """The last one that the journal names."""
    clusters: int
    """How many it names, one after another."""
    tunes: Sequence[Mapping[str, Any]] = ()
    """Changes of settings of jobs: `time_s`, `job_id`, `settings`."""
    weights: Sequence[Deciding] = ()
    """Which weights of a trained policy decided, one after another."""

    @classmethod
    def read(cls, view: JournalView) -> PastRun:
        """Read all of a journal, which may still be written."""
        with view.frozen():
            finished, jobs, found, outcome = view.finished, view.jobs, view.events(), view.outcome()
            tunes, weights = _tunes(view, jobs, outcome), view.weights()
        times_s = np.concatenate((found.events["time_s"], outcome.series["time_s"]))
        times_s = times_s[np.isfinite(times_s)]
        end_s = float(times_s.max(initial=outcome.end_s if np.isfinite(outcome.end_s) else 0.0))
        came_s = jobs.submit_s[jobs.submit_s <= end_s]
        begin_s = float(min(times_s.min(initial=end_s), came_s.min(initial=end_s)))
        if len(found.shares) and found.shares["node"].min() < 0:
            raise InputError(
                f"{view.path}: an event names node {found.shares['node'].min()}; nodes count "
                "from 0, so this journal was not written by rota."
            )
        return cls(
            str(view.path), view.meta, finished, jobs, found.events, outcome,
            Stints.of(found, end_s), begin_s, end_s, past_cluster(view.meta),
            count_clusters(view.meta), tunes, weights,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.jobs.submit_s)

    @cached_property
    def there(self) -> Bools:
        """Which jobs (J,) have been submitted by the end of the journal."""
        submitted: Bools = self.jobs.submit_s <= self.end_s
        return submitted

    @cached_property
    def left_s(self) -> Floats:
        """When each job (J,) ended, or the end of the journal."""
        done_s = self.outcome.done_s
        return np.where(np.isnan(done_s), self.end_s, done_s)

    @cached_property
    def gpus_each(self) -> Ints:
        """GPUs per worker (J,); 0: its workers use CPUs only."""
        given = self.jobs.more.get("gpus_per_worker", np.ones(len(self)))
        each: Ints = np.where(np.isfinite(given), np.maximum(given, 0), 1).astype(np.int64)
        return np.where(self.jobs.num_gpus < 1, 0, each)

    @cached_property
    def gpus(self) -> Ints:
        """GPUs held in each stint (S,)."""
        return self.stints.workers * self.gpus_each[self.stints.job]

    @cached_property
    def gpu_s(self) -> Floats:
        """GPU-seconds that each job (J,) has held."""
        spent = self.gpus * (self.stints.end_s - self.stints.begin_s)
        held: Floats = np.bincount(self.stints.job, spent, len(self)).astype(np.float64)
        return held

    @cached_property
    def elastic(self) -> Bools:
        """Which jobs (J,) were resized, or may be."""
        resized = np.zeros(len(self), np.bool_)
        resized[self.stints.job[self.stints.begun_by == RESIZE]] = True
        low, high = (self.jobs.more.get(f"{end}_workers", np.zeros(1)) for end in ("min", "max"))
        wide: Bools = resized | (high > low)
        return wide

    @cached_property
    def marks(self) -> Records:
        """Events that a chart of jobs marks, by time."""
        return self.events[np.isin(self.events["kind"], tuple(MARKED))]

    @cached_property
    def down(self) -> Sequence[tuple[int, float, float]]:
        """Node, begin and end of every time that a node was down."""
        return down_times(self.events, self.end_s)

    @cached_property
    def user(self) -> tuple[list[str], Ints]:
        """Users by the GPU-seconds their jobs held, most first, and each job's place there (J,)."""
        codes, group = np.unique(self.jobs.user, return_inverse=True)
        order = np.argsort(-np.bincount(group, self.gpu_s, len(codes)), kind="stable")
        rank = np.empty(len(codes), np.int64)
        rank[order] = np.arange(len(codes))
        names = [self.jobs.users[codes[k]] if codes[k] >= 0 else NOBODY for k in order.tolist()]
        return names, rank[group]

    @cached_property
    def nodes(self) -> tuple[list[str], Ints]:
        """Names of the nodes, with their GPU type where there are several, and their GPUs (N,).

        Nodes of an earlier, larger cluster have numbers for names, and the GPUs used there.
        """
        names, gpus = [], np.zeros(0, np.int64)
        if self.cluster is not None:
            kinds = self.cluster.gpu_types
            names = [
                f"{name} {kinds[kind]}" if len(kinds) > 1 else name
                for name, kind in zip(self.cluster.names, self.cluster.type.tolist(), strict=True)
            ]
            gpus = self.cluster.gpus
        seen = int(self.stints.shares["node"].max(initial=-1)) + 1
        down = self.events["job"][self.events["kind"] >= NODE_DOWN]
        count = max(len(names), seen, int(down.max(initial=-1)) + 1)
        names += [f"node {k}" for k in range(len(names), count)]
        return names, np.append(gpus, np.zeros(count - len(gpus), np.int64))

    def label(self, job: int) -> str:
        """A job's name and, where it is known, its model."""
        models = self.jobs.names.get("model", ())
        code = self.jobs.more.get("model", np.full(len(self), -1.0))[job]
        model = f" {models[int(code)]}" if 0 <= code < len(models) else ""
        return f"{self.jobs.job_id[job]}{model}"


def summary(run: PastRun) -> dict[str, Any]:
    """All numbers of a journal, ready for JSON: its metrics, and where it comes from."""
    found = summarise(run.outcome)
    preemptions, held = (
        np.bincount(run.user[1], column, len(run.user[0])).tolist()
        for column in (run.outcome.preemptions, run.gpu_s / 3600)
    )
    place = {name: k for k, name in enumerate(run.user[0])}
    for row in found["by_user"]:
        k = place[row["user"] if row["user"] is not None else NOBODY]
        row |= {"held_gpu_h": held[k], "preemptions": int(preemptions[k])}
    found["by_user"].sort(key=lambda row: -row["held_gpu_h"])
    scenario = run.meta.get("scenario")
    cluster = {"about": plural(run.outcome.total_gpus, "GPU"), "gpus": run.outcome.total_gpus}
    if run.cluster is not None:
        cluster = cluster_facts(run.cluster)
    return {
        "journal": run.name, "ended": run.finished, **found,
        "begin_s": run.begin_s, "end_s": run.end_s, "began": _began(run.meta),
        "trace": run.meta.get("trace"),
        "scenario": scenario if isinstance(scenario, dict) and scenario else None,
        "cluster": cluster, "tunes": list(run.tunes),
        "weights": [one._asdict() for one in run.weights], "notes": _notes(run),
    }  # fmt: skip


def _tunes(view: JournalView, jobs: Jobs, outcome: Outcome) -> list[dict[str, Any]]:
    """Every change of settings with its time and the name of its job."""
    return [
        {
            "time_s": float(outcome.series["time_s"][one.round]),
            "job_id": one.uid if one.live else str(jobs.job_id[int(one.uid)]),
            "settings": dict(one.settings),
        }
        for one in view.tunes()
    ]


def _told_tunes(run: PastRun) -> list[str]:
    """In one sentence, what was tuned; nothing where nothing was."""
    if not run.tunes:
        return []
    tuned = {one["job_id"] for one in run.tunes}
    first = run.tunes[0]
    settings = ", ".join(f"{name} {value:g}" for name, value in first["settings"].items())
    since = time(first["time_s"] - run.begin_s)
    return [
        f"{plural(len(run.tunes), 'tune')} of {plural(len(tuned), 'job')}; the first {since} after "
        f"the beginning, of job {first['job_id']}: {settings}. --json lists all."
    ]


def _told_weights(run: PastRun) -> list[str]:
    """In one sentence, which weights decided; nothing where no policy names any."""
    if not run.weights:
        return []
    said = [
        f"{one.weights} from {time(one.from_s - run.begin_s)} on "
        f"({plural(one.rounds, 'written round')})"
        for one in run.weights[-MOST_WEIGHTS:]
    ]
    before = len(run.weights) - len(said)
    earlier = f"after {before} others, which --json lists, " if before else ""
    return [f"Weights that decided: {earlier}{', '.join(said)}."]


def _began(meta: Mapping[str, Any]) -> str | None:
    """When a live run began, as text; None of a simulated one."""
    try:
        began = datetime.fromtimestamp(meta["began_at"], UTC)
    except (LookupError, TypeError, ValueError, OSError, OverflowError):
        return None
    return began.isoformat(sep=" ", timespec="seconds")


def _notes(run: PastRun) -> list[str]:
    """What a reader must know to read the numbers rightly."""
    notes = []
    if not run.finished:
        why = run.meta.get("stopped")
        unknown = "The run has not ended, or its writer was stopped."
        notes.append(unknown if why is None else f"The run stopped early: {why}")
    if not len(run):
        notes.append("The journal holds no jobs yet.")
    if later := int((~run.there).sum()):
        ends = "come after the end of the journal" if run.finished else "were still to come then"
        notes.append(f"{plural(later, 'job')} of the trace {ends}.")
    live = run.there & np.isnan(run.outcome.done_s)
    if count := int(live.sum()):
        notes.append(f"{plural(count, 'job')} not ended; JCT and waiting are of finished jobs.")
    if run.clusters > 1:
        notes.append(f"The journal names {run.clusters} clusters in turn; the last is shown.")
    return notes + _told_tunes(run) + _told_weights(run) + losses(run.meta)
