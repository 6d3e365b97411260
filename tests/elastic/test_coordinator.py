"""The agent's head against members that obey it in any order, die and are told to go.

The members here hold no tensors: what they have trained is the chain of groups that made each
step. Two members may only ever make a step together if their chains agree.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.elastic.coordinator import Coordinator
from rota.elastic.inbox import Inbox
from rota.elastic.protocol import JobSpec, Limits, Member
from rota.errors import ConfigError

if TYPE_CHECKING:
    from rota.elastic.protocol import Status

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


class World:
    """All members of a job, and an agent's head; whatever can happen next may happen."""

    def __init__(self, seed: int, first: int, length: int) -> None:
        self.rng, self.length = random.Random(seed), length
        self.count, self.now_s = first, 0.0
        members = tuple(Member(f"m{k}") for k in range(first))
        self.mind = Coordinator(JobSpec(command=("x",), members=members, limits=LIMITS), 0.0)
        self.puppets: dict[str, Puppet] = {}
        self.sent: dict[tuple[int, str, str], tuple[int, ...]] = {}

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
        card = {"host": "h", "store_port": 1, "state_port": 2}
        self.mind.meet(puppet.name, card, [1], self.now_s)
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


def members(names: list[str]) -> list[Member]:
    return [Member(name) for name in names]


def play(seed: int, kills: int, resizes: int) -> World:
    """Train, change and kill at random; then let all come to rest."""
    rng = random.Random(seed)
    world = World(seed, rng.randint(1, 3), length=10_000)
    todo = ["kill"] * kills + ["resize"] * resizes
    rng.shuffle(todo)
    for what in todo:
        world.run(rng.randint(0, 60))
        if world.mind.result or world.mind._ending:
            break
        if what == "kill":
            candidates = [p for p in world.puppets.values() if p.alive]
            if len(candidates) > 1:
                world.kill(rng.choice(candidates))
            continue
        present = [m.name for m in world.mind.wanted if world.mind.desk.roster.seats.get(m.name)]
        present = [name for name in present if world.mind.desk.roster[name].living]
        keep = [name for name in present if rng.random() < 0.7]
        new = [f"m{world.count + k}" for k in range(rng.randint(0 if keep else 1, 2))]
        world.count += len(new)
        world.mind.resize(members(keep + new), world.now_s)
    return world


@settings(max_examples=150)
@given(st.integers(0, 10**9), st.integers(0, 4), st.integers(0, 5))
def test_every_course_of_events_ends_in_the_wanted_group(seed: int, kills: int, sizes: int) -> None:
    world = play(seed, kills, sizes)
    status = world.settle()
    if status.state in ("failed", "stopping"):
        # Only when everybody who had the state was killed.
        assert kills
        return
    roster = world.mind.desk.roster
    wanted = {m.name for m in world.mind.wanted if roster[m.name].living}
    assert status.state == "running", status
    assert status.reached == status.target
    assert set(status.active) == wanted or not wanted
    chains = {p.chain for p in world.puppets.values() if p.alive and p.name in status.active}
    longest = max(chains, key=len)
    assert all(chain == longest[: len(chain)] for chain in chains if chain is not None)


@settings(max_examples=50)
@given(st.integers(0, 10**9), st.integers(0, 2), st.integers(0, 3))
def test_a_stopped_job_ends(seed: int, kills: int, sizes: int) -> None:
    world = play(seed, kills, sizes)
    world.mind.stop(1e5, world.now_s)
    world.run(6000)
    assert world.mind.result is not None
    assert not any(puppet.alive for puppet in world.puppets.values())


@settings(max_examples=50)
@given(st.integers(0, 10**9), st.integers(0, 2), st.integers(0, 3))
def test_a_training_ends_when_its_samples_do(seed: int, kills: int, sizes: int) -> None:
    world = play(seed, 0, sizes)
    rng = random.Random(seed)
    done = max((len(p.chain or ()) for p in world.puppets.values()), default=0)
    world.length = done + rng.randint(1, 6)
    for _ in range(kills):
        world.run(rng.randint(0, 30))
        living = [puppet for puppet in world.puppets.values() if puppet.alive]
        if len(living) > 1 and not world.mind.result:
            world.kill(rng.choice(living))
    world.run(9000)
    assert world.mind.result is not None
    if not kills:
        assert world.mind.result.state == "done"
        assert world.mind.result.step == world.length


def test_names_are_not_reused() -> None:
    world = World(0, 2, length=1000)
    world.run(200)
    world.mind.resize(members(["m1"]), world.now_s)
    world.run(400)
    with pytest.raises(ConfigError, match="m0 was here before"):
        world.mind.resize(members(["m0", "m1"]), world.now_s)


def test_a_member_that_never_gets_ready_is_left_out() -> None:
    world = World(0, 1, length=1000)
    world.run(100)
    world.mind.resize([Member("m0"), Member("late", outside=True)], world.now_s)
    world.now_s += LIMITS.start_s + 1
    world.say(world.puppets["m0"], "alive", phase="work", **world.progress(world.puppets["m0"]))
    world.mind.tick(world.now_s)
    status = world.mind.status(world.now_s)
    assert status.reached == status.target == 1
    assert "was not heard of" in status.refused["late"]
