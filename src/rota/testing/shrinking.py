"""Makes a failing world smaller, step by step, as long as it still fails in the same way."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rota.testing.worlds import WorldSpec


def shrink(
    world: WorldSpec, fails: Callable[[WorldSpec], bool], *, most_tries: int = 400
) -> WorldSpec:
    """A smaller world for which `fails` is still true; `most_tries` bounds the work."""
    tries, shrunk = 0, True
    while shrunk and tries < most_tries:
        shrunk = False
        for candidate in smaller(world):
            tries += 1
            if fails(candidate):
                world, shrunk = candidate, True
                break
            if tries >= most_tries:
                break
    return world


def smaller(world: WorldSpec) -> Iterator[WorldSpec]:
    """Worlds with something less, the largest steps first."""
    count = len(world.jobs)
    chunk = count // 2
    while chunk >= 1:
        for at in range(0, count, chunk):
            if chunk < count:
                yield _without_jobs(world, at, at + chunk)
        chunk //= 2
    for key in world.physics:
        yield replace(world, physics={k: v for k, v in world.physics.items() if k != key})
    for key in world.when:
        yield replace(world, when={k: v for k, v in world.when.items() if k != key})
    for key in world.faults:
        yield replace(world, faults={k: v for k, v in world.faults.items() if k != key})
    nodes = len(world.cluster["gpus"])
    for node in range(nodes if nodes > 1 else 0):
        yield _without_node(world, node)
    for key in world.cluster:
        if key not in ("gpus", "gpu_types"):
            cluster = {k: v for k, v in world.cluster.items() if k != key}
            yield replace(world, cluster=cluster)
    for key in dict.fromkeys(key for job in world.jobs for key in job):
        if key not in ("submit_s", "duration_s", "num_gpus"):
            jobs = [{k: v for k, v in job.items() if k != key} for job in world.jobs]
            yield replace(world, jobs=jobs)
    yield from _fewer_outages(world)
    yield from _rounder(world)


def _without_jobs(world: WorldSpec, low: int, high: int) -> WorldSpec:
    faults = dict(world.faults)
    if faults.get("jobs"):
        faults["jobs"] = faults["jobs"][:low] + faults["jobs"][high:]
    return replace(world, jobs=world.jobs[:low] + world.jobs[high:], faults=faults)


def _without_node(world: WorldSpec, node: int) -> WorldSpec:
    cluster = {
        key: column if key == "gpu_types" else column[:node] + column[node + 1 :]
        for key, column in world.cluster.items()
    }
    faults = dict(world.faults)
    if "nodes" in faults:
        faults["nodes"] = [
            [time_s, n - (n > node), up] for time_s, n, up in faults["nodes"] if n != node
        ]
    return replace(world, cluster=cluster, faults=faults)


def _fewer_outages(world: WorldSpec) -> Iterator[WorldSpec]:
    outages = world.faults.get("nodes", [])
    for at in range(0, len(outages), 2):
        left = outages[:at] + outages[at + 2 :]
        yield replace(world, faults={**world.faults, "nodes": left})


def _rounder(world: WorldSpec) -> Iterator[WorldSpec]:
    """Simpler numbers, one job at a time."""
    for k, job in enumerate(world.jobs):
        for key in job:
            for value in _simpler(key, job):
                jobs = [*world.jobs[:k], {**job, key: value}, *world.jobs[k + 1 :]]
                yield replace(world, jobs=jobs)


def _simpler(key: str, job: dict[str, Any]) -> list[Any]:
    value = job[key]
    if key == "submit_s" and value != 0.0:
        return [0.0]
    if key == "duration_s" and value not in (1.0, 10.0):
        return [1.0, 10.0]
    if key == "num_gpus" and value > 1 and job.get("gpus_per_worker", 1) <= 1:
        return [1, value - 1]
    if key in ("min_workers", "max_workers", "num_servers", "max_servers") and value > 1:
        return [value - 1]
    return []
