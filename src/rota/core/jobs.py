"""Jobs: a request (`Job`), and the facts about all live jobs now (`JobTable`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import numpy as np

from rota.core.layout import JOB, RUNNING, WAITING
from rota.core.types import Floats, Ints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core.types import Bools, Records

T = TypeVar("T")


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
    """Run time at the requested size, as far as anybody knows."""
    restart_s: float = 0.0
    """Seconds without progress when it starts again after a stop."""
    resize_s: float | None = None
    """The same after a resize or a move while it runs; `restart_s` if left out."""
    min_run_s: float = 0.0


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
