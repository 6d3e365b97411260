"""What all learners share: which case comes next, and what a moment looks like to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.random import Generator

    from rota.adapt.growth_cases import Cases
    from rota.adapt.moment import Moment

T = TypeVar("T")
_MOST_KEPT: Final = 50_000


@dataclass
class Turns:
    """Draws cases so that each comes once before any comes again, and replicas by lot."""

    cases: Cases
    rng: Generator
    waiting: list[int] = field(default_factory=list)
    """Cases that are still to come in this round."""

    def next(self) -> tuple[int, int]:
        """A case and a replica."""
        if not self.waiting:
            self.waiting = self.rng.permutation(len(self.cases.names)).tolist()
        return self.waiting.pop(), int(self.rng.integers(self.cases.replicas))


class Looked(Generic[T]):
    """Looks at every moment once; cases answer the same question by the same object."""

    def __init__(self, look: Callable[[Moment], T]) -> None:
        self._look = look
        self._kept: dict[int, tuple[Moment, T]] = {}

    def __call__(self, moment: Moment) -> T:
        """What the moment looks like."""
        kept = self._kept.get(id(moment))
        if kept is None:
            if len(self._kept) >= _MOST_KEPT:  # cases that make every moment afresh
                self._kept.clear()
            # The moment is kept too, or another could get its id.
            kept = self._kept[id(moment)] = (moment, self._look(moment))
        return kept[1]
