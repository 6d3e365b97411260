"""The agent's head among members that obey it in any order, die and are told to go.

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
from rota.elastic.protocol import JobSpec, Limits, Member

if TYPE_CHECKING:
    from rota.elastic.protocol import Status

SIZES = (5, 3, 2, 2, 1)
OUTLINE = Outline(SIZES, "", {"samples": 10, "epochs": 2})
LIMITS = Limits(start_s=1e6, connect_s=1e5, transfer_s=1e5, silent_s=1e6, stall_s=1e6, leave_s=1)


@dataclass
class Puppet:
    """A member: mails to and from the agent, a training thread, and what it has trained."""

    name: str
    mails: list[dict[str, Any]] = field(default_factory=list)
    inbox: Inbox = field(default_factory=Inbox)
    group: tuple[int, tuple[str, ...]] | None = None
    chain: tuple[int, ...] | None = None
    rosters: dict[int, tuple[str, ...]] = field(default_factory=dict)
    left: int = 0  # the last group that it will have nothing to do with any more
    alive: bool = True
    met: bool = False
    entered: bool = False
    # With servers: what has been trained of every parameter that it has, and what it keeps.
    values: dict[int, tuple[int, ...]] = field(default_factory=dict)
    keeps: tuple[int, ...] = ()
    pushed: dict[int, dict[int, tuple[int, ...]]] = field(default_factory=dict)
    full: bool = False


class World:
    """All members of a job, and an agent's head; whatever can happen next may happen."""

    def __init__(self, seed: int, first: int, length: int) -> None:
        self.rng, self.length = random.Random(seed), length
        self.count, self.now_s = first, 0.0
        self.mind = Coordinator(self.spec(tuple(Member(f"m{k}") for k in range(first))), 0.0)
        self.puppets: dict[str, Puppet] = {}
        self.sent: dict[tuple[int, str, str], Any] = {}

    def spec(self, members: tuple[Member, ...]) -> JobSpec:
        return JobSpec(command=("x",), members=members, limits=LIMITS)

    def obey(self) -> None:
        orders = self.mind.desk.orders
        while orders:
            order = orders.popleft()
            if order.do == "start":
                self.puppets[order.name] = Puppet(order.name)
            elif order.do == "send":
                self.puppets[order.name].mails.append(order.message)
            elif order.after_s == 0:
                self.kill(self.puppets[order.name])

    def kill(self, puppet: Puppet) -> None:
        if puppet.alive:
            puppet.alive = False
            self.mind.lose(puppet.name, "killed", self.now_s)

    def say(self, puppet: Puppet, op: str, **facts: Any) -> None:
        self.mind.hear(puppet.name, {"op": op, **facts}, self.now_s)

    def progress(self, puppet: Puppet) -> dict[str, Any]:
        step = len(puppet.chain or ())
        return {"step": step, "epoch": 0, "samples": step}

    def moves(self) -> list[Any]:
        """What can happen next."""
        found: list[Any] = []
        for puppet in self.puppets.values():
            if puppet.alive and not puppet.met:
                found.append((self.hello, puppet))
            elif puppet.alive:
                if puppet.mails:
                    found.append((self.deliver, puppet))
                if self.can_act(puppet):
                    found.append((self.act, puppet))
        return found

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.now_s += 1.0
            self.obey()
            found = self.moves()
            if not found or self.mind.result:
                return
            call, puppet = self.rng.choice(found)
            call(puppet)

    def settle(self) -> Status:
        """Go on until nothing is left to do, for so long at most."""
        for _ in range(40):
            self.run(150)
            status = self.mind.status(self.now_s)
            if status.state == "running" and status.reached == status.target:
                break
        return status

    def hello(self, puppet: Puppet) -> None:
        """The process has come up."""
        puppet.met = True
        card = {"host": "h", "state_port": 2}
        self.mind.meet(puppet.name, card, OUTLINE, self.now_s)
        self.say(puppet, "ready")

    def deliver(self, puppet: Puppet) -> None:
        """The listening thread takes one mail."""
        mail = puppet.mails.pop(0)
        op = mail["op"]
        if op == "fail":
            self.kill(puppet)
            return
        puppet.inbox.take(mail)
        if op == "prepare":
            puppet.rosters[mail["number"]] = tuple(card["name"] for card in mail["members"])
            self.say(puppet, "prepared", number=mail["number"])
        elif op == "hold":
            self.say(puppet, "held", number=mail["number"], step=puppet.inbox.step)

    def others(self, puppet: Puppet) -> list[Puppet]:
        assert puppet.group is not None
        return [self.puppets[name] for name in puppet.group[1] if name != puppet.name]

    def can_act(self, puppet: Puppet) -> bool:
        if puppet.inbox.due():
            return True
        if puppet.group is None:
            return False
        if not puppet.entered:
            return True
        # In the middle of a step: it ends when all have entered it, or somebody is missing.
        others = self.others(puppet)
        return all(self.passed(other, puppet) for other in others) or any(
            not self.passed(other, puppet) and self.missing(other, puppet) for other in others
        )

    def missing(self, other: Puppet, puppet: Puppet) -> bool:
        """Whether somebody will never come, because it has died or left the group."""
        assert puppet.group is not None
        return not other.alive or other.left >= puppet.group[0]

    def passed(self, other: Puppet, puppet: Puppet) -> bool:
        """Whether somebody has done its part of the step that a member is in."""
        mine, theirs = puppet.chain or (), other.chain or ()
        if len(theirs) > len(mine):
            return puppet.group is not None and theirs[len(mine)] == puppet.group[0]
        return len(theirs) == len(mine) and other.entered and other.group == puppet.group

    def act(self, puppet: Puppet) -> None:
        """The training thread does one thing."""
        if puppet.entered:
            self.complete(puppet)
        elif puppet.inbox.due():
            self.attend(puppet)
        elif len(puppet.chain or ()) >= self.length:
            puppet.inbox.parked = True
            self.say(puppet, "finished", **self.progress(puppet))
        else:
            puppet.entered = True

    def complete(self, puppet: Puppet) -> None:
        puppet.entered = False
        assert puppet.group is not None
        assert puppet.chain is not None
        number = puppet.group[0]
        if not all(self.passed(other, puppet) for other in self.others(puppet)):
            puppet.group, puppet.left = None, number
            puppet.inbox.parked = True
            self.say(puppet, "trouble", number=number, error="closed")
            return
        step = len(puppet.chain)
        for other in self.others(puppet):
            # They make this step, or made it, out of the same state.
            assert other.chain is not None
            assert other.chain[:step] == puppet.chain
        puppet.chain += (number,)
        puppet.inbox.step = len(puppet.chain)

    def attend(self, puppet: Puppet) -> None:
        event = puppet.inbox.event()
        if event is None:
            return
        if event.do == "release":
            puppet.alive, puppet.group = False, None
            self.mind.lose(puppet.name, "ended", self.now_s)
        elif event.do == "halt":
            self.say(puppet, "finished", **self.progress(puppet))
        elif event.do == "break":
            puppet.group, puppet.entered = None, False
            puppet.left = event.facts["number"]
            step = -1 if puppet.chain is None else len(puppet.chain)
            self.say(puppet, "broken", number=event.facts["number"], step=step)
        elif event.do == "switch":
            self.switch(puppet, dict(event.facts))

    def switch(self, puppet: Puppet, order: dict[str, Any]) -> None:
        number = order["number"]
        puppet.group, puppet.left = None, number - 1
        for item in order["transfers"]:
            if item["giver"] == puppet.name:
                self.sent[number, puppet.name, item["taker"]] = puppet.chain or ()
        for item in order["transfers"]:
            if item["taker"] != puppet.name:
                continue
            found = self.sent.get((number, item["giver"], puppet.name))
            if found is None:  # it waits for the giver, who may never come
                puppet.chain = None
                giver = self.puppets[item["giver"]]
                puppet.inbox.parked = True
                if giver.alive:
                    puppet.inbox._switch = order
                else:
                    self.say(puppet, "trouble", number=number, error="hung up")
                return
            puppet.chain = found
        if number not in puppet.rosters:
            puppet.inbox.parked = True
            return
        if puppet.chain is None:
            puppet.chain = ()
        puppet.group = (number, puppet.rosters[number])
        puppet.inbox.step = len(puppet.chain)
        self.say(puppet, "joined", number=number, pause_s=0.0, sum=None, **self.progress(puppet))


class ServerWorld(World):
    """The same with parameter servers: what each parameter has been through is followed."""

    def spec(self, members: tuple[Member, ...]) -> JobSpec:
        members += (Member("s0", "server"), Member("s1", "server"))
        return JobSpec(command=("x",), members=members, mode="servers", limits=LIMITS)

    def serves(self, puppet: Puppet) -> bool:
        return self.mind.desk.roster[puppet.name].member.kind == "server"

    def mates(self, puppet: Puppet, *, servers: bool) -> list[Puppet]:
        assert puppet.group is not None
        return [p for name in puppet.group[1] if self.serves(p := self.puppets[name]) == servers]

    def applied(self, other: Puppet, puppet: Puppet) -> bool:
        """Whether somebody has made the step that a member is in."""
        step, theirs = len(puppet.chain or ()), other.chain or ()
        assert puppet.group is not None
        return len(theirs) > step and theirs[step] == puppet.group[0]

    def awaited(self, puppet: Puppet) -> list[Puppet]:
        """For whom a member waits in the middle of a step."""
        servers = self.mates(puppet, servers=True)
        if not self.serves(puppet):
            return [p for p in servers if not self.applied(p, puppet)]
        if puppet.full:
            return [
                p
                for p in servers
                if not (self.applied(p, puppet) or (p.full and p.group == puppet.group))
            ]
        return [
            p
            for p in self.mates(puppet, servers=False)
            if not (p.entered and p.group == puppet.group and p.chain == puppet.chain)
        ]

    def can_act(self, puppet: Puppet) -> bool:
        if puppet.inbox.due():
            return True
        if puppet.group is None:
            return False
        if not puppet.entered:
            return True
        awaited = self.awaited(puppet)
        return not awaited or any(self.missing(other, puppet) for other in awaited)

    def complete(self, puppet: Puppet) -> None:
        assert puppet.group is not None
        assert puppet.chain is not None
        number = puppet.group[0]
        if self.awaited(puppet):
            puppet.entered, puppet.group, puppet.left = False, None, number
            puppet.inbox.parked = True
            self.say(puppet, "trouble", number=number, error="closed")
        elif not self.serves(puppet):
            for server in self.mates(puppet, servers=True):
                puppet.values |= server.pushed[len(puppet.chain) + 1]
            puppet.chain += (number,)
            assert set(puppet.values.values()) == {puppet.chain}
            puppet.entered, puppet.inbox.step = False, len(puppet.chain)
        elif not puppet.full:
            puppet.full = True
        else:
            self.apply(puppet, number)
            puppet.entered, puppet.inbox.step = False, len(puppet.chain)

    def apply(self, puppet: Puppet, number: int) -> None:
        """A server's step: every parameter that it keeps has come from the same state."""
        assert puppet.chain is not None
        assert {key: puppet.values[key] for key in puppet.keeps} == dict.fromkeys(
            puppet.keeps, puppet.chain
        )
        puppet.chain += (number,)
        puppet.values = dict.fromkeys(puppet.keeps, puppet.chain)
        puppet.pushed[len(puppet.chain)] = puppet.values
        puppet.full = False

    def switch(self, puppet: Puppet, order: dict[str, Any]) -> None:
        number, at = order["number"], order["at"]
        if order["broken"] and puppet.chain is not None and len(puppet.chain) < at:
            # It was in the last step of a group that has gone further.
            last = max(max(p.chain or (0,)) for p in self.puppets.values() if p.alive)
            if self.serves(puppet):
                assert puppet.full
                self.apply(puppet, last)
            else:
                puppet.chain += (last,)
        puppet.group, puppet.left, puppet.full = None, number - 1, False
        first = dict.fromkeys(range(len(SIZES)), ())
        for item in order["transfers"]:
            if item["giver"] == puppet.name:
                values = first if puppet.chain is None else puppet.values
                kept = values if item["keys"] is None else {k: values[k] for k in item["keys"]}
                self.sent[number, puppet.name, item["taker"]] = (puppet.chain or (), dict(kept))
        for item in order["transfers"]:
            if item["taker"] != puppet.name:
                continue
            found = self.sent.get((number, item["giver"], puppet.name))
            if found is None:
                puppet.inbox.parked = True
                if self.puppets[item["giver"]].alive:
                    puppet.inbox._switch = order
                else:
                    self.say(puppet, "trouble", number=number, error="hung up")
                return
            puppet.values = {**puppet.values, **found[1]}
            puppet.chain = found[0] if puppet.chain is None else puppet.chain
        if number not in puppet.rosters:
            puppet.inbox.parked = True
            return
        if puppet.chain is None:
            puppet.chain, puppet.values = (), first
        puppet.keeps = tuple(order["shards"].get(puppet.name, ()))
        puppet.group = (number, puppet.rosters[number])
        puppet.inbox.step = len(puppet.chain)
        self.say(puppet, "joined", number=number, pause_s=0.0, sum=None, **self.progress(puppet))
