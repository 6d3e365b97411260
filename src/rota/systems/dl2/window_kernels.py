"""The features of a job and of the cluster that both of DL2's lenses show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rota.envs.book_kernels import free_part, is_pinned
from rota.jit import inline, part
from rota.ledger.work_kernels import remaining

if TYPE_CHECKING:
    from rota.core.types import Floats
    from rota.envs.book import Book
    from rota.envs.view import View

GLOBALS = 5
"""Numbers about the cluster: free CPUs, GPUs and memory, jobs, jobs outside of the window."""
LONG_STAY = 100.0
"""Slots that count as 1 when the time since a job's submission is rescaled."""


@inline
def part_left(job: Any, now_s: float) -> float:
    """The estimated part of its work that a job has left; 1 if it is not known."""
    left = remaining(job, now_s) / job["estimate_s"]
    return left if left == left and left < np.inf else 1.0


@inline
def scaled_left(job: Any, now_s: float, slot_s: float) -> float:
    """The estimated time that a job needs, as a logarithm of slots; 0 if it is not known."""
    left_s = remaining(job, now_s)
    return 0.2 * np.log1p(left_s / slot_s) if 0.0 <= left_s < np.inf else 0.0


@part
def fill_window(view: View, book: Book, b: int, keep_capped: bool) -> None:
    """Show the first jobs, by submission, that may still be given tasks."""
    shown, now_s = 0, view.now_s[b]
    for i in range(view.live[b]):
        if shown == book.rows.shape[1]:
            break
        j = view.order[b, i]
        job = view.jobs[b, j]
        if is_pinned(job, now_s):
            continue
        capped = (
            book.workers[b, j] >= job["max_workers"] and book.servers[b, j] >= job["max_servers"]
        )
        if keep_capped or not capped:
            book.rows[b, shown] = j
            shown += 1
    for i in range(shown, book.rows.shape[1]):
        book.rows[b, i] = -1
    book.shown[b] = shown


@inline
def clear_row(row: Floats, present: Floats, i: int) -> None:
    """Clear row i of a window, which shows no job; no-op if it has shown none before."""
    if present[i] != 0.0:
        present[i] = 0.0
        for k in range(row.size):
            row[k] = 0.0


@part
def show_cluster(view: View, book: Book, b: int, out: Floats) -> None:
    """out (GLOBALS,): free resources, and numbers of jobs."""
    window = book.rows.shape[1]
    out[0] = free_part(book.free_cpus[b], book.cpus[b])
    out[1] = free_part(book.free_gpus[b], book.gpus[b])
    out[2] = free_part(book.free_memory_gb[b], book.memory_gb[b])
    out[3] = view.live[b] / window
    out[4] = (view.live[b] - book.shown[b]) / window
