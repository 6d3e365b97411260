"""What the candidates of a batch of clusters lead to, for look-ahead learning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rota.errors import ConfigError
from rota.jit_call import Caller
from rota.policies import make_policy
from rota.policies.contention.greedy import ContentionGreedy
from rota.policies.contention.neighbour_kernels import GreedySettings, Options
from rota.policies.contention.neighbours import found_of, zeros_like
from rota.policies.contention.spread_kernels import MOST_SPREADS
from rota.systems.deepshare.foresight_kernels import PlayMemory, foresee

if TYPE_CHECKING:
    from rota.core.types import Floats
    from rota.envs.book import Book
    from rota.envs.view import View


class Foresight:
    """Plays on from every candidate by a greedy rule, with the next `coming` arrivals."""

    def __init__(self, book: Book, coming: int, rule: str) -> None:
        """`rule` names `contention-greedy`, perhaps with settings."""
        made = make_policy(rule)
        if type(made) is not ContentionGreedy:
            raise ConfigError(
                f"look_ahead.rules: {rule!r} cannot play on; name contention-greedy, with settings "
                "or without."
            )
        self._run = Caller()
        self._settings = GreedySettings(made.threshold, made.min_ratio, made.size)
        self._by_part = made.fraction
        rooms, found = book.own.rooms, book.own.found
        self._costs = np.zeros(found.score.shape)  # as many as placements, and to wait
        room = type(rooms.room)._make(array[0] for array in rooms.room)
        jobs, spreads = len(room.left), rooms.options.type.shape[1] + MOST_SPREADS * coming
        queues = jobs + coming

        def ints(count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
            return np.zeros(count, np.int64)

        options = Options(
            None, np.zeros(jobs), np.zeros(jobs), rooms.options.sign[0].copy(),
            ints(jobs + coming), ints(queues), ints(spreads), ints(spreads), ints(spreads),
            np.zeros((spreads, rooms.options.speed.shape[2])),
        )  # fmt: skip
        base, trial = (zeros_like(room)._replace(head=ints(queues + 1)) for _ in range(2))
        scratch = type(rooms.scratch)._make(np.zeros_like(array[0]) for array in rooms.scratch)
        scratch = scratch._replace(
            rank=ints(spreads), bound=np.zeros(spreads), last=np.zeros(spreads)
        )
        one = found_of(rooms._replace(room=room), 1)
        self._memory = PlayMemory(
            options, base, trial, scratch, one, ints(queues), ints(queues), ints(queues),
            ints(coming), ints(coming), np.zeros(coming), ints(3),
        )  # fmt: skip

    def costs(self, view: View, book: Book) -> Floats:
        """(B, A) The cost of every action, seconds per job; inf: not allowed. Always one array."""
        self._run(foresee, view, book, self._settings, self._by_part, self._memory, self._costs)
        return self._costs
