"""Jobs that their cluster does not start though it was told to: others go first for a while."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rota.backends.driver import ClusterSight, JobRequest, JobSight
    from rota.backends.job_roll import ClusterJob
    from rota.backends.reconciler import Intent

FIRST_S: Final = 300.0
"""For which jobs are set aside, the first time; each further time twice as long."""
MOST_S: Final = 3600.0


@dataclass
class SlowStarts:
    """What is asked for by jobs that were not started in time, by one user each.

    A job may ask for something that rota does not know of and no node has, such as a large disk.
    Policies would give it the same nodes again and again, where neither it nor others would run.
    Jobs of its user that ask for the same are set aside with it: an array is one mistake.
    """

    _late: dict[JobRequest, tuple[float, float]] = field(default_factory=dict)
    """By request: until when they are set aside, and for how long that is."""

    def note(self, late: Iterable[Intent], jobs: Mapping[int, ClusterJob], now_s: float) -> None:
        """These intents give starts up: jobs were given nodes, and were not started in time."""
        for intent in late:
            sight = jobs[intent.uid].sight
            if sight.phase != "starting":  # it waited for others to leave, or could not grow
                continue
            until_s, aside_s = self._late.get(sight.request, (now_s, FIRST_S / 2))
            if until_s <= now_s:  # of those that are late together, one counts
                aside_s = min(2 * aside_s, MOST_S)
                self._late[sight.request] = now_s + aside_s, aside_s
                for job in jobs.values():  # the next round comes before the next look
                    job.sight = self._with_wait(job.sight, now_s)

    def told(self, sight: ClusterSight, now_s: float) -> ClusterSight:
        """The same, but that waiting jobs which are set aside wait for that, too."""
        if not self._late:
            return sight
        for job in sight.jobs:
            if job.phase == "running":
                self._late.pop(job.request, None)
        self._late = {one: late for one, late in self._late.items() if now_s < late[0] + MOST_S}
        return replace(sight, jobs=[self._with_wait(job, now_s) for job in sight.jobs])

    def _with_wait(self, job: JobSight, now_s: float) -> JobSight:
        until_s, _ = self._late.get(job.request, (now_s, 0.0))
        is_to_wait = job.managed and job.phase in ("waiting", "starting") and not job.end
        if until_s <= now_s or not is_to_wait or job.waits_for:
            return job
        minutes = ceil((until_s - now_s) / 60)
        return replace(
            job, waits_for=f"it, or one like it, had nodes but was not started there (its cluster "
            f"says why); others go first for {minutes} min",
        )  # fmt: skip
