"""The coordinator with simulated members, which act in any order, are killed and are released.

The members here hold no tensors: what they have trained is the chain of groups that made each
step. Two members may only ever make a step together if their chains agree.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rota.elastic.coordinator import Coordinator
from rota.elastic.inbox import Inbox
from rota.elastic.outline import Outline
from rota.elastic.protocol import JobSpec, Member, TimeLimits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.elastic.protocol import Status

SIZES = (5, 3, 2, 2, 1)
OUTLINE = Outline(SIZES, "", {"samples": 10, "epochs": 2})
LIMITS = TimeLimits(
    start_s=1e6, connect_s=1e5, transfer_s=1e5, silent_s=1e6, stall_s=1e6, leave_s=1
)


@dataclass
class FakeMember:
    """A simulated member: messages from the agent, a training thread, and what it has trained."""

    name: str
    messages: list[dict[str, Any]] = field(default_factory=list)
    inbox: Inbox = field(default_factory=Inbox)
    group: tuple[int, tuple[str, ...]] | None = None
    chain: tuple[Any, ...] | None = None
    groups: dict[int, tuple[str, ...]] = field(default_factory=dict)
    left: int = 0  # the last group that it has left
    alive: bool = True
    met: bool = False
    entered: bool = False
    # With servers: what has been trained of every parameter that it has, and what it keeps.
    values: dict[int, tuple[int, ...]] = field(default_factory=dict)
    keeps: tuple[int, ...] = ()
    pushed: dict[int, dict[int, tuple[int, ...]]] = field(default_factory=dict)
    full: bool = False


class World:
    """The members of a job and its coordinator; any possible event may happen next."""

    outline = OUTLINE

    def __init__(self, seed: int, first: int, length: int) -> None:
        self.rng, self.length = random.Random(seed), length
        self.count, self.now_s = first, 0.0
        self.controller = Coordinator(self.spec(tuple(Member(f"m{k}") for k in range(first))), 0.0)
        self.fakes: dict[str, FakeMember] = {}
        self.sent: dict[tuple[int, str, str], Any] = {}

    def spec(self, members: tuple[Member, ...]) -> JobSpec:
        return JobSpec(command=("x",), members=members, limits=LIMITS)

    def carry_out(self) -> None:
        orders = self.controller.table.orders
        while orders:
            order = orders.popleft()
            if order.do == "start":
                self.fakes[order.name] = FakeMember(order.name)
            elif order.do == "send":
                self.fakes[order.name].messages.append(order.message)
            elif order.after_s == 0:
                self.kill(self.fakes[order.name])

    def kill(self, fake: FakeMember) -> None:
        if fake.alive:
            fake.alive = False
            self.controller.lose(fake.name, "killed", self.now_s)

    def say(self, fake: FakeMember, op: str, **facts: Any) -> None:
        self.controller.receive(fake.name, {"op": op, **facts}, self.now_s)

    def progress(self, fake: FakeMember) -> dict[str, Any]:
        step = len(fake.chain or ())
        return {"step": step, "epoch": 0, "samples": step}

    def moves(self) -> list[Any]:
        """All events that are possible now."""
        found: list[Any] = []
        for fake in self.fakes.values():
            if fake.alive and not fake.met:
                found.append((self.hello, fake))
            elif fake.alive:
                if fake.messages:
                    found.append((self.deliver, fake))
                if self.can_act(fake):
                    found.append((self.act, fake))
        return found

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.now_s += 1.0
            self.carry_out()
            found = self.moves()
            if not found or self.controller.result:
                return
            call, fake = self.rng.choice(found)
            call(fake)

    def settle(self) -> Status:
        """Run until nothing is left to do, or a limit is reached."""
        for _ in range(40):
            self.run(150)
            status = self.controller.status(self.now_s)
            if status.state == "running" and status.reached == status.target:
                break
        return status

    def hello(self, fake: FakeMember) -> None:
        """The process has started, and says hello."""
        fake.met = True
        card = {"host": "h", "state_port": 2}
        if self.controller.table[fake.name].state != "starting":
            fake.alive = False  # it was started outside, and is not wanted any more: it is refused
            return
        self.controller.hello(fake.name, card, self.outline, self.now_s)
        self.say(fake, "ready")

    def deliver(self, fake: FakeMember) -> None:
        """The listening thread takes one message."""
        message = fake.messages.pop(0)
        op = message["op"]
        if op == "fail":
            self.kill(fake)
            return
        fake.inbox.take(message)
        if op == "prepare":
            fake.groups[message["number"]] = tuple(card["name"] for card in message["members"])
            self.say(fake, "prepared", number=message["number"])
        elif op == "hold":
            self.say(fake, "held", number=message["number"], step=fake.inbox.step)

    def others(self, fake: FakeMember) -> list[FakeMember]:
        assert fake.group is not None
        return [self.fakes[name] for name in fake.group[1] if name != fake.name]

    def can_act(self, fake: FakeMember) -> bool:
        if fake.inbox.due():
            return True
        if fake.group is None:
            return False
        if not fake.entered:
            return True
        # In the middle of a step: it ends when all have entered it, or a member is missing.
        others = self.others(fake)
        return all(self.passed(other, fake) for other in others) or any(
            not self.passed(other, fake) and self.missing(other, fake) for other in others
        )

    def missing(self, other: FakeMember, fake: FakeMember) -> bool:
        """Whether another member will never come, because it was killed or has left the group."""
        assert fake.group is not None
        return not other.alive or other.left >= fake.group[0]

    def passed(self, other: FakeMember, fake: FakeMember) -> bool:
        """Whether another member has done its part of the step that `fake` is in."""
        mine, theirs = fake.chain or (), other.chain or ()
        if len(theirs) > len(mine):
            return fake.group is not None and theirs[len(mine)] == self.mark(fake)
        return len(theirs) == len(mine) and other.entered and other.group == fake.group

    def mark(self, fake: FakeMember) -> Any:
        """What the chain keeps of a step that is made now."""
        assert fake.group is not None
        return fake.group[0]

    def act(self, fake: FakeMember) -> None:
        """The training thread does one thing."""
        if fake.entered:
            self.complete(fake)
        elif fake.inbox.due():
            self.follow_orders(fake)
        elif len(fake.chain or ()) >= self.length:
            fake.inbox.parked = True
            self.say(fake, "finished", **self.progress(fake))
        else:
            fake.entered = True

    def complete(self, fake: FakeMember) -> None:
        fake.entered = False
        assert fake.group is not None
        assert fake.chain is not None
        number = fake.group[0]
        if not all(self.passed(other, fake) for other in self.others(fake)):
            fake.group, fake.left = None, number
            fake.inbox.parked = True
            self.say(fake, "trouble", number=number, error="closed")
            return
        step = len(fake.chain)
        for other in self.others(fake):
            # They make this step, or made it, from the same state.
            assert other.chain is not None
            assert other.chain[:step] == fake.chain
        fake.chain += (self.mark(fake),)
        fake.inbox.step = len(fake.chain)

    def follow_orders(self, fake: FakeMember) -> None:
        event = fake.inbox.event()
        if event is None:
            return
        if event.do == "release":
            fake.alive, fake.group = False, None
            self.controller.lose(fake.name, "ended", self.now_s)
        elif event.do == "halt":
            self.say(fake, "finished", **self.progress(fake))
        elif event.do == "break":
            fake.group, fake.entered = None, False
            fake.left = event.facts["number"]
            self.rewind(fake, event.facts)
            step = -1 if fake.chain is None else len(fake.chain)
            self.say(fake, "broken", number=event.facts["number"], step=step)
        elif event.do == "switch":
            self.switch(fake, dict(event.facts))
        elif event.do == "ask":
            self.asked(fake, event.facts)

    def rewind(self, fake: FakeMember, order: Mapping[str, Any]) -> None:
        """Take back what the others do not have."""

    def asked(self, fake: FakeMember, order: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Answer whether the network shall grow."""
        raise AssertionError("nobody is asked in a job that does not grow")

    def wait(self, fake: FakeMember, order: dict[str, Any], other: str) -> None:
        """Wait in a switch for another member, which may never come."""
        fake.inbox.parked = True
        if self.fakes[other].alive and self.fakes[other].left < order["number"]:
            fake.inbox._switch = order
        else:
            self.say(fake, "trouble", number=order["number"], error="hung up")

    def meet(self, fake: FakeMember, order: dict[str, Any]) -> bool:  # noqa: ARG002
        """Do what a group does together before its first step; False: wait for another member."""
        return True

    def switch(self, fake: FakeMember, order: dict[str, Any]) -> None:
        number = order["number"]
        fake.group, fake.left = None, number - 1
        for item in order["transfers"]:
            if item["giver"] == fake.name:
                self.sent[number, fake.name, item["taker"]] = fake.chain or ()
        for item in order["transfers"]:
            if item["taker"] != fake.name:
                continue
            found = self.sent.get((number, item["giver"], fake.name))
            if found is None:
                fake.chain = None
                self.wait(fake, order, item["giver"])
                return
            fake.chain = found
        if number not in fake.groups:
            fake.inbox.parked = True
            return
        if fake.chain is None:
            fake.chain = ()
        if not self.meet(fake, order):
            return
        fake.group = (number, fake.groups[number])
        fake.inbox.step = len(fake.chain)
        self.say(fake, "joined", number=number, pause_s=0.0, sum=None, **self.progress(fake))


class ServerWorld(World):
    """The same with parameter servers: the steps of each parameter are tracked."""

    def spec(self, members: tuple[Member, ...]) -> JobSpec:
        members += (Member("s0", "server"), Member("s1", "server"))
        return JobSpec(command=("x",), members=members, mode="servers", limits=LIMITS)

    def serves(self, fake: FakeMember) -> bool:
        return self.controller.table[fake.name].member.kind == "server"

    def others_of(self, fake: FakeMember, *, servers: bool) -> list[FakeMember]:
        assert fake.group is not None
        return [p for name in fake.group[1] if self.serves(p := self.fakes[name]) == servers]

    def applied(self, other: FakeMember, fake: FakeMember) -> bool:
        """Whether another member has made the step that `fake` is in."""
        step, theirs = len(fake.chain or ()), other.chain or ()
        assert fake.group is not None
        return len(theirs) > step and theirs[step] == fake.group[0]

    def awaited(self, fake: FakeMember) -> list[FakeMember]:
        """The members that `fake` waits for in the middle of a step."""
        servers = self.others_of(fake, servers=True)
        if not self.serves(fake):
            return [p for p in servers if not self.applied(p, fake)]
        if fake.full:
            return [
                p
                for p in servers
                if not (self.applied(p, fake) or (p.full and p.group == fake.group))
            ]
        return [
            p
            for p in self.others_of(fake, servers=False)
            if not (p.entered and p.group == fake.group and p.chain == fake.chain)
        ]

    def can_act(self, fake: FakeMember) -> bool:
        if fake.inbox.due():
            return True
        if fake.group is None:
            return False
        if not fake.entered:
            return True
        awaited = self.awaited(fake)
        return not awaited or any(self.missing(other, fake) for other in awaited)

    def complete(self, fake: FakeMember) -> None:
        assert fake.group is not None
        assert fake.chain is not None
        number = fake.group[0]
        if self.awaited(fake):
            fake.entered, fake.group, fake.left = False, None, number
            fake.inbox.parked = True
            self.say(fake, "trouble", number=number, error="closed")
        elif not self.serves(fake):
            for server in self.others_of(fake, servers=True):
                fake.values |= server.pushed[len(fake.chain) + 1]
            fake.chain += (number,)
            assert set(fake.values.values()) == {fake.chain}
            fake.entered, fake.inbox.step = False, len(fake.chain)
        elif not fake.full:
            fake.full = True
        else:
            self.apply(fake, number)
            fake.entered, fake.inbox.step = False, len(fake.chain)

    def apply(self, fake: FakeMember, number: int) -> None:
        """A server's step: every parameter that it keeps has seen the same steps."""
        assert fake.chain is not None
        assert {key: fake.values[key] for key in fake.keeps} == dict.fromkeys(
            fake.keeps, fake.chain
        )
        fake.chain += (number,)
        fake.values = dict.fromkeys(fake.keeps, fake.chain)
        fake.pushed[len(fake.chain)] = fake.values
        fake.full = False

    def switch(self, fake: FakeMember, order: dict[str, Any]) -> None:
        number, at = order["number"], order["at"]
        if order["broken"] and fake.chain is not None and len(fake.chain) < at:
            # It was in the last step of a group whose other members have completed it.
            last = max(max(p.chain or (0,)) for p in self.fakes.values() if p.alive)
            if self.serves(fake):
                assert fake.full
                self.apply(fake, last)
            else:
                fake.chain += (last,)
        fake.group, fake.left, fake.full = None, number - 1, False
        first = dict.fromkeys(range(len(SIZES)), ())
        for item in order["transfers"]:
            if item["giver"] == fake.name:
                values = first if fake.chain is None else fake.values
                kept = values if item["keys"] is None else {k: values[k] for k in item["keys"]}
                self.sent[number, fake.name, item["taker"]] = (fake.chain or (), dict(kept))
        for item in order["transfers"]:
            if item["taker"] != fake.name:
                continue
            found = self.sent.get((number, item["giver"], fake.name))
            if found is None:
                fake.inbox.parked = True
                if self.fakes[item["giver"]].alive:
                    fake.inbox._switch = order
                else:
                    self.say(fake, "trouble", number=number, error="hung up")
                return
            fake.values = {**fake.values, **found[1]}
            fake.chain = found[0] if fake.chain is None else fake.chain
        if number not in fake.groups:
            fake.inbox.parked = True
            return
        if fake.chain is None:
            fake.chain, fake.values = (), first
        fake.keeps = tuple(order["shards"].get(fake.name, ()))
        fake.group = (number, fake.groups[number])
        fake.inbox.step = len(fake.chain)
        self.say(fake, "joined", number=number, pause_s=0.0, sum=None, **self.progress(fake))
