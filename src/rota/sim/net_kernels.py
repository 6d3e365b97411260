"""Which jobs send from which node, and which jobs need a new pace when that changes.

`Traffic` lists the senders of each node. A state without a net compiles none of this: there, `join`
and `leave` are no-ops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rota.core.speed import LINKS
from rota.jit import part, pasted_part
from rota.jit_only import only_with, unless_none
from rota.perf.contention_kernels import Traffic, add_on_links, crosses, feels_racks
from rota.sim.state import Net

if TYPE_CHECKING:
    from rota.core.types import Ints
    from rota.sim.state import State


@part
def mark(dirty: Ints, marked: Any, clock: Any, j: int) -> None:
    """Note that job j's pace must be computed again."""
    if not marked[j]:
        marked[j] = True
        dirty[clock["dirty"]] = j
        clock["dirty"] += 1


@part
def mark_senders(senders: Ints, many: Ints, dirty: Ints, marked: Any, clock: Any, n: int) -> None:
    """The same for all jobs that send from node n."""
    for g in range(many[n]):
        mark(dirty, marked, clock, senders[n, g])


@part
def mark_crossing(s: State) -> None:
    """The same for all jobs that send from rack to rack: they share uplinks and spine."""
    net, clock = s.net, s.clock[0]
    for r in range(clock["running"]):
        j = s.running[r]
        job = s.jobs[j]
        if net.traffic.kind[j] >= 0 and crosses(
            s.nodes, s.shares, job["share_at"], job["share_len"]
        ):
            mark(net.dirty, net.marked, clock, j)


@part
def join_as(s: State, j: int, kind: int) -> None:
    """Make job j a sender of its nodes, if its traffic has a kind."""
    job, net, clock = s.jobs[j], s.net, s.clock[0]
    mark(net.dirty, net.marked, clock, j)
    if kind < 0:
        return
    t = net.traffic
    t.kind[j], s.truth[j]["sends"] = kind, True
    for k in range(job["share_at"], job["share_at"] + job["share_len"]):
        n, gpus = s.shares[k]["node"], s.shares[k]["workers"] * job["gpus_per_worker"]
        if gpus > 0 and t.many[n] < t.senders.shape[1]:
            mark_senders(t.senders, t.many, net.dirty, net.marked, clock, n)
            g = t.many[n]
            while g > 0 and t.senders[n, g - 1] > j:
                t.senders[n, g], t.gpus[n, g] = t.senders[n, g - 1], t.gpus[n, g - 1]
                g -= 1
            t.senders[n, g], t.gpus[n, g] = j, gpus
            t.many[n] += 1
    if t.laws.mode == LINKS:
        wanted = t.laws.traffic_gbps[kind]
        add_on_links(t.load, s.nodes, s.shares, job["share_at"], job["share_len"], wanted)


@only_with("net")
@pasted_part
def join(s: State, j: int) -> None:
    """Job j begins to send from the nodes it holds; inlined, as most jobs do not send."""
    job, kinds = s.jobs[j], s.net.traffic.laws.kind
    a = min(job["share_len"], kinds.shape[1] - 1)
    kind = kinds[job["curve"], a, min(job["held_workers"], kinds.shape[2] - 1)]
    if kind >= 0 or s.clock[0]["drift_step_s"] < np.inf:
        join_as(s, j, kind)


@part
def leave_all(s: State, j: int) -> None:
    """Job j is no longer a sender of its nodes."""
    job, net, clock = s.jobs[j], s.net, s.clock[0]
    t = net.traffic
    at, length = job["share_at"], job["share_len"]
    if t.laws.mode == LINKS:
        if feels_racks(t, s.nodes, s.shares, at, length):
            mark_crossing(s)
        add_on_links(t.load, s.nodes, s.shares, at, length, -t.laws.traffic_gbps[t.kind[j]])
    for k in range(at, at + length):
        n = s.shares[k]["node"]
        for g in range(t.many[n]):
            if t.senders[n, g] == j:
                t.many[n] -= 1
                for h in range(g, t.many[n]):
                    t.senders[n, h], t.gpus[n, h] = t.senders[n, h + 1], t.gpus[n, h + 1]
                break
        mark_senders(t.senders, t.many, net.dirty, net.marked, clock, n)
    t.kind[j], s.truth[j]["sends"] = -1, False


@only_with("net")
@pasted_part
def leave(s: State, j: int) -> None:
    """Job j stops sending from the nodes it has held, if it did send."""
    if s.truth[j]["sends"]:
        leave_all(s, j)


@unless_none
def net_of(batch: Net, b: int) -> Net:
    """The net of the b-th cluster of a batch, if there is one."""
    t = batch.traffic
    traffic = Traffic(
        t.laws, t.senders[b], t.gpus[b], t.many[b], t.kind[b], t.rate[b], t.load[b], t.left[b],
        t.busy[b],
    )  # fmt: skip
    return Net(traffic, batch.dirty[b], batch.marked[b], batch.grows[b], batch.machine_speed[b])
