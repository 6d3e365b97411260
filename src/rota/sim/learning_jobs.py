"""What the jobs of a simulation have learned: when they grew, and how accurate they were when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rota.core.layout import RUNNING
from rota.core.learning import Learning
from rota.errors import ConfigError, InputError

if TYPE_CHECKING:
    from rota.core.learning import LearningCurves
    from rota.core.types import Floats, Ints, Records
    from rota.perf.physics import Physics
    from rota.sim.setup import Conditions
    from rota.traces.trace import Trace

_SEEN = ["status", "progress_s", "pace", "settled_s", "resume_s"]
"""What of a job tells its progress at any time until something happens to it."""


class LearningJobs:
    """Where each job of one simulated trace stands in learning.

    A job trains for the epochs of its family, and its duration is what they take at level 0. What
    it has learned follows from its progress: epochs, on the curve of the level that it has.
    """

    def __init__(self, curves: LearningCurves, trace: Trace) -> None:
        self.curves = curves
        self.family = _families(curves, trace)  # (J,)
        self._total = np.append(curves.epochs, 0.0)[self.family]  # (J,) epochs that a job trains
        # Progress for an epoch at level 0 (J,); inf for a job without a curve, which trains none.
        self._epoch_s = np.full(len(trace), np.inf)
        np.divide(trace.duration_s, self._total, out=self._epoch_s, where=self._total > 0)
        jobs = len(trace)
        self.level: Ints = np.zeros(jobs, np.int64)
        # Where the present level began: progress, epochs trained until then, place on the curve.
        self._from_s, self._from_epochs, self._from_place, self._floor = np.zeros((4, jobs))
        self._deadline_s = trace.deadline_s
        self._due = np.argsort(trace.deadline_s, kind="stable")
        self._met = 0
        """How many deadlines have passed, in the order of `_due`."""
        self._accuracy, self._ungrown = np.full((2, jobs), np.nan)  # (J,) at the deadline
        self._before: Records | None = None

    def learning(self, uid: Ints, progress_s: Floats) -> Learning:
        """Where these jobs stand, of which the progress up to now is given."""
        trained = self._trained(uid, progress_s)
        return Learning(
            self.curves, self.family[uid], self.level[uid],
            self._from_place[uid] + trained - self._from_epochs[uid], self._floor[uid],
            self._total[uid] - trained,
        )  # fmt: skip

    def _trained(self, uid: Ints, progress_s: Floats) -> Floats:
        """Epochs that these jobs have trained, whatever their size was."""
        cost = self.curves.cost[self.family[uid], self.level[uid]]
        more = (progress_s - self._from_s[uid]) / (self._epoch_s[uid] * cost)
        return np.asarray(np.minimum(self._from_epochs[uid] + more, self._total[uid]))

    def cost_ratio(self, uid: int, by: int) -> float:
        """By what the work left is multiplied when a job grows by so many levels."""
        return float(self.curves.cost_ratio(self.family[uid], self.level[uid], by))

    def grow(self, uid: int, by: int, progress_s: float) -> None:
        """The job, which has made so much progress, goes on at a higher level."""
        one = np.array([uid])
        before = self.learning(one, np.array([progress_s]))
        after = before.grown(np.array([0]), by)
        self._from_s[uid] = progress_s
        self._from_epochs[uid] = self._total[uid] - before.epochs_left[0]
        self._from_place[uid], self._floor[uid] = after.epochs[0], after.floor[0]
        self.level[uid] += by

    def look(self, jobs: Records) -> None:
        """Remember the jobs (J,) before time passes, if a deadline may pass with it."""
        pending = self._met < len(self._due) and np.isfinite(self._deadline_s[self._due[self._met]])
        self._before = jobs[_SEEN].copy() if pending else None

    def meet(self, jobs: Records, now_s: float) -> None:
        """Write down how accurate the jobs were whose deadlines have passed since `look`."""
        if self._before is None:
            return
        last = int(np.searchsorted(self._deadline_s[self._due], now_s, "right"))
        due = self._due[self._met : last]
        if len(due):
            self._met = last
            progress_s = _progress_at(self._before[due], jobs[due], self._deadline_s[due])
            self._write(due, progress_s)

    def _write(self, uid: Ints, progress_s: Floats) -> None:
        """Note how accurate jobs are with this progress, and would be had they never grown."""
        here = self.learning(uid, progress_s)
        self._accuracy[uid] = here.accuracy
        mine = uid[here.knows]
        small = np.minimum(progress_s[here.knows] / self._epoch_s[mine], self._total[mine])
        self._ungrown[mine] = self.curves.accuracy(self.family[mine], 0, small)

    def at_deadlines(self, jobs: Records) -> tuple[Floats, Floats]:
        """The accuracy of each job (J,) at its deadline or its end, whichever came first.

        The second is that of the same work without any growth. A job that has not ended, and
        whose deadline has not come, counts as it is.
        """
        left = self._due[self._met :]
        self._write(left, jobs["progress_s"][left])
        return self._accuracy.copy(), self._ungrown.copy()


def learning_of(physics: Physics, trace: Trace, when: Conditions) -> LearningJobs | None:
    """The learning of a new simulation; None in a world without learning curves.

    Paces must be constant between two looks at the jobs, or progress at a deadline is not known.
    """
    if physics.learning is None:
        return None
    if physics.drift is not None:
        raise ConfigError(
            "Learning curves do not go with drift: how far a job is at its deadline would depend "
            "on speeds in between. Leave one of them out ([learning], [drift] of a scenario)."
        )
    if physics.contention is not None and when.slot_s > 0:
        raise ConfigError(
            f"Learning curves with contention need decisions at every event, not slot_s="
            f"{when.slot_s:g}: how far a job is at its deadline would depend on neighbours that "
            "end within a slot. Leave slots, contention or learning out."
        )
    return LearningJobs(physics.learning, trace)


def _families(curves: LearningCurves, trace: Trace) -> Ints:
    """The family of each job (J,); −1 for a job without a model."""
    known = np.array([curves.index(model) for model in trace.models] or [-1])
    family: Ints = np.where(trace.model < 0, -1, known[trace.model])
    lost = (family < 0) & (trace.model >= 0)
    if lost.any():
        job = int(lost.argmax())
        raise InputError(
            f"{trace.name}: job {str(trace.job_id[job])!r} trains "
            f"{trace.models[int(trace.model[job])]!r}, for which there is no learning curve; known "
            f"are {', '.join(curves.names)}."
        )
    return family


def _progress_at(before: Records, after: Records, time_s: Floats) -> Floats:
    """The progress of jobs at times between two looks, where each changes its pace once at most."""
    ran = before["status"] == RUNNING
    settled_s = np.where(after["settled_s"] > before["settled_s"], after["settled_s"], np.inf)
    begin_s = np.maximum(before["settled_s"], before["resume_s"])
    between = before["progress_s"] + before["pace"] * np.maximum(0.0, time_s - begin_s)
    now = np.where(ran, after["progress_s"], before["progress_s"])
    return np.where(ran & (time_s <= settled_s), between, now)
