"""A member's part in every change: it connects, holds, switches, sends or receives the state."""

from __future__ import annotations

import os
import threading
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from rota.elastic.agent_link import AgentLink
from rota.elastic.exchange import PeerLost
from rota.elastic.exchange_allreduce import AllReduceExchange
from rota.elastic.exchange_servers import ServerExchange
from rota.elastic.growing import Resized
from rota.elastic.growths import NO_SERVERS
from rota.elastic.listener import MemberListener
from rota.elastic.parking import ENV_PARK, Parking
from rota.elastic.state_codec import receive, send
from rota.elastic.worker_group import first_line
from rota.errors import GrowthError, JobError, RotaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.elastic.agent_link import MemberIdentity
    from rota.elastic.exchange import Exchange
    from rota.elastic.replica import Replica

_WRITE_S: Final = 10.0
"""Seconds to finish writing a parked state before the process ends."""


class Membership:
    """One process as a member of a job, from its start to its release."""

    def __init__(self, identity: MemberIdentity, replica: Replica, *, unused: bool) -> None:
        self.name, self.replica = identity.name, replica
        self.released = False
        self.number = 0
        """Number of the group that it is in, or about to join."""
        self._whole = False  # has the state of the job
        self._ready: dict[int, Any] = {}  # groups that are connected, by number
        self._stale, self._lock = -1, threading.Lock()
        self._listener = MemberListener(identity.host, identity.token)
        card = {"host": identity.host, "state_port": self._listener.port}
        self.link = AgentLink(identity, card, replica.outline())
        self.exchange: Exchange
        if self.link.mode == "servers":
            self.exchange = ServerExchange(replica, identity.name, identity.kind, self._listener)
        else:
            self.exchange = AllReduceExchange(replica, identity.name, self._listener, unused=unused)
        folder = os.environ.get(ENV_PARK)
        every_s = self.link.park_every_s
        if self.link.mode == "servers":
            _refuse_growth(replica)
        self._parking = Parking(folder, identity.token, every_s) if folder else None
        self.link.on_prepare, self.link.on_drop = self._connect, self._forget
        self.link.on_cancel, self.link.on_cut = self._listener.cancel, self.exchange.cut
        self._stepped_s = perf_counter()
        self.link.progress = self._progress
        self.link.start()

    def begin(self) -> None:
        """Report that this member is ready, and wait for its first group."""
        self.link.say("ready")
        self.follow_orders(perf_counter())

    def stepped(self, check: bool) -> None:
        """Report a step, and carry out what is due before the next one."""
        began_s = self._stepped_s = perf_counter()
        step = self.replica.position.step
        self.replica.network.keep()
        if check:
            self.link.say("alive", phase="work", **self._progress(), sum=self._sum())
        if self._parking is not None:
            self._keep(self._parking)
        if self.link.done(step):
            self.follow_orders(began_s)

    def _keep(self, parking: Parking) -> None:
        """Save the state from time to time, while training goes on."""
        exchange = self.exchange
        if exchange.parking:
            exchange.parking = False
            try:
                parking.keep(self.replica, self.name if exchange.serves else "", exchange.shards)
            except (RotaError, RuntimeError) as error:
                print(f"The state of the training cannot be saved: {error}", flush=True)
        elif exchange.rank == 0 and not exchange.serves:
            exchange.parking = parking.due()

    def lost(self, error: str, began_s: float) -> None:
        """Other members do not answer: tell the agent, and wait for a new group."""
        self.link.park()
        self.exchange.leave(lost=True)
        self.link.say("trouble", number=self.number, error=error)
        self.follow_orders(began_s)

    def finish(self) -> None:
        """No more samples: wait until all members have trained the last one."""
        self.link.park()
        self.link.say("finished", **self._progress(), sum=self._sum())
        self.follow_orders(perf_counter())

    def fail(self, error: str) -> None:
        """Tell the agent that the script has raised."""
        self.link.say("failed", error=error)

    def close(self) -> None:
        """Leave the group, and close all connections."""
        self._forget(self.number + 1_000_000)
        if self._parking is not None:
            self._parking.finish(_WRITE_S)
        self.exchange.leave()
        self._listener.close()
        self.link.close()

    def follow_orders(self, began_s: float) -> None:
        """Carry out orders of the agent until the member may train again, or is released."""
        while (event := self.link.next()).do != "go":
            if event.do == "release":
                self.released = True
                self.exchange.leave()
                return
            if event.do == "halt":
                self._park()
                self.link.say("finished", **self._progress(), sum=self._sum())
            elif event.do == "break":
                self._forget(event.facts["number"])
                self.exchange.leave(lost=True)
                self._listener.reset()
                if not self.replica.rewind(event.facts.get("growths", ())):
                    self._whole = False
                step = self.replica.position.step if self._whole else -1
                self.link.say("broken", number=event.facts["number"], step=step)
            elif event.do == "switch":
                self._switch(event.facts, began_s)
            elif event.do == "ask":
                self._propose(event.facts)
        self.link.phase = "work"

    def _park(self) -> None:
        """Save the state of a training that is stopped, if ROTA_PARK is set."""
        parking, exchange = self._parking, self.exchange
        if parking is None or not (exchange.serves or exchange.rank == 0):
            return
        try:
            parking.park(self.replica, self.name if exchange.serves else "", exchange.shards)
        except (OSError, RotaError) as error:
            # The daemon will see that it is missing; this process must end all the same.
            print(f"The state of the training cannot be saved: {error}", flush=True)

    def _propose(self, order: Mapping[str, Any]) -> None:
        """Ask the script's grower, in the name of all workers, whether the network shall grow."""
        self.link.phase = "work"  # as the script's own code it may take its time, but not for ever
        at, replica = self.replica.position, self.replica
        facts = Resized(
            workers_before=order["before"],
            workers=order["workers"],
            step=at.step,
            epoch=at.epoch,
            samples=at.samples,
            total=replica.batches.samples * replica.batches.epochs,
            per_epoch=replica.batches.samples,
            busy_s=order["busy_s"],
            samples_per_s=order["samples_per_s"],
            growths=replica.growths,
        )
        growth, error = None, None
        try:
            growth = replica.network.propose(facts)
        except GrowthError as reason:
            error = str(reason)
            print(f"The network does not grow: {error}", flush=True)
        version = len(replica.growths)
        self.link.say("grow", number=order["number"], version=version, growth=growth, error=error)

    def _switch(self, order: Any, began_s: float) -> None:
        self.number = number = order["number"]
        with self._lock:
            group = self._ready.pop(number, None)
        self.exchange.leave()
        try:
            if self._whole and order["broken"]:
                self.exchange.catch_up(order["at"])
            self._grow(order)
            self._hand_over(number, order["transfers"])
            if group is None:  # not in the new group: wait to be released
                self.link.park()
                return
            self.replica.scale_for(group.size)
            self.exchange.adopt(group, order)
            if order.get("equalize"):
                self.exchange.equalize()
        except GrowthError as error:
            print(f"The network does not grow: {error}", flush=True)
            self.link.park()
            # First, so that the agent learns of it before others say that this one is missing.
            self.link.say("ungrown", number=number, error=str(error))
            if group is not None:
                group.close(lost=True)
            return
        except (OSError, JobError, PeerLost) as error:
            self.link.park()
            self.exchange.leave(lost=True)
            self.link.say("trouble", number=number, error=first_line(error))
            return
        self._whole = True
        self.link.done(self.replica.position.step)
        self.link.say(
            "joined",
            number=number,
            **self._progress(),
            pause_s=perf_counter() - began_s,
            sum=self._sum(),
        )

    def _grow(self, order: Mapping[str, Any]) -> None:
        """Let the network have the growths of the job, before its state is sent or received."""
        receives = any(
            item["taker"] == self.name and item["keys"] is None for item in order["transfers"]
        )
        growths = order.get("growths", ())
        self.replica.grow_to(growths, structure_only=receives or not self._whole)

    def _hand_over(self, number: int, transfers: list[dict[str, Any]]) -> None:
        """Send state to members that need it, and receive what this one needs at the same time."""
        limits = self.link.limits
        given = [item for item in transfers if item["giver"] == self.name]
        taken = [item for item in transfers if item["taker"] == self.name]
        errors: list[BaseException] = []

        def give() -> None:
            try:
                for item in given:
                    link = self._listener.accept("state", number, item["taker"], limits.transfer_s)
                    send(link, self.replica.extract(item["keys"]))
                    link.recv(1)  # the receiver has got everything
                    self._listener.release([link])
                    link.close()
            except (OSError, JobError) as error:
                errors.append(error)

        if not taken:
            give()
        else:
            giving = threading.Thread(target=give)
            giving.start()
            try:
                self._take(number, taken, limits.stall_s + limits.transfer_s)
            finally:
                giving.join()
        if errors:
            raise errors[0]

    def _take(self, number: int, taken: list[dict[str, Any]], limit_s: float) -> None:
        new = not self._whole
        for item in taken:
            whole = item["keys"] is None
            self._whole = self._whole and not whole
            where = (item["host"], item["port"])
            link = self._listener.connect("state", number, self.name, where, limit_s)
            found = receive(link, self.replica.targets(item["keys"]))
            link.sendall(b"+")
            self._listener.release([link])
            link.close()
            self.replica.load(found, item["keys"], with_position=new)
        self.replica.network.received()
        self._whole = True

    def _connect(self, message: dict[str, Any]) -> None:
        """Connect to the members of the next group, in a thread of its own."""
        number = message["number"]
        try:
            group = self.exchange.connect(number, message["members"], self.link.limits)
        except (RuntimeError, OSError, JobError) as error:
            self.link.say("prepared", number=number, error=first_line(error))
            return
        with self._lock:
            stale = number <= self._stale
            if not stale:
                self._ready[number] = group
        if stale:
            group.close()
        else:
            self.link.say("prepared", number=number)

    def _forget(self, number: int) -> None:
        """Close groups that were given up, up to this number."""
        with self._lock:
            self._stale = max(self._stale, number)
            gone = [self._ready.pop(k) for k in list(self._ready) if k <= number]
        for group in gone:
            group.close()

    def _sum(self) -> int | None:
        """Checksum that workers compare; None for servers, which have only some parameters."""
        return None if self.exchange.serves else self.replica.checksum()

    def _progress(self) -> dict[str, Any]:
        at, ago_s = self.replica.position, perf_counter() - self._stepped_s
        return {
            "step": at.step,
            "epoch": at.epoch,
            "samples": at.samples,
            "ago_s": ago_s,
            "version": len(self.replica.growths),
        }


def _refuse_growth(replica: Replica) -> None:
    """Say that a network does not grow in this mode; one that has grown cannot be trained."""
    if replica.growths:
        raise JobError(f"The network has {len(replica.growths)} growths. {NO_SERVERS}")
    if replica.network.grower is not None:
        print(NO_SERVERS, flush=True)
