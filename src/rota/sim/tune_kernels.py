"""A tune: the network of a running job grows, so that the rest of its work takes longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.jit import kernel
from rota.jit_reference import by_reference
from rota.sim.job_kernels import schedule, settle

if TYPE_CHECKING:
    from rota.sim.state import State


@kernel
def lengthen(state: State, j: int, ratio: float, pause_s: float) -> None:
    """Multiply the work that running job j has left, known and believed, after a pause.

    Its pace stays as it is. Growth goes through a checkpoint: a failure takes nothing from before.
    """
    s = by_reference(state)
    job, true, clock = s.jobs[j], s.truth[j], s.clock[0]
    settle(s.jobs[j], s.truth[j], clock["now_s"])
    true["work_s"] *= ratio
    job["estimate_s"] += job["remaining_s"] * (ratio - 1.0)
    job["remaining_s"] *= ratio
    true["stint_s"] = job["progress_s"]
    job["resume_s"] = max(job["resume_s"], clock["now_s"] + pause_s)
    schedule(job, true, clock, s.running, s.truth)
