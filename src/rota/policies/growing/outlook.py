"""What a job can expect of a growth: accuracy at its deadline, and time that it costs all jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.core.learning import Learning
from rota.perf.reference import reference_speeds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core.decision import Decision
    from rota.core.snapshot import Snapshot
    from rota.core.types import Bools, Floats, Ints


@dataclass(frozen=True)
class Outlook:
    """How the jobs of a snapshot go on if a decision stays as it is; NaN where nothing is known."""

    learning: Learning
    pace: Floats  # (J,) progress per second with what they shall hold
    gpus: Ints  # (J,) that they shall hold
    left_s: Floats  # (J,) until the deadline, pauses left out; inf without one
    epoch_s: Floats  # (J,) work of an epoch at the present level
    crowd: Floats  # (J,) other jobs that lack workers, by the part that they lack
    total_gpus: int

    @classmethod
    def of(cls, snapshot: Snapshot, decision: Decision, learning: Learning) -> Outlook:
        """What follows from a decision about a snapshot with learning curves."""
        jobs = snapshot.jobs
        held = _held(decision)
        stays = _stays(snapshot, decision)
        pause_s = np.where(jobs.running, jobs.resize_s, jobs.restart_s)
        pause_s = np.where(jobs.running | ~np.isnan(jobs.started_s), pause_s, 0.0)
        pause_s = np.where(stays, np.maximum(jobs.resume_s - snapshot.time_s, 0.0), pause_s)
        lack = np.maximum(0.0, 1.0 - held / np.maximum(jobs.workers, 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            epoch_s = jobs.remaining_s / learning.epochs_left
        return cls(
            learning, np.where(stays, jobs.pace, _paces(snapshot, decision)),
            held * jobs.gpus_per_worker, jobs.deadline_s - snapshot.time_s - pause_s, epoch_s,
            lack.sum() - lack, int(snapshot.nodes["gpus"][snapshot.nodes["up"]].sum()),
        )  # fmt: skip

    def later(self, parts: Sequence[float]) -> Outlook:
        """The same after all jobs have trained for these parts of the epochs that they have left.

        All in one, part by part: of P parts it has P · J rows.
        """
        many, here = len(parts), self.learning
        part = np.repeat(parts, len(self.gpus))

        def tiled(column: Any) -> Any:
            return np.tile(column, many)

        epochs = part * tiled(here.epochs_left)
        learning = Learning(
            here.curves, tiled(here.family), tiled(here.level), tiled(here.epochs) + epochs,
            tiled(here.floor), tiled(here.epochs_left) - epochs,
        )  # fmt: skip
        with np.errstate(invalid="ignore"):  # a job that stands still, and has no deadline
            left_s = tiled(self.left_s) - part * tiled(self.takes_s)
        return Outlook(
            learning, tiled(self.pace), tiled(self.gpus), left_s, tiled(self.epoch_s),
            tiled(self.crowd), self.total_gpus,
        )  # fmt: skip

    @property
    def takes_s(self) -> Floats:
        """Seconds for all epochs that each job has left (J,)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(self.learning.epochs_left * self.epoch_s / self.pace)

    def accuracy(self, by: int) -> Floats:
        """Accuracy of each job (J,) at its deadline, if it grows by so many levels now."""
        pause_s = self.learning.curves.pause_s if by else 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            done = self.pace * np.maximum(self.left_s - pause_s, 0.0)
            epochs = np.minimum(self.learning.epochs_left, done / (self.epoch_s * self._ratio(by)))
        return self.learning.after(epochs, by)

    def delay_s(self, by: int) -> Floats:
        """Seconds that such a growth delays jobs, summed over all: (J,) by which job grows.

        The job itself ends later by its added work. That takes GPU-seconds which are missing to
        all jobs that lack workers, each of which ends later by them over the cluster's GPUs.
        """
        with np.errstate(invalid="ignore"):
            more_s = self.takes_s * (self._ratio(by) - 1)
        more_s = more_s + self.learning.curves.pause_s
        return np.asarray(more_s * (1 + self.gpus * self.crowd / max(self.total_gpus, 1)))

    def _ratio(self, by: int) -> Floats:
        """By what the work of an epoch is multiplied (J,); NaN for a job that cannot grow so."""
        out, can = np.full(len(self.gpus), np.nan), self.learning.can_grow >= by
        can &= self.learning.knows
        family, level = self.learning.family[can], self.learning.level[can]
        out[can] = self.learning.curves.cost_ratio(family, level, by)
        return out


def _held(decision: Decision) -> Ints:
    """Workers that each job shall hold (J,)."""
    owner, shares = decision.flat(np.arange(len(decision.uid)))
    return np.bincount(owner, shares["workers"], len(decision.uid)).astype(np.int64)


def _stays(snapshot: Snapshot, decision: Decision) -> Bools:
    """Which running jobs go on as they are (J,)."""
    changed = np.zeros(len(snapshot.jobs), np.bool_)
    changed[decision.diff(snapshot).job] = True
    return np.asarray(snapshot.jobs.running & ~changed)


def _paces(snapshot: Snapshot, decision: Decision) -> Floats:
    """Progress per second with what jobs shall hold (J,), as far as speeds are known."""
    jobs, curves = snapshot.jobs, snapshot.curves
    owner, shares = decision.flat(np.arange(len(snapshot.jobs)))
    count = len(jobs)
    workers = np.bincount(owner, shares["workers"], count).astype(np.int64)
    pace = workers / jobs.workers
    known = np.flatnonzero((jobs.curve >= 0) & (workers > 0))
    if curves is None or not len(known):
        return pace
    across = decision.length if curves.by_nodes else np.bincount(
        owner, shares["servers"], count
    ).astype(np.int64)  # fmt: skip
    a = np.minimum(across, curves.speed.shape[2] - 1)
    w = np.minimum(workers, curves.speed.shape[3] - 1)
    works = shares["workers"] > 0
    speed = np.full(count, np.inf)
    on = owner[works]
    types = snapshot.nodes["type"][shares["node"][works]]
    curve = np.maximum(jobs.curve[on], 0)
    np.minimum.at(speed, on, curves.speed[curve, types, a[on], w[on]])
    unit = reference_speeds(jobs.rows[known], curves, snapshot.cluster)
    pace[known] = np.divide(speed[known], unit, out=np.zeros(len(known)), where=unit > 0)
    return pace
