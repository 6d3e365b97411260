"""Candidates: which placements of waiting jobs a round may choose among, and what happens then."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rota.envs.drafting_kernels import draft_of
from rota.jit import kernel, part
from rota.jit_reference import by_reference, entry_of
from rota.ledger.edit_kernels import REFUSED, place
from rota.policies.classic.claim_kernels import claim
from rota.policies.classic.place_kernels import CONSOLIDATE
from rota.policies.contention.climb_kernels import scan
from rota.policies.contention.neighbour_kernels import Found, GreedySettings, workers_at
from rota.policies.contention.occupy_kernels import (
    Rooms,
    all_spreads,
    occupy,
    trimmed,
)
from rota.policies.contention.rollout_kernels import copy_fixed
from rota.policies.contention.spread_kernels import size_of
from rota.systems.deepshare.move_kernels import (
    MoveMemory,
    find_moves,
    take_candidate,
)

if TYPE_CHECKING:
    from rota.core.types import Bools, Ints
    from rota.envs.book import Book
    from rota.envs.view import View
    from rota.envs.wanted import Wanted


class CandidateMemory(NamedTuple):
    """What a lens of candidates works in, `Book.own`; every array has B in front."""

    rooms: Rooms
    found: Found  # placements of waiting jobs, then moves
    moving: MoveMemory
    starts: Ints  # (1,) the number of placements of waiting jobs
    blind: Ints  # (1,) whether how jobs slow each other down is hidden
    eager: Ints  # (1,) whether to wait is not allowed while a job could start


@part
def find(view: View, book: Book, m: Rooms, found: Found, b: int) -> int:
    """List the placements that there are now, best first, then moves; returns their number.

    Moves are shown until a job is started.
    """
    law, room, last = view.laws.law, m.room, found.score.size - 1
    moving = entry_of(book.own.moving, b)
    most = last - (moving.moves.score.size - 1)
    options = trimmed(m.options, view.jobs[b], m.counts)
    count = scan(law, options, room, m.scratch, GreedySettings(-np.inf, 0.0, 0.0), found, most)
    book.own.starts[b, 0] = count
    if most < last and room.run[room.run.size - 1] == m.counts.ran[0]:
        every = all_spreads(m.options, view.jobs[b], m.counts)
        for c in range(find_moves(view, book, every, m.types.of, m.room, moving, b)):
            found.score[count], found.option[count] = moving.moves.score[c], moving.moves.option[c]
            found.job[count] = moving.moves.job[c]
            for i in range(found.node.shape[1]):
                found.node[count, i] = moving.moves.node[c, i]
            count += 1
        found.option[last] = count
    return int(count)


@kernel
def open_rounds(view: View, book: Book, which: Bools) -> bool:
    """Begin the rounds of the flagged clusters; False if a node lists more jobs than it may."""
    for b in range(which.size):
        if not which[b]:
            continue
        book.edits[b] = 0
        rows, order, live = view.jobs[b], view.order[b], view.live[b]
        m = entry_of(book.own.rooms, b)
        for i in range(live):
            j = order[i]
            m.options.size[j] = m.options.weight[j] = size_of(rows[j])
        if not occupy(
            view.laws, m, rows, order, live, book.drafts.nodes[b], book.drafts.shares[b],
            view.now_s[b],
        ):  # fmt: skip
            return False
        copy_fixed(entry_of(book.own.moving.trial, b), m.room)
        find(view, book, m, entry_of(book.own.found, b), b)
    return True


@part
def start(view: View, book: Book, m: Rooms, found: Found, b: int, c: int) -> bool:
    """Start or move the job of candidate c, in draft and occupancy; False if it was refused."""
    p, j, job = found.option[c], found.job[c], view.jobs[b, found.job[c]]
    span, wanted = m.options.span[p], book.drafts.spare[b]
    for i in range(span):
        wanted[i]["node"] = found.node[c, i]
        wanted[i]["workers"] = workers_at(job["workers"], span, i)
        wanted[i]["servers"] = workers_at(job["servers"], span, i)
    used = place(draft_of(book.drafts, b), job, j, wanted, span, book.drafts.used[b])
    if used == REFUSED:
        return False
    book.drafts.used[b] = used
    options = all_spreads(m.options, view.jobs[b], m.counts)
    take_candidate(view.laws.law, options, m.room, found, c)
    return True


@part
def start_odd(view: View, book: Book, m: Rooms, b: int) -> None:
    """Start waiting jobs that no even spread suits and that fit, on as few nodes as possible."""
    d = draft_of(book.drafts, b)
    draft = by_reference(d)
    for i in range(view.live[b]):
        j = view.order[b, i]
        job = view.jobs[b, j]
        if job["share_len"] == 0 and m.types.spreads[m.types.of[j]] == 0:
            book.drafts.used[b] = claim(
                draft, CONSOLIDATE, m.types.reference, job, j, book.drafts.used[b]
            )


@part
def act_on(view: View, book: Book, b: int, action: int) -> bool:
    """Apply an action to cluster b; returns whether the round has ended."""
    book.edits[b] += 1
    m, found = entry_of(book.own.rooms, b), entry_of(book.own.found, b)
    count = found.option[found.score.size - 1]
    c = action - 1
    idle = m.room.run[m.room.run.size - 1] == 0
    if c < 0 and (idle or (book.own.eager[b, 0] and book.own.starts[b, 0] > 0)):
        c = 0
    ended = True
    if 0 <= c < count and start(view, book, m, found, b, c):
        ended = find(view, book, m, found, b) == 0
    if ended:
        start_odd(view, book, m, b)
    return ended


@kernel
def act(view: View, book: Book, actions: Ints, ended: Bools) -> None:
    """Action 0 ends the round; action c + 1 starts candidate c, and ends it if none is left.

    Where it is not allowed to wait, action 0 starts the first candidate.
    """
    for b in range(actions.size):
        ended[b] = act_on(view, book, b, actions[b])


@part
def is_wanted(view: View, m: Rooms, found: Found, wanted: Wanted, b: int, c: int) -> bool:
    """Whether a teacher gives the job of candidate c exactly that."""
    j, span = found.job[c], m.options.span[found.option[c]]
    if wanted.length[b, j] != span:
        return False
    job = view.jobs[b, j]
    for i in range(span):
        share = wanted.shares[b, wanted.at[b, j] + i]
        if (
            share["node"] != found.node[c, i]
            or share["workers"] != workers_at(job["workers"], span, i)
            or share["servers"] != workers_at(job["servers"], span, i)
        ):
            return False
    return True


@kernel
def towards(view: View, book: Book, wanted: Wanted, out: Bools) -> None:
    """Flag the candidates that a teacher wants; if there is none, to wait."""
    for b in range(len(out)):
        m, found = entry_of(book.own.rooms, b), entry_of(book.own.found, b)
        out[b, :] = False
        out[b, 0] = True
        for c in range(found.option[found.score.size - 1]):
            out[b, c + 1] = is_wanted(view, m, found, wanted, b, c)
            out[b, 0] = out[b, 0] and not out[b, c + 1]


@kernel
def script(view: View, book: Book, wanted: Wanted, out: Ints) -> None:
    """The first candidate that a teacher wants; if there is none, to wait."""
    for b in range(out.size):
        m, found = entry_of(book.own.rooms, b), entry_of(book.own.found, b)
        out[b] = 0
        for c in range(found.option[found.score.size - 1]):
            if is_wanted(view, m, found, wanted, b, c):
                out[b] = c + 1
                break


@part
def allow(run: Ints, option: Ints, starts: int, eager: int, out: Bools) -> None:
    """Flag what is allowed: not to wait while nothing runs and something could."""
    last = option.size - 1
    count = option[last]
    out[0] = count == 0 or (run[run.size - 1] > 0 and not (eager and starts > 0))
    for c in range(last):
        out[c + 1] = c < count


@kernel
def mask(run: Ints, option: Ints, starts: Ints, eager: Ints, out: Bools) -> None:
    """Waiting is not allowed while nothing runs and something could: nothing would happen."""
    for b in range(len(out)):
        allow(run[b], option[b], starts[b, 0], eager[b, 0], out[b])
