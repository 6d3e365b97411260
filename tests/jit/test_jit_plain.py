"""Kernels in plain Python (NUMBA_DISABLE_JIT=1): to step through, with the same schedules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from rota.core import Cluster
from rota.perf.physics import Physics
from rota.perf.sharing import deepshare_curves, link_contention
from rota.policies import make_policy
from rota.sim import Conditions, simulate
from rota.traces import Trace

FREE = (
    "fifo", "fifo-skip+first-fit", "sjf", "fifo-easy", "fifo-conservative", "srtf", "las",
    "tiresias", "gittins", "max-min", "drf", "tetris", "themis", "srtf+spread", "srtf+topology",
    "fifo-skip+fgd", "fifo+worst-fit",
)  # fmt: skip
COSTLY = ("srtf+consolidate", "las", "srtf+elastic")
CONTENDED = ("fifo-skip+spread", "srtf+consolidate")


def world(models: tuple[str, ...] = (), **more: Any) -> Trace:
    rng, jobs = np.random.default_rng(3), 25
    names = {"model": rng.integers(len(models), size=jobs), "models": models} if models else {}
    return Trace.build(
        "tiny", submit_s=np.sort(rng.uniform(0, 300, jobs)), user=rng.integers(3, size=jobs),
        duration_s=rng.integers(5, 200, jobs).astype(float), users=("a", "b", "c"),
        num_gpus=rng.choice([1, 2, 3, 4, 8], jobs), **names, **more,
    )  # fmt: skip


def schedules() -> dict[str, list[float]]:
    """When every job ends, under many policies."""
    cluster = Cluster.uniform(3, 4, cpus=8.0)
    trace = world(cpus_per_worker=np.resize([0.0, 1.0, 2.0], 25))
    found = {name: simulate(cluster, trace, make_policy(name)).done_s for name in FREE}
    for name in COSTLY:
        when = Conditions(restart_s=7.0)
        found[f"{name}, restarts"] = simulate(cluster, trace, make_policy(name), when).done_s
    curves = deepshare_curves(max_nodes=3, max_gpus=8, single_node=True)
    cluster, trace = Cluster.uniform(3, 4), world(curves.names)
    laws = Physics(
        curves=curves,
        contention=link_contention(curves, cluster, uplink_gbps=10.0, spine_gbps=10.0),
    )
    for name in CONTENDED:
        outcome = simulate(cluster, trace, make_policy(name), physics=laws)
        found[f"{name}, contention"] = outcome.done_s
    return {name: done_s.tolist() for name, done_s in found.items()}


@pytest.mark.slow
def test_every_policy_gives_the_same_schedule_without_the_compiler() -> None:
    assert uncompiled() == schedules()


def test_a_few_policies_give_the_same_schedule_without_the_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = {"FREE": ("fifo", "srtf", "max-min"), "COSTLY": (), "CONTENDED": ("fifo-skip+spread",)}
    for name, policies in few.items():
        monkeypatch.setattr(sys.modules[__name__], name, policies)
    found = uncompiled()
    for name, done_s in schedules().items():
        assert found[name] == done_s, name


def uncompiled() -> dict[str, list[float]]:
    """`schedules()` in a process without the compiler."""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, __file__]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    from importlib import import_module

    from rota.sim.queue_kernels import replay_queue

    assert not hasattr(replay_queue, "py_func")
    import_module("rota.sim.replay_choice").MANY_JOBS = 0  # as all tests have it
    print(json.dumps(schedules()))
