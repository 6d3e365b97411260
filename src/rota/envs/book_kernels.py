"""What lenses do to a book: begin a round, check for room, take it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rota.core.layout import RUNNING, SLACK
from rota.jit import inline, part

if TYPE_CHECKING:
    from rota.envs.book import Book
    from rota.envs.view import View


@inline
def is_pinned(job: Any, now_s: float) -> bool:
    """Whether a running job may not be changed yet."""
    return job["status"] == RUNNING and now_s < job["since_s"] + job["min_run_s"]


@inline
def fewest_workers(job: Any) -> int:
    """The fewest workers that a job runs with."""
    return max(1, job["min_workers"])


@inline
def has_room(book: Book, b: int, job: Any, workers: int, servers: int) -> bool:
    """Whether this many more tasks of the job fit into what is free."""
    return (
        workers * job["gpus_per_worker"] <= book.free_gpus[b]
        and workers * job["cpus_per_worker"] + servers * job["cpus_per_server"]
        <= book.free_cpus[b] + SLACK
        and workers * job["memory_gb_per_worker"] + servers * job["memory_gb_per_server"]
        <= book.free_memory_gb[b] + SLACK
    )


@inline
def take(book: Book, b: int, j: int, job: Any, workers: int, servers: int) -> None:
    """Give job j this many more tasks."""
    book.workers[b, j] += workers
    book.servers[b, j] += servers
    book.free_gpus[b] -= workers * job["gpus_per_worker"]
    book.free_cpus[b] -= workers * job["cpus_per_worker"] + servers * job["cpus_per_server"]
    book.free_memory_gb[b] -= (
        workers * job["memory_gb_per_worker"] + servers * job["memory_gb_per_server"]
    )


@part
def count_room(view: View, book: Book, b: int) -> None:
    """Count all nodes that are up as free."""
    gpus, cpus, memory_gb = 0, 0.0, 0.0
    nodes = view.nodes[b]
    for n in range(nodes.size):
        if nodes[n]["up"]:
            gpus += nodes[n]["gpus"]
            cpus += nodes[n]["cpus"]
            memory_gb += nodes[n]["memory_gb"]
    book.gpus[b], book.cpus[b], book.memory_gb[b] = gpus, cpus, memory_gb
    book.free_gpus[b], book.free_cpus[b], book.free_memory_gb[b] = gpus, cpus, memory_gb


@part
def open_book(view: View, book: Book, b: int, least_first: bool) -> None:
    """Begin a round: a job that may not be changed yet keeps what it has.

    With `least_first` every other job gets its minimum first, in order of submission and while
    there is room. So no series of actions can keep a job from running.
    """
    count_room(view, book, b)
    book.edits[b] = 0
    now_s = view.now_s[b]
    for i in range(view.live[b]):
        j = view.order[b, i]
        book.workers[b, j], book.servers[b, j] = 0, 0
        job = view.jobs[b, j]
        if is_pinned(job, now_s):
            take(book, b, j, job, job["held_workers"], job["held_servers"])
    if not least_first:
        return
    for i in range(view.live[b]):
        j = view.order[b, i]
        job = view.jobs[b, j]
        workers, servers = fewest_workers(job), job["min_servers"]
        if not is_pinned(job, now_s) and has_room(book, b, job, workers, servers):
            take(book, b, j, job, workers, servers)


@inline
def dominant_share(book: Book, b: int, job: Any, workers: int, servers: int) -> float:
    """The largest part of any resource of the cluster that these tasks take."""
    share = 0.0
    if book.gpus[b] > 0.0:
        share = workers * job["gpus_per_worker"] / book.gpus[b]
    if book.cpus[b] > 0.0:  # infinite: CPUs are not counted, and the share is 0
        cpus = workers * job["cpus_per_worker"] + servers * job["cpus_per_server"]
        share = max(share, cpus / book.cpus[b])
    if book.memory_gb[b] > 0.0:
        memory_gb = workers * job["memory_gb_per_worker"] + servers * job["memory_gb_per_server"]
        share = max(share, memory_gb / book.memory_gb[b])
    return share


@inline
def free_part(free: float, total: float) -> float:
    """The free part of a resource, from 0 to 1; a resource that is not counted is all free."""
    return max(0.0, free / total) if 0.0 < total < np.inf else 1.0
