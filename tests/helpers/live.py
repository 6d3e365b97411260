"""A live cluster in miniature: its clock ticks, its jobs end in between, it keeps books."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rota.core import Cluster, Draft, Job, JobTable, Move, Resize, Snapshot, Start, Stop
from rota.core.layout import FINISH
from rota.run.job_facts import Listing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.core import Decision, Plan

FIRST_UID = 100
"""So that a uid is never taken for an index."""


@dataclass
class Task:
    """What a job is, and what the cluster knows of it."""

    submit_s: float
    work_s: float
    gpus: int
    user: str = ""
    ends: int = FINISH
    left_s: float = field(init=False)
    share: tuple[tuple[int, int, int], ...] = ()
    ended_s: float = np.inf

    def __post_init__(self) -> None:
        self.left_s = self.work_s


class ToyCluster:
    """A Backend and its JobFacts; it looks up from its sleep every `tick_s`, whatever happens."""

    def __init__(
        self, tasks: Sequence[Task], cluster: Cluster | None = None, *, tick_s: float = 1.0,
        down: Mapping[int, tuple[float, float]] | None = None,
    ) -> None:  # fmt: skip
        self.cluster = cluster or Cluster.uniform(2, 4)
        self.tasks = {FIRST_UID + k: task for k, task in enumerate(tasks)}
        self.now_s, self._tick_s, self._down = 0.0, tick_s, down or {}
        self.wakes: list[float] = []
        self._asleep = False

    def wait(self, wake_s: float) -> bool:
        self.wakes.append(wake_s)
        if self._asleep:
            self._pass(self._tick_s)
        self._asleep = True
        return any(task.ended_s > self.now_s for task in self.tasks.values())

    def _pass(self, seconds: float) -> None:
        for task in self.tasks.values():
            if task.share and task.left_s <= seconds:
                task.ended_s, task.share = self.now_s + task.left_s, ()
            elif task.share:
                task.left_s -= seconds
        self.now_s += seconds

    def observe(self) -> Snapshot:
        live = {
            uid: task
            for uid, task in self.tasks.items()
            if task.submit_s <= self.now_s < task.ended_s
        }
        jobs = [
            Job(workers=task.gpus, submit_s=task.submit_s, estimate_s=task.work_s)
            for task in live.values()
        ]
        held = {
            k: [(node, workers) for node, workers, _ in task.share]
            for k, task in enumerate(live.values())
            if task.share
        }
        made = Snapshot.of(self.cluster, jobs, held, time_s=self.now_s)
        rows, nodes = made.jobs.rows.copy(), made.nodes.copy()
        rows["uid"] = list(live)
        for node, (from_s, to_s) in self._down.items():
            if from_s <= self.now_s < to_s:
                nodes["up"][node], nodes["free"][node] = False, 0
        return Snapshot(self.now_s, self.cluster, JobTable(rows), nodes, made.shares)

    def apply(self, plan: Plan) -> None:
        for action in plan:
            match action:
                case Start() | Resize() | Move():
                    self.tasks[action.uid].share = action.share
                case Stop():
                    self.tasks[action.uid].share = ()

    def listing(self, uid: int) -> Listing:
        task = self.tasks[uid]
        return Listing(job_id=str(uid), user=task.user, num_gpus=task.gpus, submit_s=task.submit_s)

    def ending(self, uid: int) -> tuple[int, float]:
        task = self.tasks[uid]
        if task.ended_s > self.now_s:
            raise LookupError(f"Job {uid} has not ended.")
        return task.ends, task.ended_s


class Queue:
    """First come, first served, without compiled code, for which the first round would wait."""

    name = "queue"

    def decide(self, snapshot: Snapshot) -> Decision:
        draft = Draft(snapshot)
        for job in np.flatnonzero(snapshot.jobs.waiting).tolist():
            share, left = [], draft.gpus(job)
            for node in range(len(snapshot.cluster)):
                if take := min(left, draft.free(node)):
                    share.append((node, take))
                    left -= take
            if left:
                break
            draft.place(job, share)
        return draft.commit()
