"""The search of `mosa`: simulated annealing with two objectives and an archive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from rota.core.types import Floats, Ints
from rota.jit import kernel, part
from rota.policies.published.key_decoding_kernels import decode

if TYPE_CHECKING:
    from rota.policies.published.key_decoding_kernels import Decoded, KeyedQueue

MOST_KEPT_POINTS: Final = 64
"""Size of the archive; when it is full, a newcomer must be better than one in it in both."""
HOT: Final = 0.1
COLD: Final = 0.001
"""Temperatures at the beginning and at the end, in parts of the first candidate's objectives."""
MOVE_DRAWS: Final = 5
"""Random numbers of an evaluation: which change, two jobs, a value, whether it is accepted."""


class Annealing(NamedTuple):
    """The present candidate and the archive; all written."""

    now: Floats  # (D,)
    trial: Floats  # (D,)
    kept: Floats  # (MOST_KEPT_POINTS, D)
    point: Floats  # (MOST_KEPT_POINTS, 2) their mean times and mean fees
    filled: Ints  # (1,) how many there are


@part
def copy_numbers(to: Floats, source: Floats) -> None:
    """Copy number by number: a slice would need memory of its own."""
    for k in range(to.size):
        to[k] = source[k]


@part
def keep_point(m: Annealing, time_s: float, fee: float) -> bool:
    """Put the trial into the archive unless one there is as good in both; drop those it beats."""
    for k in range(m.filled[0]):
        if m.point[k, 0] <= time_s and m.point[k, 1] <= fee:
            return False
    count = 0
    for k in range(m.filled[0]):
        if m.point[k, 0] < time_s or m.point[k, 1] < fee:
            copy_numbers(m.point[count], m.point[k])
            copy_numbers(m.kept[count], m.kept[k])
            count += 1
    if count < m.point.shape[0]:
        m.point[count, 0], m.point[count, 1] = time_s, fee
        copy_numbers(m.kept[count], m.trial)
        count += 1
    m.filled[0] = count
    return True


@part
def change(m: Annealing, draw: Floats) -> None:
    """The trial differs from the present candidate in two keys, one key, or one node."""
    J = m.now.size // 2
    copy_numbers(m.trial, m.now)
    one, two = int(draw[1] * J), int(draw[2] * J)
    if draw[0] < 0.25:
        m.trial[one], m.trial[two] = m.now[two], m.now[one]
    elif draw[0] < 0.5:
        m.trial[one] = draw[3]
    else:
        m.trial[J + one] = draw[3]


@kernel
def anneal(q: KeyedQueue, d: Decoded, m: Annealing, first: Floats, draws: Floats) -> int:
    """Evaluate the rows of `first`, then a change per row of `draws`; fills the archive.

    first  (K, D) candidates to begin with; objectives count relative to those of the first
    draws  (E, MOVE_DRAWS); the first K rows are left out

    Returns the number of changes that were accepted.
    """
    E, accepted = draws.shape[0], 0
    unit_s, unit_fee, now_s, now_fee = 1.0, 1.0, 0.0, 0.0
    for e in range(E):
        if e < first.shape[0]:
            copy_numbers(m.trial, first[e])
        else:
            change(m, draws[e])
        time_s, fee = decode(q, d, m.trial)
        if e == 0:
            unit_s, unit_fee = max(time_s, 1e-9), max(fee, 1e-9)
        # Worse in one and better in the other may cancel out: both are worth the same.
        worse = 0.5 * ((time_s - now_s) / unit_s + (fee - now_fee) / unit_fee)
        heat = HOT * (COLD / HOT) ** (e / E)
        if e == 0 or worse <= 0.0 or draws[e, 4] < np.exp(-worse / heat):
            copy_numbers(m.now, m.trial)
            now_s, now_fee = time_s, fee
            accepted += e >= first.shape[0]
        keep_point(m, time_s, fee)
    return accepted
