"""The simulated members of `elastic_world` with networks that grow, or cannot.

A network is the list of its growths, and a shade: members that make a growth by themselves may get
values that differ in the last bit, until they are given those of the first worker.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from elastic_world import OUTLINE, World

from rota.elastic.growths import begins

if TYPE_CHECKING:
    from collections.abc import Mapping

    from elastic_world import FakeMember


@dataclass(frozen=True)
class Network:
    """What a member has built; `chain` is what it had trained when the copy was made."""

    growths: tuple[Mapping[str, Any], ...] = ()
    shade: Any = "built by the script"
    chain: Any = None


class GrowingWorld(World):
    """A job whose first worker may propose growths; each member may fail to make one."""

    outline = replace(OUTLINE, plan={**OUTLINE.plan, "grow": True})

    def __init__(self, seed: int, first: int, length: int, refusals: float = 0.0) -> None:
        super().__init__(seed, first, length)
        self.refusals = refusals
        self.networks: dict[str, Network] = {}
        self.backups: dict[str, Network] = {}
        self.asks: list[tuple[int, int]] = []
        self.given: dict[tuple[int, str, str], Network] = {}
        self.shown: dict[int, Any] = {}  # by group: the values of its first worker

    def network(self, fake: FakeMember) -> Network:
        return self.networks.setdefault(fake.name, Network())

    def progress(self, fake: FakeMember) -> dict[str, Any]:
        return {**super().progress(fake), "version": len(self.network(fake).growths)}

    def mark(self, fake: FakeMember) -> Any:
        network = self.network(fake)
        return super().mark(fake), len(network.growths), network.shade

    def asked(self, fake: FakeMember, order: Mapping[str, Any]) -> None:
        self.asks.append((order["before"], order["workers"]))
        assert order["before"] != order["workers"]
        made = len(self.network(fake).growths)
        growth = {"id": len(self.asks)} if self.rng.random() < 0.8 else None
        self.say(fake, "grow", number=order["number"], version=made, growth=growth)

    def complete(self, fake: FakeMember) -> None:
        assert fake.group is not None
        number = fake.group[0]
        for other in self.others(fake):
            if other.entered and other.group == fake.group:
                assert self.network(other).growths == self.network(fake).growths
                assert self.network(other).shade == self.network(fake).shade
        super().complete(fake)
        if fake.group == (number, fake.groups[number]):
            self.backups.pop(fake.name, None)

    def rewind(self, fake: FakeMember, order: Mapping[str, Any]) -> None:
        if begins(order["growths"], self.network(fake).growths):
            return
        before = self.backups.pop(fake.name)
        self.networks[fake.name] = before
        if before.chain != fake.chain:
            fake.chain = None  # its values are of an earlier step

    def switch(self, fake: FakeMember, order: dict[str, Any]) -> None:
        number = order["number"]
        network = self.network(fake)
        if missing := order["growths"][len(network.growths) :]:
            assert begins(order["growths"], network.growths)
            if self.rng.random() < self.refusals:
                fake.group, fake.left, fake.inbox.parked = None, number, True
                self.say(fake, "ungrown", number=number, error="it cannot")
                return
            self.backups[fake.name] = replace(network, chain=fake.chain)
            grown = (*network.growths, *missing)
            self.networks[fake.name] = Network(grown, (fake.name, len(grown)))
        for item in order["transfers"]:
            if item["giver"] == fake.name:
                self.given[number, fake.name, item["taker"]] = self.network(fake)
            found = self.given.get((number, item["giver"], item["taker"]))
            if item["taker"] == fake.name and found:
                assert found.growths == self.network(fake).growths
                self.networks[fake.name] = found
        super().switch(fake, order)

    def meet(self, fake: FakeMember, order: dict[str, Any]) -> bool:
        number, network = order["number"], self.network(fake)
        first = fake.groups[number][0]
        if not order["equalize"]:
            return True
        if fake.name == first:
            self.shown[number] = network.shade
        elif number not in self.shown:
            self.wait(fake, order, first)
            return False
        self.networks[fake.name] = replace(network, shade=self.shown[number])
        return True
