"""How a run went: what became of every job, and what the cluster did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.core.layout import ROUND

if TYPE_CHECKING:
    from rota.core.types import Bools, Floats, Ints, Records


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The facts from which every metric follows; from a simulator, or read back from a journal."""

    policy: str
    seed: int = 0
    total_gpus: int
    job_id: Any  # (J,) str
    user: Ints  # (J,) into `users`, −1: none
    users: tuple[str, ...] = ()
    num_gpus: Ints  # (J,) requested
    submit_s: Floats  # (J,)
    duration_s: Floats  # (J,) run time alone, at the requested size
    started_s: Floats  # (J,) first start, NaN if it never did
    done_s: Floats  # (J,) end, NaN if it has not ended
    gave_up: Bools  # (J,) ended by failing once too often
    preemptions: Ints  # (J,)
    lost_s: Floats  # (J,) progress lost in failures
    fee: Floats = field(default_factory=lambda: np.zeros(0))  # (J,) dollars; (0,): no prices
    accuracy: Floats = field(default_factory=lambda: np.zeros(0))
    """(J,) at the deadline or the end, whichever came first; (0,): no learning curves."""
    ungrown: Floats = field(default_factory=lambda: np.zeros(0))
    """(J,) the same after as much work, had the network never grown."""
    level: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """(J,) by how many levels the network has grown in the end."""
    begin_s: float
    end_s: float
    held_gpu_s: float
    """GPU-seconds held by jobs."""
    up_gpu_s: float
    """GPU-seconds that nodes were up."""
    stray_gpu_s: float
    """GPU-seconds free on partly used nodes."""
    moves: int = 0
    resizes: int = 0
    kills: int = 0
    rounds: int = 0
    wall_s: float = 0.0
    notes: tuple[str, ...] = ()
    """What a reader of the numbers must know, in sentences."""
    series: Records = field(default_factory=lambda: np.zeros(0, ROUND))  # (R,) ROUND
