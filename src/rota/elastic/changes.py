"""How one group of members becomes the next.

A planned change is prepare, hold, switch: members connect while the old group still trains, then
agree on a step, and after it hand over the state. Those who leave are released when all others
have joined, so that somebody who has the state is there at every moment. After a loss it is break,
prepare, switch: all leave the group, and those who have the state form the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from rota.elastic.handover import copies, moves, rebalance
from rota.elastic.protocol import AHEAD, Change
from rota.elastic.roster import Group

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rota.elastic.desk import Desk
    from rota.elastic.handover import Gifts, Shards
    from rota.elastic.roster import Seat, Standing

TRIES: Final = 3
"""How often members may fail to meet before newcomers are given up, or the job."""


class Changes:
    """The group, and the change that it is in."""

    def __init__(self, desk: Desk, now_s: float) -> None:
        self.desk, self.limits = desk, desk.spec.limits
        self.group: Group | None = None
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
        """Whose answer to the last question is awaited."""
        self.joins: dict[str, dict[str, Any]] = {}
        """What those have said who have switched already."""
        self._question = self._number = 0
        self._tries = self._breaks = 0
        self._next: Group | None = None
        self._switched: tuple[Group, int] | None = None  # a change that may have come to pass
        self._broken = False  # the group has been called back and waits
        self._lost: list[str] = []

    # What the coordinator asks for.

    def begin(self, names: tuple[str, ...], now_s: float) -> None:
        """Make these the group: workers by rank, then servers."""
        self._number += 1
        shards: Shards = {}
        if self.desk.spec.mode == "servers":
            servers = [n for n in names if self.desk.roster[n].member.kind == "server"]
            shards = rebalance(self.sizes, self.group.shards if self.group else {}, servers)
        self._next = Group(self._number, names, shards)
        cards = [self.desk.roster[name].card for name in names]
        self._ask("prepare", self._number, names, now_s, members=cards)

    def halt(self, now_s: float) -> None:
        """End the training after a step on which all agree."""
        self.halted = True
        self._number += 1
        self._ask("hold", self._number, _names(self.desk.active()), now_s)

    def drop(self, now_s: float) -> None:
        """Give up the change that is being prepared."""
        if self._next:
            names = dict.fromkeys([*self._next.names, *_names(self.desk.active())])
            self.desk.tell(names, op="drop", number=self._next.number)
        self._next = None
        self._rest(now_s)

    def moved(self) -> None:
        """A step was made: what went wrong before it is forgotten."""
        self._breaks = 0

    # What members say.

    def answer(self, seat: Seat, message: dict[str, Any], now_s: float) -> None:
        """Take in an answer; with the last one, the next question is asked."""
        if message.get("number") != self._question or seat.name not in self.open:
            return
        if self.phase == "prepare" and message.get("error"):
            self.retry(f"it could not connect: {message['error']}", now_s)
            return
        if self.phase in ("hold", "switch", "break"):
            seat.step = message["step"]
        if self.phase == "switch":
            self.joins[seat.name] = message
        if self.phase in ("switch", "break"):
            seat.finished = False  # it will say so again
        self.open.discard(seat.name)
        if not self.open:
            self._go_on(now_s)

    def trouble(self, number: int, error: str, now_s: float) -> None:
        """A member of this group is not answered by the others."""
        if number != self._trained():
            return
        self._breaks += 1
        newcomers = [n for n in sorted(self.open) if self.desk.roster[n].standing == "ready"]
        if self._breaks <= TRIES:
            self._break(now_s)
        elif self.phase == "switch" and newcomers:
            for name in newcomers:
                self.desk.part(self.desk.roster[name], f"it could not join: {error}", now_s)
            self._break(now_s)
        else:
            self.failure = f"The members lose one another again and again: {error}."

    def lose(self, seat: Seat, was: Standing, why: str, now_s: float) -> None:
        """A member is gone that had this standing."""
        self.open.discard(seat.name)
        if was == "active":
            self._lost.append(seat.name)
            self._breaks = 0
            if not self.desk.enough(_names(self.desk.active())):
                kind = seat.member.kind
                self.failure = f"{seat.name} was lost ({why}), and no {kind} is left."
                return
        expected = self._next is not None and seat.name in self._next.names
        if was == "active" or (expected and (self._broken or self.phase == "switch")):
            self._break(now_s)
        elif expected:
            self.drop(now_s)
        elif self.phase == "break" and not self.open:
            self._regroup(now_s)

    def retry(self, why: str, now_s: float) -> None:
        """Members do not connect: try again, in the end without newcomers."""
        assert self._next is not None
        self._tries += 1
        roster = self.desk.roster
        newcomers = [n for n in self._next.names if roster[n].standing == "ready"]
        guilty = [name for name in newcomers if name in self.open] or newcomers
        self.drop(now_s)
        if self._tries >= TRIES:
            self._tries = 0
            for name in guilty:
                self.desk.part(roster[name], why, now_s)
            if not guilty:
                self.failure = f"The members do not connect; {why}."
        if self._broken and not self.failure:
            self._regroup(now_s)

    # The course of a change.

    def _go_on(self, now_s: float) -> None:
        """All have answered."""
        active = self.desk.active()
        if self.phase == "prepare" and active and not self._broken:
            self._ask("hold", self._number, _names(active), now_s)
        elif self.phase == "prepare":
            self._switch(max([seat.step for seat in active], default=0), now_s)
        elif self.phase == "hold":
            at = max(seat.step for seat in active) + AHEAD
            if self._next:
                self._switch(at, now_s)
            else:
                self.desk.tell(_names(active), op="halt", at=at)
                self._rest(now_s)
        elif self.phase == "switch":
            self._joined(now_s)
        elif self.phase == "break":
            self._regroup(now_s)

    def _switch(self, at: int, now_s: float) -> None:
        """Tell everybody when, and who gets what from whom."""
        assert self._next is not None
        group, roster = self._next, self.desk.roster
        leavers = [name for name in _names(self.desk.active()) if name not in group.names]
        transfers = [
            {
                "giver": giver,
                "taker": taker,
                "keys": keys,
                "host": roster[giver].card["host"],
                "port": roster[giver].card["state_port"],
            }
            for (giver, taker), keys in self._gifts(group, at).items()
        ]
        facts = {"at": at, "transfers": transfers, "shards": group.shards, "broken": self._broken}
        self.joins, self._switched = {}, (group, at)
        self._ask("switch", group.number, group.names, now_s, **facts)
        self.desk.tell(leavers, op="switch", number=group.number, **facts)

    def _gifts(self, group: Group, at: int) -> Gifts:
        active = self.desk.active()
        present = _names(active) or [group.names[0]]
        if self.desk.spec.mode == "allreduce":
            owners = [s.name for s in active if not self._broken or s.step == at] or present
            stay = [name for name in owners if name in group.names]
            return copies(stay or owners, [name for name in group.names if name not in owners])
        kinds = {name: self.desk.roster[name].member.kind for name in [*present, *group.names]}
        workers = [name for name in present if kinds[name] == "worker"]
        news = [name for name in group.names if name not in present]
        kept = self.group.shards if self.group else {}
        before = {name: keys for name, keys in kept.items() if name in present}
        servers = [name for name in news if kinds[name] == "server"]
        gifts = moves(before, group.shards, workers[0], servers)
        return gifts | copies(workers, [name for name in news if kinds[name] == "worker"])

    def _joined(self, now_s: float) -> None:
        """Everybody is in the new group: those who leave may go."""
        assert self._next is not None
        before, self.group, self._next = self.group, self._next, None
        roster, names = self.desk.roster, self.group.names
        joined = [name for name in names if roster[name].standing == "ready"]
        left = [seat for seat in self.desk.active() if seat.name not in names]
        for name in joined:
            roster[name].place("active", now_s)
        for seat in left:
            self.desk.release(seat, now_s, self.limits.leave_s)
        if self.last is None:
            self.began_s = now_s
        stayed = [said["pause_s"] for name, said in self.joins.items() if name not in joined]
        self.last = Change(
            generation=self.group.number,
            cause="loss" if self._lost else "resize" if before else "start",
            joined=tuple(joined),
            left=tuple(_names(left)),
            lost=tuple(self._lost),
            step=max(said["step"] for said in self.joins.values()),
            pause_s=max(stayed, default=0.0),
            took_s=now_s - self.asked_s,
        )
        self.count += before is not None
        self.paused_s += self.last.pause_s
        self._lost, self._tries, self._broken, self._switched = [], 0, False, None
        self.joins = {}
        self._rest(now_s)

    def _break(self, now_s: float) -> None:
        """Call everybody back who is in a group, or on the way into one."""
        names = _names(self.desk.active())
        if self._next:
            names += [n for n in self._next.names if self.desk.roster[n].standing == "ready"]
        if not self._broken and self.phase == "idle":
            self.asked_s = now_s
        self._number += 1
        self._next, self.joins = None, {}
        self._broken, self.halted = True, False
        self._ask("break", self._number, names, now_s)

    def _regroup(self, now_s: float) -> None:
        """All have left the old group: form one of those who have the state."""
        steps = [seat.step for seat in self.desk.roster.of("ready", "active")]
        if self._switched and max(steps) > self._switched[1]:
            # The last group had begun to train, though not all could say so in time.
            self.group, _ = self._switched
            for seat in self.desk.active():
                if seat.name not in self.group.names:
                    self.desk.release(seat, now_s, self.limits.leave_s)
        self._switched = None
        for seat in self.desk.roster.of("ready", "active"):
            # A newcomer may have the state already, a first member not yet.
            standing: Standing = "active" if seat.step >= 0 else "ready"
            if seat.standing != standing:
                seat.place(standing, now_s)
        names = self.desk.roster.ordered(_names(self.desk.active()))
        if self.desk.enough(names):
            self.begin(names, now_s)
        elif self.last is None:  # nothing had begun: begin anew
            for seat in self.desk.active():
                seat.place("ready", now_s)
                seat.step = -1
            self._broken = False
            self._rest(now_s)
        else:
            self.failure = f"Nobody is left who has the state; {self.desk.reasons()}."

    def _ask(self, op: Any, number: int, names: Iterable[str], now_s: float, **facts: Any) -> None:
        """Put a question to some members; the phase lasts until all have answered."""
        self.phase, self.since_s, self._question, self.open = op, now_s, number, set(names)
        self.desk.tell(sorted(self.open), op=op, number=number, **facts)

    def _rest(self, now_s: float) -> None:
        self.phase, self.since_s, self.open = "idle", now_s, set()

    def _trained(self) -> int:
        """Number of the group that trains now, or is about to."""
        if self.phase == "switch" and self._next:
            return self._next.number
        return self.group.number if self.group and not self._broken else -1


def _names(seats: Iterable[Seat]) -> list[str]:
    return [seat.name for seat in seats]
