"""What lenses that place do to a batch of drafts; the edits are in `rota.ledger.edit_kernels`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.jit import inline
from rota.ledger.draft_kernels import DraftArrays

if TYPE_CHECKING:
    from rota.envs.draft_batch import DraftBatch


@inline
def draft_of(d: DraftBatch, b: int) -> DraftArrays:
    """The draft of cluster b."""
    return DraftArrays(
        d.nodes[b], d.level[b], d.at[b], d.length[b], d.shares[b], d.node[b], d.part[b]
    )
