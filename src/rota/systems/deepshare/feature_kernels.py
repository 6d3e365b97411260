"""What a network sees of a candidate and of the cluster."""

from __future__ import annotations

from math import log, log1p, log2
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core.speed import LINKS, PAIRS
from rota.core.types import Floats, Ints
from rota.jit import kernel, part
from rota.jit_reference import entry_of
from rota.policies.contention.loss_kernels import loss_across, loss_on
from rota.policies.contention.neighbour_kernels import (
    SLOWEST,
    Found,
    Law,
    Occupancy,
    Options,
    Scratch,
    after,
    kept,
    rate_of,
    workers_at,
)
from rota.policies.contention.occupy_kernels import (
    HOUR_S,
    all_spreads,
    trimmed,
)
from rota.policies.contention.uplink_kernels import (
    crosses,
    is_crowded,
    kept_across,
    on_uplink,
    opens_rack,
)
from rota.systems.deepshare.move_kernels import without

if TYPE_CHECKING:
    from rota.envs.book import Book
    from rota.envs.view import View

CANDIDATE: Final = 24
"""Features of a candidate."""
CLUSTER: Final = 11
"""Features of a cluster."""
USUAL: Final = 32.0
"""GPUs: what grows with a cluster is counted per so many, so that its size cannot be told."""
HIDDEN: Final = (1, 2, 4, 5, 15, 16, 18, 19, 20)
"""Features of a candidate that depend on how jobs slow each other down."""
HIDDEN_OF_MOVES: Final = (9, 11, 21, 23)
"""The same of a move: the pace of a running job tells its remaining work."""
HIDDEN_OF_CLUSTER: Final = (4, 6, 7)
"""The same of a cluster."""


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
def worst_on(law: Law, room: Occupancy, k: int, u: int) -> float:
    """What is left to the worst job on uplink u beside a newcomer."""
    worst, more_gbps = 1.0, law.traffic_gbps[k]
    if is_crowded(law, room, u, more_gbps):
        for s in range(room.riders[u]):
            kind = room.kind[room.rider[u, s]]
            worst = min(worst, on_uplink(law, room, kind, u, more_gbps))
    return worst


@part
def worst_across(law: Law, room: Occupancy, k: int, nodes: Ints, span: int) -> float:
    """What is left to the worst job on the uplinks of a newcomer that crosses racks."""
    worst = worst_on(law, room, k, room.up_load.size - 1)
    for i in range(span):
        if opens_rack(room, nodes, i):
            worst = min(worst, worst_on(law, room, k, room.rack[nodes[i]]))
    return worst


@part
def load_across(law: Law, room: Occupancy, nodes: Ints, span: int) -> float:
    """How loaded the fullest of the uplinks between nodes[:span] is."""
    last = room.up_load.size - 1
    load = room.up_load[last] / law.uplink_gbps[last]
    for i in range(span):
        u = room.rack[nodes[i]]
        load = max(load, room.up_load[u] / law.uplink_gbps[u])
    return float(load)


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
    if k >= 0 and crosses(room, found.node[c], span):
        own = min(own, kept_across(law, room, k, found.node[c], span, law.traffic_gbps[k]))
        loss += loss_across(law, o, room, scratch, k, found.node[c], span, 0.0)
        worst = min(worst, worst_across(law, room, k, found.node[c], span))
        load = max(load, load_across(law, room, found.node[c], span))
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
    out[12] = (o.end[q] - room.head[q]) / max(1, queued) if q < o.end.size else 0.0
    out[13] = free / max(1.0, whole)
    out[14] = full / span
    out[15] = suffers(law, k)
    out[16] = harms(law, k, found.node[c, 0])
    out[17] = neighbours / span / 4.0
    out[18] = min(4.0, load)
    out[19] = log1p(left_s / max(SLOWEST, alone * own) / HOUR_S) / 2.0
    out[20] = found.score[c] - found.score[0]
    out[21] = log1p(waited_s / max(60.0, left_s)) / 2.0
    moves = job["share_len"] > 0
    out[22] = 1.0 if moves else 0.0
    out[23] = min(4.0, job["resize_s"] / max(60.0, left_s)) if moves else 0.0


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
        rate = rate_of(law, room, j)
        next_s = min(next_s, room.left[j] / rate)
        busy_s += room.left[j] / rate * o.size[j]
        low += max(law.floor, room.low[j])
    many = max(1.0, gpus) / USUAL
    work_s, total_s = 0.0, 0.0
    for q in range(o.end.size):
        for i in range(room.head[q], o.end[q]):
            j = o.queue[i]
            total_s += room.left[j]
            work_s += room.left[j] * o.size[j]
    out[0] = free / max(1.0, gpus)
    out[1] = nodes_free / room.free.size
    out[2] = log1p(queued / many) / 4.0
    out[3] = log1p(running / many) / 4.0
    out[4] = low / running if running else 1.0
    out[5] = log1p(work_s / max(1.0, gpus) / HOUR_S)
    out[6] = log1p(next_s * many / HOUR_S) if running else 0.0
    out[7] = log1p(busy_s / max(1.0, gpus) / HOUR_S)
    out[8] = count / 16.0
    out[9] = log1p(total_s / max(1, queued) / HOUR_S)
    out[10] = queued / max(1.0, gpus)
    return total_s / max(1, queued)


@part
def hide_contention(out: Any, moves: bool) -> None:
    """Set all features of a candidate to 0 that depend on how jobs slow each other down."""
    for f in HIDDEN:
        out[f] = 0.0
    if moves:
        for f in HIDDEN_OF_MOVES:
            out[f] = 0.0


@part
def encode_one(view: View, book: Book, b: int, candidate: Any, cluster: Any) -> int:
    """Fill the observation of cluster b; returns how many candidates there are, waiting included.

    candidate  (K + 1, F): the first is to wait; rows beyond the last candidate are old
    cluster    (G,)
    """
    m, found = entry_of(book.own.rooms, b), entry_of(book.own.found, b)
    o, room = trimmed(m.options, view.jobs[b], m.counts), m.room
    count, queued = found.option[found.score.size - 1], 0
    for q in range(o.end.size):
        queued += o.end[q] - room.head[q]
    mean_left_s = survey(view.laws.law, o, room, count, queued, cluster)
    candidate[0, :] = 0.0
    candidate[0, 0] = 1.0
    every = all_spreads(m.options, view.jobs[b], m.counts)
    trial = entry_of(book.own.moving.trial, b)
    for c in range(count):
        seen = room
        if view.jobs[b, found.job[c]]["share_len"] > 0:
            without(view.laws.law, every, trial, room, found.job[c])
            seen = trial
        describe(view, every, seen, m.scratch, found, b, c, mean_left_s, queued, candidate[c + 1])
        if book.own.blind[b, 0]:
            hide_contention(candidate[c + 1], candidate[c + 1, 22] > 0.0)
    if book.own.blind[b, 0]:
        for f in HIDDEN_OF_CLUSTER:
            cluster[f] = 0.0
    return int(count + 1)


@kernel
def encode(view: View, book: Book, candidate: Floats, cluster: Floats, many: Ints) -> None:
    """Fill the observations of all clusters: (B, K + 1, F), (B, G), (B,)."""
    for b in range(len(cluster)):
        many[b] = encode_one(view, book, b, candidate[b], cluster[b])
