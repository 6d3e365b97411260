"""An ordinary policy made of a lens and something that chooses its actions."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from rota.core.draft import Draft
from rota.envs.book import new_book
from rota.envs.draft_batch import drafts_of
from rota.envs.lens import new_arrays
from rota.envs.pack_kernels import pack_once
from rota.envs.view import view_of_snapshot
from rota.errors import PolicyError
from rota.jit_call import Caller
from rota.ledger.draft_kernels import DraftArrays
from rota.ledger.node_kernels import new_index
from rota.policies.contention.neighbours import PlacementModel

if TYPE_CHECKING:
    from rota.core.decision import Decision
    from rota.core.snapshot import Snapshot
    from rota.core.types import Bools, Ints
    from rota.envs.book import Book
    from rota.envs.lens import Arrays, Lens
    from rota.envs.view import View
    from rota.policies.contention.spread_kernels import PlacementTables

MOST_EDITS: Final = 100_000
"""A round with more edits than this is taken to be endless."""


class Actor(Protocol):
    """Chooses an action for a batch of one: a network, or a rule."""

    def __call__(self, obs: Arrays, mask: Bools, view: View, book: Book) -> Any:
        """The action, (1, …)."""
        ...


class Player(Protocol):
    """Writes whole rounds, which is faster than edit by edit; a network may offer it."""

    def __call__(self, view: View, book: Book, most_edits: int) -> bool:
        """Write the round that the lens has opened; False if it has not ended by `most_edits`."""
        ...


class LensMemory:
    """What a lens that places works in, kept from round to round: it is much, and zeroed."""

    def __init__(self) -> None:
        self._jobs = 0
        self._own: Any = None
        self._shape: Any = None
        self._laws: Any = None

    def room_for(self, jobs: int) -> int:
        """The number of jobs to have memory for: as many as before, if that is not far more."""
        if not jobs <= self._jobs <= 8 * jobs:
            self._jobs = 1 << max(6, jobs.bit_length())
        return self._jobs

    def of(self, lens: Lens, view: View) -> Any:
        """The memory for a view, and for others of its shape in the same cluster."""
        shape, laws = (view.jobs.shape, view.nodes.shape), view.laws
        if shape != self._shape or laws is not self._laws:
            own = lens.memory(view)
            same = self._own is not None and laws is self._laws and shape[1] == self._shape[1]
            if same and hasattr(lens, "carry"):
                lens.carry(self._own, own)
            self._own, self._shape, self._laws = own, shape, laws
        return self._own


@dataclass(frozen=True)
class LensPolicy:
    """Decides as in training: the same lens, the same packing, one cluster."""

    lens: Lens
    act: Actor
    name: str = "lens"
    play: Player | None = None
    """Used instead of `act`, if there is one."""
    compiles: bool = True
    """Its first round may wait for the compiler."""
    _run: Caller = field(default_factory=Caller, init=False, repr=False, compare=False)
    _model: list[PlacementModel] = field(
        default_factory=list, init=False, repr=False, compare=False
    )
    """That of the last snapshot, if there was one."""
    _alone: Any = field(default_factory=Lock, init=False, repr=False, compare=False)
    """Held while a round is written, in memory that all rounds share."""
    _memory: LensMemory = field(default_factory=LensMemory, init=False, repr=False, compare=False)

    def decide(self, snapshot: Snapshot) -> Decision:
        """Write a round edit by edit; a lens that counts has places found for it at the end."""
        with self._alone:
            return self._decide(snapshot)

    def _decide(self, snapshot: Snapshot) -> Decision:
        lens, jobs, draft = self.lens, len(snapshot.jobs), Draft(snapshot)
        if lens.places:
            view = view_of_snapshot(snapshot, self._laws(snapshot), self._memory.room_for(jobs))
            drafts = drafts_of(draft, 2 * jobs)
            book = new_book(1, view.jobs.size, lens.window, drafts, self._memory.of(lens, view))
        else:
            view, drafts = view_of_snapshot(snapshot), None
            book = new_book(1, jobs, lens.window)
        book.dollar_s[:] = getattr(lens, "fee", 0.0)
        lens.open(view, book, np.ones(1, np.bool_))
        if not (self.play or self._edit)(view, book, MOST_EDITS):
            raise PolicyError(
                f"Policy {self.name!r} has not ended its round after {MOST_EDITS:,} edits."
            )
        if drafts is None:
            self._pack(draft, view, book.workers[0], book.servers[0])
        else:
            draft.used = int(drafts.used[0])
        return draft.commit()

    def _laws(self, snapshot: Snapshot) -> PlacementTables:
        """Speed and contention as the snapshot shows them."""
        self._model[:] = [PlacementModel.of(snapshot, self._model[0] if self._model else None)]
        return self._model[0].tables

    def _edit(self, view: View, book: Book, most_edits: int) -> bool:
        """Edit by edit."""
        lens = self.lens
        obs, mask = new_arrays(lens.observation_space, 1), np.zeros((1, *lens.mask_shape), np.bool_)
        actions = np.zeros((1, *(lens.action_space.shape or ())), np.int64)
        ended = np.zeros(1, np.bool_)
        while not ended[0] and book.edits[0] < most_edits:
            lens.encode(view, book, obs)
            lens.mask(view, book, mask)
            actions[...] = self.act(obs, mask, view, book)
            lens.act(view, book, actions, ended)
        return bool(ended[0])

    def _pack(self, draft: Draft, view: View, workers: Ints, servers: Ints) -> None:
        """Write these numbers of tasks (J,) into the draft."""
        # Every job may be written twice, if after the first attempt one has too few tasks.
        draft.reserve(2 * int(np.minimum(workers + servers, len(draft.nodes)).sum()))
        scratch = np.zeros(len(draft.nodes), np.int64)
        arrays = DraftArrays(
            draft.nodes, new_index(draft.nodes), draft.at, draft.length, draft.shares, scratch,
            scratch,
        )  # fmt: skip
        draft.used = self._run(
            pack_once, arrays, view.jobs[0], view.order[0], int(view.live[0]), float(view.now_s[0]),
            workers, servers, draft.used,
        )  # fmt: skip
