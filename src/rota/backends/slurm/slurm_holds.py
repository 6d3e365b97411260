"""Who holds a job: rota and its hook, its user, an administrator, or Slurm itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rota.backends.slurm.hook import HELD, USER_HELD

if TYPE_CHECKING:
    from rota.backends.slurm.replies import SlurmJob

ADMIN: Final = "JobHeldAdmin"
"""The reason of a job that an administrator holds."""
_LAUNCH_FAILED: Final = "launch failed requeued held"
"""Slurm itself holds what it could not launch; where rota starts jobs, it tries again elsewhere."""

MOST_PAUSE_S: Final = 600.0
"""Between two tries with a job that no node can launch."""


def waits_for(job: SlurmJob, now_s: float) -> str:
    """What a waiting job waits for beside room; "" if for nothing else."""
    if job.dependency:
        return f"it depends on {job.dependency}"
    if job.eligible_s > now_s + 1 and not job.restarts:
        return "its begin time has not come"
    again = job.said == _LAUNCH_FAILED and job.restarts > 1
    if again and now_s < job.submit_s + min(2.0 ** min(job.restarts, 20), MOST_PAUSE_S):
        return "nodes could not launch it; it is tried again after a while"
    return held_by(job)


def held_by(job: SlurmJob) -> str:
    """Who holds a job, if it is not rota; "" if nobody does."""
    if _is_user_held(job):
        return "its user holds it"
    if _is_admin_held(job):
        return "an administrator holds it"
    return "it is held, and not by rota" if is_held_unmarked(job) else ""


def is_held_on_purpose(job: SlurmJob) -> bool:
    """Whether its user or an administrator wants it to wait."""
    return _is_user_held(job) or _is_admin_held(job)


def is_held_unmarked(job: SlurmJob) -> bool:
    """Whether it is held without a mark of rota's hook, and nobody is known to want that."""
    ours = job.mark.startswith(HELD) or job.said == _LAUNCH_FAILED
    return job.priority == 0 and not ours and not is_held_on_purpose(job)


def _is_user_held(job: SlurmJob) -> bool:
    """Whether its user has put it on hold; the hook writes that into its comment."""
    return job.priority == 0 and job.comment.split(" ", 1)[0] == USER_HELD


def _is_admin_held(job: SlurmJob) -> bool:
    """Whether an administrator holds it, marked or not: rota and its hook hold as users do."""
    return job.priority == 0 and job.reason == ADMIN and job.said != _LAUNCH_FAILED
