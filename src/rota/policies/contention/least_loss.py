"""Short jobs first, where all together lose least time: the policy `least-loss`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from rota.core.draft import Draft
from rota.errors import PolicyError
from rota.policies.classic.placing import Placer
from rota.policies.contention.least_loss_kernels import least_loss_round
from rota.policies.contention.loss_advice_kernels import ORDERING, PLACING, LossAdvice
from rota.policies.contention.loss_round_kernels import LossRound, LossSettings
from rota.policies.contention.neighbours import (
    PlacementModel,
    odd_jobs,
    place_evenly,
    rooms_for,
    weigh,
    zeros_like,
)
from rota.policies.contention.time_loss_kernels import LossMemory
from rota.policies.settings import PolicyEntry, Setting, flag, number

if TYPE_CHECKING:
    from rota.core.decision import Decision
    from rota.core.snapshot import Snapshot
    from rota.core.types import Floats, Ints
    from rota.policies.contention.occupy_kernels import Rooms


@dataclass
class LeastLoss:
    """Start jobs by the GPU-seconds that they still need, where all together lose least time.

    A job loses R / p − R if it needs R more seconds and runs at pace p, and at most horizon ×
    (1 − p); pace follows from GPU type, nodes, neighbours and what was seen of the machines. A
    waiting job takes the room of running ones that need far more. Running jobs move, others away
    from their new nodes if need be, where that saves more time than it costs.
    """

    compiles: ClassVar[bool] = True

    name: str = "least-loss"
    oracle: bool = False
    horizon: float = 3600.0
    """Seconds over which losses count."""
    margin: float = 1.2
    """A job is stopped for one that needs less than its GPU-seconds divided by this."""
    stops: bool = True
    """Whether jobs are stopped for others."""
    moves: bool = True
    """Whether running jobs move."""
    displaces: bool = True
    """Whether others may be moved away for a job that moves."""
    lengths: bool = True
    """Whether it uses how long jobs are; else one needs `unknown` seconds and `again` × as long as
    it has run."""
    unknown: float = 1200.0
    again: float = 1.0
    gain: float = 180.0
    """Seconds that moving a job, or two, must save beyond what it costs."""
    drift: float = 0.0
    """How much of a machine's observed deviation is expected to last, as a power of it."""
    wake: float = 900.0
    """Seconds after which it looks again whether jobs should move; later where nothing happens."""
    fee: float = 0.0
    """Seconds of completion time that a dollar is worth."""
    _model: PlacementModel | None = field(default=None, init=False, repr=False, compare=False)
    _placer: Placer = field(
        default_factory=lambda: Placer("consolidate"), init=False, repr=False, compare=False
    )

    def decide(self, snapshot: Snapshot) -> Decision:
        """One round."""
        draft = Draft(snapshot)
        if not len(snapshot.jobs):
            return draft.commit()
        self._model = PlacementModel.of(snapshot, self._model)
        rows = snapshot.jobs.rows.copy()  # a snapshot is read-only: another type to Numba
        rooms = rooms_for(snapshot, rows, self._model.tables, again=True)
        order = weigh(rooms, rows, fraction=False)
        memory = self._memory(rooms, len(snapshot.cluster.gpu_types))
        if not least_loss_round(
            self._model.tables, rooms, zeros_like(rooms.room), rows, order, snapshot.nodes.copy(),
            snapshot.shares.copy(), snapshot.time_s, self._settings, memory,
        ):  # fmt: skip
            raise PolicyError("A node lists more jobs than it has room for: a defect of rota.")
        _write(rooms, memory, draft)
        odd = odd_jobs(rooms, rows)
        if len(odd):  # too uneven to be spread: as few nodes as possible
            self._placer.fill(draft, odd)
        if self.moves and (draft.length > 0).any():
            return draft.commit(wake_s=snapshot.time_s + max(self.wake, quiet_s(snapshot) / 8))
        return draft.commit()

    @property
    def _settings(self) -> LossSettings:
        return LossSettings(
            self.horizon,
            self.margin,
            self.stops,
            self.moves,
            self.displaces,
            self.lengths,
            self.gain,
            self.drift,
            self.unknown,
            self.again,
            self.fee,
        )

    def _advice(self) -> tuple[Floats, Floats]:
        """The weights of the ordering and the placement agent: nobody advises the rule."""
        return np.zeros(len(ORDERING)), np.zeros(len(PLACING))

    def _memory(self, rooms: Rooms, types: int) -> LossRound:
        """Memory for one round."""
        J, N = len(rooms.room.left), len(rooms.room.free)

        def ints(count: int) -> Ints:
            return np.zeros(count, np.int64)

        loss = LossMemory(
            np.zeros(J), np.zeros(J), np.zeros(N), np.ones(J), ints(J + 1), ints(N), np.zeros(N),
            ints(N), ints(N), ints(1), np.zeros(N), np.zeros(J), np.zeros((J, types)), np.zeros(J),
        )  # fmt: skip
        advice = LossAdvice(*self._advice(), np.zeros((J, types)), np.zeros(types))
        return LossRound(
            loss, np.zeros(J), ints(J), ints(J), ints(J), ints(J + 1), ints(J), ints(J), ints(J),
            advice,
        )  # fmt: skip


def quiet_s(snapshot: Snapshot) -> float:
    """Seconds since a job was submitted or placed: the longer, the less changes soon."""
    jobs = snapshot.jobs
    latest_s = np.where(jobs.running, jobs.since_s, jobs.submit_s).max(initial=-np.inf)
    return max(0.0, float(snapshot.time_s - latest_s))


def _write(rooms: Rooms, memory: LossRound, draft: Draft) -> None:
    """Give every job that was touched what the round gave it."""
    room, touched = rooms.room, np.flatnonzero(memory.touched)
    for job in touched.tolist():
        draft.stop(job)
    for job in touched[memory.spread[touched] >= 0].tolist():
        place_evenly(draft, job, room.node[job, : room.span[job]].tolist())


def _fee(text: str) -> float:
    value = number(text, 0.0)
    if value > 1e6:
        raise ValueError
    return value


SETTINGS: Final = {
    "horizon": Setting("seconds over which losses count", lambda t: number(t, 1.0),
                       "seconds, 1 or more"),
    "margin": Setting("a job is stopped for one that needs this many times fewer GPU-seconds",
                      lambda t: number(t, 1.0), "a number, 1 or more"),
    "stops": Setting("stop jobs for others that need less", flag, "0 or 1"),
    "moves": Setting("move running jobs", flag, "0 or 1"),
    "displaces": Setting("move others away for a job that moves", flag, "0 or 1"),
    "lengths": Setting("use how long jobs are", flag, "0 or 1"),
    "unknown": Setting("seconds that a job of unknown length needs at first",
                       lambda t: number(t, 1.0), "seconds, 1 or more"),
    "again": Setting("how many times as long as it has run such a job still needs",
                     lambda t: number(t, 0.0), "a number, 0 or more"),
    "gain": Setting("seconds that moving a job, or two, must save beyond what it costs",
                    lambda t: number(t, 0.0), "seconds, 0 or more"),
    "drift": Setting("how much of a machine's deviation lasts, as a power of it",
                     lambda t: number(t, 0.0), "a number, 0 or more"),
    "wake": Setting("seconds after which it looks again", lambda t: number(t, 1.0),
                    "seconds, 1 or more"),
    "fee": Setting("seconds of completion time that a dollar is worth", _fee,
                   "seconds, from 0 to 1,000,000"),
}  # fmt: skip
POLICIES: Final = {
    "least-loss": PolicyEntry(
        "Short jobs first, where all together lose least time; stops and moves jobs.",
        "rota", LeastLoss, SETTINGS),
}  # fmt: skip
