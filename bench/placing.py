"""Measure a decision of the policies that place by contention, from 4 to 1,000 nodes.

40 jobs wait, and nodes of 8 GPUs are about 80 % full with jobs on random nodes, on as few as they
fit on or on twice as many, in racks of 8 that share uplinks (links) or without (ranks).
`deepshare` is the network that ships. Seconds are of the wall clock, on one core; the first rounds,
which compile, do not count.
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.core import Cluster, Job, Snapshot
from rota.perf.sharing import deepshare_curves, link_contention, rank_contention
from rota.policies import make_policy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.core.speed import Contention, Curves
    from rota.core.types import Floats

WAITING, LOAD = 40, 0.8
NODES = (4, 64, 256, 500, 1000)
SIZES = (2, 4, 8, 16, 32, 64)
ROUNDS = {"contention-rollout": 5}
USUAL_ROUNDS = 40


def crowded(cluster: Cluster, curves: Curves, laws: Contention, rng: Any) -> Snapshot:
    """A cluster about 80 % full, its jobs spread evenly over random nodes, and jobs that wait."""
    sizes = [size for size in SIZES if 4 * size <= cluster.total_gpus]
    free, held = cluster.gpus.copy(), dict[int, list[tuple[int, int]]]()
    jobs: list[Job] = []

    def draw() -> Job:
        curve = int(rng.integers(len(curves.names)))
        return Job(workers=int(rng.choice(sizes)), curve=curve, estimate_s=rng.uniform(600, 7200))

    while free.sum() > (1 - LOAD) * cluster.total_gpus:
        job = draw()
        span = min(job.workers, -(-job.workers // 8) * int(rng.choice([1, 2])))
        each = job.workers // span
        able = np.flatnonzero(free >= each)
        if len(able) >= span:
            nodes = np.sort(rng.choice(able, span, replace=False))
            free[nodes] -= each
            held[len(jobs)] = [(int(n), each) for n in nodes]
            jobs.append(job)
    jobs += [draw() for _ in range(WAITING)]
    return Snapshot.of(cluster, jobs, held, curves=curves, contention=laws)


def decide_s(policy: Any, nodes: int, rounds: int, *, racks: bool) -> tuple[Floats, float]:
    """Seconds of each decision, and how many jobs one starts on the average."""
    cluster = Cluster.uniform(nodes, 8, per_rack=8)
    curves = deepshare_curves(max_nodes=min(nodes, 64), max_gpus=64, single_node=True)
    laws = link_contention(curves, cluster, 25.0, 1.5 * nodes) if racks else rank_contention(curves)
    took_s, started = [], 0
    for seed in range(-2, rounds):
        snapshot = crowded(cluster, curves, laws, np.random.default_rng(seed % 1000))
        began_s = perf_counter()
        decision = policy.decide(snapshot)
        if seed >= 0:
            took_s.append(perf_counter() - began_s)
            waiting = np.flatnonzero(snapshot.jobs.waiting).tolist()
            started += sum(bool(decision.share(j)) for j in waiting)
    return np.array(took_s), started / rounds


def decisions() -> Iterator[tuple[str, str, int, float, float, float]]:
    """Policy, contention, nodes, median and 99th percentile in ms, and jobs started."""
    policies = {
        "contention-greedy": make_policy("contention-greedy:fraction=1,threshold=0.2"),
        "deepshare": make_policy("deepshare"),
        "contention-rollout": make_policy("contention-rollout"),
    }
    for name, policy in policies.items():
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        for racks in (True, False):
            for nodes in NODES:
                rounds = ROUNDS.get(name, USUAL_ROUNDS)
                took_s, started = decide_s(policy, nodes, rounds, racks=racks)
                p50, p99 = np.percentile(1e3 * took_s, [50, 99])
                yield name, "links" if racks else "ranks", nodes, float(p50), float(p99), started


def main() -> None:
    print(f"{WAITING} jobs wait, nodes of 8 GPUs are {LOAD:.0%} full")
    for name, law, nodes, p50, p99, started in decisions():
        print(
            f"  {name:18} {law}  {nodes:5,} nodes   p50 {p50:8.2f} ms   p99 {p99:8.2f} ms"
            f"   {started:4.1f} jobs started",
            flush=True,
        )


if __name__ == "__main__":
    main()
