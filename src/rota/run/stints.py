"""Who held what from when to when, read back from a journal's events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rota.core.layout import ARRIVE, FINISH, GIVE_UP, KILL, MOVE, NODE_DOWN, RESIZE, START, STOP

if TYPE_CHECKING:
    from rota.core.types import Ints, Records


@dataclass(frozen=True)
class Stint:
    """A time in which a job held the same."""

    begin_s: float
    end_s: float
    share: tuple[tuple[int, int, int], ...]
    """(node, workers, servers), by node."""

    @property
    def workers(self) -> int:
        return sum(workers for _, workers, _ in self.share)


def stints(events: Records, shares: Records, offsets: Ints, end_s: float) -> dict[int, list[Stint]]:
    """The stints of every job that ever held something, by its number; open ones end at `end_s`."""
    found: dict[int, list[Stint]] = {}
    held: dict[int, tuple[float, tuple[tuple[int, int, int], ...]]] = {}
    for number, event in enumerate(events.tolist()):
        time_s, job, kind = event[0], event[1], event[2]
        if kind == ARRIVE or kind >= NODE_DOWN:
            continue
        if job in held:
            begin_s, share = held.pop(job)
            found.setdefault(job, []).append(Stint(begin_s, time_s, share))
        if kind in (START, MOVE, RESIZE):
            entries = shares[int(offsets[number]) : int(offsets[number + 1])]
            held[job] = (time_s, tuple(entries.tolist()))
        else:
            assert kind in (STOP, FINISH, KILL, GIVE_UP)
    for job, (begin_s, share) in held.items():
        found.setdefault(job, []).append(Stint(begin_s, max(end_s, begin_s), share))
    return found
