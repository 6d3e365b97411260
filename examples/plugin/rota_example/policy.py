"""A policy with settings: the fields of its class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from rota.core import Draft
from rota.policies import Placer

if TYPE_CHECKING:
    from rota.core import Decision, Snapshot


@dataclass
class Widest:
    """The widest waiting job first, or the narrowest; no job is ever stopped."""

    first: Literal["wide", "narrow"] = "wide"
    most: int = 0
    """Jobs that are started in one round; 0: no limit."""

    def decide(self, snapshot: Snapshot) -> Decision:
        """One round."""
        draft, place = Draft(snapshot), Placer("best-fit")
        waiting = np.flatnonzero(snapshot.jobs.waiting)
        gpus = snapshot.jobs.gpus_per_worker[waiting] * snapshot.jobs.workers[waiting]
        order = waiting[np.argsort(-gpus if self.first == "wide" else gpus, kind="stable")]
        started = 0
        for job in order.tolist():
            share = place(draft, job)
            if share and (self.most == 0 or started < self.most):
                draft.place(job, share)
                started += 1
        return draft.commit()
