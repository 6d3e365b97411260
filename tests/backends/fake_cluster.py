"""A cluster in memory, for the backend that drives clusters which others run."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from math import inf, nan
from time import time
from typing import TYPE_CHECKING

from rota.backends.driver import Answer, ClusterSight, JobRequest, JobSight, NodeSight
from rota.errors import BackendError

if TYPE_CHECKING:
    from rota.backends.driver import Place
    from rota.backends.reconciler import Action


@dataclass
class FakeJob:
    """A job: it runs for `length_s`, whatever it holds."""

    sight: JobSight
    length_s: float
    ran_s: float = 0.0
    runs: int = 0
    over: bool = False


@dataclass
class FakeCluster:
    """A driver of jobs that exist on paper only; commands may be lost, looks may fail."""

    nodes: list[NodeSight]
    jobs: dict[str, FakeJob] = field(default_factory=dict)
    done: list[tuple[Action, str, Place]] = field(default_factory=list)
    away: bool = False
    lazy: bool = False
    """What starts or stops stays on its way."""
    lose: int = 0
    """Commands that take effect, but are not answered."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def submit(self, name: str, length_s: float = inf, **asks: object) -> FakeJob:
        """Put a job in line."""
        request = replace(JobRequest(user="ann"), **asks)  # type: ignore[arg-type]
        job = FakeJob(JobSight(name=name, submit_s=time(), request=request), length_s)
        self.jobs[name] = job
        return job

    def see(self, name: str, **facts: object) -> None:
        """Change how a job is."""
        job = self.jobs[name]
        job.sight = replace(job.sight, **facts)  # type: ignore[arg-type]

    def observe(self) -> ClusterSight:
        with self.lock:
            if self.away:
                raise BackendError("slurmctld is away")
            now_s = time()
            for job in self.jobs.values():
                self._advance(job, now_s)
            return ClusterSight(now_s, [job.sight for job in self.jobs.values()], self.nodes)

    def _advance(self, job: FakeJob, now_s: float) -> None:
        sight = job.sight
        if sight.end:
            return
        if sight.phase == "starting" and sight.place and not self.lazy:
            job.runs += 1
            request = sight.request
            if request.in_place:  # it begins with what it cannot give up
                fixed = frozenset(name for name, _, _ in sight.place)
                request = replace(request, fixed=fixed, must_have=fixed)
            job.sight = replace(sight, phase="running", start_s=now_s, request=request)
        elif sight.phase == "stopping" and not self.lazy:
            job.sight = replace(sight, phase="waiting", place=(), start_s=nan)
        elif sight.phase == "running" and job.ran_s + now_s - sight.start_s >= job.length_s:
            job.sight = replace(sight, phase="waiting", end="done", end_s=now_s, place=())

    def carry_out(self, action: Action, job: JobSight, place: Place) -> Answer:
        with self.lock:
            self.done.append((action, job.name, place))
            own = self.jobs[job.name]
            sight = own.sight
            if action == "start" and sight.phase in ("waiting", "starting"):
                if job.request.in_place:
                    place = place[: job.request.min_workers]
                own.sight = replace(sight, phase="starting", place=place)
            elif action == "withdraw" and sight.phase == "starting":
                own.sight = replace(sight, phase="waiting", place=())
            elif action == "stop" and sight.phase == "running":
                own.ran_s += time() - sight.start_s
                own.sight = replace(sight, phase="stopping")
            elif action == "resize" and sight.phase == "running":
                assert sight.request.fixed <= {name for name, _, _ in place}
                own.sight = replace(sight, place=place)
            elif action == "notice":
                own.sight = replace(sight, saved=True)
            elif action == "cancel" and not sight.end:
                own.sight = replace(sight, phase="waiting", end="cancelled", end_s=time(), place=())
            if self.lose > 0:
                self.lose -= 1
                return Answer("unknown", "no answer")
            return Answer("done")

    def fate(self, _name: str, _submit_s: float) -> tuple[str, float]:
        return "cancelled", time()


def nodes(count: int = 2, gpus: int = 4) -> list[NodeSight]:
    """Equal nodes."""
    return [NodeSight(name=f"n{k + 1}", gpus=gpus, gpu_type="a100") for k in range(count)]
