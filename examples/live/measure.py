"""What a kind of training can do, and what changing it costs, measured on this machine."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rota.backends.local.live_job import LOOK_S
from rota.elastic import ElasticJob, JobSpec, Member
from rota.elastic.parking import ENV_PARK, ENV_RESUME

if TYPE_CHECKING:
    from rota.elastic import Change
    from rota.elastic.agent_forkserver import AgentForkServer

SCRIPT = Path(__file__).with_name("train.py")
PRELOAD = ("torch", "torch._dynamo", "rota.elastic.training")
KINDS = {"image": (4.0, 5.0), "words": (3.0, 40.0), "table": (2.0, 15.0)}
"""Milliseconds that the absent GPU takes: per sample, and per step."""
SAMPLES, BATCH, MOST = 320, 64, 4
MEASURE_S = 3.0
NOTICE_S = LOOK_S / 2
"""How long it takes a daemon on average to see that a job is over."""
FILLER = "table"


@dataclass(frozen=True)
class Kind:
    """What was measured of one kind of training."""

    speed: dict[int, float]
    """Samples per second, by workers."""
    start_s: float
    """From its launch to its first step."""
    end_s: float
    """From its last step until its processes are gone."""
    restart_s: float
    """The same of a stop and the next start: what both hold GPUs for without a step."""
    resize_s: float
    """What a resize costs from the request on, in seconds at its new speed."""
    pause_s: float
    """Seconds of that in which no worker trains."""


def command(kind: str, epochs: int) -> tuple[str, ...]:
    device_ms, fixed_ms = KINDS[kind]
    words = {"epochs": epochs, "samples": SAMPLES, "batch": BATCH, "device-ms": device_ms,
             "fixed-ms": fixed_ms}  # fmt: skip
    options = [word for key, value in words.items() for word in (f"--{key}", str(value))]
    return (sys.executable, str(SCRIPT), kind, *options)


def started(
    kind: str, folder: Path, fork_server: AgentForkServer, names: list[str], **env: Path
) -> tuple[ElasticJob, float]:
    """A training that goes on for long, and how long it took from its launch to its first step."""
    spec = JobSpec(
        command=command(kind, 100_000), members=tuple(Member(name) for name in names),
        preload=PRELOAD, env={key: str(value) for key, value in env.items()},
    )  # fmt: skip
    began_s = time.monotonic()
    job = ElasticJob.launch(folder, spec, fork_server)
    while job.observe().busy_s == 0:
        time.sleep(0.02)
    return job, time.monotonic() - began_s


def stopped(job: ElasticJob) -> float:
    """How long it takes until nothing is left of a training that is to end."""
    asked_s = time.monotonic()
    job.stop()
    job.wait(60)
    return time.monotonic() - asked_s


def resized(job: ElasticJob, names: list[str]) -> tuple[float, Change]:
    """Samples per second at the new size, and what its agent says of the change."""
    job.resize(names)
    change = job.settle().last
    assert change is not None
    before, before_s = news(job)
    time.sleep(MEASURE_S)
    after, after_s = news(job)
    return (after - before) / (after_s - before_s), change


def news(job: ElasticJob) -> tuple[int, float]:
    """The next number of samples that its members tell, twice a second, and when they do."""
    known = job.observe().samples
    while (samples := job.observe().samples) == known:
        time.sleep(0.01)
    return samples, time.monotonic()


def measure(kind: str, folder: Path, fork_server: AgentForkServer) -> Kind:
    """Run one training with 1, 2 and 4 workers, then fewer again, and stop it and start it again.

    Another training holds the rest of the cluster, as others will: they share the machine.
    """
    other, _ = started(FILLER, folder / "other", fork_server, ["f0", "f1", "f2"])
    parked = folder / "parked"
    job, start_s = started(kind, folder / "first", fork_server, ["w0"], **{ENV_PARK: parked})
    one, _ = resized(job, ["w0"])
    other.resize(["f0", "f1"])
    other.settle()
    two, from_one = resized(job, ["w0", "w1"])
    stopped(other)
    four, from_two = resized(job, ["w0", "w1", "w2", "w3"])
    _, to_two = resized(job, ["w0", "w1"])
    _, to_one = resized(job, ["w0"])
    # A job that grows goes on at its old speed until the new workers are there, and these wait
    # until others have made room and the daemon has seen that. A job that shrinks gains a bit.
    room_s = to_two.took_s + NOTICE_S
    costs_s = [
        _cost_s(from_one, room_s, one / two), _cost_s(from_two, room_s, two / four),
        _cost_s(to_two, 0.0, four / two), _cost_s(to_one, 0.0, two / one),
    ]  # fmt: skip
    end_s = stopped(job)
    job, again_s = started(kind, folder / "second", fork_server, ["w0"], **{ENV_RESUME: parked})
    stopped(job)
    return Kind(
        {1: one, 2: two, 3: (two + four) / 2, 4: four}, start_s, end_s, end_s + again_s,
        max(0.0, float(np.mean(costs_s))), from_two.pause_s,
    )  # fmt: skip


def _cost_s(change: Change, wait_s: float, speed: float) -> float:
    """Seconds that a change costs, given the speed before it in units of that after it."""
    return change.pause_s + (wait_s + change.took_s - change.pause_s) * (1.0 - speed)
