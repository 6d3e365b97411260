"""The one-pass lens: one choice of servers and workers per job and slot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from gymnasium import spaces

from rota.envs.lens import check_array
from rota.systems.dl2 import onepass_kernels as kernels
from rota.systems.dl2.window import Window

if TYPE_CHECKING:
    from rota.core.types import Bools, Floats, Ints
    from rota.envs.book import Book
    from rota.envs.lens import Arrays
    from rota.envs.view import View
    from rota.envs.wanted import Wanted


@dataclass(frozen=True, kw_only=True)
class OnePass(Window):
    """Every job in the window gets its servers and workers at once, in one step per slot.

    Action c of a job means c // most + 1 servers and c % most + 1 workers. Jobs choose in order
    of submission, each from what is free when every later job has its minimum.
    """

    @property
    def actions(self) -> int:
        """Choices of a job, A."""
        return self.most**2

    @property
    def features(self) -> int:
        """Numbers that describe a job, F."""
        return self.types + kernels.OWN

    @property
    def action_space(self) -> spaces.MultiDiscrete:
        """One choice per row; those of empty rows are ignored."""
        return spaces.MultiDiscrete([self.actions] * self.window)

    @property
    def mask_shape(self) -> tuple[int, ...]:
        """One flag per row and choice."""
        return (self.window, self.actions)

    def open(self, view: View, book: Book, which: Bools) -> None:
        """Begin a round: every job starts at its minimum."""
        self._run(kernels.open_rounds, view, book, which)

    def encode(self, view: View, book: Book, out: Arrays) -> None:
        """Fill `out` with jobs, cluster and present."""
        self._run(
            kernels.encode, view, book, self.types, self.slot_s, self.most,
            out["jobs"], out["cluster"], out["present"],
        )  # fmt: skip

    def mask(self, view: View, book: Book, out: Bools) -> None:
        """What each job may choose while the others keep their minimum; `choose` is exact."""
        out.fill(False)
        self._run(kernels.mask, view, book, self.most, out)

    def act(self, view: View, book: Book, actions: Ints, ended: Bools) -> None:
        """Apply all choices; one for which there is no room is ignored."""
        self._run(kernels.act, view, book, self.most, actions, ended)

    def script(self, view: View, book: Book, wanted: Wanted, out: Ints) -> None:
        """The choices nearest to a teacher's counts (B, J), −1 where it gives nothing."""
        self._run(kernels.script, view, book, self.most, wanted.workers, wanted.servers, out)

    def choose(
        self, view: View, book: Book, logits: Floats, uniform: Floats, greedy: bool,
        actions: Ints, logp: Floats, allowed: Bools,
    ) -> None:  # fmt: skip
        """Draw from the softmax of logits (B, W, A) float32, or take the largest.

        Each job draws from what is free after the jobs before it, so log-probabilities (B, W) are
        exact; `allowed` (B, W, A) are the actions it drew from. Rows without a job, or whose job
        has no room, get action −1, log-probability 0 and nothing allowed.
        """
        shape = book.rows.shape
        check_array("logits", logits, (*shape, self.actions), np.float32)
        check_array("uniform", uniform, shape, np.float64)
        check_array("actions", actions, shape, np.int64)
        check_array("logp", logp, shape, np.float32)
        check_array("allowed", allowed, (*shape, self.actions), np.bool_)
        allowed.fill(False)
        self._run(
            kernels.choose, view, book, self.most, logits, uniform, bool(greedy), actions, logp,
            allowed, np.zeros(self.actions, np.float32),
        )  # fmt: skip
