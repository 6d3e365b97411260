"""Which GPUs each member of a job sits on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, get_args

from rota.elastic.protocol import Kind, Member
from rota.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rota.core.plan import Share


@dataclass(frozen=True)
class Seat:
    """A place for one member."""

    kind: Kind
    node: int
    gpus: tuple[int, ...] = ()
    """Numbered within the node."""

    def meets(self, other: Seat) -> bool:
        """Whether two members would use the same GPU."""
        return self.node == other.node and not set(self.gpus).isdisjoint(other.gpus)


def decode_seats(facts: object) -> Seats:
    """Read what `asdict` gave of seats, or ValueError that says what is wrong."""
    if not isinstance(facts, dict):
        raise ValueError("seats are not listed by name")
    seats: Seats = {}
    for name, seat in facts.items():
        if not isinstance(seat, dict) or seat.keys() != {"kind", "node", "gpus"}:
            raise ValueError(f"{name!r} is no seat")
        gpus = seat["gpus"]
        if not isinstance(gpus, list) or not all(map(_is_index, [seat["node"], *gpus])):
            raise ValueError(f"the seat of {name!r} is nowhere")
        if len(set(gpus)) < len(gpus) or seat["kind"] not in get_args(Kind):
            raise ValueError(f"the seat of {name!r} makes no sense")
        # The name is that of a process and of a file.
        seats[Member(name, seat["kind"]).name] = Seat(seat["kind"], seat["node"], tuple(gpus))
    return seats


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


Seats: TypeAlias = "dict[str, Seat]"
"""By the member's name."""


def reseat(
    seats: Seats,
    share: Share,
    each: int,
    others: Iterable[Seat],
    has: Mapping[int, int],
    serial: int,
) -> tuple[Seats, int]:
    """Seats such that the job holds `share`, with as few changes as can be.

    `others` are the seats of all other jobs, `has` the GPUs of each node. On every node the
    members that came first stay. New ones are numbered from `serial` on; the next is returned.
    """
    kept, left = stayers(seats, share)
    used = {(seat.node, gpu) for seat in (*others, *kept.values()) for gpu in seat.gpus}
    for (node, kind), missing in left.items():
        for _ in range(missing):
            gpus: tuple[int, ...] = ()
            if kind == "worker":
                free = [gpu for gpu in range(has[node]) if (node, gpu) not in used]
                if len(free) < each:
                    raise JobError(f"Node {node} has {len(free)} GPUs left; a worker needs {each}.")
                gpus = tuple(free[:each])
                used.update((node, gpu) for gpu in gpus)
            kept[f"{kind[0]}{serial}"] = Seat(kind, node, gpus)
            serial += 1
    return kept, serial


def stayers(seats: Seats, share: Share) -> tuple[Seats, Counter[tuple[int, Kind]]]:
    """Which of `seats` are part of `share`, and how many are missing, by node and kind."""
    left: Counter[tuple[int, Kind]] = Counter()
    for node, workers, servers in share:
        left[node, "worker"], left[node, "server"] = workers, servers
    kept: Seats = {}
    for name, seat in seats.items():
        if left[seat.node, seat.kind] > 0:
            left[seat.node, seat.kind] -= 1
            kept[name] = seat
    return kept, left


def share_of(seats: Mapping[str, Seat]) -> Share:
    """What these seats are together: (node, workers, servers), by node."""
    count = Counter((seat.node, seat.kind) for seat in seats.values())
    nodes = sorted({node for node, _ in count})
    return tuple((node, count[node, "worker"], count[node, "server"]) for node in nodes)


def misplaced(seats: Sequence[Seat], others: Sequence[Seat], has: Mapping[int, int]) -> str:
    """What is wrong with the seats of a job that was there before, if anything is."""
    if any(s.node not in has or max(s.gpus, default=-1) >= has[s.node] for s in seats):
        return "that this cluster does not have"
    for k, seat in enumerate(seats):
        if any(seat.meets(other) for other in (*seats[:k], *others)):
            return "that another one has"
    return ""


def free_gpus(
    has: Mapping[int, int], taken: Iterable[Seat], awaited: Iterable[Seat]
) -> dict[int, int]:
    """GPUs by node that are not `taken`; those that somebody awaits are counted where they wait."""
    late = {(seat.node, gpu) for seat in awaited for gpu in seat.gpus}
    used = {(seat.node, gpu) for seat in taken for gpu in seat.gpus} - late
    count = Counter(node for node, _ in used)
    return {node: gpus - count[node] for node, gpus in has.items()}
