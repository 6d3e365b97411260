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
    from collections.abc import Callable, Collection, Iterator

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
    _alike: dict[object, _Try] = field(default_factory=dict)
    """What was tried last with one of several jobs that ask for the same."""

    def told(self, job: SlurmJob) -> None:
        """A job was released; Slurm may hold it again before anybody looks."""
        self._told.add(job.call)

    def see(self, jobs: Collection[SlurmJob], now_s: float) -> None:
        """These jobs are listed; one that runs, is gone or asks for something else begins anew."""
        before, self._tries = self._tries, {}
        self._told.intersection_update({job.call for job in jobs})
        if self._alike:
            run = {group for job in jobs if job.nodes for group in _groups(job)}
            listed = {group for job in jobs for group in _groups(job)}
            self._alike = {g: one for g, one in self._alike.items() if g in listed - run}
        for job in jobs:
            found = before.get(job.call)
            if job.state != "PENDING":
                self._told.discard(job.call)
                continue
            if found is None and not _is_released(job) and job.call not in self._told:
                continue
            if found is None or found.shape != _shape(job):
                found = _Try(_shape(job))
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
        if late:  # for a reason that Slurm does not name
            self._alike[job.user_id, *_shape(job)] = found
        self._put_off(found, job, now_s, now_s - found.since_s)

    def _put_off(self, found: _Try, job: SlurmJob, now_s: float, took_s: float) -> None:
        """A try has failed, which took so long."""
        self._told.discard(job.call)
        found.reason = job.said or job.reason
        if job.array_id:
            self._alike[job.array_id] = found
        pause_s = min(AGAIN_S * 2**found.tries, MOST_AGAIN_S)
        found.again_s = now_s + max(took_s * MOST_PART, pause_s)
        found.tries = min(found.tries + 1, 10)
        self.say(job, f"Slurm does not start it ({found.reason}), though nodes are free for it; it "
                      "is tried again later")  # fmt: skip

    def why(self, job: SlurmJob, now_s: float) -> str:
        """Why a job shall not be started now; "" if nothing speaks against it.

        What one task of an array has met stands in the way of all that wait. So it is with jobs of
        one user that ask for the same, if nodes were kept empty for one of them for minutes: else
        many such jobs would keep them empty in turn.
        """
        tries = [self._tries.get(job.call)]
        if job.priority == 0:
            tries += [self._alike.get(group) for group in _groups(job)]
        for found in tries:
            if found is not None and now_s < found.again_s:
                return f"Slurm did not start it ({found.reason}); it is tried again after a while"
        return ""


def _shape(job: SlurmJob) -> tuple[object, ...]:
    """What a job asks for, as far as that may be why it is not started."""
    return (job.partition, job.time_limit_s, job.features, job.excluded, job.cpus,
            job.gpus_per_node, job.gpus_per_job, job.memory_mb)  # fmt: skip


def _groups(job: SlurmJob) -> Iterator[object]:
    """Those in which jobs ask for the same."""
    if job.array_id:
        yield job.array_id
    yield job.user_id, *_shape(job)


def _is_released(job: SlurmJob) -> bool:
    """Whether rota has released a job that waits."""
    return job.priority > 0 and is_touched(job)
