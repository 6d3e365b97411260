"""Agents that exist on paper only: what they do and when they answer is up to a test."""

from __future__ import annotations

import json
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rota.elastic.job import AGENT_KILLED
from rota.elastic.protocol import JOB_FILE, Status
from rota.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from random import Random

    from rota.elastic.protocol import JobSpec, Member


@dataclass
class FakeRun:
    """One run of a job; its members are processes on GPUs."""

    plain: bool
    members: dict[str, Member]
    state: str = "running"
    step: int = 0
    target: int = 0
    going: dict[str, Member] = field(default_factory=dict)
    """Processes that were told to leave and are there still."""
    lost: dict[str, str] = field(default_factory=dict)

    @property
    def processes(self) -> list[Member]:
        return [*self.members.values(), *self.going.values()]

    def end(self, state: str) -> None:
        """The agent has ended; what it leaves behind is for others to kill."""
        self.state = state


class FakeAgents(dict["Path", FakeRun]):
    """All runs there ever were, by folder; stands in for `ElasticJob` and `end_processes`."""

    def __call__(self, folder: Path) -> _Line:
        return _Line(self, folder)

    def launch(self, folder: Path, spec: JobSpec, _fork_server: object) -> None:
        assert folder not in self
        folder.mkdir(parents=True, exist_ok=True)
        members = {one.name: one for one in spec.members}
        facts = {"members": [{"name": name} for name in members]}
        (folder / JOB_FILE).write_text(json.dumps(facts))
        (folder / "agent.json").touch()
        self[folder] = FakeRun(spec.mode == "plain", members)

    def end_processes(self, folder: Path) -> list[int]:
        if (run := self.get(folder)) is not None:
            run.members, run.going = {}, {}
            run.state = run.state if run.state in ("done", "failed") else "stopped"
        return []

    def seats(self) -> list[tuple[str, str]]:
        """(node, GPU) of every process there is."""
        return [
            (one.env["ROTA_NODE"], gpu)
            for run in self.values()
            for one in run.processes
            for gpu in one.env["ROTA_GPUS"].split(",")
        ]

    def something_happens(self, rng: Random) -> None:
        """To one of the runs: a step, a leaver is gone, a worker is lost, the end."""
        live = [run for run in self.values() if run.state in ("running", "stopping")]
        if not live:
            return
        run, what = rng.choice(live), rng.random()
        run.step += 1
        if run.state == "stopping":
            run.end("stopped")
        elif what < 0.6 and run.going:
            run.going.pop(rng.choice(sorted(run.going)))
        elif what < 0.75 and len(run.members) > 1 and not run.plain:
            name = rng.choice(sorted(run.members))
            del run.members[name]
            run.lost[name] = "it was killed"
        elif what < 0.8:
            run.end(rng.choice(("failed", "stopped")))


@dataclass(frozen=True)
class _Line:
    """A connection to the agent of one run."""

    agents: FakeAgents
    folder: Path

    def _run(self) -> FakeRun:
        run = self.agents.get(self.folder)
        if run is None or run.state not in ("running", "stopping"):
            raise JobError("the job is over")
        return run

    def observe(self) -> Status:
        run = self.agents.get(self.folder)
        if run is None:
            return Status(state="failed", error=AGENT_KILLED)
        return Status(
            state=run.state, step=run.step, samples=run.step, samples_per_s=1.0, busy_s=1.0,  # type: ignore[arg-type]
            active=tuple(sorted(run.members)), target=run.target, reached=run.target,
            pids={one.name: 1 for one in run.processes}, refused=run.lost,
        )  # fmt: skip

    def resize(self, members: Iterable[Member]) -> int:
        run = self._run()
        wanted = {one.name: one for one in members}
        assert wanted
        assert not run.plain
        assert not wanted.keys() & run.going.keys(), "a name is used again"
        run.going.update({n: one for n, one in run.members.items() if n not in wanted})
        run.members = {n: one for n, one in wanted.items() if n not in run.lost}
        run.target += 1
        return run.target

    def stop(self, _grace_s: float) -> None:
        self._run().state = "stopping"


class LateCalls:
    """Calls that are made, and answered, when the test says so; some never."""

    def __init__(self, _done: Callable[[], None] = lambda: None) -> None:
        self.open: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, call: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.open.append((future, lambda: call(*args)))
        return future

    def answer(self, number: int) -> None:
        """Make one of the open calls, and answer it."""
        future, call = self.open.pop(number)
        try:
            result = call()
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    def close(self) -> None:
        """The daemon is gone: what was not made never will be."""
        self.open.clear()
