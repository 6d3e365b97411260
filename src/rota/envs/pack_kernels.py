"""Which node each task goes to, given how many tasks each job gets.

Tasks stay where they are, and only new ones are placed. If a job then has too few although there
is room in total, all jobs are placed again from nothing. Workers with GPUs are placed first,
since only they need GPUs; servers and workers without GPUs go where their CPUs are not needed
beside free GPUs. So the room of all nodes together can be used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core.layout import SLACK
from rota.envs.book_kernels import fewest_workers, is_pinned
from rota.jit import inline, kernel, part
from rota.jit_reference import by_reference
from rota.ledger.draft_kernels import DraftArrays, give
from rota.ledger.node_kernels import first_bit, hold, room_on

if TYPE_CHECKING:
    from rota.core.types import Ints, Records

_ONE = np.uint64(1)
MANY: Final = 1 << 30
"""More tasks than any job has."""


@inline
def wanted_workers(job: Any, workers: int) -> int:
    """The workers that a job with this many wanted gets; 0 if it would not run with them."""
    return min(workers, job["max_workers"]) if workers >= fewest_workers(job) else 0


@part
def put(d: DraftArrays, job: Any, j: int, n: int, workers: int, servers: int) -> None:
    """Add tasks of job j on node n to the draft."""
    at, length = d.at[j], d.length[j]
    k = at
    while k < at + length and d.shares[k]["node"] != n:
        k += 1
    if k == at + length:
        d.shares[k]["node"], d.shares[k]["workers"], d.shares[k]["servers"] = n, 0, 0
        d.length[j] += 1
    d.shares[k]["workers"] += workers
    d.shares[k]["servers"] += servers
    hold(d.nodes, d.level, job, n, workers, servers, -1)


@part
def lift(
    d: DraftArrays, job: Any, j: int, workers: int, servers: int, used: int, keep: bool
) -> int:
    """Remove job j's shares and reserve room for new ones; with `keep`, keep what it still wants.

    Returns the new `used`; unchanged if the job is to hold nothing, or there is no room to write.
    """
    at, length = d.at[j], d.length[j]
    room = min(d.nodes.size, workers + servers)
    if workers == 0 or used + room > d.shares.size:
        give(d, job, j, 1)
        d.at[j], d.length[j] = d.shares.size, 0  # outside of the new shares
        return used
    d.at[j], d.length[j] = used, 0
    end = used
    for k in range(at, at + length):
        share, w, s = d.shares[k], 0, 0
        n = share["node"]
        if keep and d.nodes[n]["up"]:
            w, s = min(workers, share["workers"]), min(servers, share["servers"])
            workers, servers = workers - w, servers - s
        if w != share["workers"] or s != share["servers"]:
            hold(d.nodes, d.level, job, n, share["workers"] - w, share["servers"] - s, 1)
        if w > 0 or s > 0:
            d.shares[end]["node"], d.shares[end]["workers"], d.shares[end]["servers"] = n, w, s
            end += 1
    d.length[j] = end - used
    return used + room


@part
def stands(d: DraftArrays, j: int) -> bool:
    """Whether all nodes that job j holds are up."""
    for k in range(d.at[j], d.at[j] + d.length[j]):
        if not d.nodes[d.shares[k]["node"]]["up"]:
            return False
    return True


@inline
def lying(d: DraftArrays, j: int) -> tuple[int, int]:
    """The workers and servers of job j that the draft has placed."""
    workers, servers = 0, 0
    for k in range(d.at[j], d.at[j] + d.length[j]):
        workers += d.shares[k]["workers"]
        servers += d.shares[k]["servers"]
    return workers, servers


@part
def put_on_gpus(d: DraftArrays, job: Any, j: int, missing: int) -> None:
    """Place workers with GPUs: on the job's own nodes first, then on as few nodes as possible."""
    for k in range(d.at[j], d.at[j] + d.length[j]):
        n = d.shares[k]["node"]
        more = min(missing, room_on(d.nodes, n, job))
        if more > 0:
            put(d, job, j, n, more, 0)
            missing -= more
    each, most = job["gpus_per_worker"], d.level.shape[0] - 2
    while missing > 0:
        # The tightest node that holds them all; else the one with most room.
        free = missing * each if missing * each <= most else most
        step, placed = 1 if missing * each <= most else -1, False
        while each <= free and not placed:
            if free > most:
                free, step = missing * each - 1, -1
                continue
            for w in range(d.level.shape[1]):
                word = d.level[free, w]
                while word and not placed:
                    n = (w << 6) + first_bit(word)
                    more = min(missing, room_on(d.nodes, n, job))
                    if more > 0 and (more == missing or step < 0):
                        put(d, job, j, n, more, 0)
                        missing -= more
                        placed = True
                    word &= word - _ONE
                if placed:
                    break
            free += step
        if not placed:
            return


@inline
def cpu_room(
    d: DraftArrays, n: int, wanted_type: int, cpus: float, memory_gb: float, kept_per_gpu: float
) -> int:
    """The tasks without GPUs that fit on node n, if each free GPU keeps `kept_per_gpu` CPUs."""
    here = d.nodes[n]
    if not here["up"] or (wanted_type != -1 and wanted_type != here["type"]):
        return 0
    room = MANY
    if cpus > 0.0 and here["free_cpus"] < np.inf:
        spare = here["free_cpus"] - kept_per_gpu * here["free"] + SLACK
        if spare < cpus:  # so it is with most nodes, and a division costs more
            return 0
        if spare < MANY * cpus:
            room = int(spare / cpus)
    if memory_gb > 0.0 and here["free_memory_gb"] + SLACK < room * memory_gb:
        room = int((here["free_memory_gb"] + SLACK) / memory_gb)
    return max(0, room)


@part
def put_on_cpus(
    d: DraftArrays, job: Any, j: int, missing: int, is_server: bool, kept_per_gpu: float, start: int
) -> tuple[int, int]:
    """Place tasks without GPUs: on the job's own nodes first, then first fit from node `start`.

    Returns how many are still missing, and the first node that may have room for more tasks of
    this kind: for equal tasks the nodes before it need not be tried again.
    """
    wanted_type = -1 if is_server else job["gpu_type"]
    cpus = job["cpus_per_server"] if is_server else job["cpus_per_worker"]
    memory_gb = job["memory_gb_per_server"] if is_server else job["memory_gb_per_worker"]
    length = d.length[j]
    for k in range(d.at[j], d.at[j] + length):
        n = d.shares[k]["node"]
        more = min(missing, cpu_room(d, n, wanted_type, cpus, memory_gb, kept_per_gpu))
        if more > 0:
            put(d, job, j, n, 0 if is_server else more, more if is_server else 0)
            missing -= more
    n = start
    while missing > 0 and n < d.nodes.size:
        more = min(missing, cpu_room(d, n, wanted_type, cpus, memory_gb, kept_per_gpu))
        if more > 0:
            put(d, job, j, n, 0 if is_server else more, more if is_server else 0)
            missing -= more
        if missing > 0:
            n += 1
    return missing, n


@part
def lay_on_cpus(
    d: DraftArrays, jobs: Records, order: Ints, live: int, now_s: float, workers: Ints,
    servers: Ints,
    used: int, first_new: int, is_server: bool, kept_per_gpu: float,
) -> None:  # fmt: skip
    """Place the missing tasks of one kind of all jobs, first where free GPUs keep their CPUs."""
    n, eager, last_cpus, last_gb, last_type = 0, 0, -1.0, -1.0, -2
    for i in range(live):
        j = order[i]
        job = jobs[j]
        if not (first_new <= d.at[j] < used) or is_pinned(job, now_s):
            continue
        if not is_server and job["gpus_per_worker"] > 0:
            continue
        wanted = wanted_workers(job, workers[j])
        has = lying(d, j)
        if wanted == 0:
            continue
        missing = min(servers[j], job["max_servers"]) - has[1] if is_server else wanted - has[0]
        if missing <= 0:
            continue
        cpus = job["cpus_per_server"] if is_server else job["cpus_per_worker"]
        memory_gb = job["memory_gb_per_server"] if is_server else job["memory_gb_per_worker"]
        kind = -1 if is_server else job["gpu_type"]
        if cpus != last_cpus or memory_gb != last_gb or kind != last_type:
            n, eager, last_cpus, last_gb, last_type = 0, 0, cpus, memory_gb, kind
        missing, n = put_on_cpus(d, job, j, missing, is_server, kept_per_gpu, n)
        if missing > 0:
            missing, eager = put_on_cpus(d, job, j, missing, is_server, 0.0, eager)


@part
def lay(
    d: DraftArrays, jobs: Records, order: Ints, live: int, now_s: float, workers: Ints,
    servers: Ints,
    used: int, keep: bool,
) -> tuple[int, bool]:  # fmt: skip
    """Write the draft; with `keep` no task moves. Returns the new `used`, and whether all fits."""
    first_new, kept_per_gpu = used, 0.0
    for i in range(live):
        j = order[i]
        job = jobs[j]
        each = job["gpus_per_worker"]
        if each > 0:
            kept_per_gpu = max(kept_per_gpu, job["cpus_per_worker"] / each)
        if is_pinned(job, now_s):
            continue
        wanted = wanted_workers(job, workers[j])
        beside = min(servers[j], job["max_servers"]) if wanted > 0 else 0
        same = job["held_workers"] == wanted and job["held_servers"] == beside
        if not (keep and same and stands(d, j)):
            used = lift(d, job, j, wanted, beside, used, keep)
    if used == first_new:
        return used, True
    for i in range(live):
        j = order[i]
        job = jobs[j]
        if job["gpus_per_worker"] > 0 and first_new <= d.at[j] < used:
            missing = wanted_workers(job, workers[j]) - lying(d, j)[0]
            if missing > 0 and not is_pinned(job, now_s):
                put_on_gpus(d, job, j, missing)
    for is_server in (False, True):
        lay_on_cpus(
            d, jobs, order, live, now_s, workers, servers, used, first_new, is_server, kept_per_gpu
        )
    return used, settle_shares(d, jobs, order, live, now_s, workers, servers, first_new, used)


@part
def settle_shares(
    d: DraftArrays, jobs: Records, order: Ints, live: int, now_s: float, workers: Ints,
    servers: Ints,
    first_new: int, used: int,
) -> bool:  # fmt: skip
    """Order new shares by node and remove those of jobs that could not run with them.

    Returns whether every job got what it wants.
    """
    all_fit = True
    for i in range(live):
        j = order[i]
        job = jobs[j]
        if is_pinned(job, now_s):
            continue
        wanted = wanted_workers(job, workers[j])
        if not (first_new <= d.at[j] < used) or wanted == 0:
            all_fit &= wanted == 0 or d.length[j] > 0
            continue
        has = lying(d, j)
        all_fit &= has[0] == wanted and has[1] == min(servers[j], job["max_servers"])
        if has[0] < fewest_workers(job) or has[1] < job["min_servers"]:
            give(d, job, j, 1)
            d.length[j] = 0
            continue
        sort_shares(d.shares, d.at[j], d.at[j] + d.length[j])
    return all_fit


@part
def sort_shares(shares: Records, first: int, last: int) -> None:
    """Order shares[first : last] by node."""
    for e in range(first + 1, last):
        n, w, s = shares[e]["node"], shares[e]["workers"], shares[e]["servers"]
        k = e
        while k > first and shares[k - 1]["node"] > n:
            shares[k]["node"] = shares[k - 1]["node"]
            shares[k]["workers"] = shares[k - 1]["workers"]
            shares[k]["servers"] = shares[k - 1]["servers"]
            k -= 1
        shares[k]["node"], shares[k]["workers"], shares[k]["servers"] = n, w, s


@part
def pack(
    d: DraftArrays, jobs: Records, order: Ints, live: int, now_s: float, workers: Ints,
    servers: Ints,
    used: int,
) -> int:  # fmt: skip
    """Turn wanted counts (J,) into the draft; a job that does not fit gets less, or nothing.

    The draft begins with what every job holds. Returns the new number of shares in use.
    """
    used, all_fit = lay(d, jobs, order, live, now_s, workers, servers, used, True)
    if not all_fit:
        used, all_fit = lay(d, jobs, order, live, now_s, workers, servers, used, False)
    return used


@kernel
def pack_once(
    d: DraftArrays, jobs: Records, order: Ints, live: int, now_s: float, workers: Ints,
    servers: Ints,
    used: int,
) -> int:  # fmt: skip
    """`pack`, called from Python."""
    return pack(by_reference(d), jobs, order, live, now_s, workers, servers, used)
