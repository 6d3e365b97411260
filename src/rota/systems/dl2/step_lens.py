"""DL2's own lens: a slot is written task by task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from gymnasium import spaces

from rota.systems.dl2 import step_kernels as kernels
from rota.systems.dl2.window import Window

if TYPE_CHECKING:
    from rota.core.types import Bools, Floats, Ints
    from rota.envs.book import Book
    from rota.envs.lens import Arrays
    from rota.envs.view import View
    from rota.envs.wanted import Wanted


@dataclass(frozen=True, kw_only=True)
class StepByStep(Window):
    """Action 3i gives the job in row i a worker, 3i + 1 a server, 3i + 2 both; 3W ends the slot.

    Every slot begins with the minimum of each job; or, without `least_first`, with nothing, and
    the first action 3i gives a job its minimum. A job that has its maximum leaves the window, and
    the next one moves up. The fields are explained in `StepLensConfig`.
    """

    ordinal: bool = False
    rescale: bool = True
    one_hot: bool = False
    keep_capped: bool = False
    mask_room: bool = True
    bundle: bool = True
    least_first: bool = True
    lengths: bool = False

    @property
    def actions(self) -> int:
        """The number of actions, A."""
        return kernels.ROLES * self.window + 1

    @property
    def features(self) -> int:
        """Numbers that describe a job, F: model, age, work left, dominant share, both counts."""
        counts = 2 * (self.most + 1) if self.one_hot else 2
        return kernels.OWN + counts + (1 if self.ordinal else self.types) + self.lengths

    @property
    def action_space(self) -> spaces.Discrete:
        """One of 3W + 1."""
        return spaces.Discrete(self.actions)

    @property
    def mask_shape(self) -> tuple[int, ...]:
        """One flag per action."""
        return (self.actions,)

    def open(self, view: View, book: Book, which: Bools) -> None:
        """Begin a round."""
        self._run(kernels.open_rounds, view, book, which, self.keep_capped, self.least_first)

    def encode(self, view: View, book: Book, out: Arrays) -> None:
        """Fill `out` with jobs, cluster and present."""
        self._run(
            kernels.encode, view, book, self.types, self.ordinal, self.rescale, self.one_hot,
            self.lengths, self.slot_s, self.most, out["jobs"], out["cluster"], out["present"],
        )  # fmt: skip

    def mask(self, view: View, book: Book, out: Bools) -> None:
        """Fill `out` with which actions are allowed."""
        self._run(kernels.mask, view, book, self.mask_room, self.bundle, self.least_first, out)

    def act(self, view: View, book: Book, actions: Ints, ended: Bools) -> None:
        """One edit per cluster; as in the original, a forbidden action ends the round."""
        self._run(
            kernels.act, view, book, self.keep_capped, self.bundle, self.least_first, actions, ended
        )

    def script(self, view: View, book: Book, wanted: Wanted, out: Ints) -> None:
        """The next action towards a teacher's counts (B, J); ask again after each step."""
        how = self.bundle, self.least_first
        self._run(kernels.script, view, book, *how, wanted.workers, wanted.servers, out)

    def towards(self, view: View, book: Book, wanted: Wanted, out: Bools) -> None:
        """Flag in `out` (B, A) every action that leads towards a teacher's counts (B, J)."""
        out.fill(False)
        how = self.bundle, self.least_first
        self._run(kernels.towards, view, book, *how, wanted.workers, wanted.servers, out)

    def jobs_of(self, book: Book, actions: Ints) -> Ints:
        """The jobs (B,) that these actions give tasks to; −1: the action ends the round."""
        row = actions // kernels.ROLES
        shown = np.minimum(row, self.window - 1)
        jobs: Ints = np.where(row < self.window, book.rows[np.arange(len(row)), shown], -1)
        return jobs

    def sample(self, mask: Bools, uniform: Floats, out: Ints) -> None:
        """Fill `out` (B,) with allowed actions, each equally likely, by uniform numbers (B,)."""
        self._run(kernels.sample, mask, uniform, out)
