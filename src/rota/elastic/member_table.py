"""The members of a job as its agent knows them, and the queue of orders concerning them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from rota.elastic.controller import Order

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from rota.elastic.handover import Shards
    from rota.elastic.protocol import JobSpec, Member

MOST_REASONS: Final = 64
"""Members of which the reason for their absence is kept; older reasons are dropped."""

MemberState = Literal["starting", "ready", "active", "leaving", "gone"]


@dataclass
class MemberEntry:
    """One member, from its start to its end."""

    member: Member
    since_s: float
    """When its present state began."""
    state: MemberState = "starting"
    """starting: not ready to train yet; ready: waits for a group; active: in the group; leaving:
    told to end; gone: ended."""
    heard_s: float = 0.0
    """When its last message came."""
    card: dict[str, Any] = field(default_factory=dict)
    """Its address for other members; empty before its hello."""
    step: int = -1
    """Steps that its copy of the training state has done; -1 before it has a copy."""
    phase: str = "work"
    """work: runs the script; meet: waits for other members; wait: waits for the agent."""
    finished: bool = False
    """It has trained the last sample, or was told to halt."""

    @property
    def name(self) -> str:
        return self.member.name

    @property
    def alive(self) -> bool:
        """Whether it takes part in the job, or soon will."""
        return self.state in ("starting", "ready", "active")

    def set_state(self, state: MemberState, now_s: float) -> None:
        self.state, self.since_s = state, now_s


@dataclass(frozen=True)
class Group:
    """Members that train together, or are about to."""

    number: int
    names: tuple[str, ...]
    """Workers by rank, then servers."""
    shards: Shards = field(default_factory=dict)


class MemberTable:
    """All members that a job has ever had, and the orders that the agent has still to carry out."""

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self.entries: dict[str, MemberEntry] = {}
        """By name, in the order in which they were started."""
        self.orders = deque[Order]()
        self.refused: dict[str, str] = {}
        """Why members could not join or were lost, by name."""

    def __getitem__(self, name: str) -> MemberEntry:
        return self.entries[name]

    def of(self, *states: MemberState) -> list[MemberEntry]:
        """Members in these states."""
        return [entry for entry in self.entries.values() if entry.state in states]

    def active(self) -> list[MemberEntry]:
        """Members of the group."""
        return self.of("active")

    def alive(self) -> list[MemberEntry]:
        """Members that take part, or soon will."""
        return self.of("starting", "ready", "active")

    def ordered(self, names: Iterable[str]) -> tuple[str, ...]:
        """The names with workers before servers, and otherwise as given."""
        return tuple(sorted(names, key=lambda name: self.entries[name].member.kind == "server"))

    def enough(self, names: Iterable[str]) -> bool:
        """Whether these members alone could train."""
        kinds = {self[name].member.kind for name in names}
        return kinds >= ({"worker", "server"} if self.spec.mode == "servers" else {"worker"})

    def expect(self, members: Iterable[Member], now_s: float) -> None:
        """Expect new members that are started outside: they may say hello at any time from now."""
        for member in members:
            if member.outside and member.name not in self.entries:
                self.start(member, now_s)

    def must_leave(self, wanted: Collection[str]) -> bool:
        """Whether a host outside takes its member away, and others can go on without waiting."""
        leave = [entry for entry in self.active() if entry.name not in wanted]
        stay = [entry.name for entry in self.active() if entry.name in wanted]
        return any(entry.member.outside for entry in leave) and self.enough(stay)

    def start(self, member: Member, now_s: float) -> MemberEntry:
        """Add a member, and order its start unless it is started from outside."""
        if not member.outside:
            self.orders.append(Order("start", member.name))
        entry = self.entries[member.name] = MemberEntry(member, now_s, heard_s=now_s)
        return entry

    def tell(self, names: Iterable[str], **message: Any) -> None:
        """Send a message to those of these members that have said hello."""
        for name in names:
            if self[name].card:
                self.orders.append(Order("send", name, message))

    def kill(self, name: str, after_s: float) -> None:
        """Order the end of a process that still runs after `after_s`."""
        self.orders.append(Order("kill", name, after_s=after_s))

    def end(self, name: str, grace_s: float) -> None:
        """Order SIGTERM for a process, and SIGKILL after `grace_s`."""
        self.orders.append(Order("end", name, after_s=grace_s))

    def release(self, entry: MemberEntry, now_s: float, after_s: float | None) -> None:
        """Tell a member to end, and kill it if it still runs after `after_s`."""
        self.tell([entry.name], op="release")
        self.dismiss(entry, now_s, after_s)

    def dismiss(self, entry: MemberEntry, now_s: float, after_s: float | None) -> None:
        """Expect the end of a member, and kill it if it still runs after `after_s`."""
        entry.set_state("leaving", now_s)
        if not entry.card and entry.member.outside:
            entry.set_state("gone", now_s)  # no event will tell of its end
        elif not entry.card:
            self.kill(entry.name, 0.0)
        elif after_s is not None:
            self.kill(entry.name, after_s)

    def remove(self, entry: MemberEntry, why: str, now_s: float, after_s: float = 0.0) -> None:
        """Count a member as gone, keep the reason, and kill its process after `after_s`."""
        entry.set_state("gone", now_s)
        self.refused[entry.name] = why
        while len(self.refused) > MOST_REASONS:
            del self.refused[next(iter(self.refused))]
        self.kill(entry.name, after_s)

    def reasons(self) -> str:
        """Why members are missing, the last three of them."""
        told = [f"{name}: {why}" for name, why in self.refused.items()][-3:]
        return "; ".join(told) or "no member was ever there"
