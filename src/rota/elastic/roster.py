"""Who belongs to a job: what its agent knows of every member, and of every group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rota.elastic.handover import Shards
    from rota.elastic.protocol import Member

Standing = Literal["starting", "ready", "active", "leaving", "gone"]


@dataclass
class Seat:
    """One member, from its start to its end."""

    member: Member
    since_s: float
    """When its present standing began."""
    standing: Standing = "starting"
    """starting: not warm yet; ready: warm; active: in the group; leaving: told to go; gone."""
    heard_s: float = 0.0
    """When it last gave a sign of life."""
    card: dict[str, Any] = field(default_factory=dict)
    """What other members need to know of it; empty before it has said hello."""
    step: int = -1
    """Steps that its memory holds; -1 before it has the state of the job."""
    phase: str = "work"
    """work: in the script; meet: among the others; wait: for the agent."""
    finished: bool = False
    """It has seen the last sample, or was told to halt."""

    @property
    def name(self) -> str:
        return self.member.name

    @property
    def living(self) -> bool:
        return self.standing in ("starting", "ready", "active")

    def place(self, standing: Standing, now_s: float) -> None:
        """Give it another standing."""
        self.standing, self.since_s = standing, now_s


@dataclass(frozen=True)
class Group:
    """Members that train together, or are about to."""

    number: int
    names: tuple[str, ...]
    """Workers by rank, then servers."""
    shards: Shards = field(default_factory=dict)


@dataclass
class Roster:
    """All members that ever were."""

    seats: dict[str, Seat] = field(default_factory=dict)

    def add(self, member: Member, now_s: float) -> Seat:
        """A seat for somebody who is yet to come."""
        seat = Seat(member, now_s, heard_s=now_s)
        self.seats[member.name] = seat
        return seat

    def __getitem__(self, name: str) -> Seat:
        return self.seats[name]

    def of(self, *standings: Standing) -> list[Seat]:
        """Members of these standings, in the order they came."""
        return [seat for seat in self.seats.values() if seat.standing in standings]

    def ordered(self, names: Iterable[str]) -> tuple[str, ...]:
        """Workers before servers, else as given."""
        return tuple(sorted(names, key=lambda name: self.seats[name].member.kind == "server"))
