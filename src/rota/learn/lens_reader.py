"""Between a lens, which works on whole batches, and a network, which sees decisions one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rota.learn.rollout_env import Choice
from rota.learn.states import MANY, Allowed, Decisions, States, begins_of
from rota.systems.agents import EDITOR, follow_jobs
from rota.systems.choice_kernels import GREEDY, pick_listed, pick_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rota.core.types import Bools, Ints
    from rota.envs.book import Book
    from rota.envs.view import View
    from rota.systems.agents import LearnedAgent


class LensReader:
    """Turns what a lens shows and allows into states and options, and scores into its actions.

    A lens with candidates names the observations that have a row for each, `candidates`, and
    counts them as the observation "many" (B,); rows beyond are left out here.
    """

    def __init__(self, lens: Any, agents: tuple[LearnedAgent, ...] = EDITOR) -> None:
        self.lens, self.follows_jobs = lens, follow_jobs(agents)
        self._lists: tuple[str, ...] = tuple(getattr(lens, "candidates", ()))

    def states(self, seen: dict[str, NDArray[Any]], rows: Ints) -> States:
        """What the lens shows; `rows` (B, W) are the jobs of its window."""
        if self.follows_jobs:
            return States({**seen, "rows": rows})
        if not self._lists:
            return States(seen)
        flat = {name: self.flat(seen[name], seen, rows) for name in self._lists}
        return States({**seen, **flat}, self._lists)

    def flat(self, table: NDArray[Any], seen: dict[str, NDArray[Any]], rows: Ints) -> NDArray[Any]:
        """What a lens wrote for decisions or their options, (B, …), without rows that mean none."""
        if self.follows_jobs:
            return table[rows >= 0]
        if not self._lists:
            return table
        return table[np.arange(table.shape[1]) < seen[MANY][:, None]]

    def allowed(
        self, mask: Bools, seen: dict[str, NDArray[Any]], rows: Ints, right: Bools | None = None
    ) -> Allowed:
        """What is allowed, and what would be right, if that is known."""
        begins = begins_of(seen[MANY]) if self._lists else None
        good = None if right is None else self.flat(right, seen, rows)
        return Allowed(self.flat(mask, seen, rows), begins, good)

    def decisions(
        self, actions: Ints, mask: Bools, seen: dict[str, NDArray[Any]], rows: Ints,
        right: Bools | None = None,
    ) -> Decisions:  # fmt: skip
        """What actions of the lens decide."""
        begins, action = None, actions
        if self.follows_jobs:
            begins, action = begins_of((rows >= 0).sum(1)), actions[rows >= 0]
        return Decisions(self.allowed(mask, seen, rows, right), {"action": action}, begins)

    def choose(
        self, view: View, book: Book, seen: dict[str, NDArray[Any]], mask: Bools,
        logits: NDArray[Any], rng: np.random.Generator | None,
    ) -> Choice:  # fmt: skip
        """Allowed drawn by logits (n, A) or (C,), or the likeliest without a generator."""
        if self.follows_jobs:
            return self._choose_for_jobs(view, book, mask, logits, rng)
        batch = len(mask)
        action, log_prob = np.zeros(batch, np.int64), np.zeros(batch, np.float32)
        luck = np.full(batch, GREEDY, np.float32) if rng is None else rng.random(batch, np.float32)
        options = self.allowed(mask, seen, book.rows)
        if options.begins is None:
            pick_rows(logits, mask, luck, action, log_prob)
        else:
            pick_listed(logits, options.flags, options.begins, luck, action, log_prob)
        return Choice(action, options, action, log_prob)

    def _choose_for_jobs(
        self, view: View, book: Book, mask: Bools, logits: NDArray[Any],
        rng: np.random.Generator | None,
    ) -> Choice:  # fmt: skip
        """The lens draws itself, as one job's choice limits the next."""
        rows = book.rows
        live, shape = rows >= 0, rows.shape
        luck = np.zeros(shape)
        if rng is not None:
            luck[...] = rng.random(shape, np.float32)
        scores, allowed = np.zeros(mask.shape, np.float32), np.zeros(mask.shape, np.bool_)
        scores[live] = logits
        actions, log_prob = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
        self.lens.choose(view, book, scores, luck, rng is None, actions, log_prob, allowed)
        return Choice(actions, Allowed(allowed[live]), actions[live], log_prob[live], rows[live])
