"""Placing jobs where they slow each other down least: the policy `contention-greedy`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

from rota.core.draft import Draft
from rota.errors import PolicyError
from rota.policies.classic.placing import Placer
from rota.policies.contention.neighbour_kernels import GreedySettings
from rota.policies.contention.neighbours import (
    PlacementModel,
    found_of,
    odd_jobs,
    rooms_for,
    weigh,
    write_started,
)
from rota.policies.contention.placing_round_kernels import greedy_round
from rota.policies.settings import PolicyEntry, Setting, flag, number

if TYPE_CHECKING:
    from rota.core.decision import Decision
    from rota.core.snapshot import Snapshot
    from rota.core.types import Ints, Records
    from rota.policies.contention.occupy_kernels import Rooms


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
        self._model = PlacementModel.of(snapshot, self._model)
        rows = snapshot.jobs.rows.copy()  # a snapshot is read-only: another type to Numba
        rooms = rooms_for(snapshot, rows, self._model.tables)
        order = weigh(rooms, rows, fraction=self.fraction)
        shares = snapshot.shares.copy()
        if not self._play(rooms, rows, order, snapshot.nodes.copy(), shares, snapshot.time_s):
            raise PolicyError("A node lists more jobs than it has room for: a defect of rota.")
        write_started(rooms, draft)
        odd = odd_jobs(rooms, rows)
        if len(odd):  # too uneven to be spread: as few nodes as possible
            self._placer.fill(draft, odd)
        return draft.commit()

    @property
    def _settings(self) -> GreedySettings:
        return GreedySettings(self.threshold, self.min_ratio, self.size)

    def _play(
        self, rooms: Rooms, rows: Records, order: Ints, nodes: Records, shares: Records,
        now_s: float,
    ) -> bool:  # fmt: skip
        """Start jobs, in the memory `rooms`."""
        assert self._model is not None
        done: bool = greedy_round(
            self._model.tables, rooms, rows, order, nodes, shares, now_s, self._settings,
            found_of(rooms, 1),
        )  # fmt: skip
        return done


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
