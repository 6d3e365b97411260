"""DeepShare as published: the image, the eight actions, and the rule that stops slow jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rota.core.layout import WAITING
from rota.envs.drafting_kernels import draft_of
from rota.jit import inline, kernel, part
from rota.jit_reference import entry_of
from rota.ledger.edit_kernels import REFUSED, place, release
from rota.ledger.work_kernels import pinned
from rota.policies.contention.occupy_kernels import occupy

if TYPE_CHECKING:
    from rota.core.types import Bools, Ints
    from rota.envs.book import Book
    from rota.envs.view import View

NODES: Final = 4
GPUS: Final = 8
SIZES: Final = 3
"""Jobs have 2, 4 or 8 GPUs; of each size the next in the queue is a candidate."""
WIDTH: Final = 16
"""Columns of the image: the GPUs of a node, then the GPUs per node of the candidates."""
MODELS: Final = 6
LEAST_RATIO: Final = 0.6
"""A job that keeps no more of its speed than this is stopped."""
PAIRS: Final = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))
ALL_NODES: Final = 6
NOTHING: Final = 7
ACTIONS: Final = 8

FITS: Final = 0
"""The world is one that this form knows."""
OTHER_CLUSTER: Final = 1
OTHER_JOB: Final = 2


@inline
def size_of(job: Any) -> int:
    """0, 1 or 2 for 2, 4 or 8 GPUs."""
    return 0 if job["gpus"] == 2 else (1 if job["gpus"] == 4 else 2)


@inline
def code_of(job: Any) -> int:
    """What stands for a job in the image: 1 to 18, by model and then by size."""
    return SIZES * int(min(max(job["curve"], 0), MODELS - 1)) + size_of(job) + 1


@inline
def is_known(job: Any) -> bool:
    """Whether the job asks for 2, 4 or 8 workers with a GPU each, and nothing else."""
    size = job["gpus"] == 2 or job["gpus"] == 4 or job["gpus"] == 8
    return bool(size and job["gpus_per_worker"] == 1 and job["min_servers"] == 0)


@inline
def queued_s(job: Any, now_s: float) -> float:
    """When a job that holds nothing joined the queue; one that was stopped goes to its end."""
    if job["status"] != WAITING:
        return now_s  # stopped in this round
    fresh = job["started_s"] != job["started_s"]  # NaN
    return float(job["submit_s"] if fresh else job["settled_s"])


@part
def find_heads(view: View, book: Book, b: int) -> None:
    """Let rows[b] be the candidates: the next job of each size, −1: none."""
    rows, length = book.rows[b], book.drafts.length[b]
    rows[:] = -1
    book.shown[b] = 0
    for size in range(SIZES):
        best_s = 0.0
        for i in range(view.live[b]):
            j = view.order[b, i]
            job = view.jobs[b, j]
            if length[j] == 0 and size_of(job) == size:
                since_s = queued_s(job, view.now_s[b])
                if rows[size] < 0 or since_s < best_s:
                    rows[size], best_s = j, since_s
        book.shown[b] += rows[size] >= 0


@part
def rate_jobs(view: View, book: Book, b: int) -> None:
    """Work out what the running jobs of cluster b leave each other of their speed."""
    m = entry_of(book.own, b)
    # A node of 8 GPUs lists 8 jobs at most, so the memory suffices.
    occupy(
        view.laws, m, view.jobs[b], view.order[b], view.live[b], view.nodes[b],
        book.drafts.shares[b], view.now_s[b],
    )  # fmt: skip


@part
def stop_slow(view: View, book: Book, b: int) -> None:
    """Stop every job that keeps too little of its speed beside the others."""
    rate_jobs(view, book, b)
    d, low, run = draft_of(book.drafts, b), book.own.room.low[b], book.own.room.run[b]
    for i in range(run[run.size - 1]):
        job = view.jobs[b, run[i]]
        ratio = max(low[run[i]], view.laws.law.floor)
        if ratio <= LEAST_RATIO and not pinned(job, view.now_s[b]):
            release(d, job, run[i])


@kernel
def open_rounds(view: View, book: Book, which: Bools) -> int:
    """Begin rounds; returns FITS, or what this form does not know of the world."""
    for b in range(which.size):
        if not which[b]:
            continue
        book.edits[b] = 0
        for n in range(NODES):
            if view.nodes[b, n]["gpus"] != GPUS:
                return OTHER_CLUSTER
        for i in range(view.live[b]):
            if not is_known(view.jobs[b, view.order[b, i]]):
                return OTHER_JOB
        stop_slow(view, book, b)
        find_heads(view, book, b)
    return FITS


@kernel
def encode(view: View, book: Book, out: Any) -> None:
    """out (B, 64): row by row, a node's jobs and the candidates over that many nodes.

    In columns 0 to 7 every job fills as many cells as it has GPUs there, jobs in order of
    submission. In columns 8 to 15 a candidate stands in the column of its GPUs per node, for one,
    two and four nodes, although no action puts it on one.
    """
    out[:] = 0.0
    for b in range(out.shape[0]):
        drafts = book.drafts
        for i in range(view.live[b]):
            j = view.order[b, i]
            at = drafts.at[b, j]
            for k in range(at, at + drafts.length[b, j]):
                share = drafts.shares[b, k]
                row = WIDTH * share["node"]
                cell = 0
                while cell < GPUS and out[b, row + cell] > 0.0:
                    cell += 1
                for g in range(cell, min(GPUS, cell + share["workers"])):
                    out[b, row + g] = code_of(view.jobs[b, j])
        for size in range(SIZES):
            j = book.rows[b, size]
            if j < 0:
                continue
            gpus, code = view.jobs[b, j]["gpus"], code_of(view.jobs[b, j])
            nodes = 1
            while nodes <= min(NODES, gpus):
                out[b, WIDTH * (nodes - 1) + GPUS + gpus // nodes - 1] = code
                nodes *= 2


@part
def put(view: View, book: Book, b: int, j: int, span: int) -> bool:
    """Spread job j evenly over the first `span` nodes of the scratch; False if there is no room."""
    drafts, job = book.drafts, view.jobs[b, j]
    if job["gpus"] % span != 0:
        return False
    wanted = drafts.spare[b]
    for k in range(span):
        wanted[k]["workers"], wanted[k]["servers"] = job["gpus"] // span, 0
    used = place(draft_of(drafts, b), job, j, wanted, span, drafts.used[b])
    if used == REFUSED:
        return False
    drafts.used[b] = used
    return True


@part
def carry_out(view: View, book: Book, b: int, action: int) -> bool:
    """Place the first candidate that these nodes suit; False if the action is none or invalid."""
    if action < 0 or action >= NOTHING:
        return False
    wanted = book.drafts.spare[b]
    span = 2
    if action == ALL_NODES:
        span = NODES
        for n in range(NODES):
            wanted[n]["node"] = n
    else:
        wanted[0]["node"], wanted[1]["node"] = PAIRS[action]
    for size in range(SIZES):
        if book.rows[b, size] >= 0 and put(view, book, b, book.rows[b, size], span):
            return True
    return False


@part
def fill_one(view: View, book: Book, b: int) -> bool:
    """Place the first candidate that fits anywhere, over four nodes or else two, lowest first."""
    wanted = book.drafts.spare[b]
    for size in range(SIZES):
        j = book.rows[b, size]
        span = NODES
        while j >= 0 and span > 1:
            gpus = view.jobs[b, j]["gpus"] // span
            count = 0
            for n in range(NODES):
                here = book.drafts.nodes[b, n]
                if count < span and gpus > 0 and here["up"] and here["free"] >= gpus:
                    wanted[count]["node"] = n
                    count += 1
            if count == span and put(view, book, b, j, span):
                return True
            span //= 2
    return False


@part
def is_idle(view: View, book: Book, b: int) -> bool:
    """Whether no job holds anything."""
    for i in range(view.live[b]):
        if book.drafts.length[b, view.order[b, i]] > 0:
            return False
    return True


@kernel
def act(
    view: View, book: Book, hybrid: bool, one_action: bool, actions: Ints, ended: Bools
) -> None:
    """One action per cluster; the round is over if it placed nothing, or after each.

    A cluster without any job does not wait: nothing would happen in it that ends the waiting.
    """
    for b in range(actions.size):
        book.edits[b] += 1
        placed = carry_out(view, book, b, actions[b])
        if not placed and (hybrid or is_idle(view, book, b)):
            placed = fill_one(view, book, b)
        if placed:
            find_heads(view, book, b)
        ended[b] = one_action or not placed


@kernel
def mask(book: Book, out: Bools) -> None:
    """Nothing is masked while a job waits; else there is nothing to decide."""
    for b in range(out.shape[0]):
        out[b] = book.shown[b] > 0
        out[b, NOTHING] = True
