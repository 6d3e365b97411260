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
    """Seconds from the start of a run until it trains, learned from all jobs that tell."""

    JOBS: Final = 10_000
    """Jobs of the past that count, the latest; more of them would only delay a start."""

    def __init__(self, known: Iterable[KnownJob]) -> None:
        """`known` are jobs of the past."""
        self._by_model: dict[str, tuple[int, float]] = {}
        for job in known:
            if job.starts:
                self._add(job, job.starts, job.starting_s)

    def note(self, job: KnownJob, took_s: float) -> None:
        """A run of a job has begun to train so long after its start."""
        job.starts += 1
        job.starting_s += took_s
        self._add(job, 1, took_s)

    def of(self, job: KnownJob, hint_s: float) -> float:
        """Of one job: its own mean, what its user says (NaN: nothing), its model's, that of all."""
        if job.starts:
            return max(LEAST_S, job.starting_s / job.starts)
        if isfinite(hint_s):
            return max(LEAST_S, hint_s)
        model = str(job.listing.get("model", ""))
        for name in dict.fromkeys((model, "")):
            count, total_s = self._by_model.get(name, (0, 0.0))
            if count:
                return max(LEAST_S, total_s / count)
        return ASSUMED_S

    def _add(self, job: KnownJob, starts: int, took_s: float) -> None:
        """Count for its model, and for all, which is "" here."""
        for name in {str(job.listing.get("model", "")), ""}:
            count, total_s = self._by_model.get(name, (0, 0.0))
            self._by_model[name] = count + starts, total_s + took_s
