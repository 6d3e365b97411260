"""Bookkeeping of a simulator, checked from scratch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rota.core.layout import (
    FINISH,
    GIVE_UP,
    KILL,
    MOVE,
    NODE_DOWN,
    NODE_UP,
    RESIZE,
    RUNNING,
    START,
    STOP,
)
from rota.ledger.node_kernels import new_index

if TYPE_CHECKING:
    from rota.sim import Simulator


def check_books(sim: Simulator) -> None:
    """Free room, its index, the heap of the running and the counters all agree with the shares."""
    s, clock = sim.state, sim.clock
    running = np.flatnonzero(s.jobs["status"] == RUNNING).tolist()
    free = np.where(s.nodes["up"], s.nodes["gpus"], 0)
    cpus, memory_gb = s.nodes["cpus"].copy(), s.nodes["memory_gb"].copy()
    held = 0
    for j in running:
        job = s.jobs[j]
        shares = s.shares[job["share_at"] : job["share_at"] + job["share_len"]]
        assert shares["workers"].sum() == job["held_workers"]
        assert shares["servers"].sum() == job["held_servers"]
        assert job["min_workers"] <= job["held_workers"] <= job["max_workers"]
        assert (np.diff(shares["node"]) > 0).all()
        held += int(job["held_workers"]) * int(job["gpus_per_worker"])
        for node, workers, servers in shares.tolist():
            assert s.nodes["up"][node]
            free[node] -= workers * job["gpus_per_worker"]
            cpus[node] -= workers * job["cpus_per_worker"] + servers * job["cpus_per_server"]
            memory_gb[node] -= (
                workers * job["memory_gb_per_worker"] + servers * job["memory_gb_per_server"]
            )
    assert (free >= 0).all(), "a GPU is given twice"
    assert (cpus >= -1e-6).all()
    assert (memory_gb >= -1e-6).all()
    np.testing.assert_array_equal(s.nodes["free"], free)
    np.testing.assert_allclose(s.nodes["free_cpus"], cpus, atol=1e-6)
    np.testing.assert_allclose(s.nodes["free_memory_gb"], memory_gb, atol=1e-6)
    np.testing.assert_array_equal(s.level, new_index(s.nodes))
    assert (clock["held"], clock["running"]) == (held, len(running))
    check_heap(s, running)


def check_heap(s: Any, running: list[int]) -> None:
    """The running jobs are a heap by time of their next event, and know their places in it."""
    heap = s.running[: len(running)].tolist()
    assert sorted(heap) == running
    due = [(float(s.truth["event_s"][j]), j) for j in heap]
    for k, j in enumerate(heap):
        assert s.truth["heap"][j] == k
        assert k == 0 or due[(k - 1) // 2] <= due[k]
    idle = np.setdiff1d(np.arange(len(s.truth)), heap)
    assert (s.truth["heap"][idle] == -1).all()


class Replayed:
    """Follows an event log and keeps its own account of who holds what."""

    def __init__(self, sim: Simulator) -> None:
        self.gpus = sim.state.nodes["gpus"].tolist()
        self.each = sim.state.jobs["gpus_per_worker"].tolist()
        self.up = [True] * len(self.gpus)
        self.held: dict[int, list[tuple[int, int, int]]] = {}
        self.held_gpu_s = 0.0
        self.now_s = 0.0

    def follow(self, events: Any, entries: Any) -> None:
        """Play the log on; at the end of every moment no node may be overfull."""
        at = 0
        for k, (time_s, job, kind, count) in enumerate(events.tolist()):
            if time_s > self.now_s:
                self.held_gpu_s += (time_s - self.now_s) * self.total()
                self.now_s = time_s
            if kind in (START, MOVE, RESIZE):
                assert (job in self.held) == (kind != START)
                self.held[job] = entries[at : at + count].tolist()
            elif kind in (STOP, KILL, FINISH):
                del self.held[job]
            elif kind in (NODE_DOWN, NODE_UP):
                self.up[job] = kind == NODE_UP
            elif kind == GIVE_UP:
                assert job not in self.held
            at += count
            if k + 1 == len(events) or events["time_s"][k + 1] > time_s:
                self.check()
        assert at == len(entries)

    def total(self) -> int:
        return sum(w * self.each[j] for j, share in self.held.items() for _, w, _ in share)

    def check(self) -> None:
        used = [0] * len(self.gpus)
        for j, share in self.held.items():
            for node, workers, _ in share:
                used[node] += workers * self.each[j]
        for has, up, use in zip(self.gpus, self.up, used, strict=True):
            assert use <= (has if up else 0), "a GPU is given twice, or on a node that is down"
