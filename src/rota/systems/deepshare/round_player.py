"""DeepShare as rota has it, when deployed: one compiled call per round, without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rota.systems.deepshare.feature_kernels import CANDIDATE, CLUSTER
from rota.systems.deepshare.round_kernels import CandidateScorer, play_candidates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.core.types import Floats
    from rota.envs.book import Book
    from rota.envs.view import View
    from rota.jit_call import Caller


class RoundPlayer:
    """Writes each round in one call, as the lens and the network would edit by edit.

    Logits differ from torch's by rounding, so an action may differ where two score the same.
    """

    def __init__(self, weights: Mapping[str, Floats], most: int, run: Caller) -> None:
        """`weights` are the network's parameters by name, in torch's layout.

        run  the lens's, which has written view and book of a round down already
        """
        each, score = weights["each.0.weight"].T, weights["score.0.weight"].T
        width = each.shape[1]
        kept = (
            each[:CANDIDATE], each[CANDIDATE:], weights["each.0.bias"], weights["each.2.weight"].T,
            weights["each.2.bias"], score[:width], score[width:], weights["score.0.bias"],
            weights["score.2.weight"][0], weights["score.2.bias"],
        )  # fmt: skip
        shapes = ((most + 1, CANDIDATE), CLUSTER, width, width, (most + 1, width), width, most + 1)
        self._scorer = CandidateScorer._make([
            *(np.array(array, np.float32, order="C") for array in kept),
            *(np.zeros(shape, np.float32) for shape in shapes),
        ])  # fmt: skip
        self._mask, self._run = np.zeros(most + 1, np.bool_), run
        self.logits = self._scorer.logits
        """The logits (K + 1,) of the last edit."""

    def __call__(self, view: View, book: Book, most_edits: int) -> bool:
        """Write the round that `lens.open` has begun; False if it does not end in `most_edits`."""
        ended: bool = self._run(play_candidates, view, book, self._scorer, self._mask, most_edits)
        return ended
