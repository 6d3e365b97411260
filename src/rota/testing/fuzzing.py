"""Many random worlds in worker processes: a crash or a hang is a finding, not the end.

A worker that dies is replaced. How long a run may take is counted in its own processor time, so
a busy machine changes nothing.
"""

from __future__ import annotations

import faulthandler
import json
import multiprocessing
import resource
import signal
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Final

from rota.testing.candidates import base_of
from rota.testing.examining import Finding, drawn, examine, warm_up
from rota.testing.shrinking import shrink
from rota.testing.worlds import WorldSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from pathlib import Path

MEMORY_BYTES: Final = 6 << 30
"""Address space of a worker; a policy that wants more than a few GiB here wants too much."""
COMPILING_S: Final = 600
"""Processor seconds that a worker may use beside its limit for the first runs of a policy."""
SILENT_S: Final = 3600.0
"""A worker that reports nothing for this time, with processor time left, is stuck."""


@dataclass(frozen=True)
class FuzzPlan:
    """Which worlds to play."""

    seed: int = 0
    first: int = 0
    worlds: int = 100
    each: int = 4
    """Policies per world."""
    policies: tuple[str, ...] = ()
    """Always these, instead of drawn ones."""
    limit_s: int = 60
    """Processor seconds after which a policy in a world hangs; compiling is not counted."""


@dataclass
class Tally:
    """How a series of worlds went."""

    worlds: int = 0
    runs: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    failures: list[Finding] = field(default_factory=list)

    def add(self, findings: Sequence[Finding]) -> None:
        """Count what was found about one policy in one world."""
        for finding in findings:
            if finding.failed:
                self.failures.append(finding)
            else:
                self.refused[base_of(finding.policy)] += 1


def fuzz(plan: FuzzPlan, *, workers: int, progress: Callable[[Tally], None]) -> Tally:
    """Play all worlds of the plan; `progress` is called after each."""
    tally, numbers = Tally(), iter(range(plan.first, plan.first + plan.worlds))
    processes = [_Worker(plan.limit_s) for _ in range(max(1, min(workers, plan.worlds)))]
    for worker in processes:
        _next_world(worker, numbers, plan)
    try:
        while busy := [worker for worker in processes if worker.task is not None]:
            ready = wait([worker.pipe for worker in busy], SILENT_S)
            for worker in busy:
                if worker.pipe in ready or not ready:
                    _take_report(worker, tally, numbers, plan, progress, stuck=not ready)
    finally:
        for worker in processes:
            worker.stop()
    return tally


def _next_world(worker: _Worker, numbers: Iterator[int], plan: FuzzPlan) -> None:
    number = next(numbers, None)
    worker.task = None
    if number is not None:
        spec, policies = drawn(plan.seed, number, plan.each, plan.policies)
        worker.give(spec, policies)


def _take_report(
    worker: _Worker, tally: Tally, numbers: Iterator[int], plan: FuzzPlan,
    progress: Callable[[Tally], None], *, stuck: bool,
) -> None:  # fmt: skip
    """Take one report of a worker: about a policy, or that it has died."""
    assert worker.task is not None
    spec, policies = worker.task
    findings = worker.report(stuck=stuck)
    tally.runs[base_of(policies[0])] += 1
    tally.add(findings)
    left = policies[1:]
    if left:
        worker.task = (spec, left)
        worker.resume()
        return
    tally.worlds += 1
    progress(tally)
    _next_world(worker, numbers, plan)


class _Worker:
    """A process that examines worlds, and its replacement should it die."""

    def __init__(self, limit_s: int) -> None:
        self.task: tuple[WorldSpec, list[str]] | None = None
        self._limit_s = limit_s
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._trace = tempfile.NamedTemporaryFile(mode="r", suffix=".txt")  # noqa: SIM115
        self._process = context.Process(
            target=_serve,
            args=(theirs, self._trace.name, self._limit_s),
            daemon=True,
        )
        self._process.start()
        theirs.close()
        self._fresh = True

    def give(self, spec: WorldSpec, policies: list[str]) -> None:
        """Let it examine these policies in this world, one report each."""
        self.task = (spec, policies)
        self.resume()

    def resume(self) -> None:
        """Let it go on with the first policy that is left."""
        assert self.task is not None
        spec, policies = self.task
        try:
            self.pipe.send((spec, policies[0]))
        except OSError:  # it died since; the next report says so
            return

    def report(self, *, stuck: bool = False) -> list[Finding]:
        """What it says of the policy at hand; what is to be said if it has died of it."""
        assert self.task is not None
        spec, policies = self.task
        try:
            if stuck:
                raise EOFError
            findings: list[Finding] = self.pipe.recv()
            return findings
        except (EOFError, OSError):
            kind, message = self._why_it_ended(stuck)
            self.stop()
            self._start()
            return [Finding(spec, policies[0], kind, message)]

    def _why_it_ended(self, stuck: bool) -> tuple[str, str]:
        if stuck:
            return "hang", f"no sign of life for {SILENT_S:g} s."
        self._process.join(60)
        code = self._process.exitcode
        lines = self._trace.read().splitlines()
        frames = [line.strip() for line in lines if line.startswith("  File")]
        own = [line for line in frames if "rota" in line and "/testing/" not in line]
        where = next(iter(own or frames), "")
        if code == -signal.SIGXCPU:
            return "hang", f"its processor time is used up. {where}"
        name = signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
        return "crash", f"the process ended with {name}. {where}"

    def stop(self) -> None:
        """End the process."""
        self.pipe.close()
        self._process.kill()
        self._process.join()
        self._trace.close()


def _serve(pipe: Connection, trace: str, limit_s: int) -> None:
    """What a worker does: examine one policy after the other, within limits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log = open(trace, "w")  # noqa: SIM115  open for as long as the process
    faulthandler.enable(log)
    faulthandler.register(signal.SIGXCPU, log, chain=True)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        try:
            spec, policy = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        _limit_time(COMPILING_S)
        warm_up(spec, policy)
        _limit_time(limit_s)
        pipe.send(examine(spec, policy))


def _limit_time(more_s: int) -> None:
    """Allow this process that many further seconds of processor time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    until = int(used.ru_utime + used.ru_stime) + more_s
    resource.setrlimit(resource.RLIMIT_CPU, (until, resource.RLIM_INFINITY))


def shrunk(finding: Finding, *, most_tries: int = 300, limit_s: int = 30) -> Finding:
    """The finding in a smaller world, found in a process of its own."""
    worker, latest = _Worker(limit_s), [finding]
    cheap = min(most_tries, 25) if finding.kind == "hang" else most_tries

    def fails(spec: WorldSpec) -> bool:
        worker.give(spec, [finding.policy])
        same = [found for found in worker.report() if found.kind == finding.kind]
        latest[:] = same or latest
        return bool(same)

    try:
        if not fails(finding.world):
            return finding
        shrink(finding.world, fails, most_tries=cheap)
        return latest[0]
    finally:
        worker.stop()


def write_finding(finding: Finding, directory: Path) -> Path:
    """Keep a finding as a small JSON file."""
    directory.mkdir(parents=True, exist_ok=True)
    name = "".join(c if c.isalnum() or c in "-+=" else "_" for c in finding.policy)
    path = directory / f"{finding.kind}-{name}-{finding.world.seed}.json"
    facts = {"policy": finding.policy, "kind": finding.kind, "message": finding.message,
             "world": asdict(finding.world)}  # fmt: skip
    path.write_text(json.dumps(facts, indent=1) + "\n")
    return path


def replayed(path: Path) -> list[Finding]:
    """What is still wrong in the findings of a file, or of all files below a directory."""
    files = sorted(path.rglob("*.json")) if path.is_dir() else [path]
    worker, found = _Worker(FuzzPlan.limit_s), []
    try:
        for file in files:
            facts = json.loads(file.read_text())
            worker.give(WorldSpec(**facts["world"]), [facts["policy"]])
            found += [finding for finding in worker.report() if finding.failed]
    finally:
        worker.stop()
    return found
