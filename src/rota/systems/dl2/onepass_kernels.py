"""One choice of servers and workers per job and slot: its observation, mask and effect.

A choice is a cell of a square table: cell (p − 1) · K + (w − 1) means p servers and w workers. A
job whose minimum is above K has one cell, the last; one that may have no servers has the first
row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rota.core.layout import SLACK
from rota.envs.book_kernels import dominant_share, fewest_workers, has_room, open_book, take
from rota.jit import inline, kernel, part
from rota.systems.dl2.window_kernels import (
    LONG_STAY,
    clear_row,
    fill_window,
    part_left,
    scaled_left,
    show_cluster,
)

if TYPE_CHECKING:
    from rota.core.types import Bools, Floats, Ints
    from rota.envs.book import Book
    from rota.envs.view import View

OWN = 8
"""Features of a job apart from its model."""


@inline
def lowest_cell(fewest: int, most: int, side: int) -> int:
    """The first count, of 1 … side, that has a meaning."""
    return min(side, max(1, min(fewest, most)))


@inline
def highest_cell(most: int, side: int) -> int:
    """The last count that has a meaning."""
    return min(side, max(1, most))


@inline
def meant(count: int, fewest: int, most: int) -> int:
    """The number of tasks that a count means."""
    return min(most, max(fewest, count))


@kernel
def open_rounds(view: View, book: Book, which: Bools) -> None:
    """Begin the rounds flagged in `which`."""
    for b in range(which.size):
        if which[b]:
            open_book(view, book, b, True)
            fill_window(view, book, b, True)


@kernel
def encode(
    view: View, book: Book, types: int, slot_s: float, side: int, jobs: Floats, cluster: Floats,
    present: Floats,
) -> None:  # fmt: skip
    """Fill jobs (B, W, types + OWN), cluster (B, GLOBALS) and present (B, W)."""
    for b in range(jobs.shape[0]):
        show_cluster(view, book, b, cluster[b])
        now_s = view.now_s[b]
        for i in range(jobs.shape[1]):
            row, j = jobs[b, i], book.rows[b, i]
            if j < 0:
                clear_row(row, present[b], i)
                continue
            present[b, i] = 1.0
            job = view.jobs[b, j]
            for k in range(types):
                row[k] = 0.0
            if 0 <= job["model"] < types:
                row[job["model"]] = 1.0
            workers, servers = job["held_workers"], job["held_servers"]
            row[types] = part_left(job, now_s)
            row[types + 1] = (now_s - job["submit_s"]) / (slot_s * LONG_STAY)
            row[types + 2] = dominant_share(book, b, job, workers, servers)
            row[types + 3] = workers / side
            row[types + 4] = servers / side
            row[types + 5] = scaled_left(job, now_s, slot_s)
            row[types + 6] = min(side, job["max_workers"]) / side
            row[types + 7] = min(side, job["max_servers"]) / side


@part
def allow(book: Book, b: int, j: int, job: Any, side: int, out: Bools) -> int:
    """Flag in out (side²,), all False before, the cells for which there is room; returns how many.

    Other jobs keep what they have, their minimum included.
    """
    has_w, has_p = book.workers[b, j], book.servers[b, j]
    if has_w == 0:
        return 0
    # Loaded before the loop: the compiler cannot know that `out` shares no memory with them.
    free_gpus, free_cpus = book.free_gpus[b], book.free_cpus[b] + SLACK
    free_gb, gpus_w = book.free_memory_gb[b] + SLACK, job["gpus_per_worker"]
    cpus_w, cpus_p = job["cpus_per_worker"], job["cpus_per_server"]
    gb_w, gb_p = job["memory_gb_per_worker"], job["memory_gb_per_server"]
    fewest_w, most_w = fewest_workers(job), job["max_workers"]
    fewest_p, most_p = job["min_servers"], job["max_servers"]
    low, last = lowest_cell(fewest_w, most_w, side), highest_cell(most_w, side)
    count = 0
    for p in range(lowest_cell(fewest_p, most_p, side), highest_cell(most_p, side) + 1):
        servers = meant(p, fewest_p, most_p) - has_p
        while last >= low:  # with more servers there is never room for more workers
            workers = meant(last, fewest_w, most_w) - has_w
            if (
                workers * gpus_w <= free_gpus
                and workers * cpus_w + servers * cpus_p <= free_cpus
                and workers * gb_w + servers * gb_p <= free_gb
            ):
                break
            last -= 1
        for c in range((p - 1) * side + low - 1, (p - 1) * side + last):
            out[c] = True
        count += last + 1 - low
    return count


@part
def settle_choice(book: Book, b: int, j: int, job: Any, side: int, cell: int) -> None:
    """Give job j what the cell means, if there is room; else it keeps its minimum."""
    if cell < 0 or cell >= side * side or book.workers[b, j] == 0:
        return
    servers = meant(cell // side + 1, job["min_servers"], job["max_servers"]) - book.servers[b, j]
    workers = meant(cell % side + 1, fewest_workers(job), job["max_workers"]) - book.workers[b, j]
    if has_room(book, b, job, workers, servers):
        take(book, b, j, job, workers, servers)


@kernel
def mask(view: View, book: Book, side: int, out: Bools) -> None:
    """Flag in out (B, W, side²), all False before, what each job may choose by itself."""
    for b in range(out.shape[0]):
        for i in range(out.shape[1]):
            j = book.rows[b, i]
            if j >= 0:
                allow(book, b, j, view.jobs[b, j], side, out[b, i])


@kernel
def act(view: View, book: Book, side: int, actions: Ints, ended: Bools) -> None:
    """Give every job what was chosen for it, in order of submission, and end the round."""
    for b in range(actions.shape[0]):
        for i in range(book.shown[b]):
            j = book.rows[b, i]
            settle_choice(book, b, j, view.jobs[b, j], side, actions[b, i])
        book.edits[b] += 1
        ended[b] = True


@part
def weigh(logits: Floats, allowed: Bools, weight: Floats) -> float:
    """weight (side²,) = e^(logit − largest) of what is allowed, 0 for the rest; returns the sum."""
    largest = np.float32(-np.inf)
    for c in range(logits.size):
        if allowed[c]:
            largest = max(largest, logits[c])
    total = 0.0
    for c in range(logits.size):
        weight[c] = np.exp(logits[c] - largest) if allowed[c] else np.float32(0.0)
        total += weight[c]
    return total


@part
def draw(weight: Floats, allowed: Bools, total: float, u: float, greedy: bool) -> int:
    """An allowed cell, drawn in proportion to its weight; if greedy, the one of largest weight."""
    best = -1
    if greedy:
        for c in range(weight.size):
            if allowed[c] and (best < 0 or weight[c] > weight[best]):
                best = c
        return best
    target, below = u * total, 0.0
    for c in range(weight.size):
        if allowed[c] and weight[c] > 0.0:
            below += weight[c]
            best = c
            if below > target:
                break
    return best


@kernel
def choose(
    view: View, book: Book, side: int, logits: Floats, uniform: Floats, greedy: bool,
    actions: Ints, logp: Floats, allowed: Bools, weight: Floats,
) -> None:  # fmt: skip
    """Draw a cell for every job, one after the other, each from what is free after those before.

    `allowed` is all False before, weight (side²,) is scratch. The book is not changed.
    """
    for b in range(actions.shape[0]):
        cpus, gpus, memory_gb = book.free_cpus[b], book.free_gpus[b], book.free_memory_gb[b]
        for i in range(actions.shape[1]):
            actions[b, i], logp[b, i] = -1, 0.0
            j = book.rows[b, i]
            if j < 0:
                continue
            job, can = view.jobs[b, j], allowed[b, i]
            if allow(book, b, j, job, side, can) == 0:
                continue
            total = weigh(logits[b, i], can, weight)
            c = draw(weight, can, total, uniform[b, i], greedy)
            actions[b, i], logp[b, i] = c, np.log(weight[c] / total)
            workers, servers = book.workers[b, j], book.servers[b, j]
            settle_choice(book, b, j, job, side, c)
            book.workers[b, j], book.servers[b, j] = workers, servers
        book.free_cpus[b], book.free_gpus[b], book.free_memory_gb[b] = cpus, gpus, memory_gb


@kernel
def script(view: View, book: Book, side: int, workers: Ints, servers: Ints, out: Ints) -> None:
    """out (B, W): the cells nearest to a teacher's counts (B, J); −1 for a job with no workers."""
    for b in range(out.shape[0]):
        for i in range(out.shape[1]):
            j = book.rows[b, i]
            out[b, i] = -1
            if j < 0 or workers[b, j] == 0 or book.workers[b, j] == 0:
                continue
            job = view.jobs[b, j]
            low, high = (
                lowest_cell(job["min_servers"], job["max_servers"], side),
                highest_cell(job["max_servers"], side),
            )
            p = min(high, max(low, servers[b, j]))
            low, high = (
                lowest_cell(fewest_workers(job), job["max_workers"], side),
                highest_cell(job["max_workers"], side),
            )
            w = min(high, max(low, workers[b, j]))
            out[b, i] = (p - 1) * side + w - 1
