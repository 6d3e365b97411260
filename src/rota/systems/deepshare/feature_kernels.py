"""What a network sees of a candidate and of the cluster."""

from __future__ import annotations

from math import log, log1p, log2
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core.speed import LINKS, PAIRS
from rota.core.types import Floats, Ints
from rota.jit import kernel, part
from rota.policies.contention.greedy_kernels import loss_on
from rota.policies.contention.neighbour_kernels import (
    Found,
    Law,
    Occupancy,
    Options,
    Scratch,
    after,
    kept,
    workers_at,
)
from rota.policies.contention.occupy_kernels import HOUR_S, rooms_at, trimmed, with_heads
from rota.systems.deepshare.candidate_kernels import found_at

if TYPE_CHECKING:
    from rota.envs.book import Book
    from rota.envs.view import View

CANDIDATE: Final = 22
"""Features of a candidate."""
CLUSTER: Final = 12
"""Features of a cluster."""


@part
def suffers(law: Law, k: int) -> float:
    """How much a kind of traffic suffers from others on the average, 0 to 1."""
    if k < 0:
        return 0.0
    if law.mode == PAIRS:
        total = 0.0
        for o in range(law.ratio.shape[1]):
            total += 1.0 - law.ratio[k, o]
        return float(total / max(1, law.ratio.shape[1]))
    return float(law.talk[k] if law.mode == LINKS else law.hurt[k])


@part
def harms(law: Law, k: int, n: int) -> float:
    """How much others suffer from a kind of traffic on the average; n is one of its nodes."""
    if k < 0:
        return 0.0
    if law.mode == PAIRS:
        total = 0.0
        for o in range(law.ratio.shape[0]):
            total += 1.0 - law.ratio[o, k]
        return float(total / max(1, law.ratio.shape[0]))
    if law.mode == LINKS:
        return float(law.traffic_gbps[k] / max(1e-9, law.link_gbps[n]))
    return float(law.harm[k])


@part
def describe(
    view: View, o: Options, room: Occupancy, scratch: Scratch, found: Found, b: int, c: int,
    mean_left_s: float, queued: int, out: Any,
) -> None:  # fmt: skip
    """The features of candidate c."""
    law, p, j = view.laws.law, found.option[c], found.job[c]
    span, k, job, q = o.span[p], o.kind[p], o.jobs[j], o.type[p]
    scratch.seen[scratch.hit.size] += 1
    own, alone, loss, worst = 1.0, np.inf, 0.0, 1.0
    free, whole, neighbours, full, load = 0.0, 0.0, 0, 0, 0.0
    for i in range(span):
        n = found.node[c, i]
        held = workers_at(job["workers"], span, i) * job["gpus_per_worker"]
        alone = min(alone, o.speed[p, room.type[n]])
        own = min(own, kept(law, room, k, n, -1))
        for s in range(room.jobs_on[n]):
            worst = min(worst, after(law, room, n, s, k, held))
        loss += loss_on(law, o, room, scratch, n, k, held, 0.0, True)
        free += room.free[n] - held
        whole += room.gpus[n]
        full += room.free[n] == held
        neighbours += room.jobs_on[n]
        if law.mode == LINKS:
            load = max(load, room.load[n] / max(1e-9, law.link_gbps[n]))
    own = max(own, law.floor)
    size, left_s = o.size[j], room.left[j]
    waited_s = view.now_s[b] - job["submit_s"]
    out[0] = 0.0
    out[1] = found.score[c]
    out[2] = own
    out[3] = alone
    out[4] = loss / size
    out[5] = max(law.floor, worst)
    out[6] = log2(span) / 4.0
    out[7] = log2(size) / 4.0
    out[8] = size / max(1.0, whole)
    out[9] = max(-4.0, min(4.0, log(max(1.0, left_s) / max(1.0, mean_left_s))))
    out[10] = log1p(waited_s / HOUR_S) / 2.0
    out[11] = log1p(left_s / HOUR_S) / 2.0
    out[12] = (o.end[q] - room.head[q]) / max(1, queued)
    out[13] = free / max(1.0, whole)
    out[14] = full / span
    out[15] = suffers(law, k)
    out[16] = harms(law, k, found.node[c, 0])
    out[17] = neighbours / span / 4.0
    out[18] = min(4.0, load)
    out[19] = log1p(left_s / (alone * own) / HOUR_S) / 2.0 if alone > 0.0 else 4.0
    out[20] = found.score[c] - found.score[0]
    out[21] = log1p(waited_s / max(60.0, left_s)) / 2.0


@part
def survey(law: Law, o: Options, room: Occupancy, count: int, queued: int, out: Any) -> float:
    """The features of a cluster; returns the mean work of its waiting jobs."""
    running = room.run[room.run.size - 1]
    free, gpus, nodes_free = 0.0, 0.0, 0
    for n in range(room.free.size):
        free += max(0, room.free[n])
        gpus += room.gpus[n]
        nodes_free += room.jobs_on[n] == 0
    next_s, low, busy_s = np.inf, 0.0, 0.0
    for i in range(running):
        j = room.run[i]
        ratio = max(law.floor, room.low[j])
        rate = room.alone[j] * ratio
        next_s = min(next_s, room.left[j] / rate)
        busy_s += room.left[j] / rate * o.size[j]
        low += ratio
    work_s, total_s = 0.0, 0.0
    for q in range(o.end.size):
        for i in range(room.head[q], o.end[q]):
            j = o.queue[i]
            total_s += room.left[j]
            work_s += room.left[j] * o.size[j]
    out[0] = free / max(1.0, gpus)
    out[1] = nodes_free / room.free.size
    out[2] = log1p(queued) / 4.0
    out[3] = log1p(running) / 4.0
    out[4] = low / running if running else 1.0
    out[5] = log1p(work_s / max(1.0, gpus) / HOUR_S)
    out[6] = log1p(next_s / HOUR_S) if running else 0.0
    out[7] = log1p(busy_s / max(1.0, gpus) / HOUR_S)
    out[8] = count / 16.0
    out[9] = log1p(total_s / max(1, queued) / HOUR_S)
    out[10] = log2(gpus) / 10.0
    out[11] = queued / max(1.0, gpus)
    return total_s / max(1, queued)


@kernel
def encode(view: View, book: Book, candidate: Floats, cluster: Floats, many: Ints) -> None:
    """Fill the observations.

    candidate  (B, K + 1, F): the first is to wait; rows from `many` on are old
    cluster    (B, G)
    many       (B,)
    """
    for b in range(len(cluster)):
        m, found = rooms_at(book.own.rooms, b), found_at(book.own.found, b)
        o, room = trimmed(m.options, view.jobs[b], m.counts), with_heads(m.room, m.counts)
        count = found.option[found.score.size - 1]
        many[b] = count + 1
        queued = 0
        for q in range(o.end.size):
            queued += o.end[q] - room.head[q]
        mean_left_s = survey(view.laws.law, o, room, count, queued, cluster[b])
        candidate[b, 0, :] = 0.0
        candidate[b, 0, 0] = 1.0
        for c in range(count):
            describe(
                view, o, room, m.scratch, found, b, c, mean_left_s, queued, candidate[b, c + 1]
            )
