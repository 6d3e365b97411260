"""Placing jobs where they slow each other down least: the policy `contention-greedy`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

from rota.core.draft import Draft
from rota.policies.classic.placing import Placer
from rota.policies.contention.neighbour_kernels import GreedySettings
from rota.policies.contention.neighbours import PlacementModel, set_up
from rota.policies.contention.rollout_kernels import greedy_round
from rota.policies.settings import PolicyEntry, Setting, flag, number

if TYPE_CHECKING:
    from rota.core.decision import Decision
    from rota.core.snapshot import Snapshot
    from rota.policies.contention.neighbours import KernelArrays


@dataclass
class ContentionGreedy:
    """Place whatever gains most per GPU, the losses of its neighbours counted; never preempt.

    A job's speed counts relative to its reference and times its GPUs. The gain of a placement
    is what the job adds less what the running jobs lose by it. Every type of job in the queue
    is tried in every spread; the best is placed while its gain per GPU exceeds `threshold`.
    """

    compiles: ClassVar[bool] = True

    name: str = "contention-greedy"
    oracle: bool = False
    threshold: float = 0.0
    """Least gain per GPU: 1 is a job at its reference speed that slows no other job down."""
    min_ratio: float = 0.0
    """No placement may leave a job with less than this part of its speed."""
    size: float = 0.0
    """Scores are divided by GPUs to this power: small jobs first."""
    fraction: bool = False
    """Whether a job's speed counts by the part of the job it does, so short jobs count more."""
    _model: PlacementModel | None = field(default=None, init=False, repr=False, compare=False)
    _placer: Placer = field(
        default_factory=lambda: Placer("consolidate"), init=False, repr=False, compare=False
    )

    def decide(self, snapshot: Snapshot) -> Decision:
        """One round."""
        draft = Draft(snapshot)
        waiting = snapshot.jobs.gpus_per_worker[snapshot.jobs.waiting]
        if not len(waiting) or waiting.min() > snapshot.nodes["free"].max():
            return draft.commit()
        if self._model is None or not self._model.suits(snapshot):
            self._model = PlacementModel(snapshot.cluster, snapshot.curves, snapshot.contention)
        arrays = set_up(snapshot, self._model, fraction=self.fraction)
        self._play(arrays, self._model)
        arrays.write(draft)
        if len(arrays.odd):  # too uneven to be spread: as few nodes as possible
            self._placer.fill(draft, arrays.odd)
        return draft.commit()

    def _play(self, arrays: KernelArrays, model: PlacementModel) -> None:
        """Start jobs, in the arrays."""
        settings = GreedySettings(self.threshold, self.min_ratio, self.size)
        greedy_round(
            model.law, arrays.options, arrays.room, arrays.scratch, settings, arrays.found(1)
        )


SETTINGS: Final = {
    "threshold": Setting("least gain per GPU, neighbours' losses counted; 1: alone at full speed",
                         lambda t: number(t, -100.0), "a number"),
    "min_ratio": Setting("no job may be slowed down below this part of its speed",
                         lambda t: number(t, 0.0), "a number, 0 or more"),
    "size": Setting("scores are divided by GPUs to this power", lambda t: number(t, -10.0),
                    "a number"),
    "fraction": Setting("count speed by the part of a job that it does", flag, "0 or 1"),
}  # fmt: skip
POLICIES: Final = {
    "contention-greedy": PolicyEntry(
        "Where it gains most per GPU, the losses of its neighbours counted; the whole queue.",
        "rota", ContentionGreedy, SETTINGS),
}  # fmt: skip
