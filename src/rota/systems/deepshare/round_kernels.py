"""A whole round of DeepShare as rota has it in one compiled call: encode, score, choose, act."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from rota.jit import part, wide_kernel
from rota.systems.choice_kernels import likeliest
from rota.systems.deepshare.candidate_kernels import act_on, allow
from rota.systems.deepshare.feature_kernels import encode_one

if TYPE_CHECKING:
    from rota.core.types import Bools
    from rota.envs.book import Book
    from rota.envs.view import View

ZERO: Final = np.float32(0.0)
"""A plain 0.0 is a float64 and would turn float32 results into float64."""


class CandidateScorer(NamedTuple):
    """The weights of the network, (in, out) each, and its memory; float32."""

    own: Any  # (F, H) of `each`, for the candidate's features
    cluster: Any  # (G, H) of `each`, for the cluster's
    first_bias: Any  # (H,)
    second: Any  # (H, H)
    second_bias: Any  # (H,)
    inner: Any  # (H, H) of `score`, for the candidate
    mean: Any  # (H, H) of `score`, for the mean of all candidates
    inner_bias: Any  # (H,)
    last: Any  # (H,)
    last_bias: Any  # (1,)
    candidates: Any  # (K + 1, F) features
    world: Any  # (G,) features
    common: Any  # (H,) what all candidates have in common
    hidden: Any  # (H,)
    each: Any  # (K + 1, H)
    total: Any  # (H,)
    logits: Any  # (K + 1,)


@part
def copy(source: Any, out: Any) -> None:
    """out = source."""
    for o in range(out.size):
        out[o] = source[o]


@part
def add_product(source: Any, weights: Any, out: Any) -> None:
    """out += source · weights."""
    for i in range(source.size):
        much, line = source[i], weights[i]
        if much != ZERO:
            for o in range(out.size):
                out[o] += much * line[o]


@part
def cut(array: Any) -> None:
    """Raise what is below 0 to 0."""
    for o in range(array.size):
        array[o] = max(array[o], ZERO)


@part
def score_all(s: CandidateScorer, many: int) -> None:
    """The logits of the first `many` candidates; the others have none."""
    copy(s.first_bias, s.common)
    add_product(s.world, s.cluster, s.common)
    s.total[:] = ZERO
    for c in range(many):
        copy(s.common, s.hidden)
        add_product(s.candidates[c], s.own, s.hidden)
        cut(s.hidden)
        copy(s.second_bias, s.each[c])
        add_product(s.hidden, s.second, s.each[c])
        cut(s.each[c])
        for o in range(s.total.size):
            s.total[o] += s.each[c, o]
    for o in range(s.total.size):
        s.total[o] /= np.float32(many)
    copy(s.inner_bias, s.common)
    add_product(s.total, s.mean, s.common)
    for c in range(many):
        copy(s.common, s.hidden)
        add_product(s.each[c], s.inner, s.hidden)
        cut(s.hidden)
        logit = s.last_bias[0]
        for o in range(s.hidden.size):
            logit += s.hidden[o] * s.last[o]
        s.logits[c] = logit


@wide_kernel
def play_candidates(
    view: View, book: Book, s: CandidateScorer, mask: Bools, most_edits: int
) -> bool:
    """Write the round of a batch of one; False if it has not ended by `most_edits`."""
    while book.edits[0] < most_edits:
        many = encode_one(view, book, 0, s.candidates, s.world)
        score_all(s, many)
        own = book.own
        allow(own.rooms.room.run[0], own.found.option[0], own.starts[0, 0], own.eager[0, 0], mask)
        if act_on(view, book, 0, likeliest(s.logits, mask)):
            return True
    return False
