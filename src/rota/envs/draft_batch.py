"""Rounds that place: a batch of drafts, which a lens edits node by node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rota.core.layout import SHARE
from rota.core.types import Ints, Records
from rota.ledger.node_kernels import new_index

if TYPE_CHECKING:
    from rota.core.draft import Draft
    from rota.sim.state import State


class DraftBatch(NamedTuple):
    """What every job shall hold, on which node, and what that leaves free; see `DraftArrays`.

    The edits are in `rota.ledger.edit_kernels`. A round begins with what every job holds now: job
    j's is shares[b, share_at : share_at + share_len], by the fields of JOB.
    """

    nodes: Records  # (B, N) NODE: what is free, under the drafts
    level: Any  # (B, G+2, N/64) index of `nodes`
    at: Ints  # (B, J)
    length: Ints  # (B, J)
    shares: Records  # (B, S) SHARE
    node: Ints  # (B, N) scratch
    part: Ints  # (B, N) scratch
    used: Ints  # (B,) shares in use
    spare: Records  # (B, N + 1) SHARE: scratch


def drafts_of_state(state: State) -> DraftBatch:
    """The drafts in the simulator's own memory, which are carried out from there."""
    batch, nodes = state.nodes.shape
    return DraftBatch(
        state.nodes, state.level, state.at, state.length, state.shares, state.node, state.part,
        np.zeros(batch, np.int64), np.zeros((batch, nodes + 1), SHARE),
    )  # fmt: skip


def drafts_of(draft: Draft, edits: int) -> DraftBatch:
    """One draft as a batch of one, with room to write that many jobs; set `draft.used` after it."""
    nodes = len(draft.nodes)
    draft.reserve(edits * nodes)
    scratch = np.zeros((2, 1, nodes), np.int64)
    return DraftBatch(
        draft.nodes[None], new_index(draft.nodes)[None], draft.at[None], draft.length[None],
        draft.shares[None], scratch[0], scratch[1], np.array([draft.used]),
        np.zeros((1, nodes + 1), SHARE),
    )  # fmt: skip
