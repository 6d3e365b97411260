"""What the candidates of a batch of clusters lead to, for look-ahead learning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rota.errors import ConfigError
from rota.jit_call import Caller
from rota.policies import make_policy
from rota.policies.contention.greedy import ContentionGreedy
from rota.policies.contention.neighbour_kernels import Options
from rota.policies.contention.neighbours import found_of, zeros_like
from rota.policies.contention.spread_kernels import MOST_SPREADS
from rota.systems.deepshare.foresight_kernels import PlayMemory, foresee

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core.types import Floats
    from rota.envs.book import Book
    from rota.envs.view import View


class Foresight:
    """Plays on from every candidate by greedy rules, with the next `coming` arrivals."""

    def __init__(self, book: Book, coming: int, rules: Sequence[str]) -> None:
        """`rules` name `contention-greedy`, perhaps with settings; the best counts."""
        self._run, self._rules = Caller(), np.array([rule_numbers(name) for name in rules])
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
            ints(coming), ints(coming), np.zeros(coming), ints(3), np.zeros(jobs),
        )  # fmt: skip

    def costs(self, view: View, book: Book) -> Floats:
        """(B, A) The cost of every action, seconds per job; inf: not allowed. Always one array."""
        self._run(foresee, view, book, self._rules, self._memory, self._costs)
        return self._costs


def rule_numbers(name: str) -> tuple[float, ...]:
    """The settings of a greedy rule, as `foresee` takes them."""
    rule = make_policy(name)
    if type(rule) is not ContentionGreedy:
        raise ConfigError(
            f"look_ahead.rules: {name!r} cannot play on; name contention-greedy, with settings or "
            "without."
        )
    return rule.threshold, rule.min_ratio, rule.size, rule.fraction
