"""Jobs of this machine through random orders of decisions, wishes, answers, losses and crashes.

Agents are pretended, so that each can be late, fail and be forgotten at any moment. No GPU is ever
given to two processes, and once the world holds still every job comes to hold what it shall hold.
"""

from __future__ import annotations

import random
from contextlib import suppress
from errno import ENOSPC
from typing import TYPE_CHECKING, Any

import pytest
from local_jobs import Site, asked
from tests.backends.fake_agents import FakeAgents, LateCalls

from rota.backends.local import agent_calls, live_job, local_driver, run_end
from rota.backends.local.holds import hold_job, resume_job
from rota.core import Draft
from rota.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from rota.backends.local.held import Held

NODES, GPUS, JOBS, STEPS = 2, 3, 5, 120
SEEDS = [*range(30), *(pytest.param(k, marks=pytest.mark.slow) for k in range(30, 200))]


class Clock:
    """Time that passes when the test says so."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class World(Site):
    """Some jobs under one daemon after the other."""

    def __init__(self, root: Path, rng: random.Random, clock: Clock) -> None:
        super().__init__(root, NODES, GPUS, every_s=1e9)
        self.rng, self.clock = rng, clock
        self.full, self._keep = False, self.store.keep
        self.store.keep = self.keep  # type: ignore[method-assign]

    def open(self) -> None:
        super().open()
        self.calls: LateCalls = self.backend.driver._pool  # type: ignore[assignment]

    def decide(self) -> None:
        """Something at random about some of the jobs."""
        snapshot = self.backend.observe()
        draft, jobs = Draft(snapshot), snapshot.jobs.rows
        rows = [row for row in range(len(jobs)) if self.rng.random() < 0.6]
        for row in rows:
            draft.stop(row)
        self.rng.shuffle(rows)
        for row in rows:
            least, most = int(jobs[row]["min_workers"]), int(jobs[row]["max_workers"])
            share, left = list[tuple[int, int]](), self.rng.randint(least, most)
            for node in self.rng.sample(range(NODES), NODES):
                count = min(left, draft.free(node), self.rng.randint(1, GPUS))
                share, left = share + [(node, count)] * (count > 0), left - count
            if sum(count for _, count in share) >= least and self.rng.random() < 0.8:
                draft.place(row, share)
        self.backend.apply(draft.commit().diff(snapshot))

    def crash(self) -> None:
        """Some calls are made, their answers lost; the next daemon has files and processes only."""
        while self.calls.open and self.rng.random() < 0.5:
            self.calls.answer(0)
        self.calls.close()
        self.open()

    def keep(self, uid: int, held: Held) -> None:
        """Write down what a job shall hold, if the disk has room."""
        if self.full:
            raise OSError(ENOSPC, "No space left on device")
        self._keep(uid, held)

    def wish(self) -> None:
        """A user wants something of a job."""
        uid = self.rng.randint(1, JOBS)
        with suppress(ConfigError):
            self.rng.choice((hold_job, resume_job, resume_job))(self.store, uid)
            if self.rng.random() < 0.1:
                self.store.cancel(uid)

    def pass_time(self) -> None:
        self.clock.now_s += self.rng.choice((0.0, 0.1, 0.3, 1.0))
        self.backend._push()


@pytest.mark.parametrize("seed", SEEDS)
def test_any_order(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    agents, clock, rng = FakeAgents(), Clock(), random.Random(seed)
    monkeypatch.setattr(agent_calls, "ElasticJob", agents)
    monkeypatch.setattr(agent_calls, "end_processes", agents.end_processes)
    monkeypatch.setattr(live_job, "monotonic", clock)
    monkeypatch.setattr(local_driver, "Calls", LateCalls)
    monkeypatch.setattr(run_end, "MOST_KILLS", 10**6)
    world = World(tmp_path / "state", rng, clock)
    for k in range(JOBS):
        sizes: dict[str, Any] = {"workers": 1 + k % 2, "min_workers": 1, "max_workers": 3}
        kind = {"kind": "elastic"} if k % 2 else {"preemptible": True}
        world.submit(asked(["sleep", "1"], retries=10**6, **sizes, **kind))
    world.backend._push()
    for _ in range(STEPS):
        what = rng.random()
        if what < 0.12:
            world.decide()
        elif what < 0.15:
            world.crash()
        elif what < 0.25:
            agents.something_happens(rng)
        elif what < 0.28:
            world.full = not world.full
        elif what < 0.31:
            world.wish()
        elif world.calls.open:
            world.calls.answer(rng.randrange(len(world.calls.open)))
        world.pass_time()
        taken = agents.seats()
        assert len(set(taken)) == len(taken), (seed, taken)
    _holds_still(world, agents)


def _holds_still(world: World, agents: FakeAgents) -> None:
    """Nothing more is decided or lost: everything comes to an end, and is as it was decided."""
    world.full = False
    for _ in range(200):
        while world.calls.open:
            world.calls.answer(0)
        for run in agents.values():
            run.going.clear()
            if run.state == "stopping":
                run.end("stopped")
        world.clock.now_s += 0.3
        world.backend._push()
    for job in world.backend.jobs:
        assert not (job.on_hold and job.held.seats)
        run = agents.get(job.store.run_folder(job.uid, job.held.run))
        there = run.members.keys() if run is not None and run.state == "running" else set()
        assert there == job.held.seats.keys(), (job.uid, job.request.kind, job.held)
        assert not job.held.leaving
        assert job.held.open == bool(there)
