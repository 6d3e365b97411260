"""Who sends from which node, and whose pace must be looked at again because of it.

A state without a net compiles none of this: `join` and `leave` vanish there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba import types
from numba.extending import overload

from rota.jit import only_with, part
from rota.perf.contention_kernels import Traffic
from rota.sim.state import Net

if TYPE_CHECKING:
    from rota.sim.state import State


@part
def mark(s: State, j: int) -> None:
    """Job j's pace must be looked at again."""
    if not s.net.marked[j]:
        s.net.marked[j] = True
        s.net.dirty[s.clock[0]["dirty"]] = j
        s.clock[0]["dirty"] += 1


@part
def mark_guests(s: State, n: int) -> None:
    """So must that of all who send from node n."""
    for g in range(s.net.traffic.many[n]):
        mark(s, s.net.traffic.guests[n, g])


@only_with("net")
@part
def join(s: State, j: int) -> None:
    """Job j begins to send from the nodes it holds."""
    job, t = s.jobs[j], s.net.traffic
    mark(s, j)
    at, length = job["share_at"], job["share_len"]
    kinds = t.laws.kind
    t.kind[j] = kinds[
        job["curve"], min(length, kinds.shape[1] - 1), min(job["held_workers"], kinds.shape[2] - 1)
    ]
    if t.kind[j] < 0:
        return
    for k in range(at, at + length):
        n, gpus = s.shares[k]["node"], s.shares[k]["workers"] * job["gpus_per_worker"]
        if gpus > 0:
            g = t.many[n]
            t.guests[n, g], t.gpus[n, g] = j, gpus
            t.many[n] += 1
            mark_guests(s, n)


@only_with("net")
@part
def leave(s: State, j: int) -> None:
    """Job j sends no longer from the nodes it has held so far."""
    job, t = s.jobs[j], s.net.traffic
    if t.kind[j] < 0:
        return
    for k in range(job["share_at"], job["share_at"] + job["share_len"]):
        n = s.shares[k]["node"]
        for g in range(t.many[n]):
            if t.guests[n, g] == j:
                t.many[n] -= 1
                t.guests[n, g] = t.guests[n, t.many[n]]
                t.gpus[n, g] = t.gpus[n, t.many[n]]
                break
        mark_guests(s, n)
    t.kind[j] = -1


def net_of(net: Net | None, b: int) -> Net | None:
    """The net of the b-th cluster of a batch, if there is one; compiled code only."""
    raise NotImplementedError


@overload(net_of, inline="always", strict=False)  # type: ignore[untyped-decorator]
def _net_of(net: Any, b: int) -> Any:  # noqa: ARG001
    if net == types.none:
        return lambda net, b: None  # noqa: ARG005

    def pick(net: Any, b: int) -> Any:
        t = net.traffic
        traffic = Traffic(
            t.laws, t.guests[b], t.gpus[b], t.many[b], t.kind[b], t.rate[b], t.left[b], t.busy[b]
        )
        return Net(traffic, net.dirty[b], net.marked[b], net.grows[b], net.weather[b])

    return pick
