"""The potential of a round against the reward that it then brings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from rota.envs import BatchEnv, WorldPool
from rota.scenarios import load
from rota.systems.dl2.step_lens import StepByStep


def slotted_env(batch: int) -> BatchEnv:
    """The small cluster in whole slots without costs: rewards equal potentials."""
    worlds = [load("dl2-small").draw(seed) for seed in range(batch)]
    when = replace(worlds[0].when, slot_s=1200.0, restart_s=0.0, whole_slots=True)
    worlds = [replace(world, when=when) for world in worlds]
    return BatchEnv(WorldPool.of(worlds, list(range(batch))), StepByStep(), "progress", batch)


def test_the_progress_of_a_slot_is_its_potential() -> None:
    env, rng = slotted_env(4), np.random.default_rng(0)
    _, info = env.reset()
    closed = 0
    for _ in range(600):
        potential_after = env.potential().copy()
        actions = np.zeros(4, np.int64)
        env.lens.sample(info["mask"], rng.random(4), actions)
        _, reward, _, _, info = env.step(actions)
        over = info["closed"]
        np.testing.assert_allclose(reward[over], potential_after[over], atol=1e-9)
        closed += int(over.sum())
    assert closed > 20


def share(env: BatchEnv, j: int, workers: int, servers: int) -> float:
    """The part of its work that job j does in a slot with so many tasks."""
    job, true = env.state.jobs[0, j], env.state.truth[0, j]
    pace = env.state.speed[job["curve"], 0, servers, workers] / true["unit"]
    return float(min(pace * 1200.0, true["work_s"]) / (job["progress_s"] + true["work_s"]))


def test_an_edit_changes_the_potential_by_its_job_alone() -> None:
    env = slotted_env(1)
    _, info = env.reset()
    lens: Any = env.lens
    for action in (1, 1, 0):  # two servers and a worker for the first job
        before, j = float(env.potential()[0]), int(info["rows"][0, 0])
        assert lens.jobs_of(env.book, np.array([action]))[0] == j
        _, _, _, _, info = env.step(np.array([action]))
        workers, servers = int(env.book.workers[0, j]), int(env.book.servers[0, j])
        had = (workers - 1, servers) if action == 0 else (workers, servers - 1)
        gain = share(env, j, workers, servers) - share(env, j, *had)
        np.testing.assert_allclose(env.potential()[0] - before, gain, atol=1e-12)
    assert lens.jobs_of(env.book, np.array([60]))[0] == -1
