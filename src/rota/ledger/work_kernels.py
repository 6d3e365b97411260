"""How much work a job has done, how much is left, and whether it may be stopped or moved."""

from __future__ import annotations

from typing import Any

from rota.core.layout import RUNNING
from rota.jit import inline


@inline
def ran_s(job: Any, now_s: float) -> float:
    """Seconds of progress time since the job was last settled; a restart's pause is left out."""
    if job["status"] != RUNNING:
        return 0.0
    return max(0.0, now_s - max(job["settled_s"], job["resume_s"]))


@inline
def remaining(job: Any, now_s: float) -> float:
    """What is believed to be left, in seconds at the requested size; never negative."""
    left_s = job["remaining_s"] - job["pace"] * ran_s(job, now_s)
    return 0.0 if left_s < 0.0 else left_s  # not max(): unknown must stay unknown


@inline
def service(job: Any, now_s: float) -> float:
    """GPU-seconds of progress up to now."""
    return job["gpus"] * (job["progress_s"] + job["pace"] * ran_s(job, now_s))


@inline
def pinned(job: Any, now_s: float) -> bool:
    """Whether the job runs and may not be stopped or moved yet."""
    return job["status"] == RUNNING and now_s < job["since_s"] + job["min_run_s"]
