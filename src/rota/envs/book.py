"""The round being written: how many tasks each job is to have, or what it is to hold where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rota.core.types import Floats, Ints

if TYPE_CHECKING:
    from rota.envs.draft_batch import DraftBatch


class Book(NamedTuple):
    """A batch of rounds that are being written.

    A lens that counts writes numbers of tasks: free room is the sum over all nodes that are up,
    and which node each task goes to is decided when the round ends (`rota.envs.pack_kernels`). A
    lens that places edits `drafts`, which are carried out as they are.
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
    dollar_s: Floats  # (B,) the seconds of completion time that a dollar of fee is worth
    drafts: Any  # DraftBatch; None for a lens that counts, which is another type to the compiler
    own: Any  # what the lens itself works in: arrays (B, …), or tuples of them; None for none


def new_book(
    batch: int, jobs: int, window: int, drafts: DraftBatch | None = None, own: Any = None
) -> Book:
    """An empty book; with `drafts`, and what it works in, for a lens that places."""

    def zeros() -> Floats:
        return np.zeros(batch)

    return Book(
        np.zeros((batch, jobs), np.int64), np.zeros((batch, jobs), np.int64),
        zeros(), zeros(), zeros(), zeros(), zeros(), zeros(),
        np.full((batch, window), -1, np.int64), np.zeros(batch, np.int64),
        np.zeros(batch, np.int64), zeros(), drafts, own,
    )  # fmt: skip


def rows_of(own: Any, which: Ints) -> Any:
    """The part of `Book.own` that belongs to these clusters."""
    if isinstance(own, np.ndarray):
        return own[which]
    if own is None:
        return None
    return type(own)._make(rows_of(part, which) for part in own)
