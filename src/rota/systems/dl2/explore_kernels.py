"""DL2's job-aware exploration: rules that replace actions of a network, in training only.

The rules are those of DL2's public code. A rule applies only where its action is allowed and the
network gives it more than a tiny probability. One defect of the original is left out: it checks
the probability of a worker before it gives a server.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, Any, Final

from rota.jit import inline, kernel, part
from rota.systems.dl2.step_kernels import BUNDLE, ROLES, SERVER, WORKER

if TYPE_CHECKING:
    from rota.core.types import Bools, Floats, Ints
    from rota.envs.book import Book

FIRST: Final = 2
"""Columns of `luck` before those of the jobs: one for the balance, one for the ratio of a slot."""
RARE: Final = 0.001
LEAST: Final = log(1e-20)


@inline
def may(mask: Bools, logits: Any, total: float, action: int) -> bool:
    """Whether a rule may choose an action: it is allowed, and its probability is not tiny."""
    return bool(mask[action]) and bool(logits[action] - total > LEAST)


@part
def poorest(book: Book, b: int, most: int) -> int:
    """The row with the fewest tasks, if another has more than `most` times as many; else −1."""
    low, high, row = 0, 0, -1
    for i in range(book.shown[b]):
        j = book.rows[b, i]
        tasks = book.workers[b, j] + book.servers[b, j]
        high = max(high, tasks)
        if row < 0 or tasks < low:
            low, row = tasks, i
    return row if row >= 0 and high // max(low, 1) > most else -1


@part
def rarest(counts: Ints) -> int:
    """The role that was given least often, if that is rarely enough; else −1."""
    role, total = 0, 0
    for k in range(ROLES):
        total += counts[k]
        if counts[k] < counts[role]:
            role = k
    return role if counts[role] < RARE * total else -1


@part
def wish_for(workers: int, servers: int, ratio: int, coin: float) -> int:
    """The role that a job with workers and servers is to get more of, drawn by `coin`; −1: none."""
    if coin >= 0.5:
        return -1
    again = 2.0 * coin  # uniform in [0, 1), as a second draw would be
    if servers > ratio * workers:
        return BUNDLE if again < 0.5 else WORKER
    if 2 * workers >= servers:
        return SERVER if again < 0.99 else BUNDLE
    return -1


@part
def wish(
    book: Book, b: int, mask: Bools, logits: Any, total: float, ratio: int, rare: int, luck: Floats
) -> int:
    """The action of the first rule that applies; −1: none does."""
    for i in range(book.shown[b]):
        first, j = ROLES * i, book.rows[b, i]
        workers, servers = book.workers[b, j], book.servers[b, j]
        if rare >= 0 and may(mask, logits, total, first + rare):
            return first + rare
        if workers == 0 or servers == 0:
            if servers == 0 and may(mask, logits, total, first + SERVER):
                return first + SERVER
            if workers == 0 and may(mask, logits, total, first + WORKER):
                return first + WORKER
            if workers == 0 and servers == 0 and luck[FIRST + i] < 0.5:
                return first + BUNDLE if may(mask, logits, total, first + BUNDLE) else -1
            return -1
        role = wish_for(workers, servers, ratio, luck[FIRST + i])
        if role >= 0 and may(mask, logits, total, first + role):
            return first + role
    return -1


@kernel
def explore(
    book: Book, mask: Bools, logits: Any, luck: Floats, balance: bool, ratio: Ints, counts: Ints,
    action: Ints, log_prob: Any,
) -> int:  # fmt: skip
    """Replace `action` (B,), drawn by `logits` (B, A), where a rule applies; returns how many.

    luck    (B, 2 + W)  uniform in [0, 1)
    ratio   (B,)  servers per worker that count as too many, drawn for every slot; updated here
    counts  (3,)  roles given so far, in all clusters; updated here

    `log_prob` (B,) becomes the network's log-probability of the action taken.
    """
    overruled = 0
    for b in range(action.size):
        if book.edits[b] == 0:
            ratio[b] = 3 + int(5.0 * luck[b, 1])
        total = logits[b, action[b]] - log_prob[b]  # the logarithm of the softmax's denominator
        wanted = -1
        if balance:
            draw = 3.0 * luck[b, 0]
            row = poorest(book, b, 3 + int(draw))
            if row >= 0:
                wanted = ROLES * row + (BUNDLE if draw % 1.0 < 0.5 else WORKER)
                if not may(mask[b], logits[b], total, wanted):
                    wanted = -1
        if wanted < 0:
            rare = rarest(counts)
            wanted = wish(book, b, mask[b], logits[b], total, ratio[b], rare, luck[b])
        if wanted >= 0:
            overruled += 1
            action[b] = wanted
            log_prob[b] = logits[b, wanted] - total
        if action[b] < ROLES * book.shown[b]:
            counts[action[b] % ROLES] += 1
    return overruled
