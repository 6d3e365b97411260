"""Runs in parallel processes: one task is one case, one seed, one policy."""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections import deque
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rota.cli import loading
from rota.cli.cases import load_jobs
from rota.cli.digest import place_of
from rota.cli.plays import Play
from rota.errors import InputError, RotaError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from rota.cli.cases import Case
    from rota.cli.compare_config import TraceSpec
    from rota.core.types import Floats
    from rota.scenarios import Scenario, World
    from rota.traces import Trace

CDF_POINTS = 400
SERIES_POINTS = 160


@dataclass(frozen=True, kw_only=True)
class Task:
    """One run, as it is sent to another process."""

    case: Case
    seed: int
    label: str
    """What tables call the policy."""
    policy: str
    history: str | None
    drop_oversized: bool
    deadline_s: float
    keep_jobs: bool
    """Whether the JCT of every job is wanted, not just their distribution."""
    keep_series: bool

    def __str__(self) -> str:
        return f"{self.label} on {self.case.label}, seed {self.seed}"


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The results of one run."""

    summary: dict[str, Any]
    cdf: dict[str, list[float]]
    """Of the JCT."""
    series: dict[str, Any] | None
    jct_s: Floats | None  # (J,) NaN: not finished


@dataclass(frozen=True)
class Failed:
    """Why a run failed, as text: errors with arguments of their own cannot be sent to a process."""

    message: str
    exit_code: int


def prepared(case: Case, seed: int, drop_oversized: bool) -> Play:
    """What a run is to face; jobs are dropped from all cases of a trace alike."""
    from rota.perf.physics import Physics

    if case.trace.is_scenario:
        world = _drawn(case.trace, seed)
        cluster, jobs, when, physics = world.cluster, world.trace, world.when, world.physics
    else:
        cluster, jobs, when, physics = case.cluster, _loaded(case.trace, seed), case.when, Physics()
    before = len(jobs)
    for one in case.clusters if drop_oversized else ():
        jobs, _ = loading.without_oversized(jobs, one)
    return Play(
        seed=seed, cluster=cluster, jobs=jobs, when=when, physics=physics,
        oversized=before - len(jobs),
    )  # fmt: skip


def meant(spec: TraceSpec, policy: str) -> str:
    """What a policy's name means there."""
    return _scenario(spec.source).policy(policy) if spec.is_scenario else policy


@lru_cache(maxsize=8)
def _scenario(source: str) -> Scenario:
    from rota.scenarios import load

    return load(source)


@lru_cache(maxsize=2)  # tasks come by trace and seed, so the next one mostly wants the same
def _drawn(spec: TraceSpec, seed: int) -> World:
    world = _scenario(spec.source).draw(seed, spec.data)
    return world if spec.head is None else replace(world, trace=world.trace.head(spec.head))


@lru_cache(maxsize=2)
def _loaded(spec: TraceSpec, seed: int) -> Trace:
    return load_jobs(spec, seed)


@lru_cache(maxsize=1)
def _past(source: str | None, seed: int) -> Trace | None:
    return None if source is None else loading.loaded(source, seed=seed)


def run_one(task: Task) -> Finished | Failed:
    """Carry out a task, in whatever process this is."""
    try:
        return _run(task)
    except RotaError as error:
        return Failed(str(error), error.exit_code)
    except MemoryError:
        return Failed("there is not enough memory; try fewer --jobs at once.", 1)


def _run(task: Task) -> Finished:
    import numpy as np

    from rota.dash.groups import MOST_ROWS
    from rota.run.metrics import cdf, series, summarise
    from rota.sim import simulate

    play = prepared(task.case, task.seed, task.drop_oversized)
    name = meant(task.case.trace, task.policy)
    outcome = simulate(
        play.cluster, play.jobs, loading.named_policies([name])[name], play.when,
        seed=task.seed, physics=play.physics, history=_past(task.history, task.seed),
        series=task.keep_series, deadline_s=task.deadline_s,
    )  # fmt: skip
    jct_s = np.where(outcome.gave_up, np.nan, outcome.done_s - outcome.submit_s)
    summary = summarise(outcome)
    users = summary["by_user"]
    summary["by_user"] = users[:MOST_ROWS]  # as many as the report shows
    return Finished(
        summary={
            **place_of(task.case),
            **summary,
            "policy": task.label,
            "users": len(users),
            "oversized": play.oversized,
            "skipped": play.jobs.skipped,
            "left_out": dict(play.jobs.left_out),
            "jobs_by_gpu_type": _asked_types(play.jobs),
        },
        cdf=cdf(jct_s, CDF_POINTS),
        series=series(outcome, SERIES_POINTS) if task.keep_series else None,
        jct_s=jct_s if task.keep_jobs else None,
    )


def _asked_types(jobs: Trace) -> dict[str, int]:
    """How many jobs ask for each GPU type by name."""
    counts = ((jobs.gpu_type == code).sum() for code in range(len(jobs.gpu_types)))
    return {kind: int(count) for kind, count in zip(jobs.gpu_types, counts, strict=True) if count}


def run_all(tasks: Sequence[Task], jobs: int, report: Callable[[int], None]) -> list[Finished]:
    """All tasks, `jobs` at a time, in their order; `report` is told how many are done."""
    done: dict[int, Finished] = {}

    def keep(index: int, result: Finished | Failed) -> None:
        if isinstance(result, Failed):
            kind = InputError if result.exit_code == InputError.exit_code else RotaError
            raise kind(f"{tasks[index]}: {result.message}")
        done[index] = result
        report(len(done))

    if min(jobs, len(tasks)) == 1:
        for index, task in enumerate(tasks):
            keep(index, run_one(task))
    else:
        _in_lanes(tasks, min(jobs, len(tasks)), keep)
    return [done[index] for index in range(len(tasks))]


def _in_lanes(
    tasks: Sequence[Task], jobs: int, keep: Callable[[int, Finished | Failed], None]
) -> None:
    """One pool per process: when one breaks, it is plain which task it was at."""
    context = multiprocessing.get_context("spawn")  # a fork would inherit our threads' locks
    lanes = [
        ProcessPoolExecutor(1, mp_context=context, initializer=_begin_lane) for _ in range(jobs)
    ]
    waiting = deque(range(len(tasks)))
    running: dict[Future[Finished | Failed], tuple[int, ProcessPoolExecutor]] = {}

    def start(lane: ProcessPoolExecutor) -> None:
        if waiting:
            index = waiting.popleft()
            running[lane.submit(run_one, tasks[index])] = index, lane

    try:
        for lane in lanes:
            start(lane)
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                index, lane = running.pop(future)
                keep(index, _result(future, tasks[index]))
                start(lane)
    except BaseException:
        for child in multiprocessing.active_children():
            child.terminate()  # their results are not wanted any more
        raise
    finally:
        for lane in lanes:
            lane.shutdown(cancel_futures=True)


def _result(future: Future[Finished | Failed], task: Task) -> Finished | Failed:
    try:
        return future.result()
    except BrokenProcessPool:
        return Failed(
            "its process died. If it ran out of memory, try fewer --jobs at once; --jobs 1 runs "
            "everything in this process.",
            1,
        )
    except Exception as error:
        error.add_note(f"in the run {task}")
        raise


def _begin_lane() -> None:
    """Leave Ctrl-C to the parent, which ends its children, and stdout to its results."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdout = sys.stderr
