"""Calls to the agent of one run, made in threads so that a slow agent delays no other job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rota.elastic.job import ElasticJob
from rota.elastic.run_processes import end_processes

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from pathlib import Path

    from rota.backends.calls import Calls
    from rota.backends.local.seating import Seat
    from rota.elastic.agent_forkserver import AgentForkServer
    from rota.elastic.protocol import JobSpec, Member

Asked = Literal["launch", "look", "resize", "stop", "reap"]


@dataclass(frozen=True)
class Means:
    """What the jobs of a backend share."""

    pool: Calls
    """Makes calls beside the daemon's loop."""
    env: Callable[[Seat], dict[str, str]]
    """Environment variables that tell a member about its seat."""
    fork_server: AgentForkServer | None = None
    """Starts agents faster than a new Python would, if there is one."""


class AgentCalls:
    """At most one call to an agent at a time."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._call: tuple[Asked, Future[Any]] | None = None

    @property
    def pending(self) -> bool:
        """Whether a call was made whose answer has not been taken yet."""
        return self._call is not None

    def answer(self) -> tuple[Asked, Future[Any]] | None:
        """What was asked and what came of it, once it is there; then the next call can be made."""
        if self._call is None or not self._call[1].done():
            return None
        call, self._call = self._call, None
        return call

    def launch(self, folder: Path, spec: JobSpec) -> None:
        """Start an agent, and with it a run."""
        self._call = (
            "launch",
            self._means.pool.submit(ElasticJob.launch, folder, spec, self._means.fork_server),
        )

    def look(self, folder: Path) -> None:
        """Ask how the run is."""
        self._call = "look", self._means.pool.submit(ElasticJob(folder).observe)

    def resize(self, folder: Path, members: tuple[Member, ...]) -> None:
        """Ask for exactly these members."""
        self._call = "resize", self._means.pool.submit(ElasticJob(folder).resize, members)

    def stop(self, folder: Path, grace_s: float) -> None:
        """Ask for the end of the run."""
        self._call = "stop", self._means.pool.submit(ElasticJob(folder).stop, grace_s)

    def reap(self, folder: Path) -> None:
        """Kill what is left of the run; the answer lists the processes that are still there."""
        self._call = "reap", self._means.pool.submit(end_processes, folder)
