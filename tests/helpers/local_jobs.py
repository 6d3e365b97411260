"""State directories with real jobs, gone when the test is over."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from children import eventually
from elastic_jobs import PATIENCE_S, PRELOAD, SOURCE, fork_server, runs, script

from rota.backends.local import LocalBackend, Request, StateDir
from rota.core import Cluster, Draft
from rota.elastic.run_processes import end_processes
from rota.errors import DamagedError
from rota.files import read_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from rota.backends.local.live_job import LiveJob

ENV = {**os.environ, "PYTHONPATH": SOURCE}


def asked(command: Sequence[str], **more: Any) -> Request:
    """A request as `rota submit` would make it."""
    return Request(
        command=tuple(command),
        cwd=os.getcwd(),
        env=ENV,
        submitted_at=time.time(),
        user="me",
        **more,
    )


def python(code: str, **more: Any) -> Request:
    """A job that runs a piece of Python."""
    return asked([sys.executable, "-c", code], **more)


def elastic(out: Path, config: dict[str, Any], **more: Any) -> Request:
    """A job that runs the elastic test script."""
    sizes = {"workers": 1, "max_workers": 4, **more}
    return asked(script(out, **config), kind="elastic", preload=PRELOAD, **sizes)


class Site:
    """A backend, and a scheduler that does what the test says."""

    def __init__(self, root: Path, nodes: int = 2, gpus: int = 2, **more: Any) -> None:
        self.store, self.said = StateDir(root), list[str]()
        self.cluster = Cluster.uniform(nodes, gpus, gpu_type="cpu")
        self.more = {"every_s": 0.2, **more}
        self.open()

    def open(self) -> None:
        self.backend = LocalBackend(
            self.store, self.cluster, fork_server=fork_server(), say=self.said.append, **self.more
        )

    def reopen(self) -> None:
        """Another daemon takes over; of the first one nothing is left but files and processes."""
        self.backend.close()
        self.open()

    def submit(self, request: Request) -> int:
        return self.store.submit(request)

    def give(self, shares: dict[int, Sequence[tuple[int, int]]]) -> None:
        """Have jobs hold (node, workers) pairs, or nothing, as a decision of one round."""
        snapshot = self.backend.observe()
        draft = Draft(snapshot)
        index = {int(uid): k for k, uid in enumerate(snapshot.jobs.uid)}
        for uid in shares:
            draft.stop(index[uid])
        for uid, share in shares.items():
            if share:
                draft.place(index[uid], share)
        self.backend.apply(draft.commit().diff(snapshot))

    def until(self, what: Callable[[], Any], about: str = "") -> Any:
        """Let time pass until something is so."""
        until_s = monotonic() + PATIENCE_S
        while not (found := what()):
            assert monotonic() < until_s, (about, self.said)
            self.backend.wait(self.backend.now_s + 0.05)
        return found

    def job(self, uid: int) -> LiveJob:
        return self.backend._jobs[uid]

    def trains(self, uid: int, workers: int) -> None:
        """Wait until a job trains with so many workers."""

        def there() -> bool:
            job = self.job(uid)
            return job.meter.settled_s < float("inf") and len(job.status.active) == workers

        self.until(there, f"{uid} with {workers}")

    def ends(self, uid: int) -> Any:
        """Wait for the end of a job."""
        return self.until(lambda: self.store.ended(uid), f"end of {uid}")

    def agents(self) -> list[int]:
        """Process ids of all agents there ever were."""
        found = []
        for path in sorted(self.store.jobs.glob("*/run-*/agent.json")):
            with suppress(DamagedError):
                found.append((read_file(path) or {})["pid"])
        return found


@contextmanager
def site(root: Path, **more: Any) -> Iterator[Site]:
    """No process of it is left when the block is."""
    made = Site(root, **more)
    try:
        yield made
    finally:
        made.backend.close()
        sweep(made)


def sweep(made: Site) -> None:
    """End all agents, and with them all members, and whoever is left."""
    for pid in made.agents():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    agents = made.agents()
    end_processes(*made.store.jobs.glob("*/run-*"), patience_s=PATIENCE_S)
    eventually(lambda: not any(map(runs, agents)), lambda: f"of {agents} some outlived the test")
