"""What the two agents see: jobs, machines, the two together, and the machines of late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core.types import Floats, Ints
from rota.jit import kernel, part
from rota.jit_reference import entry_of
from rota.ledger.node_kernels import room_on
from rota.ledger.work_kernels import remaining
from rota.policies.contention.spread_kernels import kind_of, speed_of
from rota.systems.das.machine_kernels import MACHINE, TYPES, describe
from rota.systems.das.order_place_kernels import NOBODY, OrderPlaceMemory, is_picked

if TYPE_CHECKING:
    from rota.envs.book import Book
    from rota.envs.view import View

JOB: Final = 9 + TYPES
"""Numbers that describe a job."""
PAIR: Final = 4
"""Numbers that describe a machine to a job."""


@part
def most_gpus(view: View, b: int) -> int:
    """The GPUs of the largest machine."""
    largest = 1
    for n in range(view.nodes.shape[1]):
        largest = max(largest, view.nodes[b, n]["gpus"])
    return int(largest)


@part
def fewest_nodes(job: Any, largest: int) -> int:
    """The machines that a job needs at least, if all have as many GPUs as the largest."""
    return int(max(1, -(-job["workers"] * job["gpus_per_worker"] // largest)))


@part
def speed_there(view: View, job: Any, gpu: int, largest: int) -> float:
    """How fast a job is on a GPU type, over as few machines as it fits on; 1 if nobody knows."""
    span = fewest_nodes(job, largest)
    speed = speed_of(view.laws, job["curve"], span, job["servers"], job["workers"], gpu)
    best = speed
    for other in range(view.laws.speed.shape[1]):
        best = max(best, speed_of(
            view.laws, job["curve"], span, job["servers"], job["workers"], other
        ))  # fmt: skip
    return float(speed / best) if best > 0.0 else 1.0


@part
def show_job(view: View, b: int, j: int, informed: bool, largest: int, out: Any) -> None:
    """Fill out (JOB,) with what is seen of job j; `largest` is `most_gpus`."""
    job, law = view.jobs[b, j], view.laws.law
    gpus = job["workers"] * job["gpus_per_worker"]
    out[:] = 0.0
    out[0] = np.log1p(gpus) / 4.0
    out[1] = job["gpus_per_worker"] / 4.0
    out[2] = np.log1p(job["workers"]) / 4.0
    out[3] = np.log1p(max(0.0, view.now_s[b] - job["submit_s"])) / 12.0
    out[4] = 0.0 if job["gpu_type"] == -1 else 1.0
    if not informed:
        return
    left_s = remaining(job, view.now_s[b])
    out[5] = 1.0 if np.isfinite(left_s) else 0.0
    out[6] = np.log1p(max(0.0, left_s)) / 12.0 if np.isfinite(left_s) else 0.0
    kind = kind_of(view.laws, job["curve"], fewest_nodes(job, largest), job["workers"])
    if 0 <= kind < law.harm.size:
        out[7], out[8] = law.hurt[kind], law.harm[kind]
    for t in range(min(TYPES, view.laws.speed.shape[1])):
        out[9 + t] = speed_there(view, job, t, largest)


@part
def seen_fee(book: Book, b: int) -> float:
    """What is seen of the worth of a dollar."""
    return float(np.log1p(book.dollar_s[b]) / 8.0)


@part
def show_pair(
    view: View, book: Book, m: OrderPlaceMemory, b: int, n: int, informed: bool, largest: int,
    out: Any,
) -> None:  # fmt: skip
    """Fill out (PAIR,) with what machine n is to the job that is being placed."""
    job, nodes = view.jobs[b, m.job[0]], book.drafts.nodes[b]
    room = min(room_on(nodes, n, job), m.left[0])
    out[0] = 0.0 if is_picked(m, n) else room / max(1, m.left[0])
    out[1] = 1.0 if room == m.left[0] and not is_picked(m, n) else 0.0
    out[2] = (nodes[n]["free"] - room * job["gpus_per_worker"]) / max(1, nodes[n]["gpus"])
    out[3] = speed_there(view, job, nodes[n]["type"], largest) if informed else 0.0


@part
def show_past(m: OrderPlaceMemory, past: Any, observed: Any, known: Any) -> None:
    """Copy what is remembered of the machines that are shown."""
    machines = m.machines
    known[:] = 0.0
    for t in range(machines.at[0]):
        for k in range(m.row.size):
            n = m.row[k]
            if n >= 0:
                for f in range(MACHINE):
                    past[t, k, f] = machines.past[t, n, f]
                observed[t, k] = machines.observed[t, n]
                known[t, k] = 1.0 if machines.known[t, n] else 0.0


@kernel
def encode(
    view: View, book: Book, informed: bool, agent: Ints, jobs: Floats, waiting: Floats, job: Floats,
    machines: Floats, usable: Floats, pair: Floats, past: Floats, observed: Floats, known: Floats,
    fee: Floats,
) -> None:  # fmt: skip
    """Fill the observations; `waiting` and `usable` flag rows that are in use."""
    for b in range(agent.size):
        m = entry_of(book.own, b)
        placing, largest = m.job[0] != NOBODY, most_gpus(view, b)
        agent[b] = 1 if placing else 0
        fee[b, 0] = seen_fee(book, b)
        jobs[b, :], waiting[b, :], job[b, :] = 0.0, 0.0, 0.0
        machines[b, :], usable[b, :], pair[b, :] = 0.0, 0.0, 0.0
        past[b, :], observed[b, :] = 0.0, 0.0
        for i in range(book.shown[b]):
            show_job(view, b, book.rows[b, i], informed, largest, jobs[b, i])
            waiting[b, i] = 1.0
        if placing:
            show_job(view, b, m.job[0], informed, largest, job[b])
        for k in range(m.row.size):
            n = m.row[k]
            if n >= 0:
                describe(book.drafts.nodes[b], m.machines, n, machines[b, k])
                usable[b, k] = 1.0
                if placing:
                    show_pair(view, book, m, b, n, informed, largest, pair[b, k])
        show_past(m, past[b], observed[b], known[b])
