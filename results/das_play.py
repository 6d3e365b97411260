"""Play policies in the das worlds, several at a time; what was played is kept in a folder.

Files in out/results/das/played hold what was played before. Remove the folder after a change of
the program that changes results.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rota.policies import make_policy
from rota.policies.catalogue import CHECKPOINT
from rota.run.stats import paired
from rota.scenarios import load
from rota.sim import simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core.types import Floats
    from rota.scenarios import Scenario

OUT = Path("out/results/das")
KEPT = OUT / "played"
LARGER = {
    "64 machines": (24, 24, 16, 2000), "256 machines": (96, 96, 64, 8000),
    "1,000 machines": (375, 375, 250, 6000),
}  # fmt: skip
"""Clusters that are as das-large but for their size: machines of its three types, and jobs."""


def scenario_of(world: str) -> Scenario:
    """A scenario, or das-large with other numbers of machines and jobs."""
    if world not in LARGER:
        return load(world)
    *counts, jobs = LARGER[world]
    found = load("das-large", (f"workload.jobs={jobs}",))
    nodes = [{**node, "count": many} for node, many in zip(found.nodes, counts, strict=True)]
    return replace(found, nodes=nodes)


def one(world: str, policy: str, seed: int) -> tuple[float, float, float]:
    """Mean and 99th percentile of the completion time, and the mean fee."""
    drawn = scenario_of(world)
    found = drawn.draw(seed)
    chosen = make_policy(policy if CHECKPOINT.fullmatch(policy) else drawn.policy(policy))
    run = simulate(found.cluster, found.trace, chosen, found.when, seed=seed, physics=found.physics)
    jct_s = run.done_s - run.submit_s
    return float(jct_s.mean()), float(np.percentile(jct_s, 99)), float(run.fee.mean())


class Table:
    """Plays policies in worlds; `seeds` by world."""

    def __init__(self, seeds: dict[str, range], processes: int = 2) -> None:
        self._seeds = seeds
        self.pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"))

    def played(
        self, world: str, policies: Sequence[str], seeds: range | None = None
    ) -> dict[str, Floats]:
        """By policy: (seeds, 3)."""
        chosen = seeds or self._seeds[world]
        return {policy: self._one(world, policy, chosen) for policy in policies}

    def _one(self, world: str, policy: str, seeds: range) -> Floats:
        path = CHECKPOINT.fullmatch(policy)
        weights = Path(path["file"]).read_bytes() if path is not None else b""
        about = f"{world} {policy} {seeds}".encode() + weights
        kept = KEPT / f"{sha256(about).hexdigest()[:24]}.npy"
        if kept.exists():
            return np.array(np.load(kept))
        rows = np.array(list(self.pool.map(partial(one, world, policy), seeds)))
        KEPT.mkdir(parents=True, exist_ok=True)
        np.save(kept, rows)
        print(f"{world}: {policy} {rows[:, 0].mean():,.0f} s", file=sys.stderr, flush=True)
        return rows


def ratio(own: Floats, other: Floats) -> str:
    """The ratio of two means over the same seeds; of several with its interval."""
    versus = paired(own, other, np.random.default_rng(0))
    if versus.ratio_ci is None:
        return f"{1 + versus.ratio:.3f}"
    low, high = (1 + end for end in versus.ratio_ci)
    return f"{1 + versus.ratio:.3f} [{low:.3f}, {high:.3f}]"


def in_words(seeds: range) -> str:
    """The seeds of a table."""
    return f"seeds {seeds[0]} to {seeds[-1]}"
