"""Which worlds of a pool a batch plays, episode by episode, and memory for how they end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rota.envs.episode_kernels import Ends
from rota.errors import ConfigError

if TYPE_CHECKING:
    from rota.core.types import Ints

SAMPLED = 4096
"""Episodes per cluster for which pool entries are drawn in advance; then they repeat."""


def entries_by_episode(entries: str | Ints, batch: int, size: int, seed: int) -> Ints:
    """Which entries of a pool of `size` worlds the clusters play, by episode (B, K)."""
    if isinstance(entries, str):
        if entries == "cycle":
            return (np.arange(batch)[:, None] + batch * np.arange(size)) % size
        if entries == "sample":
            return np.random.default_rng(seed).integers(0, size, (batch, SAMPLED))
        raise ConfigError(
            f"entries={entries!r} must be 'cycle', 'sample' or an array (B, K) of pool entries."
        )
    found = np.array(entries, np.int64)
    if found.ndim != 2 or len(found) != batch or found.min() < 0 or found.max() >= size:
        raise ConfigError(
            f"entries of shape {found.shape} must be ({batch}, K) entries of a pool of {size}."
        )
    return found


def no_ends(batch: int, jobs: int) -> Ends:
    """Memory for the ends of rounds and episodes."""

    def zeros(kind: type = float) -> Any:
        return np.zeros(batch, kind)

    return Ends(
        reward=zeros(), terminated=zeros(bool), truncated=zeros(bool), jct_s=zeros(),
        cost_s=zeros(), unfinished=zeros(int), makespan_s=zeros(), resizes=zeros(int),
        moves=zeros(int), rounds=zeros(int), total=zeros(), played=zeros(int),
        jcts_s=np.full((batch, jobs), np.nan),
    )  # fmt: skip
