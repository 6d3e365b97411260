"""Jobs that share nodes and links: DeepShare's jobs, sensitivity × intensity, link bandwidth.

Beside one other job, a job loses sensitivity × the other's intensity of its speed. Two numbers per
kind of job stand for a whole table of pairs, say what three or more jobs do to each other (what
is left multiplies), and can be given to jobs that were never measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from rota.core.speed import LINKS, RANKS, Contention, Curves
from rota.errors import ConfigError
from rota.perf.shipped import chosen, shipped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.core import Cluster
    from rota.core.types import Bools, Floats, Ints

RANK_FLOOR: Final = 0.1
"""No pair was measured below .36; with many co-runners the product may, and must not reach 0."""


def fit_ranks(lost: Floats, known: Bools | None = None) -> tuple[Floats, Floats]:
    """Sensitivity and intensity, (K,) each, 0 or more, with products closest to `lost` (K, K).

    Solved for one side at a time; entries that are not `known` do not count. The two sides are
    scaled to the same length, since only their product is determined.
    """
    counts = np.ones_like(lost) if known is None else known.astype(np.float64)
    harm = np.ones(len(lost))
    hurt = np.ones(len(lost))
    for _ in range(500):
        hurt = _one_side(lost, counts, harm)
        harm = _one_side(lost.T, counts.T, hurt)
    lengths = float(np.linalg.norm(hurt)), float(np.linalg.norm(harm))
    if not all(lengths):  # no job loses anything
        return np.zeros(len(lost)), np.zeros(len(lost))
    balance = np.sqrt(lengths[1] / lengths[0])
    return hurt * balance, harm / balance


def _one_side(lost: Floats, counts: Floats, other: Floats) -> Floats:
    weight = counts @ np.square(other)
    return np.maximum((counts * lost) @ other / np.maximum(weight, 1e-12), 0.0)


def deepshare_curves(
    models: Sequence[str] | None = None,
    max_nodes: int = 4,
    max_gpus: int = 8,
    *,
    single_node: bool = False,
) -> Curves:
    """Speed of DeepShare's six jobs by nodes and GPUs: one · gpus^α · nodes^β.

    They were measured on two and four nodes. Speed on one node is 0, as in the published setting,
    unless `single_node` asks for what the law says there.
    """
    known = shipped("deepshare")
    names = chosen("DeepShare model", models, known)
    n, g = np.arange(max_nodes + 1)[:, None], np.arange(max_gpus + 1)[None, :]
    allowed = (g >= np.maximum(n, 1)) & (n >= (1 if single_node else 2))
    speed = np.stack([
        np.where(
            allowed,
            known[name]["one"]
            * np.maximum(g, 1.0) ** known[name]["by_gpus"]
            * np.maximum(n, 1.0) ** known[name]["by_nodes"],
            0.0,
        )
        for name in names
    ])  # fmt: skip
    measured = np.tile([4, 8], (len(names), 1))
    return Curves(names, ("gpu",), speed[:, None], by_nodes=True, measured=measured)


def rank_contention(
    curves: Curves | None = None, given: Mapping[str, tuple[float, float]] | None = None
) -> Contention:
    """Sensitivity × intensity for jobs over two or more nodes.

    DeepShare's models have what was fitted, at the nearest placement that was measured. For others
    `given` may say (sensitivity, intensity); a model in neither is an average job.
    """
    known = shipped("deepshare")
    hurt: list[float] = []
    harm: list[float] = []
    place: dict[tuple[str, int, int], int] = {}
    for name in known:
        for gpus, nodes, *pair in known[name]["kinds"]:
            place[name, gpus, nodes] = len(hurt)
            hurt.append(pair[0])
            harm.append(pair[1])
    hurt.append(float(np.mean(hurt)))
    harm.append(float(np.mean(harm)))
    average = len(hurt) - 1
    names = curves.names if curves is not None else ()
    A, W = curves.speed.shape[2:] if curves is not None else (3, 2)
    kind = np.full((len(names) + 1, A, W), average, np.int64)
    for c, name in enumerate(names):
        if name in known:
            kind[c] = _nearest(place, name, A, W)
        elif given and name in given:
            kind[c] = len(hurt)
            hurt.append(given[name][0])
            harm.append(given[name][1])
    kind[:, :2] = -1  # on one node nothing goes over the network
    none = np.zeros(len(hurt))
    return Contention(
        RANKS, kind, np.zeros((0, 0)), np.array(hurt), np.array(harm), RANK_FLOOR, none, none,
        np.zeros(0), np.zeros(0), np.inf,
    )  # fmt: skip


def _nearest(place: Mapping[tuple[str, int, int], int], name: str, A: int, W: int) -> Ints:
    """For each (nodes, GPUs) the measured placement that differs by the least factor, (A, W)."""
    own = [(gpus, nodes, k) for (model, gpus, nodes), k in place.items() if model == name]
    n, g = np.maximum(np.indices((A, W)), 1)
    far = [np.abs(np.log(g / gpus)) + np.abs(np.log(n / nodes)) for gpus, nodes, _ in own]
    kinds = np.array([k for *_, k in own], np.int64)
    return np.asarray(kinds[np.argmin(far, axis=0)])


def talk_of(curves: Curves) -> Floats:
    """Part of a step that a job over several nodes spends on the network, (C, A, W).

    It is what a job on one node with as many workers would not need: 1 − speed over a nodes /
    speed on one. Of several GPU types the median counts.
    """
    alone = curves.speed[:, :, 1:2, :]
    if not (curves.by_nodes and (alone > 0).any()):
        raise ConfigError(
            "What jobs send cannot be told from speeds that say nothing of one node; give talk=."
        )
    over = np.divide(curves.speed, alone, out=np.ones_like(curves.speed), where=alone > 0)
    return np.asarray(np.clip(1 - np.median(over, axis=1), 0.0, 0.95))


def link_contention(
    curves: Curves | None,
    cluster: Cluster,
    uplink_gbps: float,
    spine_gbps: float,
    *,
    talk: Floats | None = None,
    other_talk: float = 0.2,
) -> Contention:
    """Max-min fair shares of NICs, rack uplinks and the spine.

    While a job talks it fills its NIC, so on average it wants talk × NIC of every link it crosses.
    `talk` (C, A, W) replaces what the curves say; jobs without a curve talk `other_talk` of a step.
    """
    if not (uplink_gbps > 0 and spine_gbps > 0):
        raise ConfigError(f"uplink_gbps={uplink_gbps} and spine_gbps={spine_gbps} must exceed 0.")
    if not 0 <= other_talk < 1:
        raise ConfigError(f"other_talk={other_talk} must lie in 0 … 1.")
    nic = float(np.median(cluster.link_gbps))
    if curves is None:
        parts = np.array([other_talk])
        kind = np.zeros((1, 3, 2), np.int64)
    else:
        of_each = talk_of(curves) if talk is None else talk
        C, A, W = of_each.shape
        parts = np.append(of_each.ravel(), other_talk)
        kind = np.full((C + 1, A, W), C * A * W, np.int64)
        kind[:C] = np.arange(C * A * W).reshape(C, A, W)
    kind[:, :2] = -1
    racks = int(cluster.rack.max()) + 1
    none = np.zeros(len(parts))
    return Contention(
        LINKS, kind, np.zeros((0, 0)), none, none, RANK_FLOOR, np.maximum(parts * nic, 1e-6), parts,
        np.asarray(cluster.link_gbps, np.float64), np.full(racks, float(uplink_gbps)),
        float(spine_gbps),
    )  # fmt: skip
