"""How good a fit is where it did not look: whole configurations held out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.core.types import Bools, Floats, Ints


def held_out(groups: Ints, predict: Callable[[Bools, Bools], Floats]) -> Floats:
    """Predictions for every row by a fit that has not seen the row's group.

    groups   (R,)  rows of one configuration share a number
    predict        fits the rows of the first mask and predicts those of the second
    """
    predicted = np.empty(len(groups))
    for group in np.unique(groups):
        out = groups == group
        predicted[out] = predict(~out, out)
    return predicted


def relative_error(predicted: Floats, measured: Floats) -> Floats:
    """How far off each prediction is, as part of what was measured."""
    return np.asarray(np.abs(predicted / measured - 1))


def explained(predicted: Floats, measured: Floats) -> float:
    """R²: the part of the variance that the predictions account for."""
    around = np.square(measured - measured.mean()).sum()
    return float(1 - np.square(measured - predicted).sum() / around)
