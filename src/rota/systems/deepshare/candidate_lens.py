"""The lens of DeepShare as rota has it: one placement of one waiting job after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from gymnasium import spaces

from rota.errors import PolicyError
from rota.jit_call import Caller
from rota.policies.contention.neighbours import found_of, new_rooms, zeros_like
from rota.policies.contention.spread_kernels import MOST_SPREADS
from rota.systems.deepshare import candidate_kernels as kernels
from rota.systems.deepshare.feature_kernels import CANDIDATE, CLUSTER, encode
from rota.systems.deepshare.move_kernels import MoveMemory

if TYPE_CHECKING:
    from rota.core.types import Bools, Ints
    from rota.envs.book import Book
    from rota.envs.lens import Arrays
    from rota.envs.view import View
    from rota.envs.wanted import Wanted

MOST_LISTED = 4_000_000
"""Jobs that all nodes together can list; each can list 512, whatever their number."""


@dataclass(frozen=True)
class CandidateLens:
    """Sees the best placements of waiting jobs; chooses one, or to wait."""

    most: int = 16
    """Placements of waiting jobs that are shown."""
    moves: int = 4
    """Moves of running jobs that are shown."""
    contention: bool = True
    """Whether it sees how jobs slow each other down."""
    wait: bool = True
    """Whether it may wait while a job could start."""
    places: ClassVar[bool] = True
    window: ClassVar[int] = 1
    candidates: ClassVar[tuple[str, ...]] = ("candidate",)
    run: Caller = field(default_factory=Caller, init=False, repr=False, compare=False)
    """Calls its kernels."""

    @property
    def actions(self) -> int:
        """To wait, to start a job somewhere, or to move one."""
        return 1 + self.most + self.moves

    @property
    def observation_space(self) -> spaces.Dict:
        shapes = {"candidate": (self.actions, CANDIDATE), "cluster": (CLUSTER,)}
        boxes = {n: spaces.Box(-np.inf, np.inf, shape, np.float32) for n, shape in shapes.items()}
        return spaces.Dict({**boxes, "many": spaces.Box(1, self.actions, (), np.int64)})

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(self.actions)

    @property
    def mask_shape(self) -> tuple[int, ...]:
        return (self.actions,)

    def memory(self, view: View) -> kernels.CandidateMemory:
        batch, jobs = view.jobs.shape
        nodes = view.nodes.shape[1]
        slots = min(jobs, max(512, MOST_LISTED // nodes)) + 1
        rooms = new_rooms((batch,), jobs, nodes, view.laws, slots, nodes)
        trial, scratch = zeros_like(rooms.room), zeros_like(rooms.scratch)
        end, queue = np.zeros((2, batch, 1), np.int64)
        moving = MoveMemory(
            trial, scratch, found_of(rooms, self.moves), found_of(rooms, 1), end, queue,
            np.zeros((batch, MOST_SPREADS), np.int64),
        )  # fmt: skip
        found = found_of(rooms, self.most + self.moves)
        starts, blind, eager = np.zeros((3, batch, 1), np.int64)
        blind[:], eager[:] = not self.contention, not self.wait
        return kernels.CandidateMemory(rooms, found, moving, starts, blind, eager)

    def open(self, view: View, book: Book, which: Bools) -> None:
        if not self.run(kernels.open_rounds, view, book, which):
            raise PolicyError("A node lists more jobs than there is memory for.")

    def encode(self, view: View, book: Book, out: Arrays) -> None:
        self.run(encode, view, book, out["candidate"], out["cluster"], out["many"])

    def mask(self, view: View, book: Book, out: Bools) -> None:
        del view
        own = book.own
        self.run(kernels.mask, own.rooms.room.run, own.found.option, own.starts, own.eager, out)

    def act(self, view: View, book: Book, actions: Ints, ended: Bools) -> None:
        self.run(kernels.act, view, book, actions, ended)

    def script(self, view: View, book: Book, wanted: Wanted, out: Ints) -> None:
        """The next placement that a teacher wants; to wait if none of those shown is wanted."""
        self.run(kernels.script, view, book, wanted, out)

    def towards(self, view: View, book: Book, wanted: Wanted, out: Bools) -> None:
        """All placements that a teacher wants; to wait if none of those shown is wanted."""
        self.run(kernels.towards, view, book, wanted, out)
