"""The search of `malo`: an ant-lion optimiser whose second half-step is differential evolution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rota.core.types import Floats
from rota.jit import kernel, part
from rota.policies.published.key_decoding_kernels import decode

if TYPE_CHECKING:
    from rota.policies.published.key_decoding_kernels import Decoded, KeyedQueue

LIONS: Final = 10
"""Candidates that are kept."""
EXTRA_DRAWS: Final = 3
"""Random numbers of an evaluation beside those for the candidate itself."""
STEP: Final = 0.5
"""F of the differential evolution."""
CROSS: Final = 0.9
"""CR of the differential evolution."""


class Colony(NamedTuple):
    """The ant-lions and the best candidate so far; all written."""

    lions: Floats  # (LIONS, D) the first ones hold candidates to begin with
    scores: Floats  # (LIONS,)
    ant: Floats  # (D,)
    elite: Floats  # (D,)
    value: Floats  # (2,) mean time and mean fee of the elite


@part
def inside(x: float) -> float:
    """The nearest number in [0, 1)."""
    return min(max(x, 0.0), 1.0 - 1e-9)


@part
def trap_width(done: float) -> float:
    """The part of the space around an ant-lion in which an ant walks, after that part of a search.

    As in the ant-lion optimiser: all of it at first, then 10^w times narrower, w growing from 2.
    """
    if done < 0.1:
        return 1.0
    w = 2.0
    for bound in (0.5, 0.75, 0.9, 0.95):
        w += 1.0 if done > bound else 0.0
    width: float = 1.0 / (done * 10.0**w)
    return min(1.0, width)


@part
def walk(c: Colony, lion: int, width: float, draw: Floats) -> None:
    """The ant goes half-way between an ant-lion and the elite, and off by up to half the width."""
    for k in range(c.ant.size):
        middle = 0.5 * (c.lions[lion, k] + c.elite[k])
        c.ant[k] = inside(middle + width * (draw[k] - 0.5))


@part
def differ(c: Colony, lion: int, draw: Floats) -> None:
    """The ant is the elite moved by the difference of two ant-lions, crossed with `lion`."""
    D = c.ant.size
    one, two = int(draw[D] * LIONS), int(draw[D + 1] * LIONS)
    sure = int(draw[D + 2] * D)
    for k in range(D):
        c.ant[k] = c.lions[lion, k]
        if draw[k] < CROSS or k == sure:
            c.ant[k] = inside(c.elite[k] + STEP * (c.lions[one, k] - c.lions[two, k]))


@part
def chosen_lion(c: Colony, draw: Floats) -> int:
    """The better of two ant-lions drawn at random."""
    D = c.ant.size
    one, two = int(draw[D] * LIONS), int(draw[D + 1] * LIONS)
    return one if c.scores[one] <= c.scores[two] else two


@kernel
def hunt(q: KeyedQueue, d: Decoded, c: Colony, known: int, weight: float, draws: Floats) -> int:
    """Evaluate a candidate per row of `draws` (E, D + EXTRA_DRAWS); the best becomes the elite.

    known   how many ant-lions hold candidates already; the score counts relative to the first
    weight  of the fee in the score; the rest is the weight of time

    Returns how often a better one was found.
    """
    D, E, better, best = c.ant.size, draws.shape[0], 0, 0.0
    unit_s, unit_fee = 1.0, 1.0
    for e in range(E):
        turn = (e - LIONS) % (2 * LIONS)
        lion = e
        if e < LIONS:
            for k in range(D):
                c.ant[k] = c.lions[e, k] if e < known else draws[e, k]
        elif turn < LIONS:
            lion = chosen_lion(c, draws[e])
            walk(c, lion, trap_width(e / E), draws[e])
        else:
            lion = turn - LIONS
            differ(c, lion, draws[e])
        time_s, fee = decode(q, d, c.ant)
        if e == 0:
            unit_s, unit_fee = max(time_s, 1e-9), max(fee, 1e-9)
        score = (1.0 - weight) * time_s / unit_s + weight * fee / unit_fee
        if e < LIONS or score < c.scores[lion]:
            c.scores[lion] = score
            for k in range(D):
                c.lions[lion, k] = c.ant[k]
        if e == 0 or score < best:
            best, better = score, better + 1
            c.value[0], c.value[1] = time_s, fee
            for k in range(D):
                c.elite[k] = c.ant[k]
    return better
