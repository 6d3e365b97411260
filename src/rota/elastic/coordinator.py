"""The head of an agent: who is in the group, and how a change comes to pass.

No sockets, no processes, no clock: events go in with their time, `Order`s come out. So every
course of events can be tested.

What members and agent say to each other, JSON lines on the connection that a member opens:

    member                                      agent
    hello  token, name, host, ports                welcome  mode, seconds between signs of life
    ready  it is warm
    alive  step, epoch, samples, phase, sum
                                                 prepare  number, members: connect, behind the
    prepared number, error                                back of a training that goes on
                                                 hold     number: say where you are, go two steps
    held   number, step                                   further at most
                                                 switch   number, at: after that step, and who
    joined number, step, pause_s, sum                     sends the state to whom
                                                 drop     number: that change will not be
    trouble number: the others do not answer     break    number: leave the group, say what you have
    broken number, step
                                                 halt     at: end after that step
    finished step: no more samples               release  go
    failed error: the script raised              fail     error: the job has failed

A change is prepare, hold, switch; those who must leave are released when all others have joined, so
that at every moment somebody who has the state is there. After a loss it is break, prepare, switch.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from rota.elastic.progress import Progress
from rota.elastic.protocol import AHEAD, Change, Result, Status, check_members
from rota.elastic.roster import Group, Roster
from rota.elastic.shards import moves, rebalance
from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rota.elastic.protocol import JobSpec, Member, State
    from rota.elastic.roster import Seat
    from rota.elastic.shards import Shards

TRIES: Final = 3
"""How often members may fail to connect before newcomers are given up, or the job."""
FAIL_S: Final = 5.0
"""What is left to members of a failed job, to say why they end."""


@dataclass(frozen=True)
class Order:
    """What the agent is to do: send a message, start a process, or kill one after a while."""

    do: Literal["send", "start", "kill"]
    name: str
    message: dict[str, Any] = field(default_factory=dict)
    after_s: float = 0.0


class Coordinator:
    """Leads one job from its first member to its end."""

    def __init__(self, spec: JobSpec, now_s: float) -> None:
        self.spec, self.limits = spec, spec.limits
        self.roster, self.orders = Roster(), deque[Order]()
        self.wanted: tuple[Member, ...] = spec.members
        self.target, self.reached = 0, -1
        self.refused: dict[str, str] = {}
        self.result: Result | None = None
        self.last: Change | None = None
        self.progress = Progress(now_s)
        self._phase: Literal["idle", "prepare", "hold", "switch", "break"] = "idle"
        self._phase_s = self._asked_s = now_s
        self._open: set[str] = set()  # whose answer to the last question is awaited
        self._question = 0
        self._number = self._tries = self._breaks = 0
        self._halting = False
        self._group: Group | None = None  # who trains
        self._next: Group | None = None  # who is about to
        self._broken = False  # the group has been called back and waits
        self._joins: dict[str, dict[str, Any]] = {}
        self._lost: list[str] = []
        self._sizes: list[int] = []
        self._switched: tuple[Group, int] | None = None  # a change that may have come to pass
        self._grace_s: float | None = None
        self._ending: Literal["", "done", "stopped", "failed"] = ""
        self._error = ""
        for member in self.wanted:
            self._start(member, now_s)

    # What the scheduler asks.

    def resize(self, members: Sequence[Member], now_s: float) -> int:
        """Want exactly these members from now on."""
        if self._ending or self._grace_s is not None:
            raise ConfigError("The job is ending; it cannot be resized.")
        check_members(tuple(members), self.spec.mode)
        for member in members:
            seat = self.roster.seats.get(member.name)
            if seat and not seat.living:
                raise ConfigError(f"Member {member.name} was here before; take a new name.")
            if seat and seat.member.kind != member.kind:
                raise ConfigError(f"Member {member.name} is a {seat.member.kind} already.")
        self.wanted, self._asked_s = tuple(members), now_s
        self.target += 1
        self._advance(now_s)
        return self.target

    def stop(self, grace_s: float, now_s: float) -> None:
        """End after the step that all are in; whoever is there after `grace_s` is killed."""
        if self._ending or self._grace_s is not None:
            return
        self._grace_s = grace_s
        for seat in self.roster.of("starting", "ready", "active"):
            self._order("kill", seat.name, after_s=grace_s)
        self._advance(now_s)

    def status(self, now_s: float) -> Status:
        """The job as it is now."""
        progress = self.progress
        return Status(
            state=self._state(),
            step=progress.step,
            epoch=progress.epoch,
            samples=progress.samples,
            samples_per_s=progress.samples_per_s(now_s),
            generation=self._group.number if self._group else 0,
            active=tuple(seat.name for seat in self._active()),
            waiting=tuple(seat.name for seat in self.roster.of("starting", "ready")),
            target=self.target,
            reached=self.reached,
            refused=dict(self.refused),
            last=self.last,
            error=self._error,
        )

    def _state(self) -> State:
        if self.result:
            return self.result.state
        if self._ending or self._grace_s is not None:
            return "stopping"
        if self._group is None:
            return "starting"
        return "running" if self._phase == "idle" else "changing"

    # What happens to members.

    def meet(self, name: str, card: dict[str, Any], sizes: list[int], now_s: float) -> None:
        """Let a member in that says hello."""
        seat = self.roster.seats.get(name)
        if seat is None or seat.card or seat.standing != "starting":
            raise ConfigError(f"Nobody called {name!r} is expected.")
        if self._sizes and sizes != self._sizes:
            raise ConfigError(f"Member {name} trains another model than the others.")
        self._sizes = sizes
        seat.card = {**card, "name": name, "kind": seat.member.kind}
        seat.heard_s = now_s

    def hear(self, name: str, message: dict[str, Any], now_s: float) -> None:
        """Take in one message of a member that has been let in."""
        seat, op = self.roster[name], message.get("op")
        seat.heard_s = now_s
        if not seat.living:
            return
        if op == "alive":
            self._note(seat, message, now_s)
        elif op == "ready" and seat.standing == "starting":
            seat.place("ready", now_s)
        elif op == "trouble" and message.get("number") == self._trained():
            self._trouble(message["error"], now_s)
        elif op == "finished":
            seat.finished, seat.step = True, message["step"]
            self.progress.note(message, now_s)
        elif op == "failed":
            self._part(seat, f"it raised {message['error']}", now_s, FAIL_S)
        elif message.get("number") == self._question and name in self._open:
            self._answer(seat, message, now_s)
        self._advance(now_s)

    def lose(self, name: str, why: str, now_s: float) -> None:
        """A member's process has ended, or its connection."""
        seat = self.roster[name]
        if seat.standing == "leaving":
            seat.place("gone", now_s)
        elif seat.living:
            self._part(seat, why, now_s)
        self._advance(now_s)

    def tick(self, now_s: float) -> None:
        """Look whether anybody has taken too long."""
        limits = self.limits
        for seat in self.roster.of("starting", "ready", "active"):
            if seat.standing == "starting" and now_s - seat.since_s > limits.start_s:
                what = "ready" if seat.card else "heard of"
                self._part(seat, f"it was not {what} within {limits.start_s:g} s", now_s)
            elif seat.card and now_s - seat.heard_s > limits.silent_s:
                self._part(seat, f"it gave no sign of life for {limits.silent_s:g} s", now_s)
        waited_s = now_s - max(self._phase_s, self.progress.moved_s)
        if self._phase == "prepare" and now_s - self._phase_s > limits.connect_s:
            self._retry(f"it did not connect within {limits.connect_s:g} s", now_s)
        elif self._phase == "switch" and waited_s > limits.stall_s + limits.transfer_s:
            for name in sorted(self._open):
                self._part(self.roster[name], "it did not take part in the change", now_s)
        elif self._group and not self._ending and waited_s > limits.stall_s:
            self._stalled(now_s)
        self._advance(now_s)

    def _note(self, seat: Seat, message: dict[str, Any], now_s: float) -> None:
        seat.phase = message["phase"]
        if seat.standing == "active":
            seat.step = max(seat.step, message["step"])
        if self.progress.note(message, now_s):
            self._breaks = 0
        if message.get("sum") is not None:
            step, value = message["sum"]
            self._compare(seat.name, step, value, now_s)

    # How a change comes to pass.

    def _advance(self, now_s: float) -> None:
        """Begin what is to be done next, if nothing is under way."""
        active = self._active()
        untouched = self._phase != "switch" or not self._joins
        if not self._ending and active and untouched and all(seat.finished for seat in active):
            self._end("stopped" if self._grace_s is not None else "done", now_s)
        if self._ending:
            if not (self.result or self.roster.of("starting", "ready", "active", "leaving")):
                self.result = Result(
                    state=self._ending,
                    step=self.progress.step,
                    samples=self.progress.samples,
                    error=self._error,
                )
        elif self._phase == "idle" and self._grace_s is not None:
            self._halt(now_s)
        elif self._phase == "idle":
            self._pursue(now_s)

    def _pursue(self, now_s: float) -> None:
        """Bring the members nearer to those wanted."""
        wanted, active = {member.name for member in self.wanted}, self._active()
        for seat in self.roster.of("starting", "ready"):
            if seat.name not in wanted:
                self._release(seat, now_s, self.limits.leave_s)
        starting = self.roster.of("starting")
        for member in self.wanted:
            # One at a time: a start takes CPU from those who train.
            if member.name not in self.roster.seats and (member.outside or not starting):
                starting.append(self._start(member, now_s))
        if starting:
            return
        stay = [seat.name for seat in active if seat.name in wanted]
        names = self.roster.ordered(stay + [seat.name for seat in self.roster.of("ready")])
        if not self._enough(names):
            if not active:
                self._fail(f"Nobody could begin; {self.roster.reasons(self.refused)}.", now_s)
        elif set(names) != {seat.name for seat in active}:
            self._prepare(names, now_s)
            return
        self.reached = self.target

    def _prepare(self, names: tuple[str, ...], now_s: float) -> None:
        self._number += 1
        shards: Shards = {}
        if self.spec.mode == "servers":
            servers = [name for name in names if self.roster[name].member.kind == "server"]
            shards = rebalance(self._sizes, self._shards(), servers)
        self._next = Group(self._number, names, shards)
        cards = [self.roster[name].card for name in names]
        self._ask("prepare", self._number, names, now_s, members=cards)

    def _answer(self, seat: Seat, message: dict[str, Any], now_s: float) -> None:
        """Take in an answer; with the last one, the next question is asked."""
        if self._phase == "prepare" and message.get("error"):
            self._retry(f"it could not connect: {message['error']}", now_s)
            return
        if self._phase in ("hold", "switch", "break"):
            seat.step = message["step"]
        if self._phase == "switch":
            self._joins[seat.name] = message
            self.progress.note(message, now_s)
        if self._phase == "break":
            seat.finished = False
        self._open.discard(seat.name)
        if not self._open:
            self._answered(now_s)

    def _answered(self, now_s: float) -> None:
        active = self._active()
        if self._phase == "prepare" and active and not self._broken:
            self._ask("hold", self._number, [seat.name for seat in active], now_s)
        elif self._phase == "prepare":
            self._switch(max([seat.step for seat in active], default=0), now_s)
        elif self._phase == "hold":
            at = max(seat.step for seat in active) + AHEAD
            if self._next:
                self._switch(at, now_s)
            else:
                self._tell([seat.name for seat in active], {"op": "halt", "at": at})
                self._idle(now_s)
        elif self._phase == "switch":
            self._joined(now_s)
        elif self._phase == "break":
            self._regroup(now_s)

    def _switch(self, at: int, now_s: float) -> None:
        """Tell everybody when, and who gets what from whom."""
        assert self._next is not None
        names, active = self._next.names, self._active()
        facts: dict[str, Any] = {"at": at, "shards": self._next.shards, "pull": self._broken}
        if self.spec.mode == "servers":
            given = self._moves()
        else:
            owners = [s.name for s in active if not self._broken or s.step == at] or [names[0]]
            givers = [name for name in owners if name in names] or owners
            needy = [name for name in names if name not in owners]
            given = {(givers[k % len(givers)], name): None for k, name in enumerate(needy)}
        facts["transfers"] = [
            {
                "giver": giver,
                "taker": taker,
                "keys": keys,
                "host": self.roster[giver].card["host"],
                "port": self.roster[giver].card["state_port"],
            }
            for (giver, taker), keys in given.items()
        ]
        self._joins, self._switched = {}, (self._next, at)
        self._ask("switch", self._next.number, names, now_s, **facts)
        leavers = [seat.name for seat in active if seat.name not in names]
        self._tell(leavers, {"op": "switch", "number": self._next.number, **facts})

    def _moves(self) -> dict[tuple[str, str], tuple[int, ...] | None]:
        """With servers: parameters go from server to server, the rest from worker to worker."""
        assert self._next is not None
        present = [seat.name for seat in self._active()] or [self._next.names[0]]
        kinds = {name: self.roster[name].member.kind for name in [*present, *self._next.names]}
        workers = [name for name in present if kinds[name] == "worker"]
        before = {name: keys for name, keys in self._shards().items() if name in present}
        given: dict[tuple[str, str], tuple[int, ...] | None] = {}
        given |= moves(before, self._next.shards, workers[0])
        for k, name in enumerate(name for name in self._next.names if name not in present):
            if kinds[name] == "worker":
                given[workers[k % len(workers)], name] = None
            elif not any(taker == name for _, taker in given):
                given[next(iter(before), workers[0]), name] = ()
        return given

    def _joined(self, now_s: float) -> None:
        """Everybody is in the new group: those who leave may go."""
        assert self._next is not None
        before, group = self._group, self._next
        self._group, self._next = group, None
        joined = [name for name in group.names if self.roster[name].standing == "ready"]
        left = [seat for seat in self._active() if seat.name not in group.names]
        for name in joined:
            self.roster[name].place("active", now_s)
        for seat in left:
            self._release(seat, now_s, self.limits.leave_s)
        stayed = [message["pause_s"] for name, message in self._joins.items() if name not in joined]
        self.last = Change(
            generation=group.number,
            cause="loss" if self._lost else "resize" if before else "start",
            joined=tuple(joined),
            left=tuple(seat.name for seat in left),
            lost=tuple(self._lost),
            step=max(message["step"] for message in self._joins.values()),
            pause_s=max(stayed, default=0.0),
            took_s=now_s - self._asked_s,
        )
        self._switched = None
        self._lost, self._tries, self._broken, self.progress.moved_s = [], 0, False, now_s
        self._idle(now_s)
        for name, message in self._joins.items():
            if message["sum"] is not None:
                self._compare(name, message["step"], message["sum"], now_s)
        self._joins = {}

    def _trouble(self, error: str, now_s: float) -> None:
        """The members have lost one another, for what reason soever."""
        self._breaks += 1
        newcomers = [name for name in self._open if self.roster[name].standing == "ready"]
        if self._breaks <= TRIES:
            self._break(now_s)
        elif self._phase == "switch" and newcomers:
            for name in newcomers:
                self._part(self.roster[name], f"it could not join: {error}", now_s)
        else:
            self._fail(
                f"The members lose one another in step {self.progress.step + 1} again and again: "
                f"{error}.",
                now_s,
            )

    def _break(self, now_s: float) -> None:
        """Call everybody back who is in a group, or on the way into one."""
        names = [seat.name for seat in self._active()]
        if self._next:
            names += [n for n in self._next.names if self.roster[n].standing == "ready"]
        self._number += 1
        self._next, self._joins = None, {}
        self._broken, self._halting = True, False
        self._ask("break", self._number, names, now_s)

    def _regroup(self, now_s: float) -> None:
        """All have left the old group: form one of those who have the state."""
        if self._switched and max(s.step for s in self._active()) > self._switched[1]:
            # The last group had begun to train, though not all could say so in time.
            self._group, _ = self._switched
            for seat in self._active():
                if seat.name not in self._group.names:
                    self._release(seat, now_s, self.limits.leave_s)
        self._switched = None
        for seat in self.roster.of("ready"):
            if seat.step >= 0:  # it got the state before the change failed
                seat.place("active", now_s)
        owners = [seat for seat in self._active() if seat.step >= 0]
        for seat in self._active():
            if seat.step < 0:
                seat.place("ready", now_s)
        names = self.roster.ordered(seat.name for seat in owners)
        if self._enough(names):
            self._prepare(names, now_s)
        elif self.last is None:  # nothing had begun
            self._broken = False
            self._idle(now_s)
        else:
            self._fail(
                f"Nobody is left who has the state; {self.roster.reasons(self.refused)}.", now_s
            )

    def _retry(self, why: str, now_s: float) -> None:
        """Members do not connect: try again, in the end without newcomers."""
        assert self._next is not None
        self._tries += 1
        newcomers = [n for n in self._next.names if self.roster[n].standing == "ready"]
        guilty = [name for name in newcomers if name in self._open] or newcomers
        self._drop(now_s)
        if self._tries >= TRIES:
            self._tries = 0
            for name in guilty:
                self._part(self.roster[name], why, now_s)
            if not guilty and self._broken:
                self._fail(f"The members do not connect; {why}.", now_s)
            elif not guilty:
                self.wanted = tuple(seat.member for seat in self._active())
                self.refused["resize"] = f"The members do not connect; {why}."
        if self._broken and not self._ending:
            self._regroup(now_s)

    # Losses and ends.

    def _part(self, seat: Seat, why: str, now_s: float, after_s: float = 0.0) -> None:
        """Go on without a member."""
        was = seat.standing
        seat.place("gone", now_s)
        self.refused[seat.name] = why
        self._open.discard(seat.name)
        self._order("kill", seat.name, after_s=after_s)
        if self._ending:
            return
        if was == "active":
            self._lost.append(seat.name)
            self._breaks = 0
            if self._phase == "idle":
                self._asked_s = now_s
            if not self._enough(other.name for other in self._active()):
                kind = seat.member.kind
                self._fail(f"{seat.name} was lost ({why}), and no {kind} is left.", now_s)
                return
        concerned = was == "active" or (self._next and seat.name in self._next.names)
        if concerned and (was == "active" or self._broken or self._phase == "switch"):
            self._break(now_s)
        elif concerned:
            self._drop(now_s)
        elif self._phase == "break" and not self._open:
            self._regroup(now_s)

    def _stalled(self, now_s: float) -> None:
        """No step for too long: part with those in whose script the time goes by."""
        limit = f"{self.limits.stall_s:g} s"
        asked = [self.roster[name] for name in self._open] if self._phase == "break" else []
        waiting = asked or [seat for seat in self._active() if not seat.finished]
        guilty = asked or [seat for seat in waiting if seat.phase == "work"]
        names = ", ".join(seat.name for seat in guilty)
        if not guilty:
            self._fail(
                f"No step for {limit}: all members wait for one another after step "
                f"{self.progress.step}; do their scripts make the same collective calls?",
                now_s,
            )
        elif len(guilty) == len(self._active()):
            self._fail(f"No step for {limit}: {names} did not call step().", now_s)
        else:
            self.progress.moved_s = now_s
            for seat in guilty:
                self._part(seat, f"it did not call step() for {limit}", now_s)

    def _compare(self, name: str, step: int, value: Any, now_s: float) -> None:
        """Fail if two members differ in their parameters after the same step."""
        other = self.progress.differs(name, step, value)
        if other and not self._ending:
            self._fail(
                f"The parameters of {name} differ from those of {other} after step {step}; does "
                "the script change them on some ranks only?",
                now_s,
            )

    def _halt(self, now_s: float) -> None:
        """Ask the group to end, or end what has not begun."""
        for seat in self.roster.of("starting", "ready"):
            self._release(seat, now_s, None)
        active = self._active()
        if not active:
            self._end("stopped", now_s)
            self._advance(now_s)
        elif not self._halting:
            self._halting = True
            self._number += 1
            self._ask("hold", self._number, [seat.name for seat in active], now_s)

    def _end(self, how: Literal["done", "stopped"], now_s: float) -> None:
        self._ending = how
        self._drop(now_s)
        for seat in self.roster.of("starting", "ready", "active"):
            self._release(seat, now_s, None)

    def _fail(self, error: str, now_s: float) -> None:
        self._ending, self._error = "failed", error
        self._next = None
        for seat in self.roster.of("starting", "ready", "active"):
            self._tell([seat.name], {"op": "fail", "error": error})
            self._leave(seat, FAIL_S, now_s)

    def _release(self, seat: Seat, now_s: float, after_s: float | None) -> None:
        """Let a member go; after a while, make it."""
        self._tell([seat.name], {"op": "release"})
        self._leave(seat, after_s, now_s)

    def _leave(self, seat: Seat, after_s: float | None, now_s: float) -> None:
        seat.place("leaving", now_s)
        if not seat.card and seat.member.outside:
            seat.place("gone", now_s)  # nobody will tell us of its end
        elif not seat.card or after_s is not None:
            self._order("kill", seat.name, after_s=(after_s or 0.0) if seat.card else 0.0)

    # Small words.

    def _start(self, member: Member, now_s: float) -> Seat:
        if not member.outside:
            self._order("start", member.name)
        return self.roster.add(member, now_s)

    def _ask(self, op: Any, number: int, names: Iterable[str], now_s: float, **facts: Any) -> None:
        """Put a question to some members; the phase lasts until all have answered."""
        self._phase, self._phase_s, self._question, self._open = op, now_s, number, set(names)
        self._tell(sorted(self._open), {"op": op, "number": number, **facts})

    def _tell(self, names: Iterable[str], message: dict[str, Any]) -> None:
        for name in names:
            if self.roster[name].card:
                self._order("send", name, message)

    def _order(self, do: Any, name: str, message: Any = None, after_s: float = 0.0) -> None:
        self.orders.append(Order(do, name, message or {}, after_s))

    def _drop(self, now_s: float) -> None:
        """Give up the change that is being prepared."""
        if self._next:
            names = dict.fromkeys([*self._next.names, *(seat.name for seat in self._active())])
            self._tell(names, {"op": "drop", "number": self._next.number})
        self._next = None
        self._idle(now_s)

    def _idle(self, now_s: float) -> None:
        self._phase, self._phase_s, self._open = "idle", now_s, set()

    def _active(self) -> list[Seat]:
        return self.roster.of("active")

    def _shards(self) -> Shards:
        return self._group.shards if self._group else {}

    def _trained(self) -> int:
        """Number of the group that should be training now, or be about to."""
        if self._phase == "switch" and self._next:
            return self._next.number
        return self._group.number if self._group and not self._broken else -1

    def _enough(self, names: Iterable[str]) -> bool:
        kinds = {self.roster[name].member.kind for name in names}
        return kinds >= ({"worker", "server"} if self.spec.mode == "servers" else {"worker"})
