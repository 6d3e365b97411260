"""Where an agent's head keeps its members and writes its orders."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from rota.elastic.roster import Roster

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rota.elastic.outline import Outline
    from rota.elastic.protocol import JobSpec, Member, Result, Status
    from rota.elastic.roster import Seat

MOST_REASONS: Final = 64
"""Members that could not stay: the reasons of so many are kept."""


@dataclass(frozen=True)
class Order:
    """What the agent is to do: send a message, start a process, or end one.

    end: SIGTERM now, SIGKILL after a while; kill: nothing before that while is over.
    """

    do: Literal["send", "start", "end", "kill"]
    name: str
    message: dict[str, Any] = field(default_factory=dict)
    after_s: float = 0.0


class Mind(Protocol):
    """The head of an agent: events go in with their time, orders come out on its desk."""

    desk: Desk
    result: Result | None
    """How the job ended, once it has."""

    def resize(self, members: Sequence[Member], now_s: float) -> int: ...
    def stop(self, grace_s: float, now_s: float) -> None: ...
    def status(self, now_s: float) -> Status: ...
    def meet(self, name: str, card: dict[str, Any], outline: Outline, now_s: float) -> None: ...
    def hear(self, name: str, message: dict[str, Any], now_s: float) -> None: ...
    def lose(self, name: str, why: str, now_s: float) -> None: ...
    def tick(self, now_s: float) -> None: ...


class Desk:
    """Members, and what is to be done with them."""

    def __init__(self, spec: JobSpec) -> None:
        self.spec, self.roster, self.orders = spec, Roster(), deque[Order]()
        self.refused: dict[str, str] = {}
        """Why members are not there, by name."""

    def active(self) -> list[Seat]:
        """Members of the group."""
        return self.roster.of("active")

    def living(self) -> list[Seat]:
        """Members that are there, or on their way."""
        return self.roster.of("starting", "ready", "active")

    def enough(self, names: Iterable[str]) -> bool:
        """Whether these could train by themselves."""
        kinds = {self.roster[name].member.kind for name in names}
        return kinds >= ({"worker", "server"} if self.spec.mode == "servers" else {"worker"})

    def start(self, member: Member, now_s: float) -> Seat:
        """Expect a member, and start it unless somebody else does."""
        if not member.outside:
            self.orders.append(Order("start", member.name))
        return self.roster.add(member, now_s)

    def tell(self, names: Iterable[str], **message: Any) -> None:
        """Send those who can hear a message."""
        for name in names:
            if self.roster[name].card:
                self.orders.append(Order("send", name, message))

    def kill(self, name: str, after_s: float) -> None:
        """See that a process ends."""
        self.orders.append(Order("kill", name, after_s=after_s))

    def end(self, name: str, grace_s: float) -> None:
        """Ask a process to end; after a while, make it."""
        self.orders.append(Order("end", name, after_s=grace_s))

    def release(self, seat: Seat, now_s: float, after_s: float | None) -> None:
        """Let a member go; after a while, make it."""
        self.tell([seat.name], op="release")
        self.dismiss(seat, now_s, after_s)

    def dismiss(self, seat: Seat, now_s: float, after_s: float | None) -> None:
        """Expect the end of a member."""
        seat.place("leaving", now_s)
        if not seat.card and seat.member.outside:
            seat.place("gone", now_s)  # nobody will tell of its end
        elif not seat.card:
            self.kill(seat.name, 0.0)
        elif after_s is not None:
            self.kill(seat.name, after_s)

    def part(self, seat: Seat, why: str, now_s: float, after_s: float = 0.0) -> None:
        """Go on without a member."""
        seat.place("gone", now_s)
        self.refused[seat.name] = why
        while len(self.refused) > MOST_REASONS:
            del self.refused[next(iter(self.refused))]
        self.kill(seat.name, after_s)

    def reasons(self) -> str:
        """Why members are missing, the last three."""
        told = [f"{name}: {why}" for name, why in self.refused.items()][-3:]
        return "; ".join(told) or "they were never there"
