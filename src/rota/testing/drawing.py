"""Random worlds, most of them with rare or extreme values, and the dice they are drawn with.

Only `Generator.random` is drawn from and every real number is rounded, so that a seed gives the
same world on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from rota.sim.setup import job_records
from rota.sim.simulator import fitting
from rota.testing.worlds import MODELS, WorldSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")
FEW_ROUNDS: Final = 1000.0
"""About as many slots, leases or steps of drift fill the time of a world."""
LATEST_S: Final = 9e11
UNITS_S: Final = (1.0, 60.0, 60.0, 60.0, 3600.0, 3600.0, 86400.0, 1e-6, 1e-3, 1e7, 1e10)


@dataclass(frozen=True)
class Dice:
    """Few ways to draw, all from one stream."""

    rng: np.random.Generator

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def of(self, values: Sequence[T]) -> T:
        return values[int(self.rng.random() * len(values))]

    def whole(self, low: int, high: int) -> int:
        """From `low` to `high`, both included."""
        return low + int(self.rng.random() * (high - low + 1))

    def real(self, low: float, high: float) -> float:
        return float(f"{low + (high - low) * self.rng.random():.6g}")

    def skewed(self, low: float, high: float) -> float:
        """Between `low` and `high`, each order of magnitude equally likely."""
        return float(f"{low * (high / low) ** self.rng.random():.6g}")


def draw_world(seed: int, number: int) -> WorldSpec:
    """World `number` of the series that `seed` names; every job in it fits the empty cluster."""
    dice = Dice(np.random.default_rng([seed, number]))
    spec = WorldSpec(seed=dice.whole(0, 10**6), cluster=_cluster(dice))
    unit_s = dice.of(UNITS_S)
    spec = replace(spec, physics=_physics(dice, spec, unit_s))
    spec = replace(spec, jobs=_fitting(_jobs(dice, spec, unit_s), spec.cluster))
    if not spec.jobs:
        return draw_world(seed, number + 2**32)
    spec = replace(spec, when=_when(dice, spec, unit_s))
    spec = replace(spec, faults=_faults(dice, spec))
    if "drift" in spec.physics:
        step_s = max(dice.skewed(0.1, 10) * unit_s, spec.span_s / FEW_ROUNDS)
        spec.physics["drift"]["step_s"] = step_s
    return spec


def _cluster(dice: Dice) -> dict[str, Any]:
    nodes = dice.of((1, 1, 2, 3, 3, 4, 4, 5, 6, 8, 12))
    shape = dice.of(("even", "even", "mixed", "mixed", "holes", "huge", "bare"))
    size = dice.of((1, 2, 4, 8))
    gpus = [size] * nodes
    if shape in ("mixed", "holes", "huge"):
        gpus = [dice.of((1, 2, 3, 4, 8, 16)) for _ in range(nodes)]
    if shape == "holes":
        gpus = [0 if dice.chance(0.4) else has for has in gpus]
    if shape == "huge":
        gpus[dice.whole(0, nodes - 1)] = dice.of((64, 72, 192))
    if shape == "bare" and dice.chance(0.3):
        gpus = [0] * nodes
    counted = dice.chance(0.5) or not any(gpus)
    found: dict[str, Any] = {"gpus": gpus}
    if dice.chance(0.3):
        found["gpu_types"] = ["old", "new", "odd"][: dice.whole(1, 3)]
        found["type"] = [dice.whole(0, len(found["gpu_types"]) - 1) for _ in range(nodes)]
    if dice.chance(0.4):
        found["rack"] = [dice.whole(0, 2) for _ in range(nodes)]
    if counted:
        even = dice.chance(0.6)
        each = dice.of((4, 8, 16, 64))
        found["cpus"] = [each if even else dice.of((0, 1, 4, 7.5, 32, 96)) for _ in range(nodes)]
        if not any(gpus) and not any(found["cpus"]):
            found["cpus"][0] = 8
    if dice.chance(0.3):
        found["memory_gb"] = [dice.of((0, 16, 64, 100.5, 512)) for _ in range(nodes)]
    if dice.chance(0.2):
        found["price_per_gpu_h"] = [dice.of((0.0, 0.5, 2.0, 2.0)) for _ in range(nodes)]
    return found


def _physics(dice: Dice, spec: WorldSpec, unit_s: float) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if dice.chance(0.45):
        count = dice.whole(1, len(MODELS))
        found["curves"] = {
            "by_nodes": dice.chance(0.5), "bend": [dice.real(0.4, 1.0) for _ in range(count)],
            "loss": dice.real(0.05, 0.6), "most": dice.of((2, 4, 8, 16)),
        }  # fmt: skip
        found["sight"] = dice.of(("true", "true", "noisy", "observed", "hidden"))
        if found["sight"] == "noisy":
            found["sight_error"] = dice.of((0.1, 0.5, 2.0))
    by_nodes = found.get("curves", {}).get("by_nodes", True)
    if by_nodes and dice.chance(0.3):
        found["contention"] = {
            "law": dice.of(("pairs", "ranks", "machines", "links")),
            "weight": [dice.real(0.0, 1.0) for _ in range(len(MODELS))],
        }  # fmt: skip
    if dice.chance(0.1):
        found["drift"] = {"sd": dice.real(0.05, 0.5), "step_s": unit_s}
    if "price_per_gpu_h" in spec.cluster:
        found["billing"] = {"whole_nodes": dice.chance(0.5), "grain_s": dice.of((1.0, 60.0))}
    if dice.chance(0.15):
        found["scaling"] = dice.of((0.0, 0.5, 0.9))
    return found


def _jobs(dice: Dice, spec: WorldSpec, unit_s: float) -> list[dict[str, Any]]:
    count = dice.of((1, 2, 4, 8, 12, 16, 20, 30, 45))
    crowd = dice.of((0.0, 0.1, 1.0, 5.0))
    mixed, whole = dice.chance(0.08), dice.chance(0.4)
    users, has = dice.of((0, 0, 1, 2, 5)), spec.cluster
    crowded = "cpus" in has and dice.chance(0.15)  # hundreds of workers that need CPUs only
    kinds = {name: dice.chance(p) for name, p in (
        ("elastic", 0.4), ("servers", 0.3), ("bare", 0.3), ("pairs", 0.2), ("typed", 0.5),
        ("costs", 0.2), ("estimates", 0.3), ("checkpoints", 0.2), ("samples", 0.1))}  # fmt: skip
    jobs, now_s = [], dice.of((0.0, 0.0, 0.0, -5.0 * unit_s, 1e9))
    for _ in range(120 if crowded else count):
        if not dice.chance(0.35):
            now_s += dice.real(0.0, 2.0) * unit_s * crowd
        own_s = dice.of((1e-280, 1e-6, 1.0, 1e6, 8e11)) if mixed else unit_s
        length = dice.of((1.0, 5.0, 10.0)) if whole else dice.skewed(0.1, 30)
        job: dict[str, Any] = {
            "submit_s": min(float(f"{now_s:.12g}"), LATEST_S),
            "duration_s": min(length * own_s, LATEST_S),
        }
        bare = crowded or (kinds["bare"] and "cpus" in has and dice.chance(0.4))
        job |= _size(dice, spec, kinds, bare=bare)
        if "samples" in job:
            job["samples"] = float(f"{job['samples'] * job['duration_s']:.6g}") or 1e-300
        if users and dice.chance(0.9):
            job["user"] = f"u{dice.whole(1, users)}"
        if kinds["costs"]:
            job["restart_s"] = dice.of((0.0, 0.1, 2.0)) * unit_s
        if kinds["estimates"] and dice.chance(0.7):
            job["estimate_s"] = min(job["duration_s"] * dice.of((0.5, 1.0, 3.0)), LATEST_S)
            job["estimate_s"] = max(job["estimate_s"], 1e-300)
        if kinds["checkpoints"]:
            job["checkpoint_s"] = min(dice.of((0.1, 1.0, 1e3)) * unit_s, LATEST_S)
        jobs.append(job)
    return jobs


def _size(dice: Dice, spec: WorldSpec, kinds: dict[str, bool], *, bare: bool) -> dict[str, Any]:
    """How much a job asks for."""
    has = spec.cluster
    total = sum(has["gpus"])
    each = 0 if bare or not total else dice.of((2, 4)) if kinds["pairs"] and dice.chance(0.5) else 1
    most = max(1, total // max(1, each)) if each else 8
    workers = min(dice.of((1, 1, 1, 2, 2, 3, 4, 8, 16, 1000)), most)
    job: dict[str, Any] = {"num_gpus": workers * max(1, each)}
    if each != 1:
        job["gpus_per_worker"] = each
    if kinds["elastic"] and dice.chance(0.7):
        job["min_workers"] = dice.whole(1, workers)
        job["max_workers"] = workers * dice.of((1, 2, 4))
    if kinds["servers"] and dice.chance(0.7):
        job["num_servers"] = dice.whole(0, 3)
        if "cpus" in has:
            job["cpus_per_server"] = dice.of((0, 1, 2.5))
        if kinds["elastic"]:
            job["min_servers"] = dice.whole(0, job["num_servers"])
            job["max_servers"] = job["num_servers"] + dice.whole(0, 4)
    if "cpus" in has and (each == 0 or dice.chance(0.6)):
        job["cpus_per_worker"] = dice.of((1, 1, 0.1, 2.5, 4))
    if "memory_gb" in has and dice.chance(0.5):
        job["memory_gb_per_worker"] = dice.of((1, 0.3, 16, 40))
    if "gpu_types" in has and kinds["typed"] and dice.chance(0.4):
        job["gpu_type"] = dice.of(has["gpu_types"])
    if "curves" in spec.physics and dice.chance(0.9):
        job["model"] = MODELS[dice.whole(0, len(spec.physics["curves"]["bend"]) - 1)]
        if kinds["samples"]:
            job["samples"] = dice.skewed(10, 1000)  # per second; times the duration in _jobs
    return job


def _fitting(jobs: list[dict[str, Any]], cluster: dict[str, Any]) -> list[dict[str, Any]]:
    """Those that the empty cluster can hold."""
    if not jobs:
        return []
    world = WorldSpec(cluster=cluster, jobs=[{**job, "submit_s": 0.0} for job in jobs]).build()
    rows = job_records(world.trace, world.cluster, world.when, np.random.default_rng(0))
    return [job for job, fits in zip(jobs, fitting(world.cluster, rows), strict=True) if fits]


def _when(dice: Dice, spec: WorldSpec, unit_s: float) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if dice.chance(0.4):
        found["restart_s"] = dice.of((0.01, 0.5, 3.0)) * unit_s
    if dice.chance(0.35):
        found["min_run_s"] = dice.of((0.5, 2.0, 20.0)) * unit_s
    if dice.chance(0.25):
        found["slot_s"] = max(dice.of((0.1, 0.3, 1.0, 5.0)) * unit_s, spec.span_s / FEW_ROUNDS)
        found["whole_slots"] = dice.chance(0.4)
    if dice.chance(0.3):
        found["checkpoint_s"] = dice.of((0.1, 1.0, 1e3)) * unit_s
    knows = dice.of(("", "", "", "error", "trace", "hidden", "hidden"))
    if knows == "error":
        found["estimate_error"] = dice.of((0.3, 2.0))
    elif knows == "trace":
        found["trust_trace"] = True
    elif knows == "hidden":
        found["hide_durations"] = True
    return found


def _faults(dice: Dice, spec: WorldSpec) -> dict[str, Any]:
    begin_s, span_s = spec.jobs[0]["submit_s"], spec.span_s
    found: dict[str, Any] = {}
    if dice.chance(0.25):
        outages: list[list[Any]] = []
        for node in range(len(spec.cluster["gpus"])):
            now_s = begin_s
            for _ in range(dice.whole(0, 3)):
                now_s += dice.real(0.0, 0.6) * span_s
                outages.append([now_s, node, False])
                now_s += dice.real(0.0, 0.2) * span_s
                outages.append([now_s, node, True])
        found["nodes"] = outages
    if dice.chance(0.2):
        tries = dice.whole(1, 4)
        mean_s = span_s / len(spec.jobs)
        found["jobs"] = [
            [mean_s * dice.skewed(0.01, 10) for _ in range(tries)] for _ in spec.jobs
        ]  # fmt: skip
    if not found and dice.chance(0.05):
        # Now and then all nodes are up for as long as the longest job, which may need them all.
        nodes = len(spec.cluster["gpus"])
        longest_s = nodes * max(job["duration_s"] for job in spec.jobs)
        found["node_mtbf_s"] = max(20_000.0, dice.real(0.2, 3) * span_s, longest_s)
        found["node_repair_s"] = min(14_400.0, found["node_mtbf_s"] / (4 * nodes))
        found["job_mtbf_s"] = max(1.0, dice.real(0.2, 3) * span_s)
        found["retries"] = dice.whole(0, 3)
    return found
