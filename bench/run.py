"""Measure rota's speed and print a table; the same goes to bench/latest.json.

Absolute numbers depend on the machine and on who else uses it; ratios are taken within one run,
the two sides in turn, the best of several repeats each.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections import deque
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table

import learned
from bare_loop import bare_loop
from rota.core import Cluster, Draft
from rota.core.speed import Curves
from rota.perf.physics import Physics
from rota.perf.sharing import deepshare_curves, link_contention, rank_contention
from rota.policies import Placer, make_policy
from rota.run.journal import Journal
from rota.run.loop import rounds
from rota.sim import Simulator, simulate
from rota.traces import Trace, load_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rota.core import Decision, Snapshot

ROOT = Path(__file__).parents[1]
ROOMY, CROWDED = (96, 8, 400.0, 100.0), (160, 6, 100.0, 25.0)
"""For physics: nodes, GPUs each, Gbit/s of a rack's uplink and of a node.

Gangs over two GPU types go at the slower one's pace; 80 nodes of 8 would be too few. On nodes of 6,
gangs of 8 and more sit on parts of nodes and share their links, which changes every second end.
"""
DATA = Path(os.environ.get("ROTA_DATA", ROOT.parent / "shared" / "data"))
VENUS = DATA / "traces" / "helios_venus" / "venus_jobs.csv.gz"


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    value: float
    unit: str
    against: str = ""
    ratio: float | None = None


def best(*sides: Callable[[], float], repeats: int = 5) -> list[float]:
    """The least seconds each side took, measured in turn so that a busy machine hits all alike."""
    took = [[side() for side in sides] for _ in range(repeats)]
    return [min(column) for column in zip(*took, strict=True)]


def paired(
    one: Callable[[], float], other: Callable[[], float], repeats: int
) -> tuple[float, float]:
    """The least seconds of the other, and the median of its ratio to the one just before it."""
    took = np.array([(one(), other()) for _ in range(repeats)])
    return float(took[:, 1].min()), float(np.median(took[:, 1] / took[:, 0]))


def venus() -> tuple[Trace, str]:
    """The real trace where it is at hand, else its calibrated likeness."""
    if VENUS.exists():
        return load_trace(str(VENUS)), "Helios-Venus"
    return load_trace("venus:jobs=99707"), "venus preset (real trace not at hand)"


def replays(trace: Trace, label: str) -> Iterator[Row]:
    """Against the bare loop: same schedule, how fast."""
    for nodes in (80, 64):
        cluster = Cluster.uniform(nodes, 8)
        for name, shortest in (("fifo-skip+best-fit", False), ("sjf-skip+best-fit", True)):
            bare = bare_loop(trace.submit_s, trace.duration_s, trace.num_gpus, nodes, 8, shortest)
            ours = simulate(cluster, trace, make_policy(name)).done_s
            assert np.array_equal(bare, ours), f"{name} on {nodes} nodes: schedules differ"

            def bare_s(nodes: int = nodes, shortest: bool = shortest) -> float:
                began_s = perf_counter()
                bare_loop(trace.submit_s, trace.duration_s, trace.num_gpus, nodes, 8, shortest)
                return perf_counter() - began_s

            def ours_s(cluster: Cluster = cluster, name: str = name) -> float:
                return simulate(cluster, trace, make_policy(name)).wall_s

            bare_best_s, ours_best_s = best(bare_s, ours_s)
            yield Row(f"{name}, {label}, {nodes} × 8", len(trace) / ours_best_s, "jobs/s",
                      "bare loop, same schedule", bare_best_s / ours_best_s)  # fmt: skip
    cluster = Cluster.uniform(80, 8)
    for name in ("srtf", "srsf"):
        (wall_s,) = best(
            lambda name=name: simulate(cluster, trace, make_policy(name)).wall_s, repeats=3
        )
        rate = len(trace) / wall_s
        title = f"{name}, free preemption, {label}, 80 × 8"
        yield Row(title, rate, "jobs/s", "30,000", rate / 30_000)


def journalled(trace: Trace, label: str) -> Iterator[Row]:
    """What keeping a journal adds."""
    cluster = Cluster.uniform(80, 8)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("fifo-skip", "srtf"):

            def without_s(name: str = name) -> float:
                return simulate(cluster, trace, make_policy(name)).wall_s

            def with_s(name: str = name) -> float:
                meta = {"policy": name, "total_gpus": cluster.total_gpus}
                with Journal.create(Path(folder) / "run.db", meta=meta, force=True) as journal:
                    return simulate(cluster, trace, make_policy(name), journal=journal).wall_s

            plain_s, kept_s = best(without_s, with_s)
            yield Row(f"journal, {name}, {label}", kept_s, "s", "without journal", kept_s / plain_s)


def world_of(
    trace: Trace, mode: str, size: tuple[int, int, float, float]
) -> tuple[Cluster, Trace, Physics]:
    """The trace on two GPU types, with models that lose speed by spreading and by each other."""
    nodes, gpus, uplink_gbps, link_gbps = size
    cluster = Cluster(
        gpus=np.full(nodes, gpus), gpu_types=("old", "new"), type=np.arange(nodes) % 2,
        rack=np.arange(nodes) // 16, link_gbps=np.full(nodes, link_gbps),
    )  # fmt: skip
    largest = int(trace.num_gpus.max())
    spanned = min(nodes, largest)
    alone = deepshare_curves(max_nodes=spanned, max_gpus=largest, single_node=True)
    speed = np.concatenate([alone.speed, 1.5 * alone.speed], axis=1)
    curves = Curves(alone.names, ("old", "new"), speed, True, alone.measured)
    laws = (
        rank_contention(curves)
        if mode == "ranks"
        else link_contention(curves, cluster, uplink_gbps=uplink_gbps, spine_gbps=4 * uplink_gbps)
    )
    model = np.random.default_rng(0).integers(len(curves.names), size=len(trace))
    # Work such that a job takes as long as in the trace on a node between the two types.
    own = curves.speed[model, :, -(-trace.num_gpus // gpus), trace.num_gpus].mean(axis=1)
    named = Trace.build(
        trace.name, submit_s=trace.submit_s, duration_s=trace.duration_s, num_gpus=trace.num_gpus,
        model=model, models=curves.names, samples=own * trace.duration_s,
    )  # fmt: skip
    return cluster, named, Physics(curves=curves, contention=laws)


def physics(trace: Trace, label: str) -> Iterator[Row]:
    """What heterogeneous GPUs and contention add to a plain replay, where neither queues long."""
    cases = product((ROOMY, CROWDED), ("fifo-skip+best-fit", "srtf"), ("ranks", "links"))
    for size, name, mode in cases:
        plain = Cluster.uniform(*size[:2])
        cluster, named, laws = world_of(trace, mode, size)

        def plain_s(name: str = name, plain: Cluster = plain) -> float:
            return simulate(plain, trace, make_policy(name)).wall_s

        def full_s(
            name: str = name, cluster: Cluster = cluster, named: Trace = named,
            laws: Physics = laws,
        ) -> float:  # fmt: skip
            return simulate(cluster, named, make_policy(name), physics=laws).wall_s

        all_s, ratio = paired(plain_s, full_s, repeats=5 if name == "srtf" else 9)
        where = f"{label}, {size[0]} × {size[1]}"
        yield Row(f"GPU types and contention ({mode}), {name}, {where}", len(trace) / all_s,
                  "jobs/s", "cost of a plain replay", ratio)  # fmt: skip


class PlacesAll:
    """A policy in plain Python that places every job anew, one call per job."""

    name = "places all, one by one"

    def __init__(self) -> None:
        self.place = Placer("best-fit")

    def decide(self, snapshot: Snapshot) -> Decision:
        draft = Draft(snapshot, blank=True)
        for job in np.argsort(snapshot.jobs.remaining_s, kind="stable").tolist():
            share = self.place(draft, job)
            if share is not None:
                draft.place(job, share)
        return draft.commit()


class FillsAll(PlacesAll):
    """The same with one call per round."""

    name = "places all, in one call"

    def decide(self, snapshot: Snapshot) -> Decision:
        draft = Draft(snapshot, blank=True)
        self.place.fill(draft, np.argsort(snapshot.jobs.remaining_s, kind="stable"))
        return draft.commit()


class TouchesNew(PlacesAll):
    """The same, but who runs is left alone."""

    name = "touches only what changed"

    def decide(self, snapshot: Snapshot) -> Decision:
        draft = Draft(snapshot)
        for job in np.flatnonzero(snapshot.jobs.waiting).tolist():
            share = self.place(draft, job)
            if share is not None:
                draft.place(job, share)
        return draft.commit()


def python_policies() -> Iterator[Row]:
    """Rounds per second of policies written in Python, at about 200 live jobs."""
    rng = np.random.default_rng(0)
    jobs = 12_000
    trace = Trace.build(
        "busy", submit_s=rng.exponential(1.0, jobs).cumsum(),
        duration_s=rng.exponential(200.0, jobs) + 1,
        num_gpus=rng.choice([1, 2, 4, 8], jobs, p=[0.5, 0.2, 0.2, 0.1]),
    )  # fmt: skip
    goals = ((PlacesAll, 1_000, 400), (FillsAll, 1_000, 2_000), (TouchesNew, 5_000, 4_000))
    for policy, goal, count in goals:
        turns = rounds(policy(), Simulator(Cluster.uniform(80, 8), trace))
        for _ in range(1_000):  # until about 200 jobs are live
            next(turns)

        def some_s(turns: Iterator[object] = turns, count: int = count) -> float:
            began_s = perf_counter()
            for _ in range(count):
                next(turns)
            return perf_counter() - began_s

        (took_s,) = best(some_s)
        yield Row(f"Python policy, {policy.name}", count / took_s, "rounds/s", f"{goal:,}",
                  count / took_s / goal)  # fmt: skip


def learned_systems() -> Iterator[Row]:
    """A decision at deployment, and training end to end."""
    for name, p50_ms, p99_ms in learned.decisions():
        yield Row(f"decide, {name}, 500 nodes, window 40, median", p50_ms, "ms")
        yield Row("… 99th percentile", p99_ms, "ms", "10 ms", p99_ms / 10)
    round_ms = learned.first_round_ms()
    yield Row("decide, das-paper, 1,000 nodes, 200 jobs", round_ms, "ms", "100 ms",
              round_ms / 100)  # fmt: skip
    first, whole = learned.training_rates()
    yield Row("train dl2: rollout, inference, update", first, "steps/s", "30,000", first / 30_000)
    yield Row("… whole updates", whole, "steps/s")


_LARGE = """
import resource, sys
from rota.core import Cluster
from rota.policies import make_policy
from rota.sim import simulate
from rota.traces import load_trace
jobs, nodes = map(int, sys.argv[1:])
trace = load_trace(f"venus:jobs={jobs},total_gpus={8 * nodes},load=0.8")
cluster = Cluster.uniform(nodes, 8)
runs = [simulate(cluster, trace, make_policy("fifo-skip")).wall_s for _ in range(5)]
print(min(runs), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 2**30)
"""


def _large(jobs: int, nodes: int) -> tuple[float, float]:
    """Seconds of simulation and GiB of memory, in a process of its own."""
    command = [sys.executable, "-c", _LARGE, str(jobs), str(nodes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    wall_s, gib = map(float, done.stdout.split())
    return wall_s, gib


def large() -> Iterator[Row]:
    """Cost per job as the number of jobs grows at equal load, and a million on a large cluster."""
    sizes = (10_000, 100_000, 1_000_000)
    each_us = {jobs: _large(jobs, 80)[0] / jobs * 1e6 for jobs in sizes}
    for jobs in sizes:
        ratio = each_us[jobs] / each_us[10_000]
        yield Row(f"{jobs:,} synthetic jobs, 80 × 8", each_us[jobs], "µs/job", "10,000 jobs", ratio)
    wall_s, gib = _large(1_000_000, 1_000)
    yield Row("1,000,000 synthetic jobs, 1,000 × 8", wall_s, "s", "60 s", wall_s / 60)
    yield Row("… peak memory", gib, "GiB", "2 GiB", gib / 2)


def long_queues() -> Iterator[Row]:
    """100,000 jobs that ask for twice what there is, no two alike, of 1,000 users; or at once."""
    rng, jobs, nodes = np.random.default_rng(0), 100_000, 80
    gpus = rng.choice([1, 2, 4, 8, 16], jobs, p=[0.5, 0.2, 0.15, 0.1, 0.05])
    duration_s = rng.lognormal(6.0, 1.8, jobs) + 1.0
    span_s = float((gpus * duration_s).sum()) / (2 * 8 * nodes)
    trace = Trace.build(
        "crowd", submit_s=np.sort(rng.uniform(0, span_s, jobs)), duration_s=duration_s,
        num_gpus=gpus, cpus_per_worker=rng.uniform(0.1, 6.0, jobs),
        user=rng.integers(1000, size=jobs), users=tuple(map(str, range(1000))),
    )  # fmt: skip
    cluster = Cluster.uniform(nodes, 8, cpus=48.0)
    for name in ("fifo", "fifo-skip", "fifo-easy", "srtf", "max-min", "drf"):
        wall_s = simulate(cluster, trace, make_policy(name)).wall_s
        yield Row(
            f"{name}, 100,000 shapes, overloaded, {nodes} × 8", wall_s, "s", "60 s", wall_s / 60
        )
    once = Trace.build(
        "rush", submit_s=np.zeros(jobs), duration_s=trace.duration_s, num_gpus=trace.num_gpus
    )
    for name in ("srtf", "tiresias"):
        wall_s = simulate(Cluster.uniform(nodes, 8), once, make_policy(name)).wall_s
        yield Row(f"{name}, 100,000 jobs at once, {nodes} × 8", wall_s, "s", "60 s", wall_s / 60)


def loading(trace_file: Path) -> Iterator[Row]:
    """Reading a log, against splitting its lines; drawing a million jobs, against 100,000."""

    def load_s(source: str) -> float:
        began_s = perf_counter()
        load_trace(source)
        return perf_counter() - began_s

    def split_s() -> float:
        began_s = perf_counter()
        with gzip.open(trace_file, "rt", newline="") as file:
            deque(csv.reader(file), maxlen=0)
        return perf_counter() - began_s

    if trace_file.exists():
        lines_s, took_s = best(split_s, lambda: load_s(str(trace_file)))
        yield Row("load Helios-Venus (99,707 jobs, gzip)", took_s, "s", "1 s", took_s)
        yield Row(
            "… against splitting its lines", took_s / lines_s, "×", "10", took_s / lines_s / 10
        )
    few, many = "venus:jobs=100000", "venus:jobs=1000000"
    few_s, many_s = best(lambda: load_s(few), lambda: load_s(many), repeats=3)
    yield Row("draw 1,000,000 synthetic jobs", many_s, "s", "10 × 100,000", many_s / few_s / 10)


def starts() -> Iterator[Row]:
    """What a person waits for."""

    def command_s(*words: str) -> float:
        began_s = perf_counter()
        subprocess.run([sys.executable, "-m", "rota", *words], capture_output=True, check=True)
        return perf_counter() - began_s

    (help_s,) = best(lambda: command_s("--help"))
    yield Row("rota --help", help_s, "s", "0.3 s", help_s / 0.3)
    words = ("simulate", "poisson:jobs=200", "-p", "fifo", "-p", "srtf")
    command_s(*words)
    (small_s,) = best(lambda: command_s(*words))
    yield Row("rota simulate, small trace, warm", small_s, "s", "1.5 s", small_s / 1.5)


def main() -> None:
    out, trace_label = Console(), venus()
    rows: list[Row] = []
    parts = (
        replays(*trace_label),
        journalled(*trace_label),
        physics(*trace_label),
        python_policies(),
        learned_systems(),
        large(),
        long_queues(),
        loading(VENUS),
        starts(),
    )
    for part in parts:
        for row in part:
            rows.append(row)
            Console(stderr=True).print(f"{row.name}: {row.value:,.4g} {row.unit}", style="dim")
    table = Table("", "value", "", "against", "ratio", title="rota bench")
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        value = f"{row.value:,.4g}" if row.value < 1e4 else f"{row.value:,.0f}"
        table.add_row(row.name, value, row.unit, row.against, ratio)
    out.print(table)
    path = ROOT / "bench" / "latest.json"
    path.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    out.print(f"Written to {path.relative_to(ROOT)}.")


if __name__ == "__main__":
    main()
