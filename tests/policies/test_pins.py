"""No policy touches a job that would have to begin again, as live backends mark it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rota.core import Cluster, JobTable
from rota.core.speed import Curves
from rota.perf.physics import Physics
from rota.policies import make_policy
from rota.run.guard import Guard
from rota.run.loop import rounds
from rota.sim.briefing import informed
from rota.sim.simulator import Simulator
from rota.testing.candidates import base_names
from rota.traces import Trace

if TYPE_CHECKING:
    from rota.core import Plan, Snapshot

MODELS, JOBS = ("a", "b", "c"), 40


@dataclass
class Pins:
    """A simulated cluster on which every second job runs until it ends, once it has begun."""

    sim: Simulator

    def wait(self, wake_s: float) -> bool:
        return self.sim.wait(wake_s)

    def observe(self) -> Snapshot:
        snapshot = self.sim.observe()
        rows = snapshot.jobs.rows.copy()
        rows["min_run_s"] = np.where(rows["uid"] % 2 == 0, np.inf, rows["min_run_s"])
        return replace(snapshot, jobs=JobTable(rows))

    def apply(self, plan: Plan) -> None:
        self.sim.apply(plan)


def crowd() -> tuple[Cluster, Trace, Physics]:
    """Twice as much work as there is time for, half of it elastic."""
    rng, speed = np.random.default_rng(3), np.zeros((3, 1, 5, 17))
    for model, power in enumerate((0.6, 0.8, 0.95)):
        speed[model, 0, 1:, 1:] = np.arange(1, 17) ** power
    curves = Curves(MODELS, ("gpu",), speed, True, np.full((3, 2), (4, 16)))
    asked, elastic = rng.integers(1, 5, JOBS), rng.random(JOBS) < 0.5
    trace = Trace.build(
        "crowd", submit_s=np.sort(rng.uniform(0, 1300, JOBS)), num_gpus=asked,
        duration_s=rng.uniform(50, 900, JOBS), min_workers=np.where(elastic, 1, asked),
        max_workers=np.where(elastic, 2 * asked, asked), models=MODELS,
        model=rng.integers(0, 3, JOBS), restart_s=np.full(JOBS, 10.0), resize_s=np.ones(JOBS),
    )  # fmt: skip
    return Cluster.uniform(4, 4), trace, Physics(curves=curves, sight="observed")


@pytest.mark.parametrize("name", [*base_names(), "srtf+elastic", "las+elastic", "gittins+elastic"])
def test_a_job_that_cannot_resume_is_left_alone(name: str) -> None:
    cluster, trace, physics = crowd()
    sim = Simulator(cluster, trace, physics=physics)
    policy = informed(make_policy(name), trace)
    played = list(rounds(policy, Pins(sim), guard=Guard(deadline_s=600.0)))
    assert [turn.trouble for turn in played if turn.trouble] == []
    assert sim.finished == JOBS
