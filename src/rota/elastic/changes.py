"""How one group of members becomes the next.

A planned change is prepare, hold, switch: members connect while the old group still trains, then
agree on a step, and after it hand over the state. Members that leave are released when all others
have joined, so that at least one member has the state at every moment. After a loss it is break,
prepare, switch: all members leave the group, and those that have the state form the next one.
A growth of the network is a planned change to the same members with one growth more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from rota.elastic.growths import Growths
from rota.elastic.handover import copies, moves, rebalance
from rota.elastic.member_table import Group
from rota.elastic.protocol import AHEAD, Change

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rota.elastic.handover import Shards, Transfers
    from rota.elastic.member_table import MemberEntry, MemberState, MemberTable

TRIES: Final = 3
"""Failed attempts to connect before new members are given up; without new members, the job."""


class Changes:
    """The present group of a job, and the change that is under way."""

    def __init__(self, table: MemberTable, now_s: float) -> None:
        self.table, self.limits = table, table.spec.limits
        self.group: Group | None = None
        self.growths = Growths()
        self.last: Change | None = None
        self.count, self.paused_s, self.began_s = 0, 0.0, now_s
        """Changes since the first group, the sum of their pauses, and when that group began."""
        self.failure = ""
        """Why the job cannot go on."""
        self.halted = False
        """The group has been told to end."""
        self.sizes: list[int] = []
        """Elements of each parameter."""
        self.phase: Literal["idle", "prepare", "hold", "switch", "break"] = "idle"
        self.since_s = self.asked_s = now_s
        self.open: set[str] = set()
        """Members whose answer to the last question is awaited."""
        self.joins: dict[str, dict[str, Any]] = {}
        """Answers of members that have switched already, by name."""
        self._question = self._number = 0
        self._tries = self._breaks = 0
        self._next: Group | None = None
        self._switched: tuple[Group, int] | None = None  # a change that may be complete
        self._broken = False  # all members have been told to leave the group
        self._lost: list[str] = []
        self._growth: Mapping[str, Any] | None = None  # to be made by the change under way
        self._grows = False  # a growth was begun since the last change was complete

    # What the coordinator asks for.

    def begin(self, names: tuple[str, ...], now_s: float) -> None:
        """Begin to form a group of these members: workers by rank, then servers."""
        self.growths.overtake()
        self._number += 1
        shards: Shards = {}
        if self.table.spec.mode == "servers":
            servers = [n for n in names if self.table[n].member.kind == "server"]
            shards = rebalance(self.sizes, self.group.shards if self.group else {}, servers)
        self._next = Group(self._number, names, shards)
        cards = [self.table[name].card for name in names]
        self._ask("prepare", self._number, names, now_s, members=cards)

    def grow(self, growth: Mapping[str, Any], now_s: float) -> None:
        """Begin to let the network of the present group grow."""
        assert self.group is not None
        self.asked_s = now_s
        self.begin(self.group.names, now_s)
        self._growth, self._grows = growth, True

    def halt(self, now_s: float) -> None:
        """End the training after a step on which all members agree."""
        self.halted = True
        self._number += 1
        self._ask("hold", self._number, _names(self.table.active()), now_s)

    def drop(self, now_s: float) -> None:
        """Give up the change that is being prepared."""
        if self._next:
            names = dict.fromkeys([*self._next.names, *_names(self.table.active())])
            self.table.tell(names, op="drop", number=self._next.number)
        self._next = self._growth = None
        self._rest(now_s)

    def moved(self) -> None:
        """Note that a step was made: earlier failures no longer count."""
        self._breaks = 0

    # What members say.

    def answer(self, entry: MemberEntry, message: dict[str, Any], now_s: float) -> None:
        """Take an answer; after the last one, ask the next question."""
        if message.get("number") != self._question or entry.name not in self.open:
            return
        if self.phase == "prepare" and message.get("error"):
            self.retry(f"it could not connect: {message['error']}", now_s)
            return
        if self.phase in ("hold", "switch", "break"):
            entry.step = message["step"]
        if self.phase == "switch":
            self.joins[entry.name] = message
        if self.phase in ("switch", "break"):
            entry.finished = False  # it will say so again
        self.open.discard(entry.name)
        if not self.open:
            self._go_on(now_s)

    def trouble(self, number: int, error: str, now_s: float) -> None:
        """A member of group `number` gets no answer from the other members."""
        if number != self._trained():
            return
        self._breaks += 1
        new = [n for n in sorted(self.open) if self.table[n].state == "ready"]
        if self._breaks <= TRIES:
            self._break(now_s)
        elif self.phase == "switch" and new:
            for name in new:
                self.table.remove(self.table[name], f"it could not join: {error}", now_s)
            self._break(now_s)
        else:
            many = f"{TRIES + 1} times in a row"
            self.failure = f"The members lost their connections {many}: {error}."

    def ungrown(self, number: int, error: str, now_s: float) -> bool:
        """A member cannot grow its network for group `number`; False if only this one cannot.

        It has not joined the group, so no member has made a step in it: all can take an open
        growth back.
        """
        if self.growths.open and (self._broken or self.phase == "switch"):
            self.growths.withdraw(error)
            self._break(now_s)
        elif self.phase == "switch" and number == self._trained():
            return False
        return True

    def lose(self, entry: MemberEntry, was: MemberState, why: str, now_s: float) -> None:
        """A member is gone that was in state `was`."""
        self.open.discard(entry.name)
        if was == "active":
            self._lost.append(entry.name)
            self._breaks = 0
            if not self.table.enough(_names(self.table.active())):
                kind = entry.member.kind
                self.failure = f"{entry.name} was lost ({why}), and no {kind} is left."
                return
        expected = self._next is not None and entry.name in self._next.names
        if was == "active" or (expected and (self._broken or self.phase == "switch")):
            self._break(now_s)
        elif expected:
            self.drop(now_s)
        elif self.phase == "break" and not self.open:
            self._regroup(now_s)

    def retry(self, why: str, now_s: float) -> None:
        """Members do not connect: try again, in the end without new members."""
        assert self._next is not None
        if self._growth is not None:
            self.growths.trouble = f"The members did not connect to grow their network: {why}."
            self.drop(now_s)
            return
        self._tries += 1
        table = self.table
        new = [n for n in self._next.names if table[n].state == "ready"]
        failed = [name for name in new if name in self.open] or new
        self.drop(now_s)
        if self._tries >= TRIES:
            self._tries = 0
            for name in failed:
                self.table.remove(table[name], why, now_s)
            if not failed:
                self.failure = f"The members do not connect; {why}."
        if self._broken and not self.failure:
            self._regroup(now_s)

    # The course of a change.

    def _go_on(self, now_s: float) -> None:
        """All members have answered: take the next step of the change."""
        active = self.table.active()
        if self.phase == "prepare" and active and not self._broken:
            self._ask("hold", self._number, _names(active), now_s)
        elif self.phase == "prepare":
            self._switch(max([entry.step for entry in active], default=0), now_s)
        elif self.phase == "hold":
            at = max(entry.step for entry in active) + AHEAD
            if self._next:
                self._switch(at, now_s)
            else:
                self.table.tell(_names(active), op="halt", at=at)
                self._rest(now_s)
        elif self.phase == "switch":
            self._joined(now_s)
        elif self.phase == "break":
            self._regroup(now_s)

    def _switch(self, at: int, now_s: float) -> None:
        """Tell all members when to switch, and which parts of the state to send to which member."""
        assert self._next is not None
        group, table = self._next, self.table
        leavers = [name for name in _names(self.table.active()) if name not in group.names]
        transfers = [
            {
                "giver": giver,
                "taker": taker,
                "keys": keys,
                "host": table[giver].card["host"],
                "port": table[giver].card["state_port"],
            }
            for (giver, taker), keys in self._transfers(group, at).items()
        ]
        facts = {"at": at, "transfers": transfers, "shards": group.shards, "broken": self._broken}
        facts |= self.growths.order(self._growth)
        self._growth = None
        self.joins, self._switched = {}, (group, at)
        self._ask("switch", group.number, group.names, now_s, **facts)
        self.table.tell(leavers, op="switch", number=group.number, **facts)

    def _transfers(self, group: Group, at: int) -> Transfers:
        """Which parts of the state each member must send to which other member."""
        active = self.table.active()
        present = _names(active) or [group.names[0]]
        if self.table.spec.mode == "allreduce":
            owners = [s.name for s in active if not self._broken or s.step == at] or present
            stay = [name for name in owners if name in group.names]
            return copies(stay or owners, [name for name in group.names if name not in owners])
        kinds = {name: self.table[name].member.kind for name in [*present, *group.names]}
        workers = [name for name in present if kinds[name] == "worker"]
        new = [name for name in group.names if name not in present]
        kept = self.group.shards if self.group else {}
        before = {name: keys for name, keys in kept.items() if name in present}
        servers = [name for name in new if kinds[name] == "server"]
        moved = moves(before, group.shards, workers[0], servers)
        return moved | copies(workers, [name for name in new if kinds[name] == "worker"])

    def _joined(self, now_s: float) -> None:
        """All members are in the new group: release those that leave, and note the change."""
        assert self._next is not None
        before, self.group, self._next = self.group, self._next, None
        table, names = self.table, self.group.names
        joined = [name for name in names if table[name].state == "ready"]
        left = [entry for entry in self.table.active() if entry.name not in names]
        for name in joined:
            table[name].set_state("active", now_s)
        for entry in left:
            self.table.release(entry, now_s, self.limits.leave_s)
        if self.last is None:
            self.began_s = now_s
        stayed = [said["pause_s"] for name, said in self.joins.items() if name not in joined]
        self.last = Change(
            generation=self.group.number,
            cause=self._cause(before),
            joined=tuple(joined),
            left=tuple(_names(left)),
            lost=tuple(self._lost),
            step=max(said["step"] for said in self.joins.values()),
            pause_s=max(stayed, default=0.0),
            took_s=now_s - self.asked_s,
        )
        if self.last.cause == "resize" and before is not None:
            self.growths.resized(len(before.names))
        self.growths.complete()
        self.count += before is not None
        self.paused_s += self.last.pause_s
        self._lost, self._tries, self._broken, self._switched = [], 0, False, None
        self._grows = False
        self.joins = {}
        self._rest(now_s)

    def _cause(self, before: Group | None) -> Literal["start", "resize", "growth", "loss"]:
        """Why the change that is complete now was made."""
        if self._lost:
            return "loss"
        if self._grows:
            return "growth"
        return "resize" if before else "start"

    def _break(self, now_s: float) -> None:
        """Tell all members that are in a group, or about to join one, to leave it."""
        names = _names(self.table.active())
        if self._next:
            names += [n for n in self._next.names if self.table[n].state == "ready"]
        if not self._broken and self.phase == "idle":
            self.asked_s = now_s
        self._number += 1
        self._next, self._growth, self.joins = None, None, {}
        self._broken, self.halted = True, False
        self.growths.overtake()
        self.growths.trial += 1
        self._ask("break", self._number, names, now_s, growths=self.growths.made)

    def _regroup(self, now_s: float) -> None:
        """All have left the old group: form a new one of the members that have the state."""
        steps = [entry.step for entry in self.table.of("ready", "active")]
        if self._switched and max(steps) > self._switched[1]:
            # The last group had begun to train, though not all members could report it in time.
            self.group, _ = self._switched
            for entry in self.table.active():
                if entry.name not in self.group.names:
                    self.table.release(entry, now_s, self.limits.leave_s)
        self._switched = None
        for entry in self.table.of("ready", "active"):
            # A new member may have the state already, and a first member not yet.
            state: MemberState = "active" if entry.step >= 0 else "ready"
            if entry.state != state:
                entry.set_state(state, now_s)
        names = self.table.ordered(_names(self.table.active()))
        if self.table.enough(names):
            self.begin(names, now_s)
        elif self.last is None:  # no group has trained yet: begin again
            for entry in self.table.active():
                entry.set_state("ready", now_s)
                entry.step = -1
            self._broken = False
            self._rest(now_s)
        else:
            self.failure = f"No member is left that has the state; {self.table.reasons()}."

    def _ask(self, op: Any, number: int, names: Iterable[str], now_s: float, **facts: Any) -> None:
        """Ask some members a question; the phase lasts until all have answered."""
        self.phase, self.since_s, self._question, self.open = op, now_s, number, set(names)
        self.table.tell(sorted(self.open), op=op, number=number, **facts)

    def _rest(self, now_s: float) -> None:
        self.phase, self.since_s, self.open = "idle", now_s, set()

    def _trained(self) -> int:
        """Number of the group that trains now, or is about to."""
        if self.phase == "switch" and self._next:
            return self._next.number
        return self.group.number if self.group and not self._broken else -1


def _names(entries: Iterable[MemberEntry]) -> list[str]:
    return [entry.name for entry in entries]
