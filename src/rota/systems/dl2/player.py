"""DL2's own form when deployed: one compiled call per slot, without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.jit_call import Caller
from rota.systems.dl2.plain_kernels import Stack, play_plain
from rota.systems.dl2.player_kernels import Observed, Rules
from rota.systems.dl2.shared_kernels import Scorer, play_shared

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from rota.core.types import Bools, Floats, Ints
    from rota.envs.book import Book
    from rota.envs.view import View
    from rota.systems.dl2.step_lens import StepByStep

LANES: Final = 32
"""Layers are padded to a multiple of this width, so that no unit is computed by itself."""


class SlotPlayer:
    """Writes each round in one call, as the lens and the network would edit by edit.

    Logits differ from torch's by rounding, so an action may differ where two score the same.
    """

    def __init__(
        self, lens: StepByStep, play: Callable[..., bool], weights: Any, logits: NDArray[np.float32]
    ) -> None:
        """`play` is a kernel, `weights` its network's weights together with scratch memory."""
        self._play, self._weights, self._run = play, weights, Caller()
        self.logits = logits
        """The logits (A,) of the last edit."""
        self._rules = Rules(
            lens.types, lens.ordinal, lens.rescale, lens.one_hot, lens.lengths, lens.slot_s,
            lens.most, lens.mask_room, lens.bundle, lens.keep_capped, lens.least_first,
        )  # fmt: skip
        size = lens.window * lens.features
        row = np.zeros(size + lens.globals, np.float32)
        self._observed = Observed(
            row, row[:size].reshape(lens.window, lens.features), row[size:],
            np.zeros(lens.window, np.float32), np.zeros(lens.actions, np.bool_),
        )  # fmt: skip

    def __call__(self, view: View, book: Book, most_edits: int) -> bool:
        """Write the round that `lens.open` has begun; False if it does not end in `most_edits`."""
        ended: bool = self._run(
            self._play, view, book, self._rules, self._weights, self._observed, most_edits
        )
        return ended


def plain_player(lens: StepByStep, layers: Sequence[tuple[Floats, Floats]]) -> SlotPlayer:
    """A player for weights (out, in) and biases (out,) of each layer, in torch's layout."""
    size, weights, bias = layers[0][0].shape[1], [], []
    for weight, shift in layers:
        wide = -(-len(shift) // LANES) * LANES
        weights.append(np.zeros((size, wide), np.float32))
        weights[-1][: weight.shape[1], : len(shift)] = weight.T
        bias.append(np.append(shift, np.zeros(wide - len(shift))).astype(np.float32))
        size = wide
    out = tuple(np.zeros_like(b) for b in bias)
    logits = out[-1][: lens.actions]
    inputs, first, second = len(weights[0]), len(bias[0]), len(bias[1])
    stack = Stack(
        tuple(weights), tuple(bias), out, logits, np.zeros(max(map(len, bias)), np.int64),
        np.zeros(inputs, np.float32), np.zeros(first), np.zeros(second), *_flags(first),
        *_flags(first), np.zeros((inputs, second), np.float32), *_flags(inputs, first),
        np.zeros(inputs, np.bool_), np.zeros(first, np.float32), np.zeros(1, np.int64),
    )  # fmt: skip
    return SlotPlayer(lens, play_plain, stack, logits)


def shared_player(lens: StepByStep, weights: Mapping[str, Floats]) -> SlotPlayer:
    """A player for the parameters of a shared network by name, in torch's layout."""
    width = len(weights["job.bias"])
    around = weights["around.weight"].T
    kept = (
        weights["job.weight"].T, weights["job.bias"], around[:width], around[width:],
        weights["around.bias"], weights["hidden.weight"].T, weights["logits.weight"],
        weights["logits.bias"], weights["end.weight"][0], weights["end.bias"],
    )  # fmt: skip
    logits = np.zeros(lens.actions, np.float32)
    room = (
        np.zeros((lens.window, width), np.float32), np.zeros((width, lens.window), np.float32),
        np.zeros(width, np.float32), np.zeros(width, np.float32),
        np.zeros(max(width, lens.features, lens.globals), np.int64),
        np.zeros((len(weights["logits.bias"]), lens.window), np.float32), logits,
    )  # fmt: skip
    scorer = Scorer._make([*(np.array(array, np.float32, order="C") for array in kept), *room])
    return SlotPlayer(lens, play_shared, scorer, logits)


def _flags(*shape: int) -> tuple[Bools, Ints]:
    """Memory for flags, and the same memory as words of eight."""
    flags = np.zeros(shape, np.bool_)
    return flags, flags.view(np.int64)
