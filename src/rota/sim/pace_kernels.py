"""New paces for the jobs that a change touches, and for all when the machines' speed drifts.

A change touches the jobs on the nodes that a job joined or left and, where links are shared, the
jobs that share a crowded link with those, directly or over others. A job that keeps its pace is not
settled, so it ends exactly when it would have ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rota.core.layout import RUNNING
from rota.core.speed import LINKS
from rota.jit import inline, part, pasted_part
from rota.jit_only import only_with
from rota.perf.contention_kernels import feels_racks, is_crowded, share_links, slowdown
from rota.sim.job_kernels import schedule, settle
from rota.sim.net_kernels import mark, mark_crossing, mark_senders

if TYPE_CHECKING:
    from rota.sim.state import State


@part
def mark_linked(s: State) -> None:
    """Mark the jobs that share a crowded link with a marked job, and so on."""
    net, clock, i, spread = s.net, s.clock[0], 0, False
    t = net.traffic
    while i < clock["dirty"]:
        job = s.jobs[net.dirty[i]]
        at, length = job["share_at"], job["share_len"]
        if t.kind[net.dirty[i]] >= 0:
            for k in range(at, at + length):
                n = s.shares[k]["node"]
                if is_crowded(t, n):
                    mark_senders(t.senders, t.many, net.dirty, net.marked, clock, n)
            if not spread and feels_racks(t, s.nodes, s.shares, at, length):
                spread = True
                mark_crossing(s)
        i += 1


@part
def slowest_machine(s: State, job: Any) -> float:
    """The present speed of the slowest machine that has workers of the job."""
    step = int(s.clock[0]["now_s"] / s.clock[0]["drift_step_s"]) % s.net.machine_speed.shape[1]
    slowest = np.inf
    for k in range(job["share_at"], job["share_at"] + job["share_len"]):
        if s.shares[k]["workers"] > 0:
            slowest = min(slowest, s.net.machine_speed[s.shares[k]["node"], step])
    return slowest


@part
def rerate_marked(s: State) -> None:
    """Give every marked job that runs the pace it has from now on."""
    t, clock = s.net.traffic, s.clock[0]
    if t.laws.mode == LINKS:
        mark_linked(s)
        share_links(t, s.jobs, s.nodes, s.shares, s.net.dirty, clock["dirty"], s.net.grows)
    for i in range(clock["dirty"]):
        j = s.net.dirty[i]
        s.net.marked[j] = False
        job = s.jobs[j]
        if job["status"] != RUNNING:
            continue
        pace = s.truth[j]["alone"]
        if s.net.machine_speed.shape[1] > 0:
            pace *= slowest_machine(s, job)
        pace *= slowdown(t, s.nodes, s.shares, job["share_at"], job["share_len"], j)
        if pace != job["pace"]:
            settle(job, s.truth[j], clock["now_s"])
            job["pace"] = pace
            schedule(job, s.truth[j], clock, s.running, s.truth)
    clock["dirty"] = 0


@only_with("net")
@pasted_part
def rerate(s: State) -> None:
    """Give marked jobs new paces; no-op if there are none."""
    if s.clock[0]["dirty"] > 0:
        rerate_marked(s)


@inline
def next_multiple(time_s: float, step_s: float) -> float:
    """The first multiple of `step_s` after `time_s`; the next float where steps are finer.

    Always later than `time_s`, although numbers are rounded: 43 · 0.1 / 0.1 is less than 43.
    """
    step = np.floor(time_s / step_s) + 1.0
    if step * step_s <= time_s:
        step += 1.0
    return max(step * step_s, np.nextafter(time_s, np.inf))


@part
def drift_s(s: State) -> float:
    """When the machines' speed changes next; inf while no job runs."""
    clock = s.clock[0]
    if s.net.machine_speed.shape[1] == 0 or clock["running"] == 0:
        return np.inf
    return next_multiple(clock["now_s"], clock["drift_step_s"])


@part
def drift_now(s: State) -> None:
    """The machines' speed changes now: all running jobs get new paces."""
    for r in range(s.clock[0]["running"]):
        mark(s.net.dirty, s.net.marked, s.clock[0], s.running[r])
    rerate(s)
