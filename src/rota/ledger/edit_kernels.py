"""Edits of a draft in compiled code, as `rota.core.Draft` has them; each refuses to overfill.

Every edit returns the number of shares in use after it, or REFUSED. After a refusal the draft is
as it was. What a job holds when the round begins is never written over, because jobs hold it until
the round is carried out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rota.jit import inline, part
from rota.ledger.draft_kernels import DraftArrays, fits_on, give

if TYPE_CHECKING:
    from rota.core.types import Records

REFUSED: Final = -1


@inline
def runs_with(job: Any, workers: int, servers: int) -> bool:
    """Whether the job runs with these numbers of workers and servers, or waits with none."""
    if workers == 0:
        return job["min_workers"] <= 0 and servers == 0
    enough = workers >= job["min_workers"] and servers >= job["min_servers"]
    return enough and workers <= job["max_workers"] and servers <= job["max_servers"]


@inline
def set_share(share: Any, node: int, workers: int, servers: int) -> None:
    """Write all of a share."""
    share["node"], share["workers"], share["servers"] = node, workers, servers


@part
def is_share(nodes: Records, wanted: Records, count: int) -> bool:
    """Whether wanted[:count] names nodes that exist, in order, and tasks on each of them."""
    last = -1
    for k in range(count):
        n, workers, servers = wanted[k]["node"], wanted[k]["workers"], wanted[k]["servers"]
        if n <= last or n >= nodes.size or workers < 0 or servers < 0 or workers + servers == 0:
            return False
        last = n
    return True


@part
def has_room(d: DraftArrays, job: Any, j: int, wanted: Records, count: int) -> bool:
    """Whether the nodes can give job j wanted[:count] once it has given back what it holds."""
    for k in range(count):
        n, workers, servers = wanted[k]["node"], wanted[k]["workers"], wanted[k]["servers"]
        here = d.nodes[n]
        if not here["up"]:
            return False
        if workers > 0 and job["gpu_type"] != -1 and job["gpu_type"] != here["type"]:
            return False
        for e in range(d.at[j], d.at[j] + d.length[j]):
            if d.shares[e]["node"] == n:
                workers, servers = (
                    workers - d.shares[e]["workers"],
                    servers - d.shares[e]["servers"],
                )
        if not fits_on(job, here, workers, servers):
            return False
    return True


@part
def swap(d: DraftArrays, job: Any, j: int, wanted: Records, count: int, used: int) -> int:
    """Give job j wanted[:count] in place of what it holds, if there is room."""
    if used + count > d.shares.size or not has_room(d, job, j, wanted, count):
        return REFUSED
    give(d, job, j, 1)
    for k in range(count):
        one = wanted[k]
        set_share(d.shares[used + k], one["node"], one["workers"], one["servers"])
    d.at[j], d.length[j] = used, count
    give(d, job, j, -1)
    return used + count


@part
def place(d: DraftArrays, job: Any, j: int, wanted: Records, count: int, used: int) -> int:
    """Give job j exactly wanted[:count], by node, in place of what it holds."""
    workers, servers = 0, 0
    for k in range(count):
        workers += wanted[k]["workers"]
        servers += wanted[k]["servers"]
    if not is_share(d.nodes, wanted, count) or not runs_with(job, workers, servers):
        return REFUSED
    return swap(d, job, j, wanted, count, used)


@part
def grow(
    d: DraftArrays, job: Any, j: int, n: int, workers: int, servers: int, spare: Records, used: int
) -> int:
    """Give job j more tasks on node n; `spare` is scratch for as many shares as there are nodes."""
    if n < 0 or n >= d.nodes.size or workers < 0 or servers < 0:
        return REFUSED
    has_workers, has_servers, count = workers, servers, 0
    inside = workers + servers == 0  # whether node n is in `spare` already
    for k in range(d.at[j], d.at[j] + d.length[j]):
        share = d.shares[k]
        has_workers += share["workers"]
        has_servers += share["servers"]
        if not inside and share["node"] >= n:
            set_share(spare[count], n, workers, servers)
            inside = True
            count += 1
            if share["node"] == n:
                spare[count - 1]["workers"] += share["workers"]
                spare[count - 1]["servers"] += share["servers"]
                continue
        set_share(spare[count], share["node"], share["workers"], share["servers"])
        count += 1
    if not inside:
        set_share(spare[count], n, workers, servers)
        count += 1
    if has_workers > job["max_workers"] or (servers > 0 and has_servers > job["max_servers"]):
        return REFUSED
    return swap(d, job, j, spare, count, used)


@part
def shrink(
    d: DraftArrays, job: Any, j: int, n: int, workers: int, servers: int, spare: Records, used: int
) -> int:
    """Take tasks on node n away from job j; `spare` as in `grow`."""
    if workers < 0 or servers < 0:
        return REFUSED
    count, found = 0, False
    for k in range(d.at[j], d.at[j] + d.length[j]):
        share = d.shares[k]
        w, s = share["workers"], share["servers"]
        if share["node"] == n:
            found = True
            w, s = w - workers, s - servers
            if w < 0 or s < 0:
                return REFUSED
        if w + s > 0:
            set_share(spare[count], share["node"], w, s)
            count += 1
    if not found and workers + servers > 0:
        return REFUSED
    return swap(d, job, j, spare, count, used)


@part
def release(d: DraftArrays, job: Any, j: int) -> None:
    """Take everything from job j; it waits."""
    give(d, job, j, 1)
    d.length[j] = 0
