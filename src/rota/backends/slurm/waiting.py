"""What jobs of Slurm wait for beside room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rota.backends.slurm.demands import is_user_held
from rota.backends.slurm.hook import HELD

if TYPE_CHECKING:
    from rota.backends.slurm.replies import SlurmJob

LAUNCH_FAILED: Final = "launch failed requeued held"


def waits_for(job: SlurmJob, now_s: float) -> str:
    """What a waiting job waits for beside room; "" if for nothing else."""
    if job.dependency:
        return f"it depends on {job.dependency}"
    if job.eligible_s > now_s + 1 and not job.restarts:
        return "its begin time has not come"
    if job.priority == 0 and is_user_held(job):
        return "its user holds it"
    if is_held_by_others(job):
        return "it is held, and not by rota"
    return ""


def is_held_by_others(job: SlurmJob) -> bool:
    """Whether it is held by neither rota's hook nor its user: by an administrator, say.

    Slurm itself holds what it could not launch; where rota starts jobs, it tries again elsewhere.
    """
    ours = job.mark.startswith(HELD) and job.reason != "JobHeldAdmin"
    return job.priority == 0 and not (ours or job.said == LAUNCH_FAILED or is_user_held(job))
