"""A whole round of DAS in one compiled call: see, score, choose, act."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rota.jit import part, wide_kernel
from rota.jit_reference import entry_of
from rota.systems.choice_kernels import likeliest
from rota.systems.das.agent_kernels import encode_row, see_machine
from rota.systems.das.dense_kernels import copy
from rota.systems.das.machine_kernels import describe
from rota.systems.das.order_place_kernels import NOBODY, OrderPlaceMemory, act_on, allow
from rota.systems.das.ordering_kernels import score_jobs
from rota.systems.das.placing_kernels import FORBIDDEN, NOW, PAST, score_machines
from rota.systems.das.seen_kernels import JOB, most_gpus, seen_fee, show_job, show_pair

if TYPE_CHECKING:
    from rota.envs.book import Book
    from rota.envs.view import View
    from rota.systems.das.agent_kernels import Agents, AgentScratch

ORDERED: Final = 0
"""What the ordering agent sees, among the states that are kept of machines."""


@wide_kernel
def play_two_agents(
    view: View, book: Book, a: Agents, s: AgentScratch, informed: bool, most_edits: int
) -> bool:
    """Write the round of a batch of one; False if it has not ended by `most_edits`."""
    m, largest = entry_of(book.own, 0), most_gpus(view, 0)
    s.who[:] = NOBODY  # what is told of a job depends on the time
    see_jobs(view, book, a, s, informed, largest)
    while book.edits[0] < most_edits:
        if m.job[0] == NOBODY:
            see_jobs(view, book, a, s, informed, largest)
        if allow(view, book, m, 0, s.mask) > 1:  # an only choice needs no score
            score(view, book, m, a, s, informed, largest)
        if act_on(view, book, m, 0, max(0, likeliest(s.logits, s.mask))):
            return True
    return False


@part
def score(
    view: View,
    book: Book,
    m: OrderPlaceMemory,
    a: Agents,
    s: AgentScratch,
    informed: bool,
    largest: int,
) -> None:
    """Write the logits of the agent that acts."""
    s.logits[:] = FORBIDDEN
    if m.job[0] == NOBODY:
        count = see_machines(book, m, a, s, ORDERED)
        score_jobs(a, s, book.shown[0], count)
        return
    count = see_machines(book, m, a, s, NOW)
    see_past(m, a, s, count)
    for k in range(count):
        show_pair(view, book, m, 0, m.row[k], informed, largest, s.pair[k])
    score_machines(a, s, row_of(s, m.job[0]), count)


@part
def row_of(s: AgentScratch, j: int) -> int:
    """The row of a job that is shown."""
    i = 0
    while i < s.who.size - 1 and s.who[i] != j:
        i += 1
    return i


@part
def see_jobs(
    view: View, book: Book, a: Agents, s: AgentScratch, informed: bool, largest: int
) -> None:
    """Embed the jobs that are shown; those that were shown before only move up."""
    old = 0
    for i in range(book.shown[0]):
        j = book.rows[0, i]
        while old < s.who.size and s.who[old] != j:
            old += 1
        if old == s.who.size:
            show_job(view, 0, j, informed, largest, s.told)
            if s.told.size > JOB:
                s.told[JOB] = seen_fee(book, 0)
            encode_row(a.job, s.told, s.line[: s.common.size], s.jobs[i])
        elif old > i:
            copy(s.jobs[old], s.jobs[i])
        s.who[i] = j
    s.who[book.shown[0] :] = NOBODY


@part
def see_machines(book: Book, m: OrderPlaceMemory, a: Agents, s: AgentScratch, state: int) -> int:
    """Embed the machines that are shown, as the given state; returns their number."""
    count, told = 0, s.looks
    while count < m.row.size and m.row[count] >= 0:
        describe(book.drafts.nodes[0], m.machines, m.row[count], told)
        see_machine(a, s, state, count, told)
        count += 1
    return count


@part
def see_past(m: OrderPlaceMemory, a: Agents, s: AgentScratch, count: int) -> None:
    """Note what was observed at the machines that are shown, and embed states with any of it."""
    for t in range(s.known.shape[0]):
        any_known = False
        for k in range(count):
            s.known[t, k] = t < m.machines.at[0] and m.machines.known[t, m.row[k]]
            s.observed[t, k] = m.machines.observed[t, m.row[k]]
            any_known = any_known or s.known[t, k]
        if any_known:
            for k in range(count):
                see_machine(a, s, PAST + t, k, m.machines.past[t, m.row[k]])
