"""What a live backend tells the journal of its jobs: requests, endings, measurements."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core.plan import Share


@dataclass(frozen=True, kw_only=True)
class Listing:
    """What is known of a job when it arrives."""

    job_id: str
    """Its uid, as text."""
    user: str = ""
    num_gpus: int
    submit_s: float
    estimate_s: float = nan
    model: str = ""
    gpu_type: str = ""
    gpus_per_worker: float = nan
    """This and the fields below are as in a trace; NaN: not given."""
    min_workers: float = nan
    max_workers: float = nan
    num_servers: float = nan
    min_servers: float = nan
    max_servers: float = nan
    cpus_per_worker: float = nan
    memory_gb_per_worker: float = nan
    restart_s: float = nan
    """What a restart is thought to cost it."""
    stoppable: float = nan


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a backend has measured of a job that has ended; NaN: not measured."""

    work_s: float = nan
    """Work done, in seconds at the size that the job asked for."""
    restart_s: float = nan
    """Seconds without progress per start, on average."""
    resize_s: float = nan
    """Seconds without progress per resize or move while it ran, on average."""


class JobFacts(Protocol):
    """What a recorder asks of a live backend, beside the rounds."""

    def listing(self, uid: int) -> Listing:
        """The request of a job that is or was there."""
        ...

    def ending(self, uid: int) -> tuple[int, float]:
        """How a job that is gone has ended, and when.

        FINISH, GIVE_UP (it failed) or KILL (it was cancelled). LookupError if the job is still
        there, or if its end is not known yet.
        """
        ...


@runtime_checkable
class MeasuredJobs(Protocol):
    """A backend that also tells what it measured; without it, lengths follow from run times."""

    def measured(self, uid: int) -> Measured:
        """What was measured of a job that has ended."""
        ...


@runtime_checkable
class HeldJobs(Protocol):
    """Facts of a backend whose users can put jobs on hold; such jobs are in no snapshot."""

    def on_hold(self, uid: int) -> bool:
        """Whether a job is on hold now, and holds nothing."""
        ...


@runtime_checkable
class GivenJobs(Protocol):
    """Facts of a backend that may give a job other nodes than were decided."""

    def given(self, uid: int) -> Share | None:
        """What a job shall hold after a plan was applied; None: as was decided."""
        ...


class HeldChange(NamedTuple):
    """From a moment on, a job holds something else."""

    time_s: float
    uid: int
    share: Share


@runtime_checkable
class WatchedFacts(Protocol):
    """Facts of a backend that only watches: changes are what others do, at their own times."""

    def changes(self) -> Sequence[HeldChange]:
        """What has changed and is not in the journal yet, of each job in order of time."""
        ...

    def written(self, count: int) -> None:
        """The first `count` of these changes are in the journal now."""
        ...
