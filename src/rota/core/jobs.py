"""Jobs: a request (`Job`), and the facts about all live jobs now (`JobTable`)."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

import numpy as np

from rota.core.layout import JOB, RUNNING, WAITING
from rota.core.types import Floats, Ints
from rota.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core.types import Bools, Records

T = TypeVar("T")

MOST: Final = 2**31 - 1
"""What a field of a job record can hold."""
_AMOUNTS: Final = (
    "cpus_per_worker", "memory_gb_per_worker", "cpus_per_server", "memory_gb_per_server",
    "restart_s", "resize_s", "min_run_s",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Job:
    """A request for resources; how long it takes is not part of it, only an estimate is."""

    workers: int
    gpus_per_worker: int = 1
    min_workers: int | None = None
    """Fewest workers it runs with; `workers` if left out, so it is rigid."""
    max_workers: int | None = None
    servers: int = 0
    """Parameter servers beside the workers."""
    min_servers: int | None = None
    """Fewest servers; `servers` if left out."""
    max_servers: int | None = None
    gpu_type: int = -1
    cpus_per_worker: float = 0.0
    memory_gb_per_worker: float = 0.0
    cpus_per_server: float = 0.0
    memory_gb_per_server: float = 0.0
    user: int = -1
    model: int = -1
    curve: int = -1
    """Its speed in `Snapshot.curves`."""
    submit_s: float = 0.0
    deadline_s: float = np.inf
    estimate_s: float = np.nan
    """Run time at the requested size, as far as it is known."""
    restart_s: float = 0.0
    """Seconds without progress when it starts again after a stop."""
    resize_s: float | None = None
    """The same after a resize or a move while it runs; `restart_s` if left out."""
    min_run_s: float = 0.0

    def __post_init__(self) -> None:
        for task, count in (("workers", self.workers), ("servers", self.servers)):
            least, most = (
                count if bound is None else bound
                for bound in (getattr(self, f"min_{task}"), getattr(self, f"max_{task}"))
            )
            for name, value in ((task, count), (f"min_{task}", least), (f"max_{task}", most)):
                self._check_whole(name, value, 1 if name == "workers" else 0)
            if not least <= count <= most:
                raise InputError(
                    f"Job.{task}={count} does not lie between min_{task}={least} and "
                    f"max_{task}={most}; ask for a number that the job runs with."
                )
        self._check_whole("gpus_per_worker", self.gpus_per_worker, 0)
        if self.workers * self.gpus_per_worker > MOST:
            raise InputError(
                f"Job.workers={self.workers} of gpus_per_worker={self.gpus_per_worker} are "
                f"{self.workers * self.gpus_per_worker} GPUs; at most {MOST} can be counted."
            )
        for name in ("gpu_type", "user", "model", "curve"):
            self._check_whole(name, getattr(self, name), -2 if name == "gpu_type" else -1)
        for name in _AMOUNTS:
            value = getattr(self, name)
            if value is None and name == "resize_s":
                continue
            if not _is_number(value) or not 0 <= value < np.inf:
                raise InputError(f"Job.{name}={value}; it must be a number of 0 or more.")
        for name in ("submit_s", "deadline_s", "estimate_s"):
            if not _is_number(getattr(self, name)):
                raise InputError(f"Job.{name}={getattr(self, name)}; it must be a number.")
        if not np.isfinite(self.submit_s):
            raise InputError(f"Job.submit_s={self.submit_s}; it must be a time, in seconds.")
        if np.isnan(self.deadline_s):
            raise InputError("Job.deadline_s=nan; leave it out where there is none, or say inf.")
        if self.estimate_s < 0:  # not NaN, which is unknown
            raise InputError(
                f"Job.estimate_s={self.estimate_s}; it must be 0 or more, or NaN if it is unknown."
            )

    def _check_whole(self, name: str, value: int, least: int) -> None:
        if not _is_number(value) or not least <= value <= MOST or value != int(value):
            raise InputError(
                f"Job.{name}={value}; it must be a whole number from {least} to {MOST}."
            )


def _is_number(value: object) -> bool:
    """Whether it can be compared with numbers; numpy's are some, too."""
    return isinstance(value, Real)


class _Column(Generic[T]):
    """A field of `JobTable.rows`, as an attribute of the table."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, table: JobTable, owner: type | None = None) -> T:
        column: Any = table.rows[self.name]
        return cast("T", column)


@dataclass(frozen=True)
class JobTable:
    """The live jobs, waiting or running, in order of submission; one column per field.

    Fields and units: `rota.core.layout.JOB`. `rows` is the same table as records, which is
    what compiled kernels take.
    """

    rows: Records  # (J,)

    uid = _Column[Ints]()
    status = _Column[Ints]()
    user = _Column[Ints]()
    model = _Column[Ints]()
    curve = _Column[Ints]()
    gpu_type = _Column[Ints]()
    gpus = _Column[Ints]()
    workers = _Column[Ints]()
    min_workers = _Column[Ints]()
    max_workers = _Column[Ints]()
    servers = _Column[Ints]()
    min_servers = _Column[Ints]()
    max_servers = _Column[Ints]()
    gpus_per_worker = _Column[Ints]()
    cpus_per_worker = _Column[Floats]()
    memory_gb_per_worker = _Column[Floats]()
    cpus_per_server = _Column[Floats]()
    memory_gb_per_server = _Column[Floats]()
    submit_s = _Column[Floats]()
    deadline_s = _Column[Floats]()
    estimate_s = _Column[Floats]()
    remaining_s = _Column[Floats]()
    progress_s = _Column[Floats]()
    attained_gpu_s = _Column[Floats]()
    resume_s = _Column[Floats]()
    pace = _Column[Floats]()
    started_s = _Column[Floats]()
    since_s = _Column[Floats]()
    held_workers = _Column[Ints]()
    held_servers = _Column[Ints]()
    share_at = _Column[Ints]()
    share_len = _Column[Ints]()
    preemptions = _Column[Ints]()
    restart_s = _Column[Floats]()
    resize_s = _Column[Floats]()
    min_run_s = _Column[Floats]()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def running(self) -> Bools:
        """Which jobs hold something now (J,)."""
        return np.equal(self.status, RUNNING)

    @property
    def waiting(self) -> Bools:
        """Which jobs hold nothing (J,)."""
        return np.equal(self.status, WAITING)

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> JobTable:
        """A table of jobs that wait and have not run yet, numbered from 0."""
        rows = np.zeros(len(jobs), JOB)
        for row, job in zip(rows, jobs, strict=True):
            _fill(row, job)
        rows["uid"] = np.arange(len(jobs))
        return cls(rows)


def _fill(row: Any, job: Job) -> None:
    for name in Job.__dataclass_fields__:
        value = getattr(job, name)
        if value is None and name == "resize_s":
            value = job.restart_s
        elif value is None:
            value = job.servers if name.endswith("servers") else job.workers
        row[name] = value
    row["gpus"] = job.workers * job.gpus_per_worker
    row["remaining_s"] = job.estimate_s
    row["started_s"] = row["since_s"] = np.nan
