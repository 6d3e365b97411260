"""Measures how fast elastic jobs train in given placements, alone or side by side."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from rota.backends.local.local_backend import LocalBackend
from rota.backends.local.state_dir import StateDir
from rota.core.draft import Draft
from rota.elastic.agent_forkserver import AgentForkServer
from rota.errors import JobError
from rota.perf.job_tables import window_rates

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

    from rota.backends.local.live_job import LiveJob
    from rota.backends.local.request import Request
    from rota.core.cluster import Cluster

LOOK_EVERY_S: Final = 0.1
_GRACE_S: Final = 5.0
"""From SIGTERM to SIGKILL at the end of a measurement: nothing of the training is kept."""

_END_S: Final = 10.0
"""In which a job that ends is over."""


@dataclass(frozen=True)
class PlacedRequest:
    """A job, and where its workers shall be."""

    request: Request
    workers: int
    nodes: int

    def submitted(self) -> Request:
        """The request for exactly these workers, to be measured and thrown away."""
        count = self.workers
        return replace(
            self.request, workers=count, min_workers=count, max_workers=count, retries=0,
            park_every_s=0.0, grace_s=min(self.request.grace_s, _GRACE_S), submitted_at=time.time(),
        )  # fmt: skip

    @property
    def share(self) -> list[tuple[int, int]]:
        """(node, workers) pairs: evenly over the first nodes."""
        return [(node, self.workers // self.nodes) for node in range(self.nodes)]


@dataclass(frozen=True)
class Spans:
    """How long a measurement takes, in seconds."""

    measure_s: float
    """It goes on until every job has ended one more step."""
    warm_up_s: float
    """Training that does not count, after all jobs have begun."""
    step_s: float
    """In which a job must make a step, the first and any other."""


@dataclass
class _Watched:
    """A job while it is measured."""

    changes: int
    """Of its members, at the beginning."""
    stepped_s: float
    """When it was last seen to have made a step, or when it began to be watched."""
    samples: int | None = None
    points: list[tuple[float, float]] = field(default_factory=list)
    """Samples and seconds, as reported after the warm-up."""

    def look(self, job: LiveJob, now_s: float, *, counts: bool) -> None:
        """Note what it has reported by now."""
        if (status := job.status) is None:
            return
        if self.samples not in (None, status.samples):
            self.stepped_s = now_s
        self.samples = status.samples
        if counts:
            self.points.append((float(status.samples), float(status.busy_s)))


class Measuring:
    """A backend of its own that runs nothing but what is being measured.

    Its jobs outlive a killed process, as those of any daemon; the next one that measures in the
    same state directory ends them first.
    """

    def __init__(
        self, state: Path, cluster: Cluster, spans: Spans, *, real_gpus: bool = False,
        preload: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._store, self._cluster, self._spans = StateDir(state), cluster, spans
        self._real_gpus, self._preload = real_gpus, preload
        self._stack = ExitStack()

    def __enter__(self) -> Measuring:
        with ExitStack() as stack:
            stack.enter_context(self._store.locked(policy="profile", gpus=self._cluster.total_gpus))
            warm = (
                stack.enter_context(closing(AgentForkServer(self._preload)))
                if self._preload
                else None
            )
            self._backend = LocalBackend(
                self._store, self._cluster, real_gpus=self._real_gpus, keep_jobs=100,
                fork_server=warm,
            )  # fmt: skip
            stack.callback(self._backend.close)
            self._clear()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._stack:
            self._clear()

    def rates(
        self, runs: Sequence[PlacedRequest], tell: Callable[[float], None] = lambda _: None
    ) -> list[list[float]]:
        """Samples per second of each run, window by window, while all of them train.

        `tell` is given the part of the measurement that is done. Raises JobError if one of them
        does not train throughout.
        """
        uids = [self._store.submit(run.submitted()) for run in runs]
        try:
            self._place(dict(zip(uids, runs, strict=True)))
            self._until_trained(uids)
            return self._watch(uids, tell)
        finally:
            self._clear()

    def _place(self, runs: dict[int, PlacedRequest]) -> None:
        """Give all of them their workers in one round."""
        until_s = time.monotonic() + self._spans.step_s
        while not all(self._seen(uid) for uid in runs) and time.monotonic() < until_s:
            self._pass_time()
        self._jobs(runs)
        snapshot = self._backend.observe()
        draft, rows = Draft(snapshot), snapshot.jobs.uid.tolist()
        for uid, run in runs.items():
            draft.place(rows.index(uid), run.share)
        self._backend.apply(draft.commit().diff(snapshot))

    def _seen(self, uid: int) -> bool:
        """Whether the backend has taken a job in, or refused it."""
        return any(job.uid == uid for job in self._backend.jobs) or bool(self._store.ended(uid))

    def _until_trained(self, uids: Sequence[int]) -> None:
        until_s = time.monotonic() + self._spans.step_s
        while late := [job for job in self._jobs(uids) if not job.meter.settled]:
            if time.monotonic() > until_s:
                raise JobError(
                    f"{late[0].request.title}: it has reported no step within "
                    f"{self._spans.step_s:g} s; does its script use rota.elastic and call step()? "
                    "If it needs longer to begin, say so with --step-limit."
                )
            self._pass_time()

    def _watch(self, uids: Sequence[int], tell: Callable[[float], None]) -> list[list[float]]:
        """Until every job has made a step after the time to measure: one that hangs never does."""
        spans, began_s = self._spans, time.monotonic()
        watched = [_Watched(_changes(job), began_s) for job in self._jobs(uids)]
        counts_s = began_s + spans.warm_up_s
        least_s = spans.warm_up_s + spans.measure_s
        while not all(own.stepped_s >= began_s + least_s for own in watched):
            self._pass_time()
            now_s = time.monotonic()
            tell(min(1.0, (now_s - began_s) / least_s))
            for own, job in zip(watched, self._jobs(uids), strict=True):
                if _changes(job) != own.changes or not job.meter.settled:
                    self._tell_change(job)
                own.look(job, now_s, counts=now_s >= counts_s)
                if now_s - own.stepped_s > spans.step_s:
                    raise JobError(
                        f"{job.request.title}: it made no step for {now_s - own.stepped_s:.0f} s; "
                        "if its steps take that long, say so with --step-limit."
                    )
        found = [window_rates(own.points) for own in watched]
        for job, rates in zip(self._jobs(uids), found, strict=True):
            if not rates:
                raise JobError(
                    f"{job.request.title}: the samples or times that it reported do not grow from "
                    "step to step; measure again."
                )
        return found

    def _tell_change(self, job: LiveJob) -> None:
        """Raise the error for a job that has changed: it ends, or has lost a worker."""
        until_s = time.monotonic() + _END_S
        while time.monotonic() < until_s:
            self._pass_time()
            self._jobs([job.uid])
        raise JobError(
            f"{job.request.title}: it lost a worker while it was measured"
            f"{f' ({job.trouble})' if job.trouble else ''}; measure again."
        )

    def _jobs(self, uids: Sequence[int] | dict[int, PlacedRequest]) -> list[LiveJob]:
        """These jobs; JobError if one of them is over."""
        live = {job.uid: job for job in self._backend.jobs}
        for uid in uids:
            if uid not in live:
                raise JobError(self._why_over(uid))
        return [live[uid] for uid in uids]

    def _why_over(self, uid: int) -> str:
        title, ended = self._store.request(uid).title, self._store.ended(uid)
        if ended is None:
            return f"{title}: its files were damaged while it was measured; measure again."
        if ended.state == "done":
            return (
                f"{title}: it ended before it was measured; have it train for longer (more "
                "epochs), or measure for less with --seconds."
            )
        why = ". ".join(text.rstrip(".") for text in (ended.error, ended.hint) if text)
        logs = f"rota logs {uid} --state {self._store.root}"
        return f"{title}: it {ended.state}: {why} (`{logs}`)."

    def _pass_time(self) -> None:
        self._backend.wait(self._backend.now_s + LOOK_EVERY_S)

    def _clear(self) -> None:
        """End all jobs, and wait until their processes are gone.

        Nothing has to be written for that: it is done on a full disk, too.
        """
        for job in self._backend.jobs:
            self._backend.cancel(job.uid)
        if self._backend.jobs:
            self._pass_time()
        while any(job.held.open for job in self._backend.jobs):
            self._pass_time()


def _changes(job: LiveJob) -> int:
    return 0 if job.status is None else job.status.changes
