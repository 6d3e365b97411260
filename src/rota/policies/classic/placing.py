"""Placements for policies written in Python: the compiled rules, one job at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.errors import UnknownNameError
from rota.jit import direct, kernel
from rota.jit_reference import by_reference
from rota.ledger.draft_kernels import DraftArrays
from rota.ledger.node_kernels import build
from rota.policies.classic.claim_kernels import claim
from rota.policies.classic.gang_kernels import find
from rota.policies.classic.place_kernels import (
    BEST_FIT,
    CONSOLIDATE,
    FGD,
    FIRST_FIT,
    SPREAD,
    TOPOLOGY,
    WORST_FIT,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.core.cluster import Cluster
    from rota.core.draft import Draft
    from rota.core.types import Floats, Ints, Records

PLACEMENTS: Final[dict[str, tuple[int, str]]] = {
    "first-fit": (FIRST_FIT, "The lowest node that has room."),
    "best-fit": (BEST_FIT, "The node with the fewest free GPUs that suffice."),
    "worst-fit": (WORST_FIT, "The node with the most free GPUs."),
    "consolidate": (CONSOLIDATE, "As few nodes as possible; split only where no node has room."),
    "spread": (SPREAD, "Worker by worker on the emptiest node, so over as many as possible."),
    "topology": (TOPOLOGY, "Within the fullest rack that has room, on as few nodes as possible."),
    "fgd": (FGD, "Where it strands the fewest GPUs for typical jobs (Weng et al., ATC 2023)."),
}
"""Name → (number in compiled code, one line)."""


def placement_code(name: str) -> int:
    """The number of a placement in compiled code."""
    if name not in PLACEMENTS:
        raise UnknownNameError("placement", name, PLACEMENTS)
    return PLACEMENTS[name][0]


@kernel
def find_one(
    place: int,
    nodes: Records,
    level: Any,
    jobs: Records,
    j: int,
    gpus: int,
    typical: Floats,
    spot: Any,
) -> int:
    """Index `nodes` and find room for `gpus` GPUs of job j: spot[0] nodes, spot[1] GPUs there."""
    build(nodes, level)
    return find(place, nodes, level, jobs[j], gpus, typical, spot[0], spot[1])


@kernel
def fill_all(
    place: int, jobs: Records, order: Ints, d: DraftArrays, used: int, typical: Floats
) -> int:
    """Place the jobs of `order` that hold nothing, each at its requested size if it fits."""
    draft = by_reference(d)
    build(d.nodes, d.level)
    for i in range(order.size):
        if d.length[order[i]] == 0:
            used = claim(draft, place, typical, jobs[order[i]], order[i], used)
    return used


def start_if_idle(draft: Draft) -> None:
    """If no job holds anything, start the jobs that fit by first-fit, in order of submission.

    For rules that may find no place for a job although the cluster is idle: without this they
    would wait for ever.
    """
    if not draft.length.any():
        Placer("first-fit").fill(draft, np.arange(len(draft.rows)))


class Placer:
    """Finds room in a draft: `place(draft, job)` gives (node, workers) pairs, or None.

    `Draft.place` takes them, and puts a job's servers beside its workers.
    """

    def __init__(self, name: str = "best-fit", typical: Floats | None = None) -> None:
        self.code = placement_code(name)
        self._typical = np.zeros(1) if typical is None else np.array(typical, np.float64)
        self._level = np.zeros((0, 0), np.uint64)
        self._spot = np.zeros((2, 0), np.int64)
        self._cluster: Cluster | None = None
        self._find: Callable[..., int]
        self._fill: Callable[..., int]

    def __call__(
        self, draft: Draft, job: int, workers: int | None = None
    ) -> list[tuple[int, int]] | None:
        """Where `job` fits in what is free, without changing the draft.

        `workers` asks for another size than the requested one. The servers of a job that holds
        nothing yet must find room beside its workers; one that grows has its servers.
        """
        rows, row, servers = draft.rows, job, draft.servers(job)
        if servers and draft.length[job]:
            rows, row, servers = draft.rows[job : job + 1].copy(), 0, 0
            rows["servers"] = 0
            rows.flags.writeable = draft.rows.flags.writeable  # compiled code knows the difference
        if self._cluster is not draft.snapshot.cluster:
            self._prepare(draft)
        each = draft.gpus_per_worker(job) or 1  # workers without GPUs are counted themselves
        if workers is None:
            gpus = draft.gpus(job) or int(draft.rows["workers"][job])
        else:
            gpus = workers * each
        count = self._find(
            self.code, draft.nodes, self._level, rows, row, gpus, self._typical, self._spot
        )
        if count == 0:
            return None
        if count == 1:
            share = [(self._spot.item(0, 0), gpus // each)]
        else:
            node, part = self._spot[:, :count].tolist()
            share = [(n, gpus // each) for n, gpus in zip(node, part, strict=True)]
        if servers and not draft.fits(job, share, draft.beside(job, share)):
            return None
        return share

    def fill(self, draft: Draft, order: Ints) -> None:
        """Place, in `order`, every job that holds nothing in the draft, as far as it fits."""
        if self._cluster is not draft.snapshot.cluster:
            self._prepare(draft)
        draft.reserve(int(draft.rows["workers"][order].clip(max=len(draft.nodes)).sum()))
        node, part = self._spot
        arrays = DraftArrays(
            draft.nodes, self._level, draft.at, draft.length, draft.shares, node, part
        )
        order = np.ascontiguousarray(order, np.int64)
        draft.used = self._fill(self.code, draft.rows, order, arrays, draft.used, self._typical)

    def _prepare(self, draft: Draft) -> None:
        """Make ready what suits the draft's cluster: scratch arrays, machine code."""
        nodes = len(draft.nodes)
        self._cluster = draft.snapshot.cluster
        self._spot = np.zeros((2, nodes), np.int64)
        self._level = np.zeros((int(draft.nodes["gpus"].max()) + 2, -(-nodes // 64)), np.uint64)
        d = draft
        arrays = DraftArrays(
            d.nodes, self._level, d.at, d.length, d.shares, self._spot[0], self._spot[1]
        )
        self._find = direct(
            find_one, 0, d.nodes, self._level, d.rows, 0, 0, self._typical, self._spot
        )
        self._fill = direct(fill_all, 0, d.rows, d.at, arrays, 0, self._typical)
