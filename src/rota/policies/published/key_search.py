"""From a snapshot to what `malo` and `mosa` search, and from what they found to a decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from rota.core.draft import Draft
from rota.policies.classic.placing import Placer, start_if_idle
from rota.policies.gpu_types.type_pools import try_place
from rota.policies.published.key_decoding_kernels import Decoded, KeyedQueue, decode_one
from rota.policies.published.known_pace import HOUR_S, lengths_s, most_per_node, paces
from rota.policies.settings import Setting, number

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.core.decision import Decision
    from rota.core.snapshot import Snapshot
    from rota.core.types import Floats, Ints

DEAREST: Final = 1e9
"""Prices beyond are not believed."""


def keyed_queue(snapshot: Snapshot, jobs: Ints) -> KeyedQueue:
    """These waiting jobs, and the room there is for them."""
    rows, nodes = snapshot.jobs.rows[jobs], snapshot.nodes
    pace, left_s, workers = paces(snapshot, jobs), lengths_s(rows), _ints(rows["workers"])
    up, price = nodes["up"].copy(), np.minimum(nodes["price_per_gpu_h"], DEAREST)
    later_fee = rows["gpus"] * left_s / HOUR_S * _usual_price(pace[:, nodes["type"], 1], price, up)
    return KeyedQueue(
        workers=workers,
        most=most_per_node(pace, workers),
        servers=_ints(rows["servers"]),
        gpus=_ints(rows["gpus_per_worker"]),
        cpus=np.stack([rows["cpus_per_worker"], rows["cpus_per_server"]], axis=1),
        memory_gb=np.stack([rows["memory_gb_per_worker"], rows["memory_gb_per_server"]], axis=1),
        bound=_ints(rows["gpu_type"]),
        left_s=left_s,
        pace=pace,
        later_fee=later_fee,
        free=np.where(up, nodes["free"], 0).astype(np.int64),
        free_cpus=nodes["free_cpus"].copy(),
        free_memory_gb=nodes["free_memory_gb"].copy(),
        up=up,
        type=_ints(nodes["type"]),
        price=price,
        busy_gpu_s=_busy_gpu_s(snapshot),
        total_gpus=int(nodes["gpus"][up].sum()),
    )


def room_to_decode(queue: KeyedQueue) -> Decoded:
    """Memory for the schedule of a candidate."""
    J, N = len(queue.workers), len(queue.free)
    most = int(np.minimum(queue.workers, N).sum()) + N  # and a place that is given up again
    order, at, span = np.zeros((3, J), np.int64)
    node, part = np.zeros((2, most), np.int64)
    free = np.zeros(N, np.int64)
    return Decoded(order, at, span, node, part, free, np.zeros(N), np.zeros(N))


def first_candidates(queue: KeyedQueue) -> Floats:
    """By arrival and by GPU-seconds (2, D); the k-th job looks first at the k-th emptiest node."""
    J, N = len(queue.workers), len(queue.free)
    emptiest = np.argsort(-queue.free, kind="stable")
    work = queue.left_s * np.maximum(1, queue.gpus * queue.workers)
    found = np.zeros((2, 2 * J))
    for candidate, order in zip(
        found, (np.arange(J), np.argsort(work, kind="stable")), strict=True
    ):
        candidate[order] = (np.arange(J) + 0.5) / J
        candidate[J + order] = (emptiest[np.arange(J) % N] + 0.5) / N
    return found


def generator(seed: int, snapshot: Snapshot) -> np.random.Generator:
    """Other numbers at other times, the same at the same time."""
    return np.random.default_rng([seed, int(np.float64(snapshot.time_s).view(np.uint64))])


@dataclass(frozen=True)
class KeySearch:
    """Starts the first `window` waiting jobs as the candidate that it finds says.

    The jobs behind them take what is left, in order of submission; none is stopped or moved.
    """

    compiles: ClassVar[bool] = True

    name: str = "key-search"
    oracle: bool = False
    evals: int = 200
    """Schedules tried per round; the same number always, so that results do not depend on load."""
    weight: float = 0.5
    """Weight of the fee; the rest is that of time."""
    window: int = 64
    """Waiting jobs that are searched; the others take what is left."""
    seed: int = 0

    def decide(self, snapshot: Snapshot) -> Decision:
        """One round; nothing is searched if no job has room now, as no order changes that."""
        draft, waiting = Draft(snapshot), np.flatnonzero(snapshot.jobs.waiting)
        jobs, others = waiting[: self.window], waiting[self.window :]
        if len(jobs) and snapshot.nodes["up"].any():
            queue = keyed_queue(snapshot, jobs)
            decoded, first = room_to_decode(queue), first_candidates(queue)
            value = np.zeros(2)
            decode_one(queue, decoded, first[0], value)
            if decoded.span.any():
                found = self.best(queue, decoded, first, generator(self.seed, snapshot))
                decode_one(queue, decoded, found, value)
                write_places(draft, jobs, decoded)
        if len(others):
            Placer("worst-fit").fill(draft, others)
        start_if_idle(draft)
        return draft.commit()

    def best(
        self, queue: KeyedQueue, decoded: Decoded, first: Floats, rng: np.random.Generator
    ) -> Floats:
        """The candidate that is found by a search that begins with those in `first`."""
        raise NotImplementedError


def write_places(draft: Draft, jobs: Ints, decoded: Decoded) -> None:
    """Give the jobs what was decoded for them."""
    for j, job in enumerate(jobs.tolist()):
        at, end = decoded.at[j], decoded.at[j] + decoded.span[j]
        nodes, parts = decoded.node[at:end].tolist(), decoded.part[at:end].tolist()
        if nodes:
            try_place(draft, job, list(zip(nodes, parts, strict=True)))


def _busy_gpu_s(snapshot: Snapshot) -> float:
    """GPU-seconds that the running jobs still need, at the pace at which they run."""
    rows = snapshot.jobs.rows[snapshot.jobs.running]
    held = rows["held_workers"] * rows["gpus_per_worker"]
    pace = np.where(np.isfinite(rows["pace"]), rows["pace"], 1.0)
    return float((held * lengths_s(rows) / np.clip(pace, 0.01, 100.0)).sum())


def _usual_price(pace: Floats, price: Floats, up: Ints) -> Floats:
    """Price over pace, on average over the nodes that are up and where a job runs (J,)."""
    runs = (pace > 0.0) & up
    each = np.where(runs, price / np.where(runs, pace, 1.0), 0.0)
    usual: Floats = each.sum(axis=1) / np.maximum(1, runs.sum(axis=1))
    return usual


def _ints(column: Ints) -> Ints:
    return column.astype(np.int64)


def whole(least: int) -> Callable[[str], int]:
    """Reads a whole number of at least so much."""

    def read(text: str) -> int:
        if int(text) < least:
            raise ValueError
        return int(text)

    return read


def share_of_one(text: str) -> float:
    """A number from 0 to 1."""
    value = number(text, 0.0)
    if value > 1.0:
        raise ValueError
    return value


SEED: Final = Setting("seeds its random numbers", whole(0), "a whole number, 0 or more")
WINDOW: Final = Setting("waiting jobs that are looked at; the others take what is left",
                        whole(1), "a whole number, 1 or more")  # fmt: skip
SEARCH_SETTINGS: Final = {
    "evals": Setting("schedules that are tried per round", whole(2), "a whole number, 2 or more"),
    "weight": Setting("weight of the fee beside time", share_of_one, "a number from 0 to 1"),
    "window": WINDOW,
    "seed": SEED,
}
