"""What Slurm says of jobs whose dependency has failed, put right."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rota.backends.slurm.slurm_holds import ADMIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.backends.slurm.replies import SlurmJob


@dataclass
class FailedDependencies:
    """Remembers which jobs an administrator does not hold, though Slurm says so.

    Of a held job whose dependency fails Slurm says that an administrator holds it (22.05), also
    when its user has dropped the dependency.
    """

    _unheld: set[str] = field(default_factory=set)

    def told(self, jobs: Sequence[SlurmJob]) -> list[SlurmJob]:
        """The same jobs, those among them without that reason."""
        self._unheld = {
            job.call for job in jobs
            if job.reason == ADMIN and (job.call in self._unheld or "failed" in job.dependency)
        }  # fmt: skip
        return [replace(job, reason="") if job.call in self._unheld else job for job in jobs]
