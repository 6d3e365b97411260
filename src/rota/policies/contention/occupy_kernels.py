"""From job records to an `Occupancy`: who waits in which queue, and who runs where."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from rota.core.types import Ints, Records
from rota.jit import inline, part
from rota.jit_reference import by_reference
from rota.ledger.work_kernels import remaining
from rota.policies.contention.neighbour_kernels import Occupancy, Options, Scratch, rate_of
from rota.policies.contention.rollout_kernels import rate_running
from rota.policies.contention.spread_kernels import (
    JobTypes,
    PlacementTables,
    add_type,
    kind_of,
    largest_of,
    speed_of,
    type_of,
)

HOUR_S: Final = 3600.0
"""The length of jobs if nothing is known of any."""


class Counts(NamedTuple):
    """How much of an occupancy's memory is in use."""

    types: Ints  # (1,) of waiting jobs
    known: Ints  # (1,) types of waiting and running jobs
    met: Ints  # (1,) the same, and of jobs to come that somebody asked for
    placed: Ints  # (1,) types that a spread suits
    options: Ints  # (1,) spreads of waiting jobs
    spreads: Ints  # (1,) spreads of all jobs
    queued: Ints  # (1,)
    ran: Ints  # (1,) jobs that ran already; those behind them in `Occupancy.run` are new


class Rooms(NamedTuple):
    """Memory for the occupancies of a batch: every array has B in front."""

    options: Options  # without `jobs`
    room: Occupancy
    scratch: Scratch
    types: JobTypes
    counts: Counts


@part
def sort_out(
    t: PlacementTables, o: Options, types: JobTypes, counts: Counts, rows: Records, order: Ints,
    live: int, nodes: Records, head: Ints,
) -> None:  # fmt: skip
    """The types and spreads of all jobs in `order`, and queues of those that wait."""
    largest = largest_of(nodes)
    types.slot[:] = -1
    types.here[:] = 0
    for n in range(nodes.size):
        types.here[nodes[n]["type"]] = 1
    known, at, placed = 0, 0, 0
    for i in range(live):
        j = order[i]
        if rows[j]["share_len"] > 0:
            continue
        q = types.of[j] = type_of(types, rows, j, known)
        if q == known:
            at = add_type(t, o, types, nodes, largest, rows[j], q, at)
            o.end[q] = 0
            known += 1
            placed += types.spreads[q] > 0
        o.end[q] += types.spreads[q] > 0
    counts.types[0], counts.placed[0], counts.options[0] = known, placed, at
    head[head.size - 1] = known
    # One type after the other; of a type in `order`.
    begin = 0
    for q in range(known):
        head[q], begin = begin, begin + o.end[q]
        o.end[q] = head[q]
    counts.queued[0] = begin
    for i in range(live):
        j = order[i]
        if rows[j]["share_len"] == 0 and types.spreads[types.of[j]] > 0:
            q = types.of[j]
            o.queue[o.end[q]] = j
            o.end[q] += 1
    for i in range(live):
        j = order[i]
        if rows[j]["share_len"] > 0:
            q = types.of[j] = type_of(types, rows, j, known)
            if q == known:
                at = add_type(t, o, types, nodes, largest, rows[j], q, at)
                known += 1
    counts.known[0] = counts.met[0] = known
    counts.spreads[0] = at


@part
def copy_nodes(room: Occupancy, nodes: Records) -> None:
    """The nodes as they are, without jobs."""
    room.up_load[:], room.riders[:] = 0.0, 0
    room.changed[:] = room.changed[nodes.size] + 1
    room.up_changed[:] = room.changed[nodes.size]
    for n in range(nodes.size):
        node = nodes[n]
        room.gpus[n], room.type[n] = node["gpus"], node["type"]
        room.rack[n] = node["rack"] if room.up_load.size else 0
        room.free[n] = node["free"] if node["up"] else -1
        room.cpus[n], room.memory_gb[n] = node["free_cpus"], node["free_memory_gb"]
        room.load[n], room.sign[n], room.jobs_on[n] = 0.0, 0, 0


@part
def seat(
    t: PlacementTables, types: JobTypes, room: Occupancy, rows: Records, shares: Records, j: int
) -> bool:
    """Enter running job j where it runs; False if a node has no place for it on its list."""
    job, slots = rows[j], room.job.shape[1]
    begin, span = job["share_at"], job["share_len"]
    workers, servers = 0, 0
    for i in range(span):
        workers += shares[begin + i]["workers"]
        servers += shares[begin + i]["servers"]
    room.kind[j] = kind_of(t, job["curve"], span, workers)
    room.span[j], room.low[j] = span, 1.0
    speed = np.inf
    for i in range(span):
        share = shares[begin + i]
        n = share["node"]
        if share["workers"] > 0 or workers == 0:
            speed = min(speed, speed_of(t, job["curve"], span, servers, workers, room.type[n]))
        slot = room.jobs_on[n]
        if slot == slots:
            return False
        room.node[j, i], room.job[n, slot] = n, j
        room.held[n, slot] = share["workers"] * job["gpus_per_worker"]
        room.jobs_on[n] = slot + 1
    asked = max(1, job["workers"])
    room.alone[j] = speed / types.reference[types.of[j]] if speed > 0.0 else workers / asked
    last = room.run.size - 1
    room.run[room.run[last]] = j
    room.run[last] += 1
    return True


@part
def see_drift(t: PlacementTables, types: JobTypes, room: Occupancy, rows: Records) -> None:
    """Compare the pace of running jobs with what tables say they should have.

    A job is as slow as the slowest of its nodes. So a job on one node tells how fast that is; of m
    nodes of a job that is too slow, each is the slow one with probability 1 / m.
    """
    room.drift[:] = 0.0
    for alone in range(2):
        for i in range(room.run[room.run.size - 1]):
            j = room.run[i]
            if rows[j]["pace"] <= 0.0 or (room.span[j] == 1) != (alone == 1):
                continue
            # Tables are relative to the mean spread of a job, its pace to the best.
            seen = rows[j]["pace"] * types.best[types.of[j]] / rate_of(t.law, room, j)
            if seen < 1.0:
                seen = seen ** (1.0 / room.span[j])
            for e in range(room.span[j]):
                n = room.node[j, e]
                room.drift[n] = seen if alone == 1 else max(room.drift[n], seen)
    for n in range(room.drift.size):
        room.drift[n] = room.drift[n] if room.drift[n] > 0.0 else 1.0


@part
def known_lengths(room: Occupancy, rows: Records, order: Ints, live: int, now_s: float) -> None:
    """Remaining work; where it is unknown, the mean of the others, or an hour."""
    total_s, known = 0.0, 0
    for i in range(live):
        left_s = remaining(rows[order[i]], now_s)
        room.left[order[i]] = left_s
        if np.isfinite(left_s):
            total_s += left_s
            known += 1
    guess_s = total_s / known if known else HOUR_S
    for i in range(live):
        if not np.isfinite(room.left[order[i]]):
            room.left[order[i]] = guess_s


@part
def occupy(
    t: PlacementTables, m: Rooms, rows: Records, order: Ints, live: int, nodes: Records,
    shares: Records, now_s: float,
) -> bool:  # fmt: skip
    """Fill the memory of a cluster with its `live` jobs, those of order[:live].

    Waiting jobs of a type are queued in that order. False if a node lists more jobs than there is
    memory for.
    """
    o, room, types, counts = m.options, m.room, m.types, m.counts
    known_lengths(room, rows, order, live, now_s)
    sort_out(t, o, types, counts, rows, order, live, nodes, room.head)
    copy_nodes(room, nodes)
    last = room.run.size - 1
    room.run[last] = 0
    for i in range(live):
        j = order[i]
        room.low[j], room.kind[j], room.alone[j] = 1.0, -1, 1.0
        if rows[j]["share_len"] > 0 and not seat(t, types, room, rows, shares, j):
            return False
    counts.ran[0] = room.run[last]
    rate_running(t.law, o, room)
    see_drift(t, types, room, rows)
    # The observed pace of a running job says more about its length than its reference speed.
    for i in range(room.run[last]):
        j = room.run[i]
        if rows[j]["pace"] > 0.0:
            room.left[j] *= rate_of(t.law, room, j) / rows[j]["pace"]
    return True


@inline
def sized(o: Options, rows: Records, types: int, spreads: int) -> Options:
    """The options of the first types and spreads."""
    return by_reference(Options(
        rows, o.weight, o.size, o.sign, o.queue, o.end[:types], o.type[:spreads], o.span[:spreads],
        o.kind[:spreads], o.speed[:spreads],
    ))  # fmt: skip


@inline
def trimmed(o: Options, rows: Records, counts: Counts) -> Options:
    """The options of waiting jobs, without memory that is not in use."""
    return sized(o, rows, counts.types[0], counts.options[0])


@inline
def all_spreads(o: Options, rows: Records, counts: Counts) -> Options:
    """The same with the spreads of running jobs."""
    return sized(o, rows, counts.types[0], counts.spreads[0])
