"""Jobs that rota has released and that Slurm does not start, though their nodes are free.

Slurm keeps rules that rota knows nothing about: limits of partitions, accounts and QOS, partitions
that are down, reservations to come, what a job asks of switches. Such a job must not keep nodes
empty for which others wait, so its start is taken back, and tried again later.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final

from rota.backends.slurm.demands import is_touched

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from rota.backends.slurm.replies import SlurmJob

SOON: Final = frozenset({"", "None", "Priority", "Resources", "BeginTime", "Cleaning", "Prolog",
                         "Dependency", "JobHeldUser", "JobHeldAdmin"})  # fmt: skip
"""Reasons of released jobs that say nothing against a start; all others last."""
IMPOSSIBLE: Final = "BadConstraints"
"""The reason with which Slurm holds a released job itself: it could not run on these nodes ever."""
SURE_S: Final = 5.0
"""Seconds after which a reason that lasts is believed."""
LONGEST_S: Final = 240.0
"""Seconds after which a job is not going to start, whatever the reason: nodes were free for it."""
AGAIN_S: Final = 60.0
"""Until the second try; twice as long until each further one."""
MOST_AGAIN_S: Final = 600.0
MOST_PART: Final = 10.0
"""Tries keep nodes empty for at most one part in so many of the time."""


@dataclass
class _Try:
    """What was tried with a job as it is."""

    shape: tuple[object, ...]
    since_s: float = inf
    """Since when it is released, while it is."""
    barred_s: float = inf
    """Since when its reason is one that lasts."""
    reason: str = ""
    tries: int = 0
    again_s: float = -inf
    """Not before then."""


@dataclass
class Unstarted:
    """Which jobs Slurm does not start, why, and when that is tried again."""

    say: Callable[[SlurmJob, str], None]
    _told: set[str] = field(default_factory=set)  # jobs that were released since they were seen
    _tries: dict[str, _Try] = field(default_factory=dict)
    _arrays: dict[int, _Try] = field(default_factory=dict)  # what the last task that failed has met

    def told(self, job: SlurmJob) -> None:
        """A job was released; Slurm may hold it again before anybody looks."""
        self._told.add(job.call)

    def see(self, jobs: Collection[SlurmJob], now_s: float) -> None:
        """These jobs are listed; one that runs, is gone or asks for something else begins anew."""
        before, self._tries = self._tries, {}
        self._told.intersection_update({job.call for job in jobs})
        tried = {job.array_id for job in jobs} - {job.array_id for job in jobs if job.nodes}
        self._arrays = {number: one for number, one in self._arrays.items() if number in tried}
        for job in jobs:
            found = before.get(job.call)
            if job.state != "PENDING":
                self._told.discard(job.call)
                continue
            if found is None and not _is_released(job) and job.call not in self._told:
                continue
            shape = (job.partition, job.time_limit_s, job.features, job.excluded, job.cpus)
            if found is None or found.shape != shape:
                found = _Try(shape)
            self._tries[job.call] = found
            self._follow(found, job, now_s)

    def _follow(self, found: _Try, job: SlurmJob, now_s: float) -> None:
        if not _is_released(job):
            if job.reason == IMPOSSIBLE and job.call in self._told:
                self._put_off(found, job, now_s, 0.0)
            found.since_s = found.barred_s = inf
            return
        found.since_s = min(found.since_s, max(now_s, job.eligible_s))
        found.barred_s = inf if job.reason in SOON else min(found.barred_s, now_s)
        late = now_s - found.since_s >= LONGEST_S
        if now_s < found.again_s or not (late or now_s - found.barred_s >= SURE_S):
            return
        self._put_off(found, job, now_s, now_s - found.since_s)

    def _put_off(self, found: _Try, job: SlurmJob, now_s: float, took_s: float) -> None:
        """A try has failed, which took so long."""
        self._told.discard(job.call)
        found.reason = job.said or job.reason
        if job.array_id:
            self._arrays[job.array_id] = found
        pause_s = min(AGAIN_S * 2**found.tries, MOST_AGAIN_S)
        found.again_s = now_s + max(took_s * MOST_PART, pause_s)
        found.tries = min(found.tries + 1, 10)
        self.say(job, f"Slurm does not start it ({found.reason}), though nodes are free for it; it "
                      "is tried again later")  # fmt: skip

    def why(self, job: SlurmJob, now_s: float) -> str:
        """Why a job shall not be started now; "" if nothing speaks against it.

        The tasks of an array ask for the same: what one has met stands in the way of all that wait.
        """
        found = self._tries.get(job.call)
        if job.priority == 0 and (found is None or now_s >= found.again_s):
            found = self._arrays.get(job.array_id)
        if found is None or now_s >= found.again_s:
            return ""
        return f"Slurm did not start it ({found.reason}); it is tried again after a while"


def _is_released(job: SlurmJob) -> bool:
    """Whether rota has released a job that waits."""
    return job.priority > 0 and is_touched(job)
