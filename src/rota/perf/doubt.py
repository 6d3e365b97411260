"""What is not known of speeds: errors of estimation, and sizes that were never measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rota.core.speed import Curves
from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable


def noisy(curves: Curves, sd: float, rng: np.random.Generator) -> Curves:
    """The same curves with every point off by a factor of its own: exp(sd · normal)."""
    if not 0 <= sd < 10:
        raise ConfigError(f"An error of sd={sd} makes no sense; give 0 … 10.")
    factor = np.exp(sd * rng.standard_normal(curves.speed.shape))
    return Curves(
        curves.names, curves.gpu_types, curves.speed * factor, curves.by_nodes, curves.measured
    )


def beyond(
    curves: Curves, trace_models: Iterable[str], max_a: int | None, max_w: int | None
) -> list[str]:
    """Sentences on models whose jobs may come to sizes at which they were never measured.

    `max_a` servers or nodes and `max_w` workers are the most that a job may get; None: as many as
    the table goes up to.
    """
    *_, A, W = curves.speed.shape
    most = (A - 1 if max_a is None else max_a, W - 1 if max_w is None else max_w)
    axes = ("nodes" if curves.by_nodes else "parameter servers", "workers")
    warnings = []
    for model in dict.fromkeys(trace_models):
        c = curves.index(model)
        if c < 0:
            continue
        over = [
            f"{int(limit)} {axis} (jobs may get {wanted})"
            for axis, limit, wanted in zip(axes, curves.measured[c], most, strict=True)
            if wanted > limit
        ]
        if over:
            warnings.append(
                f"Speeds of {model!r} were measured up to {' and '.join(over)}; "
                "beyond that they are extrapolated."
            )
    return warnings
