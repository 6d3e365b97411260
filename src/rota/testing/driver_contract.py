"""What a driver of a cluster that others run must keep to."""

from __future__ import annotations

from time import monotonic, sleep, time
from typing import TYPE_CHECKING, Final

from rota.backends.driver import Answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.backends.driver import ClusterSight, Driver, JobSight, Place
    from rota.backends.reconciler import Action

CLOCKS_S: Final = 300.0
"""By how much the clock of a cluster may differ from ours."""
LOOK_S: Final = 0.1
_ENDS: Final = ("done", "failed", "cancelled")
_RUNNING: Final = ("running", "stopping")


def check_driver(driver: Driver, submit: Callable[[], str], *, patience_s: float = 60.0) -> None:
    """Have a driver do all that it can to one job, twice each time, and watch what comes of it.

    `submit` puts a job in line that is ours, can be stopped, fits on any node and runs for long,
    and returns its name. The cluster may take `patience_s` until something shows. AssertionError
    unless

    - a look names every job and node once, and tells the time;
    - a started job runs on the nodes that it was given, with so many workers, and goes on running
      when it is given notice (if it has time for that: `notice_s`);
    - a start that is taken back leaves it waiting, or running if that came too late;
    - a stopped job waits again, is known by the same name, and can be started anew;
    - a cancelled job is over, as the last look that lists it, or `fate`, says.
    """
    name = submit()
    job = _until(driver, name, ("waiting",), patience_s)
    _require(job.managed, f"job {name} is not ours, though it was submitted to be.")
    place = ((_node_that_is_up(driver, patience_s), job.request.workers, 0),)
    for _ in range(2):  # from waiting, and again after a stop
        _twice(driver, "start", name, place)
        job = _until(driver, name, ("running",), patience_s)
        _require(job.place == place, f"it was to get {place!r} and has {job.place!r}.")
        _require(abs(job.start_s - time()) < CLOCKS_S, f"it runs since {job.start_s!r}.")
        if job.request.notice_s > 0:
            _twice(driver, "notice", name, ())
            _until(driver, name, ("running",), patience_s)
        _twice(driver, "stop", name, ())
        job = _until(driver, name, ("waiting",), patience_s)
        _require(not job.place, f"it waits, and holds {job.place!r}.")
    _answered(driver, "start", name, place)
    _twice(driver, "withdraw", name, ())
    _until(driver, name, ("waiting", "running"), patience_s)
    _twice(driver, "cancel", name, ())
    _until_over(driver, name, job.submit_s, patience_s)


def check_sight(sight: ClusterSight) -> None:
    """AssertionError unless jobs and nodes of one look make sense together."""
    names = [(job.name, job.submit_s) for job in sight.jobs]
    _require(len(set(names)) == len(names), f"a look lists a job twice: {sorted(names)!r}.")
    nodes = [node.name for node in sight.nodes]
    _require(len(set(nodes)) == len(nodes), f"a look lists a node twice: {sorted(nodes)!r}.")
    _require(abs(sight.time_s - time()) < CLOCKS_S, f"a look was made at {sight.time_s!r}.")
    for job in sight.jobs:
        strange = [node for node, *_ in job.place if node not in nodes]
        _require(not strange, f"job {job.name} is on {strange}, which no look lists.")
        held = bool(job.place) or job.phase not in _RUNNING or not job.managed or bool(job.end)
        _require(held, f"job {job.name} is {job.phase}, and nowhere.")


def _twice(driver: Driver, action: Action, name: str, place: Place) -> None:
    """Do something, and again: the second time it may be refused, but must do no harm."""
    _answered(driver, action, name, place)
    answer = _carry_out(driver, action, name, place)
    _require(answer.outcome in ("done", "refused", "unknown"), f"{action}: {answer!r}.")


def _answered(driver: Driver, action: Action, name: str, place: Place) -> None:
    answer = _carry_out(driver, action, name, place)
    late = action == "withdraw" and answer.outcome == "refused"
    _require(answer.outcome == "done" or late, f"{action} of job {name}: {answer!r}.")


def _carry_out(driver: Driver, action: Action, name: str, place: Place) -> Answer:
    job = _seen(driver, name)
    if job is None:
        return Answer("refused", "it is gone")
    return driver.carry_out(action, job, place)


def _seen(driver: Driver, name: str) -> JobSight | None:
    sight = driver.observe()
    check_sight(sight)
    return next((job for job in sight.jobs if job.name == name), None)


def _node_that_is_up(driver: Driver, patience_s: float) -> str:
    give_up_s = monotonic() + patience_s
    while monotonic() < give_up_s:
        if up := [node.name for node in driver.observe().nodes if node.up]:
            return up[0]
        sleep(LOOK_S)
    raise AssertionError("Driver: no node is up, so that no job can be started.")


def _until(driver: Driver, name: str, phases: tuple[str, ...], patience_s: float) -> JobSight:
    give_up_s, job = monotonic() + patience_s, None
    while monotonic() < give_up_s:
        job = _seen(driver, name)
        if job is not None and job.phase in phases and not job.end:
            return job
        sleep(LOOK_S)
    raise AssertionError(f"Driver: job {name} was to be {' or '.join(phases)}, but it is {job}.")


def _until_over(driver: Driver, name: str, submit_s: float, patience_s: float) -> None:
    give_up_s = monotonic() + patience_s
    while monotonic() < give_up_s:
        job = _seen(driver, name)
        end = driver.fate(name, submit_s)[0] if job is None else job.end
        if end:
            _require(end in _ENDS, f"job {name} has ended as {end!r}.")
            return
        sleep(LOOK_S)
    raise AssertionError(f"Driver: job {name} was cancelled and is not over.")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(f"Driver: {message}")
