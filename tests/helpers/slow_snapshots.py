"""Snapshots of a few jobs and nodes under any law of contention, for slow twins."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from rota.core import Cluster, Job, Snapshot
from rota.core.speed import LINKS, MACHINES, PAIRS, RANKS, Contention, Curves
from rota.policies.contention.greedy import ContentionGreedy


def curves_of(speed: Any) -> Curves:
    """One GPU type; `speed` is (C, nodes, workers)."""
    table = np.array(speed, np.float64)[:, None]
    names = tuple(f"model-{c}" for c in range(len(table)))
    return Curves(names, ("gpu",), table, by_nodes=True, measured=np.full((len(table), 2), 8))


@st.composite
def snapshots(draw: st.DrawFn, *, modes: tuple[int, ...] = (PAIRS, RANKS, LINKS, MACHINES),
              most_nodes: int = 5, racks: bool = False) -> Snapshot:  # fmt: skip
    """Equal nodes, three models, any law; numbers are such that ties are those of symmetry.

    With `racks`, all jobs span nodes, and uplinks matter more than NICs.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    N, gpus = draw(st.integers(2 if racks else 1, most_nodes)), draw(st.sampled_from([4, 8]))
    C, A_, W = 3, 9, 9
    speed = rng.uniform(0.5, 2.0, (C, A_, W)) * np.arange(W)
    speed[:, 0] = 0.0
    if N > 1:
        speed[: C if racks else 1, 1] = 0.0  # the first model runs over several nodes only
    kind = rng.permutation((C + 1) * A_ * W).reshape(C + 1, A_, W)
    kind[:, 1] = -1
    K = kind.max() + 1
    laws = Contention(
        LINKS if racks else draw(st.sampled_from(modes)), kind, rng.uniform(0.3, 1.0, (K, K)),
        rng.uniform(0, 1, K), rng.uniform(0, 1, K), draw(st.sampled_from([0.0, 0.35])),
        rng.uniform(1, 60, K), rng.uniform(0, 1, K), np.zeros(0), np.zeros(0), np.inf,
    )  # fmt: skip
    cluster = Cluster.uniform(N, gpus, per_rack=draw(st.integers(1, 2 if racks else 3)))
    if racks:
        uplinks = rng.uniform(10, 50, int(cluster.rack.max()) + 1)
        laws = laws._replace(uplink_gbps=uplinks, spine_gbps=float(rng.uniform(15, 75)))
    sizes = [w for w in (2, 3, 4, 8) if w <= N * gpus]
    jobs = [
        Job(workers=int(rng.choice(sizes)), curve=int(rng.integers(C)),
            estimate_s=float(rng.uniform(10, 100)))
        for _ in range(draw(st.integers(4 if racks else 1, 7)))
    ]  # fmt: skip
    # The first ones already run, where a rule that takes anything puts them.
    some = jobs[: draw(st.integers(2 if racks else 0, 3))]
    made = Snapshot.of(cluster, some, curves=curves_of(speed), contention=laws)
    first = ContentionGreedy(threshold=-1e9).decide(made)
    held = {j: [(n, w) for n, w, _ in first.share(j)] for j in range(len(some)) if first.share(j)}
    return Snapshot.of(cluster, jobs, held, curves=curves_of(speed), contention=laws)
