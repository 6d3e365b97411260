"""Rounds of two agents: one names the next job, the other its machines, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from rota.core.types import Bools, Floats, Ints
from rota.envs.drafting_kernels import draft_of
from rota.jit import kernel, part
from rota.jit_reference import entry_of
from rota.ledger.edit_kernels import REFUSED, place
from rota.ledger.node_kernels import room_on
from rota.ledger.work_kernels import remaining
from rota.policies.contention.neighbour_kernels import workers_at
from rota.policies.contention.occupy_kernels import HOUR_S
from rota.policies.contention.spread_kernels import kind_of, size_of, speed_of
from rota.systems.das.machine_kernels import (
    MachineMemory,
    look_at_machines,
    note_action,
    note_resident,
    remember,
)

if TYPE_CHECKING:
    from rota.envs.book import Book
    from rota.envs.view import View

NOBODY: Final = -1
"""In place of a job: the ordering agent acts."""


class OrderPlaceMemory(NamedTuple):
    """What the lens works in, `Book.own`; every array has B in front."""

    job: Ints  # (1,) the job that is being placed, or NOBODY
    left: Ints  # (1,) its workers that have no machine yet
    picked: Ints  # (1,) the number of its machines
    node: Ints  # (N,) these machines
    workers: Ints  # (N,) workers on each
    passed: Ints  # (J,) whether a job does not fit any more in this round
    row: Ints  # (K,) the machines that are shown, −1: none
    waits: Ints  # (1,) whether it may end a round while a job fits
    informed: Ints  # (1,) whether it knows lengths
    key: Floats  # (W,) what the jobs that are shown were chosen by
    machines: MachineMemory


@part
def fits_now(view: View, book: Book, b: int, j: int) -> bool:
    """Whether the machines have room for all workers of job j."""
    job, nodes = view.jobs[b, j], book.drafts.nodes[b]
    room = 0
    for n in range(nodes.size):
        room += min(room_on(nodes, n, job), job["workers"])
        if room >= job["workers"]:
            return True
    return False


@part
def free_gpus(nodes: Any) -> tuple[int, int]:
    """The GPUs that are free on all machines together, and on the one with most."""
    total, most = 0, 0
    for n in range(nodes.size):
        free = nodes[n]["free"]
        total += max(0, free)
        most = max(most, free)
    return total, most


@part
def key_of(job: Any, now_s: float, informed: int) -> float:
    """What jobs are chosen by: GPU-seconds that they still need, or when they were submitted."""
    if not informed:
        return float(job["submit_s"])
    left_s = remaining(job, now_s)
    return size_of(job) * (left_s if np.isfinite(left_s) else HOUR_S)


@part
def show_jobs(view: View, book: Book, m: OrderPlaceMemory, b: int) -> None:
    """List the waiting jobs that fit, those with the least keys, the least first."""
    list_jobs(view, book, m, b, False)
    # Mostly all of these fit, and no others need to be tried on the machines.
    fit = True
    for i in range(book.shown[b]):
        j = book.rows[b, i]
        if not fits_now(view, book, b, j):
            m.passed[j] = 1  # within a round room only becomes less
            fit = False
    if not fit:
        list_jobs(view, book, m, b, True)


@part
def list_jobs(view: View, book: Book, m: OrderPlaceMemory, b: int, tried: bool) -> None:
    """The same, if all are `tried`; else jobs may be among them that do not fit."""
    shown, W = 0, book.rows.shape[1]
    total, most = free_gpus(book.drafts.nodes[b])
    for i in range(view.live[b]):
        j = view.order[b, i]
        job = view.jobs[b, j]
        if job["share_len"] > 0 or book.drafts.length[b, j] > 0 or m.passed[j]:
            continue
        key, each = key_of(job, view.now_s[b], m.informed[0]), job["gpus_per_worker"]
        if shown == W and not key < m.key[W - 1]:
            continue
        # Most jobs that do not fit are told by these two, without a look at every machine.
        large = each > most or job["workers"] * each > total
        if large or (tried and not fits_now(view, book, b, j)):
            m.passed[j] = 1
            continue
        at = shown if shown < W else W - 1
        while at > 0 and key < m.key[at - 1]:
            m.key[at], book.rows[b, at] = m.key[at - 1], book.rows[b, at - 1]
            at -= 1
        m.key[at], book.rows[b, at] = key, j
        shown = min(W, shown + 1)
    book.shown[b] = shown
    for i in range(shown, W):
        book.rows[b, i] = -1


@part
def better_row(view: View, book: Book, b: int, j: int, n: int, other: int) -> bool:
    """Whether machine n is shown before the other one to who places job j."""
    job, nodes = view.jobs[b, j], book.drafts.nodes[b]
    mine, its = room_on(nodes, n, job), room_on(nodes, other, job)
    if (mine > 0) != (its > 0):
        return mine > 0
    laws, span = view.laws, 1
    fast = speed_of(laws, job["curve"], span, job["servers"], job["workers"], nodes[n]["type"])
    slow = speed_of(laws, job["curve"], span, job["servers"], job["workers"], nodes[other]["type"])
    if fast != slow:
        return fast > slow
    return bool(nodes[n]["free"] < nodes[other]["free"])


@part
def show_machines(view: View, book: Book, m: OrderPlaceMemory, b: int) -> None:
    """Choose the machines that are shown: all, or those that suit the job best."""
    N, K, j = view.nodes.shape[1], m.row.size, m.job[0]
    m.row[:] = -1
    if N <= K or j == NOBODY:
        step = max(1, -(-N // K))
        for k in range(min(K, -(-N // step))):
            m.row[k] = k * step
        return
    for n in range(N):
        at = min(n, K)
        while at > 0 and better_row(view, book, b, j, n, m.row[at - 1]):
            if at < K:
                m.row[at] = m.row[at - 1]
            at -= 1
        if at < K:
            m.row[at] = n


@kernel
def open_rounds(view: View, book: Book, which: Bools) -> None:
    """Begin the rounds of the flagged clusters."""
    for b in range(which.size):
        if which[b]:
            m = entry_of(book.own, b)
            book.edits[b], m.job[0] = 0, NOBODY
            m.passed[:] = 0
            look_at_machines(view, book.drafts.shares[b], m.machines, b)
            remember(view, m.machines, b)
            show_jobs(view, book, m, b)
            show_machines(view, book, m, b)


@part
def is_picked(m: OrderPlaceMemory, n: int) -> bool:
    """Whether the job that is being placed has machine n already."""
    for i in range(m.picked[0]):
        if m.node[i] == n:
            return True
    return False


@part
def may_pick(view: View, book: Book, m: OrderPlaceMemory, b: int, k: int) -> bool:
    """Whether the machine in row k has room for a worker of the job that is being placed."""
    n = m.row[k]
    if n < 0 or is_picked(m, n):
        return False
    return bool(room_on(book.drafts.nodes[b], n, view.jobs[b, m.job[0]]) > 0)


@part
def begin_job(view: View, book: Book, m: OrderPlaceMemory, b: int, j: int) -> None:
    """Let the placement agent go on with job j."""
    m.job[0], m.left[0], m.picked[0] = j, view.jobs[b, j]["workers"], 0
    show_machines(view, book, m, b)


@part
def end_job(view: View, book: Book, m: OrderPlaceMemory, b: int) -> None:
    """Start the job on its machines; one that is refused waits for another round."""
    j, span, wanted = m.job[0], m.picked[0], book.drafts.spare[b]
    job = view.jobs[b, j]
    for i in range(1, span):  # shares are ordered by node
        at, node, workers = i, m.node[i], m.workers[i]
        while at > 0 and m.node[at - 1] > node:
            m.node[at], m.workers[at] = m.node[at - 1], m.workers[at - 1]
            at -= 1
        m.node[at], m.workers[at] = node, workers
    for i in range(span):
        wanted[i]["node"], wanted[i]["workers"] = m.node[i], m.workers[i]
        wanted[i]["servers"] = workers_at(job["servers"], span, i)
    used = place(draft_of(book.drafts, b), job, j, wanted, span, book.drafts.used[b])
    if used == REFUSED:
        m.passed[j] = 1
    else:
        book.drafts.used[b] = used
        kind = kind_of(view.laws, job["curve"], span, job["workers"])
        for i in range(span):
            gpus = m.workers[i] * job["gpus_per_worker"]
            note_resident(view, m.machines, b, m.node[i], kind, gpus)
            note_action(view, m.machines, b, m.node[i], gpus)
    m.job[0] = NOBODY
    show_jobs(view, book, m, b)
    show_machines(view, book, m, b)


@part
def pick(view: View, book: Book, m: OrderPlaceMemory, b: int, k: int) -> None:
    """Give the job that is being placed as many workers as fit on the machine in row k."""
    n, job = m.row[k], view.jobs[b, m.job[0]]
    workers = min(room_on(book.drafts.nodes[b], n, job), m.left[0])
    m.node[m.picked[0]], m.workers[m.picked[0]] = n, workers
    m.picked[0] += 1
    m.left[0] -= workers
    if m.left[0] == 0:
        end_job(view, book, m, b)
        return
    if m.row.size < view.nodes.shape[1]:
        show_rest(view, book, m, b)


@part
def show_rest(view: View, book: Book, m: OrderPlaceMemory, b: int) -> None:
    """Show further machines if none of those shown has room left for the job."""
    for k in range(m.row.size):
        if may_pick(view, book, m, b, k):
            return
    at = 0
    m.row[:] = -1
    for n in range(view.nodes.shape[1]):
        if at < m.row.size and not is_picked(m, n):
            if room_on(book.drafts.nodes[b], n, view.jobs[b, m.job[0]]) > 0:
                m.row[at] = n
                at += 1


@part
def may_wait(view: View, book: Book, m: OrderPlaceMemory, b: int) -> bool:
    """Whether the round may end while a job fits: not if nothing runs, or it would be for ever."""
    if m.waits[0] == 0:
        return False
    for i in range(view.live[b]):
        if book.drafts.length[b, view.order[b, i]] > 0:
            return True
    return False


@part
def act_on(view: View, book: Book, m: OrderPlaceMemory, b: int, action: int) -> bool:
    """Apply an action; returns whether the round has ended."""
    book.edits[b] += 1
    if m.job[0] == NOBODY:
        shown = book.shown[b]
        if shown == 0 or (action == book.rows.shape[1] and may_wait(view, book, m, b)):
            return True
        begin_job(view, book, m, b, book.rows[b, action if action < shown else 0])
        return False
    k = action
    if k >= m.row.size or not may_pick(view, book, m, b, k):
        k = 0
        while not may_pick(view, book, m, b, k):
            k += 1
    pick(view, book, m, b, k)
    return bool(m.job[0] == NOBODY and book.shown[b] == 0)


@kernel
def act(view: View, book: Book, actions: Ints, ended: Bools) -> None:
    """One action per cluster: a job, the end of the round, or a machine."""
    for b in range(actions.size):
        ended[b] = act_on(view, book, entry_of(book.own, b), b, actions[b])


@part
def allow(view: View, book: Book, m: OrderPlaceMemory, b: int, out: Bools) -> int:
    """Flag what is allowed in one cluster; returns how much that is."""
    out[:] = False
    if m.job[0] == NOBODY:
        for i in range(book.shown[b]):
            out[i] = True
        ends = book.shown[b] == 0 or may_wait(view, book, m, b)
        out[book.rows.shape[1]] = ends
        return int(book.shown[b] + ends)
    count = 0
    for k in range(m.row.size):
        out[k] = may_pick(view, book, m, b, k)
        count += out[k]
    return count


@kernel
def mask(view: View, book: Book, out: Bools) -> None:
    """Flag what is allowed; the round's end if it may wait, or if nothing else is left."""
    for b in range(len(out)):
        allow(view, book, entry_of(book.own, b), b, out[b])


@kernel
def script(view: View, book: Book, wanted: Any, out: Ints) -> None:
    """The next job or machine that a teacher wants; if there is none, to wait."""
    for b in range(out.size):
        m = entry_of(book.own, b)
        out[b] = book.rows.shape[1]
        if m.job[0] == NOBODY:
            for i in range(book.shown[b] - 1, -1, -1):
                if wanted.length[b, book.rows[b, i]] > 0:
                    out[b] = i
            continue
        out[b] = 0
        most = 0
        for k in range(m.row.size):
            if may_pick(view, book, m, b, k):
                workers = 1 + workers_wanted(wanted, b, m.job[0], m.row[k])
                if workers > most:
                    out[b], most = k, workers


@part
def workers_wanted(wanted: Any, b: int, j: int, n: int) -> int:
    """The workers that a teacher gives job j on node n."""
    for i in range(wanted.length[b, j]):
        share = wanted.shares[b, wanted.at[b, j] + i]
        if share["node"] == n:
            return int(share["workers"])
    return 0
