"""What it costs to stop a job and start it again: as measured, as its user says, or assumed."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rota.backends.job_book import KnownJob

ASSUMED_S: Final = 60.0
"""Where nothing is known."""
LEAST_S: Final = 1.0
"""Whatever is measured or said: to policies a restart that is free is no reason to stay."""


class RestartCosts:
    """Seconds from the start of a run until it trains, learned from a user's jobs that tell.

    What the jobs of one user tell says nothing about those of another.
    """

    JOBS: Final = 10_000
    """Jobs of the past that count, the latest; more of them would only delay a start."""

    def __init__(self, known: Iterable[KnownJob]) -> None:
        """`known` are jobs of the past."""
        self._by_model: dict[tuple[str, str], tuple[int, float]] = {}  # by user and model
        for job in known:
            if job.starts:
                self._add(job, job.starts, job.starting_s)

    def note(self, job: KnownJob, took_s: float) -> None:
        """A run of a job has begun to train so long after its start."""
        job.starts += 1
        job.starting_s += took_s
        self._add(job, 1, took_s)

    def of(self, job: KnownJob, hint_s: float) -> float:
        """Of one job: its own mean, what its user says (NaN: nothing), or that of other jobs.

        These are its user's jobs of the same model or, where there are none, all of them.
        """
        if job.starts:
            return max(LEAST_S, job.starting_s / job.starts)
        if isfinite(hint_s):
            return max(LEAST_S, hint_s)
        for key in _keys(job):
            count, total_s = self._by_model.get(key, (0, 0.0))
            if count:
                return max(LEAST_S, total_s / count)
        return ASSUMED_S

    def _add(self, job: KnownJob, starts: int, took_s: float) -> None:
        for key in _keys(job):
            count, total_s = self._by_model.get(key, (0, 0.0))
            self._by_model[key] = count + starts, total_s + took_s


def _keys(job: KnownJob) -> Iterable[tuple[str, str]]:
    """Its user with its model, and its user with any."""
    user, model = (str(job.listing.get(what, "")) for what in ("user", "model"))
    return dict.fromkeys(((user, model), (user, "")))
