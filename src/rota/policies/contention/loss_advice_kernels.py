"""Two agents that advise `least-loss`: one where jobs stand in line, one what GPU types cost them.

Both are linear in what they see, so that with weights of 0 the rule is as it was. The first
multiplies the key of each job, the second adds seconds to the loss of each place.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from rota.core.types import Floats, Ints, Records
from rota.jit import part
from rota.ledger.work_kernels import ran_s
from rota.policies.contention.occupy_kernels import HOUR_S, Rooms
from rota.policies.contention.spread_kernels import size_of
from rota.policies.contention.time_loss_kernels import LossMemory

ORDERING: Final = (
    "gpus", "need", "age", "runs", "loss", "done", "queue×gpus", "queue×need", "queue×loss"
)  # fmt: skip
"""What the ordering agent sees of a job; gpus, need, age, done and queue are logarithms."""
PLACING: Final = ("value", "gpus", "need", "loss", "queue", "queue×loss", "own")
"""What the placement agent sees of a job and a GPU type; all but the last times its value."""
MOST_ORDER: Final = 4.0
"""Keys change by a factor of exp(4) at most."""
MOST_TOLL: Final = 2.0
"""Tolls are at most this many horizons."""


class LossAdvice(NamedTuple):
    """The weights of both agents, and what they see."""

    order: Floats  # (len(ORDERING),)
    place: Floats  # (len(PLACING),)
    speed: Floats  # (J, T) the part of its best speed that a job has on a GPU type
    value: Floats  # (T,) the mean of that over all GPUs that are asked for, less that of all types


@part
def see_speeds(rooms: Rooms, m: LossMemory, a: LossAdvice, rows: Records, order: Ints) -> None:
    """What GPU types are to the jobs."""
    types, o = rooms.types, rooms.options
    T, total = a.value.size, 0.0
    a.value[:] = 0.0
    for i in range(order.size):
        j = order[i]
        q, size = types.of[j], size_of(rows[j])
        total += size
        for t in range(T):
            a.speed[j, t] = 0.0
            for p in range(m.first[q], m.first[q + 1]):
                a.speed[j, t] = max(a.speed[j, t], min(1.0, o.speed[p, t] / m.best[j]))
            a.value[t] += size * a.speed[j, t]
    mean, gpus = 0.0, 0.0
    for n in range(rooms.room.gpus.size):
        mean += rooms.room.gpus[n] * a.value[rooms.room.type[n]]
        gpus += rooms.room.gpus[n]
    for t in range(T):
        a.value[t] = (a.value[t] - mean / max(1.0, gpus)) / max(1.0, total)


@part
def crowding(rooms: Rooms, rows: Records, order: Ints) -> float:
    """The logarithm of 1 + GPUs that wait for each one that there is."""
    waits, gpus = 0.0, 0.0
    for i in range(order.size):
        if rows[order[i]]["share_len"] == 0:
            waits += size_of(rows[order[i]])
    for n in range(rooms.room.gpus.size):
        gpus += rooms.room.gpus[n]
    return float(np.log1p(waits / max(1.0, gpus)))


@part
def most_lost(rooms: Rooms, a: LossAdvice, j: int) -> float:
    """The part of its speed that job j loses on the GPU type that suits it least."""
    least = 1.0
    for t in range(a.value.size):
        if rooms.types.here[t]:
            least = min(least, a.speed[j, t])
    return 1.0 - least


@part
def within(x: float, most: float) -> float:
    """The nearest number from −most to most."""
    return min(max(x, -most), most)


@part
def advise(
    rooms: Rooms, m: LossMemory, key: Floats, a: LossAdvice, rows: Records, order: Ints,
    now_s: float, horizon_s: float,
) -> None:  # fmt: skip
    """Change the keys of all jobs and set their tolls."""
    m.toll[:] = 0.0
    if not (a.order.any() or a.place.any()):
        return
    see_speeds(rooms, m, a, rows, order)
    queue = crowding(rooms, rows, order)
    w, v = a.order, a.place
    for i in range(order.size):
        j = order[i]
        job = rows[j]
        gpus, need = np.log(size_of(job)), np.log(m.need[j] / HOUR_S)
        age = np.log1p(max(0.0, now_s - job["submit_s"]) / HOUR_S)
        done = np.log1p(max(0.0, job["progress_s"] + job["pace"] * ran_s(job, now_s)) / HOUR_S)
        runs, loss = 1.0 if job["share_len"] > 0 else 0.0, most_lost(rooms, a, j)
        own = w[0] * gpus + w[1] * need + w[2] * age + w[3] * runs + w[4] * loss + w[5] * done
        crowd = queue * (w[6] * gpus + w[7] * need + w[8] * loss)
        key[j] *= np.exp(within(own + crowd, MOST_ORDER))
        each = v[0] + v[1] * gpus + v[2] * need + v[3] * loss + queue * (v[4] + v[5] * loss)
        for t in range(a.value.size):
            toll = each * a.value[t] + v[6] * a.speed[j, t]
            m.toll[j, t] = horizon_s * within(toll, MOST_TOLL)
