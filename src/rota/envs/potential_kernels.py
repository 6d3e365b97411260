"""The potential of a round that is being written, by which single edits can be judged."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

from rota.envs.book_kernels import is_pinned
from rota.jit import kernel, part
from rota.ledger.work_kernels import ran_s

if TYPE_CHECKING:
    from rota.core.types import Bools, Floats
    from rota.envs.book import Book
    from rota.envs.view import View
    from rota.sim.state import State


@part
def likely_pace(job: Any, true: Any, clock: Any, node: Any, speed: Floats, w: int, p: int) -> float:
    """Progress per second of a job with w workers and p servers on machines like this one."""
    if w <= 0:
        return 0.0
    if job["curve"] < 0:
        alone: float = (w / job["workers"]) ** clock["scaling"]
        return alone
    a = p
    if clock["by_nodes"]:
        a = ceil(w * job["gpus_per_worker"] / max(node["gpus"], 1))
    a, w = min(a, speed.shape[2] - 1), min(w, speed.shape[3] - 1)
    pace: float = speed[job["curve"], node["type"], a, w] / true["unit"]
    return pace


@kernel
def potential(s: State, view: View, book: Book, span_s: float, which: Bools, out: Floats) -> None:
    """out (B,): the part of its work that each live job would do within span_s, summed over jobs.

    Only the clusters flagged in `which` (B,) are computed. Placement, contention and restarts are
    ignored, so it is an estimate of the reward and not the reward.
    """
    for b in range(out.size):
        if not which[b]:
            continue
        clock, node, total = s.clock[b, 0], s.nodes[b, 0], 0.0
        for i in range(view.live[b]):
            j = view.order[b, i]
            job, true = s.jobs[b, j], s.truth[b, j]
            workers, servers = book.workers[b, j], book.servers[b, j]
            if is_pinned(job, view.now_s[b]):
                workers, servers = job["held_workers"], job["held_servers"]
            pace = likely_pace(job, true, clock, node, s.speed, workers, servers)
            left_s = true["work_s"] - job["pace"] * ran_s(job, view.now_s[b])
            whole_s = job["progress_s"] + true["work_s"]
            if whole_s != 0.0:
                total += min(pace * span_s, left_s) / whole_s
        out[b] = total
