"""The round being written: how many tasks every job shall have, and what that leaves free."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rota.core.types import Floats, Ints


class Book(NamedTuple):
    """A batch of rounds in the making. Room is counted over all nodes that are up, together.

    Where tasks go is decided once the round is over (`rota.envs.pack_kernels`).
    """

    workers: Ints  # (B, J) wanted
    servers: Ints  # (B, J) wanted
    free_cpus: Floats  # (B,)
    free_gpus: Floats  # (B,)
    free_memory_gb: Floats  # (B,)
    cpus: Floats  # (B,) of nodes that are up
    gpus: Floats  # (B,)
    memory_gb: Floats  # (B,)
    rows: Ints  # (B, W) the jobs that the lens shows, −1: none
    shown: Ints  # (B,) how many of them there are
    edits: Ints  # (B,) actions since the round began


def new_book(batch: int, jobs: int, window: int) -> Book:
    """An empty book."""

    def zeros() -> Floats:
        return np.zeros(batch)

    return Book(
        np.zeros((batch, jobs), np.int64), np.zeros((batch, jobs), np.int64),
        zeros(), zeros(), zeros(), zeros(), zeros(), zeros(),
        np.full((batch, window), -1, np.int64), np.zeros(batch, np.int64),
        np.zeros(batch, np.int64),
    )  # fmt: skip
