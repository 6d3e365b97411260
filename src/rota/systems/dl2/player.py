"""DL2's own form as it is deployed: a slot at a time, with a plain network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rota.envs.lens import Caller
from rota.systems.dl2.player_kernels import Sight, Stack, play_round

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core.types import Floats
    from rota.envs.book import Book
    from rota.envs.view import View
    from rota.systems.dl2.lens import StepByStep


class SlotPlayer:
    """Writes rounds as the lens and the network would edit by edit, in one call each.

    Logits differ from torch's by rounding, so actions may differ where two are as good.
    """

    def __init__(self, lens: StepByStep, layers: Sequence[tuple[Floats, Floats]]) -> None:
        """`layers` are weights (out, in) and biases (out,), as torch keeps them."""
        self._lens, self._run = lens, Caller()
        weights = tuple(np.array(w.T, np.float32, order="C") for w, _ in layers)
        bias = tuple(np.array(b, np.float32) for _, b in layers)
        self._stack = Stack(
            weights, bias, tuple(np.zeros_like(b) for b in bias),
            np.zeros(len(weights[0]), np.float32), np.zeros(len(bias[0])),
            np.zeros(max(map(len, bias)), np.int64),
        )  # fmt: skip
        size = lens.window * lens.features
        row = np.zeros(size + lens.globals, np.float32)
        self._sight = Sight(
            row, row[:size].reshape(lens.window, lens.features), row[size:],
            np.zeros(lens.window, np.float32), np.zeros(lens.actions, np.bool_),
        )  # fmt: skip

    @property
    def logits(self) -> Floats:
        """Those behind the last edit, (A,)."""
        logits: Floats = self._stack.out[-1]
        return logits

    def __call__(self, view: View, book: Book, most_edits: int) -> bool:
        """Write the round that `lens.open` has begun; False if it has not ended by then."""
        lens = self._lens
        ended: bool = self._run(
            play_round, view, book, lens.types, lens.ordinal, lens.rescale, lens.one_hot,
            lens.slot_s, lens.most, lens.mask_room, lens.bundle, lens.keep_capped, self._stack,
            self._sight, most_edits,
        )  # fmt: skip
        return ended
