"""Runs that a controller has forgotten because it was killed, and that may still go on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rota.backends.slurm.replies import SlurmJob

TOLD_S: Final = 60.0
"""Seconds in which nodes tell a controller that is back what runs on them, so that it ends it."""


@dataclass
class ForgottenRuns:
    """Which jobs were seen to run lately, and in which of their runs."""

    _ran: dict[str, tuple[int, float]] = field(default_factory=dict)  # restarts, Unix time

    def see(self, jobs: Iterable[SlurmJob], running: Iterable[str], now_s: float) -> None:
        """These jobs are listed; `running` are the states of those that run."""
        states = frozenset(running)
        self._ran = {call: ran for call, ran in self._ran.items() if now_s < ran[1] + TOLD_S}
        self._ran |= {job.call: (job.restarts, now_s) for job in jobs if job.state in states}

    def may_go_on(self, job: SlurmJob) -> bool:
        """Whether a waiting job has run a moment ago, and was never put back in line since.

        Slurm counts each time that it does so. A job that waits without that may still run.
        """
        return self._ran.get(job.call, (-1, 0.0))[0] == job.restarts
