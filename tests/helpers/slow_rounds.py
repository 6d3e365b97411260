"""DeepShare's world in plain Python: its table, its trace, and a simulator in rounds of 300 s."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import numpy as np

from rota.core import Cluster, Job, Snapshot
from rota.core.speed import PAIRS, Contention, Curves

MODELS = ["MobileNetV3", "GraphSage", "FSDP", "Transformer-XL", "DLRM", "MoE"]
ROUND_S = 300.0
LENGTH_S = 3600.0
"""A job's samples take an hour at the mean speed of its spreads."""


def tables() -> tuple[Curves, Contention]:
    """The measured speeds and ratios; there are none for one node."""
    facts = json.loads((files("rota.perf") / "data" / "deepshare_measured.json").read_text())
    speed = np.zeros((len(MODELS), 1, 9, 9))
    kind = np.full((len(MODELS) + 1, 9, 9), -1)
    for number, (model, gpus, nodes, samples_per_s) in enumerate(facts["runs"]):
        speed[MODELS.index(model), 0, nodes, gpus] = samples_per_s
        kind[MODELS.index(model), nodes, gpus] = number
    ratio = np.array(facts["ratios"])
    measured = np.full((len(MODELS), 2), 8)
    curves = Curves(tuple(MODELS), ("gpu",), speed, by_nodes=True, measured=measured)
    return curves, pairs(kind, ratio, 0.35)


def pairs(kind: Any, ratio: Any, floor: float = 0.0) -> Contention:
    """The worst co-runner, from a table."""
    none = np.zeros(len(ratio))
    ratio = np.array(ratio, np.float64)
    return Contention(
        PAIRS, kind, ratio, none, none, floor, none, none, np.zeros(0), np.zeros(0), np.inf
    )


def ratios(laws: Contention, held: dict[int, list[int]], kinds: dict[int, int]) -> dict[int, float]:
    """What each job keeps of its speed: the worst pair on the worst node."""
    found = {}
    for j, nodes in held.items():
        worst = [
            laws.ratio[kinds[j], kinds[o]]
            for n in nodes for o in held
            if o != j and n in held[o] and kinds[j] >= 0 and kinds[o] >= 0
        ]  # fmt: skip
        found[j] = max(laws.floor, min(worst, default=1.0))
    return found


def play(
    policy: Any,
    jobs: list[tuple[int, int, float, float]],
    curves: Curves,
    laws: Contention,
    *,
    round_s: float = ROUND_S,
) -> tuple[Any, float, float]:
    """Completion times (J,), makespan and utilisation; jobs are (curve, GPUs, arrival, samples).

    With round_s = 0, decisions fall at arrivals and completions, which are exact.
    """
    cluster = Cluster.uniform(4, 8)
    left = [LENGTH_S] * len(jobs)
    done_s, held = np.full(len(jobs), np.nan), dict[int, list[int]]()
    pace = dict[int, float]()
    now_s = used = 0.0
    asks = [Job(workers=gpus, curve=curve, estimate_s=LENGTH_S, submit_s=at_s)
            for curve, gpus, at_s, _ in jobs]  # fmt: skip
    while np.isnan(done_s).any():
        live = [
            j for j, (_, _, at_s, _) in enumerate(jobs) if at_s <= now_s and np.isnan(done_s[j])
        ]
        _decide(policy, cluster, curves, laws, asks, live, left, held, pace, now_s)
        kinds = {j: int(laws.kind[jobs[j][0], len(held[j]), jobs[j][1]]) for j in held}
        keeps = ratios(laws, held, kinds)
        for j, nodes in held.items():
            curve, gpus, _, samples = jobs[j]
            pace[j] = keeps[j] * curves.speed[curve, 0, len(nodes), gpus] * LENGTH_S / samples
        step_s = round_s or min(
            [left[j] / pace[j] for j in held]
            + [at_s - now_s for _, _, at_s, _ in jobs if at_s > now_s]
        )
        used += step_s * sum(jobs[j][1] for j in held)
        now_s += step_s
        for j in list(held):
            left[j] -= pace[j] * step_s
            if left[j] <= 1e-6:
                done_s[j] = now_s
                del held[j]
    arrival_s = np.array([at_s for _, _, at_s, _ in jobs])
    return done_s - arrival_s, now_s, used / (now_s * cluster.total_gpus)


def _decide(
    policy: Any, cluster: Cluster, curves: Curves, laws: Contention, asks: list[Job],
    live: list[int], left: list[float], held: dict[int, list[int]], pace: dict[int, float],
    now_s: float,
) -> None:  # fmt: skip
    """Ask the policy and carry out what it says; it may only start jobs."""
    holds = {
        i: [(n, asks[j].workers // len(held[j])) for n in held[j]]
        for i, j in enumerate(live) if j in held
    }  # fmt: skip
    snapshot = Snapshot.of(
        cluster, [asks[j] for j in live], holds, time_s=now_s, curves=curves, contention=laws
    )
    rows = snapshot.jobs.rows.copy()
    rows["remaining_s"] = [left[j] for j in live]
    rows["progress_s"] = LENGTH_S - rows["remaining_s"]
    rows["pace"] = [pace[j] if j in held else 0.0 for j in live]
    shown = Snapshot(
        now_s, cluster, type(snapshot.jobs)(rows), snapshot.nodes, snapshot.shares, curves, laws
    )
    decision = policy.decide(shown)
    decision.check(shown)
    for i, j in enumerate(live):
        nodes = [node for node, _, _ in decision.share(i)]
        assert j not in held or held[j] == nodes, "it moved or stopped a running job"
        if nodes:
            held[j] = nodes
