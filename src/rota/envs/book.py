"""The round being written: how many tasks each job is to have, and what that leaves free."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rota.core.types import Floats, Ints


class Book(NamedTuple):
    """A batch of rounds that are being written.

    Free room is the sum over all nodes that are up. Which node each task goes to is decided when
    the round ends (`rota.envs.pack_kernels`).
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
    shown: Ints  # (B,) the number of them
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
