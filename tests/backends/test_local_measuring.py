"""Measurements of jobs that hang, begin late or report nonsense, and on a full disk."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from children import eventually
from elastic_jobs import PATIENCE_S, runs
from local_jobs import Site, asked, sweep

from rota.backends.local import StateDir
from rota.backends.local import measuring as module
from rota.backends.local.measuring import Measuring, PlacedRequest, Spans
from rota.core import Cluster
from rota.elastic.protocol import Status
from rota.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Clock:
    """A backend of jobs that report (samples, busy time) by the time; only `wait` passes time."""

    def __init__(self, *jobs: Callable[[float], tuple[int, float] | None]) -> None:
        self.now_s, self._reports = 0.0, jobs

    @property
    def jobs(self) -> list[Any]:
        found = []
        for uid, report in enumerate(self._reports):
            told = report(self.now_s)
            status = told and Status(state="running", samples=told[0], busy_s=told[1])
            meter = SimpleNamespace(settled=told is not None)
            request = SimpleNamespace(title=f"job {uid}")
            found.append(SimpleNamespace(uid=uid, meter=meter, status=status, request=request))
        return found

    def wait(self, wake_s: float) -> None:
        self.now_s = wake_s


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Measuring]:
    def made(*jobs: Callable[[float], tuple[int, float] | None], step_s: float = 3.0) -> Measuring:
        made, clock = Measuring(tmp_path, None, Spans(5.0, 1.0, step_s)), Clock(*jobs)
        made._backend = clock
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
        return made

    return made


def steps(every_s: float, until_s: float = 1e9) -> Callable[[float], tuple[int, float]]:
    """100 samples a second, in steps of `every_s`; after `until_s` it hangs."""

    def report(now_s: float) -> tuple[int, float]:
        count = int(min(now_s, until_s) / every_s + 1e-6)
        return int(100 * count * every_s), count * every_s

    return report


def watch(bench: Measuring, jobs: int = 1) -> list[list[float]]:
    return bench._watch(range(jobs), lambda _: None)


def test_a_job_that_hangs_in_the_middle_is_no_measurement(
    bench: Callable[..., Measuring],
) -> None:
    with pytest.raises(JobError, match="job 1: it made no step for 3 s; if"):
        watch(bench(steps(0.5), steps(0.5, until_s=2.0)), 2)


def test_a_job_that_hangs_at_the_end_is_no_measurement(bench: Callable[..., Measuring]) -> None:
    with pytest.raises(JobError, match="made no step for 30 s"):  # of 6 s in all
        watch(bench(steps(0.5, until_s=4.0), step_s=30.0))


@pytest.mark.parametrize("every_s", [0.25, 2.0, 20.0])
def test_a_steady_job_is_measured_however_long_its_steps_are(
    bench: Callable[..., Measuring], every_s: float
) -> None:
    for rates in watch(bench(steps(every_s), steps(0.5), step_s=30.0), 2):
        assert rates == pytest.approx([100.0] * len(rates))


def test_samples_that_shrink_are_no_speed(bench: Callable[..., Measuring]) -> None:
    with pytest.raises(JobError, match="do not grow"):
        watch(bench(lambda now_s: (10**6 - int(now_s), now_s)))


def test_a_first_step_just_at_the_limit_is_in_time(bench: Callable[..., Measuring]) -> None:
    # It is late when the time is looked at, and not when jobs are: 3 s, in looks of 0.1 s.
    bench(lambda now_s: (1, 1.0) if now_s > 2.95 else None)._until_trained([0])
    late = bench(lambda now_s: (1, 1.0) if now_s > 3.25 else None)
    with pytest.raises(JobError, match="job 0: it has reported no step within 3 s"):
        late._until_trained([0])


def test_on_a_full_disk_the_measured_jobs_are_ended_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents: list[int] = []

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def fills(bench: Measuring, _: object) -> None:
        """Both jobs run, and from then on nothing can be written."""
        site = Site.__new__(Site)
        site.store = bench._store

        def both_run() -> bool:
            bench._pass_time()
            agents[:] = site.agents()
            return len(agents) == 2

        eventually(both_run)
        for name in ("keep", "end", "cancel"):
            monkeypatch.setattr(StateDir, name, full)
        full()

    monkeypatch.setattr(Measuring, "_until_trained", fills)
    request = asked(["sleep", "1000"], kind="elastic")
    spans = Spans(1.0, 0.0, PATIENCE_S)
    try:
        with (
            pytest.raises(OSError, match="No space left"),
            Measuring(tmp_path / "state", Cluster.uniform(1, 2), spans) as bench,
        ):
            bench.rates([PlacedRequest(request, 1, 1)] * 2)
        assert not any(map(runs, agents))
    finally:
        monkeypatch.undo()
        sweep(Site(tmp_path / "state"))
