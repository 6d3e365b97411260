"""What jobs of Slurm wait for beside room."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rota.backends.slurm.demands import is_user_held
from rota.backends.slurm.hook import HELD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rota.backends.slurm.replies import SlurmJob

LAUNCH_FAILED: Final = "launch failed requeued held"


@dataclass
class Waiting:
    """Tells what holds jobs; remembers which were held by nobody, though Slurm says so."""

    _unheld: set[str] = field(default_factory=set)

    def see(self, jobs: Iterable[SlurmJob]) -> None:
        """These jobs are listed.

        Of a held job whose dependency fails Slurm says that an administrator holds it (22.05), also
        when its user has dropped the dependency.
        """
        before = self._unheld
        self._unheld = {
            job.call for job in jobs
            if job.reason == "JobHeldAdmin" and (job.call in before or "failed" in job.dependency)
        }  # fmt: skip

    def why(self, job: SlurmJob, now_s: float) -> str:
        """What a waiting job waits for beside room; "" if for nothing else."""
        if job.dependency:
            return f"it depends on {job.dependency}"
        if job.eligible_s > now_s + 1 and not job.restarts:
            return "its begin time has not come"
        if job.priority == 0 and is_user_held(job):
            return "its user holds it"
        if self.is_held_by_others(job):
            return "it is held, and not by rota"
        return ""

    def is_held_by_others(self, job: SlurmJob) -> bool:
        """Whether it is held by neither rota's hook nor its user: by an administrator, say.

        Slurm itself holds what it could not launch; where rota starts jobs, it tries again
        elsewhere.
        """
        by_admin = job.reason == "JobHeldAdmin" and job.call not in self._unheld
        ours = job.mark.startswith(HELD) and not by_admin
        return job.priority == 0 and not (ours or job.said == LAUNCH_FAILED or is_user_held(job))
