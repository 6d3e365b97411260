"""The changes that lead from a snapshot to a decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from rota.core.layout import MOVE, RESIZE, START, STOP

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rota.core.decision import Decision
    from rota.core.types import Ints

TURN: Final = np.zeros(1 + max(START, STOP, MOVE, RESIZE), np.int64)
"""By kind of change: when its turn is, in a plan that is carried out one change after another."""
TURN[[STOP, RESIZE, MOVE, START]] = range(4)

Share: TypeAlias = "tuple[tuple[int, int, int], ...]"
"""(node, workers, servers) triples, by node."""


@dataclass(frozen=True)
class Start:
    """Begin, or begin again, with `share`."""

    uid: int
    share: Share


@dataclass(frozen=True)
class Resize:
    """Go on with another number of workers or servers."""

    uid: int
    share: Share


@dataclass(frozen=True)
class Move:
    """Go on with the same numbers of workers and servers on other nodes."""

    uid: int
    share: Share


@dataclass(frozen=True)
class Stop:
    """Hold nothing any more; the job goes back to waiting."""

    uid: int


@dataclass(frozen=True)
class Tune:
    """Change settings of the job itself."""

    uid: int
    settings: Mapping[str, float]


Action: TypeAlias = Start | Resize | Move | Stop | Tune
_MAKES: Final[dict[int, type[Start | Resize | Move]]] = {START: Start, RESIZE: Resize, MOVE: Move}


@dataclass(frozen=True)
class Plan:
    """The difference between a decision and a snapshot; empty when nothing changes.

    Iterating yields actions in an order that can be carried out one by one: stops first,
    starts last. The arrays list the same, with the event numbers of `layout`, for a backend that
    works on arrays.
    """

    decision: Decision
    kind: Ints  # (K,) STOP, RESIZE, MOVE or START, in this order
    job: Ints  # (K,) index into the decision's jobs

    def __len__(self) -> int:
        return len(self.kind) + len(self.decision.tunes)

    def __iter__(self) -> Iterator[Action]:
        uid = self.decision.uid
        for kind, job in zip(self.kind.tolist(), self.job.tolist(), strict=True):
            if kind == STOP:
                yield Stop(int(uid[job]))
            else:
                yield _MAKES[kind](int(uid[job]), self.decision.share(job))
        for job, settings in self.decision.tunes.items():
            yield Tune(int(uid[job]), settings)
