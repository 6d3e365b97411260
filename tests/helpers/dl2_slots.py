"""DL2's simulator as it was published, slot by slot, plain and slow; any policy can play in it.

Facts from the public repository: jobs arrive at the start of a slot, everything is allocated
anew, and each job then gains speed × slot / (batches per epoch) epochs. The speed table is
interpolated from the measured one with linear radial basis functions.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from elastic import with_left
from rota.core import Cluster, Job, Snapshot
from rota.core.speed import Curves

if TYPE_CHECKING:
    from rota.core import Policy

MODELS = (
    "resnet-50", "vgg-16", "resnext-110", "inception-bn", "seq2seq", "cnn-text-classification",
    "dssm", "wlm",
)  # fmt: skip
BATCHES = (115, 115, 390, 120, 780, 193, 349, 165)
GPUS = (1, 1, 1, 1, 1, 0, 0, 1)
EPOCHS = (0.30, 0.96, 0.05, 0.54, 0.95, 0.46, 0.33, 0.23)
ALI_MINUTES = (35, 180, 300, 436, 559, 679, 806, 1155)
ALI_PARTS = (
    0.6812080536912751, 0.15962740106456838, 0.054096274010645685, 0.024704929414487386,
    0.02048137005322842, 0.018051376996065724, 0.012959962971534367, 0.02887063179819486,
)  # fmt: skip
ALI_ARRIVALS = (
    23, 8, 10, 13, 24, 21, 17, 29, 11, 16, 39, 61, 25, 28, 59, 50, 82, 59, 35, 46, 46, 32, 28, 16,
    19, 8, 22, 10, 19, 17, 24, 16, 29, 30, 47, 63, 39, 48, 42, 42, 57, 64, 22, 46, 42, 23, 17, 68,
    24, 3, 8, 10, 13, 18, 16, 28, 17, 47, 54, 54, 42, 36, 72, 46, 53, 77, 27, 44, 68, 25, 10, 43,
)  # fmt: skip


@dataclass(frozen=True)
class World:
    nodes: int = 96
    jobs: int = 60
    per_slot: int = 3
    epochs: int = 30_000
    most: int = 16
    slot_s: float = 1200.0


SMALL = World()
TEMPLATE = World(nodes=48, epochs=80_000, most=32)
TESTBED = World(nodes=6, jobs=10, per_slot=5, epochs=1000, slot_s=300.0)


@dataclass
class Task:
    """A job of a published trace."""

    slot: int
    model: int
    epochs: int
    done: float = 0.0
    ended: float = math.nan


def speed_table(most: int) -> Curves:
    """Speed by servers and workers up to `most`, failed runs (0) included as published."""
    measured: dict[str, list[tuple[int, int, float]]] = {}
    with (files("rota.perf") / "data" / "dl2_measured.csv").open() as file:
        for row in csv.DictReader(file):
            for workers in range(1, 24):
                if speed_there := row[str(workers)]:
                    at = (int(row["servers"]), workers, float(speed_there))
                    measured.setdefault(row["model"], []).append(at)
    axis = np.arange(1, most + 1)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    speed = np.zeros((len(MODELS), 1, most + 1, most + 1))
    for curve, model in enumerate(MODELS):
        points = np.array(measured[model])
        weight = np.linalg.solve(_distance(points[:, :2], points[:, :2]), points[:, 2])
        found = _distance(grid, points[:, :2]) @ weight
        speed[curve, 0, 1:, 1:] = found.reshape(most, most).clip(min=0.0)
    return Curves(MODELS, ("gpu",), speed, False, np.full((len(MODELS), 2), most))


def _distance(a: Any, b: Any) -> Any:
    return np.hypot(a[:, None, 0] - b[None, :, 0], a[:, None, 1] - b[None, :, 1])


def uniform_trace(world: World, seed: int) -> list[Task]:
    """Arrivals "Uniform", lengths "Normal": trace `seed` of the published generator."""
    draw = np.random.RandomState(seed)
    draw.randint(0, 5)  # where the pattern of arrivals begins, which is flat
    tasks = []
    for k in range(world.jobs):
        model = int(draw.randint(0, len(MODELS)))
        draw.rand()  # the error of the estimate, times 0
        tasks.append(Task(k // world.per_slot, model, int(EPOCHS[model] * world.epochs)))
    return tasks


def ali_trace(world: World, seed: int) -> list[Task]:
    """Arrivals and lengths "Ali"."""
    draw = np.random.RandomState(seed)
    offset, upto = int(draw.randint(0, 5)), np.cumsum(ALI_PARTS)
    tasks: list[Task] = []
    slot = 0
    while len(tasks) < world.jobs:
        come = math.ceil(ALI_ARRIVALS[(slot + offset) % len(ALI_ARRIVALS)] * world.per_slot / 82)
        for _ in range(min(come, world.jobs - len(tasks))):
            model = int((upto > draw.rand() * upto[-1]).argmax())
            draw.rand()
            tasks.append(Task(slot, model, int(ALI_MINUTES[model] / 1155 * world.epochs)))
        slot += 1
    return tasks


def lower_bound(world: World, tasks: list[Task], curves: Curves) -> float:
    """Mean completion time, in slots, if every job were alone at its fastest size."""
    fastest = curves.speed.max(axis=(1, 2, 3))
    taken = [task.epochs * BATCHES[task.model] / fastest[task.model] for task in tasks]
    return sum(taken) / len(taken) / world.slot_s


def replay(policy: Policy, world: World, tasks: list[Task], curves: Curves) -> tuple[float, float]:
    """Mean completion time and makespan, in slots."""
    cluster = Cluster.uniform(world.nodes, 2, cpus=8)
    slot, live = 0, []
    coming = list(tasks)
    while coming or live:
        while coming and coming[0].slot == slot:
            live.append(coming.pop(0))
        snapshot = _snapshot(cluster, live, curves, world, slot)
        decision = policy.decide(snapshot)
        decision.check(snapshot)
        for k, task in enumerate(live):
            share = decision.share(k)
            workers, servers = (sum(entry[i] for entry in share) for i in (1, 2))
            gain = curves.speed[task.model, 0, servers, workers]
            gain *= world.slot_s / BATCHES[task.model]
            if task.done + gain > task.epochs:
                task.ended = slot - 1 + (task.epochs - task.done) / gain
            task.done += gain
        live = [task for task in live if math.isnan(task.ended)]
        slot += 1
        assert slot < 1000
    taken = [task.ended - task.slot + 1 for task in tasks]
    return sum(taken) / len(taken), max(task.ended + 1 for task in tasks)


def _snapshot(
    cluster: Cluster, live: list[Task], curves: Curves, world: World, slot: int
) -> Snapshot:
    jobs, left = [], []
    for task in live:
        unit = BATCHES[task.model] / curves.speed[task.model, 0, 1, 1]
        jobs.append(Job(
            workers=1, max_workers=world.most, servers=1, max_servers=world.most,
            gpus_per_worker=GPUS[task.model], cpus_per_worker=2, cpus_per_server=2,
            curve=task.model, submit_s=task.slot * world.slot_s, estimate_s=task.epochs * unit,
        ))  # fmt: skip
        left.append((task.epochs - task.done) * unit)
    snapshot = Snapshot.of(cluster, jobs, time_s=slot * world.slot_s, curves=curves)
    return with_left(snapshot, left)
