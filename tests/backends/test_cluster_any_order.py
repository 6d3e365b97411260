"""The backend for clusters of others through random orders of looks, answers, losses and crashes.

The cluster is pretended, so that every look and every command can be late, get lost or take effect
without an answer. No node is ever given more than it has, no job runs twice at a time, and once the
world holds still every job comes to its end.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from dataclasses import dataclass, field, replace
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.backends import fake_cluster
from tests.backends.fake_agents import LateCalls
from tests.backends.fake_cluster import FakeCluster, nodes

from rota.backends import cluster_backend, cluster_calls
from rota.backends.cluster_backend import ClusterBackend
from rota.backends.driver import Answer
from rota.backends.job_book import JobBook
from rota.core import Draft
from rota.errors import BackendError, JournalError
from rota.policies.catalogue import make_policy
from rota.run.speeds import Speeds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.backends.driver import JobSight, Place
    from rota.backends.reconciler import Action

NODES, GPUS, JOBS, STEPS = 3, 4, 7, 150
SEEDS = [*range(20), *(pytest.param(k, marks=pytest.mark.slow) for k in range(20, 200))]
KINDS: tuple[dict[str, Any], ...] = (
    {"gpus_per_worker": 2, "stoppable": True},
    {"gpus_per_worker": 1, "stoppable": True, "notice_s": 20.0},
    {"gpus_per_worker": 4},
    {"gpus_per_worker": 1, "in_place": True, "stoppable": True, "max_workers": 3, "apart": True},
    {"gpus_per_worker": 1, "workers": 2, "min_workers": 2, "max_workers": 2, "stoppable": True},
)


class Clock:
    """Time that passes when the test says so."""

    now_s = 1e6

    def __call__(self) -> float:
        return self.now_s


@dataclass
class StrictCluster(FakeCluster):
    """Refuses nothing, and remembers what should never have been asked."""

    wrong: list[str] = field(default_factory=list)

    def carry_out(self, action: Action, job: JobSight, place: Place) -> Answer:
        own = self.jobs[job.name].sight
        if action == "start" and own.phase not in ("waiting", "starting"):
            return Answer("refused", "it runs")
        if action in ("start", "resize") and own.end:
            return Answer("refused", "it is over")
        if action == "resize" and not self._has_room(job, place):
            return Answer("done")  # what it is to get is not free yet
        if action == "start" and not self._has_room(job, place) and self._has_grown(place):
            return Answer("refused", "another job has grown there in the meantime")
        answer = super().carry_out(action, job, place)
        for node in self.nodes:
            if (held := self._held(node.name)) > node.gpus:
                self.wrong.append(f"{action} {job.name}: {held} GPUs held on {node.name}")
        return answer

    def _has_room(self, job: JobSight, place: Place) -> bool:
        """Whether a job can hold this in place of what it holds."""
        has = {node.name: node.gpus - self._held(node.name) for node in self.nodes}
        each = job.request.gpus_per_worker
        for name, workers, _ in self.jobs[job.name].sight.place:
            has[name] += workers * each
        return all(workers * each <= has[name] for name, workers, _ in place)

    def _has_grown(self, place: Place) -> bool:
        """Whether a job that is resized without being asked for room is on one of these nodes."""
        here = {name for name, _, _ in place}
        return any(
            job.sight.request.in_place and here & {name for name, _, _ in job.sight.place}
            for job in self.jobs.values()
        )

    def _held(self, node: str) -> int:
        """GPUs of a node that jobs have, or will have as soon as they start."""
        sights = [job.sight for job in self.jobs.values() if not job.sight.end]
        return sum(
            workers * sight.request.gpus_per_worker
            for sight in sights
            for name, workers, _ in sight.place
            if name == node
        )

    def something_happens(self, rng: random.Random, now_s: float) -> None:
        """To one of the jobs, or to a node."""
        what = rng.random()
        if what < 0.15:
            k = rng.randrange(len(self.nodes))
            self.nodes[k] = replace(self.nodes[k], up=not self.nodes[k].up)
        elif what < 0.3:
            self.lazy = not self.lazy
        else:
            name = rng.choice(sorted(self.jobs))
            sight = self.jobs[name].sight
            if sight.end:
                return
            if what < 0.5 and sight.phase == "running":
                self.see(name, end="done", end_s=now_s, phase="waiting", place=())
            elif what < 0.65 and sight.phase in ("running", "stopping"):  # its node has died
                self.see(name, phase="waiting", place=(), start_s=nan, saved=False)
            elif what < 0.8 and sight.phase in ("running", "stopping"):  # put back in line
                self.see(name, phase="waiting", place=(), start_s=nan, submit_s=now_s,
                         resubmitted=True, saved=False)  # fmt: skip
            elif what < 0.85:
                self.see(name, end="cancelled", end_s=now_s, phase="waiting", place=())
            elif sight.phase == "waiting":
                self.see(name, waits_for="" if sight.waits_for else "its user holds it")


class World:
    """A cluster, and one daemon after the other."""

    def __init__(self, root: Path, rng: random.Random, clock: Clock) -> None:
        self.root, self.rng, self.clock = root, rng, clock
        self.cluster = StrictCluster(nodes(NODES, GPUS))
        self.full, self.book = False, None
        self.said: list[str] = []
        self.open()

    def open(self) -> None:
        """Another daemon takes over."""
        if self.book is not None:
            self.book.close()
        self.book = JobBook(self.root / "journal.db", self.clock.now_s)
        writing = self.book._writing

        def fills() -> Any:
            if self.full:
                raise JournalError("the disk is full.")
            return writing()

        self.book._writing = fills  # type: ignore[method-assign]
        speeds = Speeds(self.root / "speeds.npz")
        self.backend = ClusterBackend(self.cluster, self.book, speeds, say=self.said.append)
        self.calls: LateCalls = self.backend._calls._pool  # type: ignore[assignment]

    def crash(self) -> None:
        """Some calls take effect, their answers are lost."""
        while self.calls.open and self.rng.random() < 0.5:
            self.calls.answer(0)
        self.calls.close()
        self.open()

    def answer(self) -> None:
        """One of the calls comes to its end, in some way."""
        if not self.calls.open:
            return
        number = self.rng.randrange(len(self.calls.open))
        if self.rng.random() < 0.1:
            future, call = self.calls.open.pop(number)
            if self.rng.random() < 0.5:
                call()
            future.set_exception(BackendError("no answer"))
        else:
            self.calls.answer(number)

    def decide(self, policy: str) -> None:
        """A round, unless nothing has been seen yet."""
        if self.backend._blind:
            return
        snapshot = self.backend.observe()
        decision = make_policy(policy).decide(snapshot)
        self.backend.apply(decision.diff(snapshot))

    def decide_anything(self) -> None:
        """A round of somebody who changes his mind."""
        if self.backend._blind:
            return
        snapshot = self.backend.observe()
        draft, rows = Draft(snapshot), snapshot.jobs.rows
        may = [k for k in range(len(rows)) if rows[k]["min_run_s"] == 0 and self.rng.random() < 0.5]
        for row in may:
            draft.stop(row)
        self.rng.shuffle(may)
        for row in may:
            least, most = int(rows[row]["min_workers"]), int(rows[row]["max_workers"])
            share, left = list[tuple[int, int]](), self.rng.randint(least, most)
            each = int(rows[row]["gpus_per_worker"])
            for node in self.rng.sample(range(NODES), NODES):
                count = min(left, draft.free(node) // each)
                share, left = share + [(node, count)] * (count > 0), left - count
            if not left and self.rng.random() < 0.8:
                draft.place(row, share)
        self.backend.apply(draft.commit().diff(snapshot))

    def pass_time(self, most_s: float = 5.0) -> None:
        self.clock.now_s += self.rng.uniform(0.0, most_s)
        self.backend._serve()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (cluster_backend, cluster_calls):
        monkeypatch.setattr(module, "monotonic", made)
    for module in (cluster_backend, fake_cluster):
        monkeypatch.setattr(module, "time", made)
    monkeypatch.setattr(cluster_calls, "Calls", LateCalls)
    return made


@pytest.fixture
def root() -> Iterator[Path]:
    """In memory where that can be had: each step writes to the disk."""
    shared = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
    yield made
    shutil.rmtree(made)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_order(root: Path, clock: Clock, seed: int) -> None:
    rng = random.Random(seed)
    world = World(root, rng, clock)
    for k in range(JOBS):
        request = {"estimate_s": rng.uniform(10.0, 1000.0), **KINDS[k % len(KINDS)]}
        world.cluster.submit(f"j{k}", **request)
    for _ in range(STEPS):
        what = rng.random()
        if what < 0.10:
            world.decide(rng.choice(("srtf", "fifo-skip", "hull-greedy")))
        elif what < 0.16:
            world.decide_anything()
        elif what < 0.20:
            world.crash()
        elif what < 0.28:
            world.cluster.something_happens(rng, clock.now_s)
        elif what < 0.31:
            world.full = not world.full
        else:
            world.answer()
        if not (world.full and world.book is None):
            world.pass_time()
        assert not world.cluster.wrong, (seed, world.cluster.wrong)
    _holds_still(world)


def _holds_still(world: World) -> None:
    """Nothing is lost any more, and jobs end after a while: all do."""
    cluster = world.cluster
    world.full, cluster.lazy = False, False
    cluster.nodes[:] = [replace(node, up=True) for node in cluster.nodes]
    for name in cluster.jobs:
        cluster.see(name, waits_for="")
    for _ in range(400):
        while world.calls.open:
            world.calls.answer(0)
        world.pass_time(20.0)
        world.decide("fifo-skip")
        for name, job in cluster.jobs.items():
            sight = job.sight
            if sight.phase == "running" and world.clock.now_s - sight.start_s > 30.0:
                cluster.see(name, end="done", end_s=world.clock.now_s, phase="waiting", place=())
        assert not cluster.wrong, cluster.wrong
    left = {name: job.sight for name, job in cluster.jobs.items() if not job.sight.end}
    assert not left, (left, world.said[-5:])
    assert not world.backend.jobs
