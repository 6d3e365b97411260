"""A member's part in every change: it connects, holds, switches, gives or takes the state."""

from __future__ import annotations

import os
import threading
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from rota.elastic.allreduce import AllReduce
from rota.elastic.group import first_line
from rota.elastic.link import Link
from rota.elastic.parking import ENV_PARK, Parking
from rota.elastic.servers import Servers
from rota.elastic.state import receive, send
from rota.elastic.transfer import Door
from rota.errors import JobError, RotaError

if TYPE_CHECKING:
    from rota.elastic.exchange import Exchange
    from rota.elastic.link import Seating
    from rota.elastic.replica import Replica

_WRITE_S: Final = 10.0
"""For a state that is being written when its writer wants to go."""


class Membership:
    """One process's place in a job, for as long as it has one."""

    def __init__(self, seating: Seating, replica: Replica, *, unused: bool) -> None:
        self.name, self.replica = seating.name, replica
        self.released = False
        self.number = 0
        """Of the group it is in, or about to enter."""
        self._whole = False  # has the state of the job
        self._ready: dict[int, Any] = {}  # groups that are connected, by number
        self._stale, self._lock = -1, threading.Lock()
        self._door = Door(seating.host, seating.token)
        card = {"host": seating.host, "state_port": self._door.port}
        self.link = Link(seating, card, replica.outline())
        self.exchange: Exchange
        if self.link.mode == "servers":
            self.exchange = Servers(replica, seating.name, seating.kind, self._door)
        else:
            self.exchange = AllReduce(replica, seating.name, self._door, unused=unused)
        folder = os.environ.get(ENV_PARK)
        every_s = self.link.park_every_s
        self._parking = Parking(folder, seating.token, every_s) if folder else None
        self.link.on_prepare, self.link.on_drop = self._connect, self._forget
        self.link.on_shut, self.link.on_cut = self._door.shut, self.exchange.cut
        self._stepped_s = perf_counter()
        self.link.progress = self._progress
        self.link.start()

    def begin(self) -> None:
        """Say that this member is warm, and wait for its first group."""
        self.link.say("ready")
        self.attend(perf_counter())

    def stepped(self, check: bool) -> None:
        """A step is done; take part in whatever is to happen before the next."""
        began_s = self._stepped_s = perf_counter()
        step = self.replica.position.step
        if check:
            self.link.say("alive", phase="work", **self._progress(), sum=self._sum())
        if self._parking is not None:
            self._keep(self._parking)
        if self.link.done(step):
            self.attend(began_s)

    def _keep(self, parking: Parking) -> None:
        """Now and then, keep the state while training goes on."""
        exchange = self.exchange
        if exchange.parking:
            exchange.parking = False
            try:
                parking.keep(self.replica, self.name if exchange.serves else "", exchange.shards)
            except (RotaError, RuntimeError) as error:
                print(f"The state of the training cannot be kept: {error}", flush=True)
        elif exchange.rank == 0 and not exchange.serves:
            exchange.parking = parking.due()

    def lost(self, error: str, began_s: float) -> None:
        """The others do not answer: tell the agent, and wait for a new group."""
        self.link.park()
        self.exchange.leave(lost=True)
        self.link.say("trouble", number=self.number, error=error)
        self.attend(began_s)

    def finish(self) -> None:
        """No more samples: wait until all have seen the last one."""
        self.link.park()
        self.link.say("finished", **self._progress(), sum=self._sum())
        self.attend(perf_counter())

    def fail(self, error: str) -> None:
        """Tell the agent that the script has raised."""
        self.link.say("failed", error=error)

    def close(self) -> None:
        """Leave everything."""
        self._forget(self.number + 1_000_000)
        if self._parking is not None:
            self._parking.finish(_WRITE_S)
        self.exchange.leave()
        self._door.close()
        self.link.close()

    def attend(self, began_s: float) -> None:
        """Do what the agent says, until it is time to train or to go."""
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
                self._door.open()
                step = self.replica.position.step if self._whole else -1
                self.link.say("broken", number=event.facts["number"], step=step)
            elif event.do == "switch":
                self._switch(event.facts, began_s)
        self.link.phase = "work"

    def _park(self) -> None:
        """Keep the state of a training that is stopped, if there is a place for it."""
        parking, exchange = self._parking, self.exchange
        if parking is None or not (exchange.serves or exchange.rank == 0):
            return
        try:
            parking.park(self.replica, self.name if exchange.serves else "", exchange.shards)
        except (OSError, RotaError) as error:
            # The daemon will see that it is missing; ending is more important.
            print(f"The state of the training cannot be kept: {error}", flush=True)

    def _switch(self, order: Any, began_s: float) -> None:
        self.number = number = order["number"]
        with self._lock:
            circle = self._ready.pop(number, None)
        self.exchange.leave()
        try:
            if self._whole and order["broken"]:
                self.exchange.catch_up(order["at"])
            self._hand_over(number, order["transfers"])
            if circle is None:  # it leaves, as soon as it is released
                self.link.park()
                return
            self.replica.suit(circle.size)
            self.exchange.adopt(circle, order)
        except (OSError, JobError) as error:
            self.link.park()
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

    def _hand_over(self, number: int, transfers: list[dict[str, Any]]) -> None:
        """Give what others need and take what this member needs, both at a time."""
        limits = self.link.limits
        given = [item for item in transfers if item["giver"] == self.name]
        taken = [item for item in transfers if item["taker"] == self.name]
        errors: list[BaseException] = []

        def give() -> None:
            try:
                for item in given:
                    link = self._door.guest("state", number, item["taker"], limits.transfer_s)
                    send(link, self.replica.part(item["keys"]))
                    link.recv(1)  # the taker has it all
                    self._door.release([link])
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
        news = not self._whole
        for item in taken:
            whole = item["keys"] is None
            self._whole = self._whole and not whole
            where = (item["host"], item["port"])
            link = self._door.visit("state", number, self.name, where, limit_s)
            found = receive(link, self.replica.places(item["keys"]))
            link.sendall(b"+")
            self._door.release([link])
            link.close()
            self.replica.take(found, item["keys"], news=news)
        self._whole = True

    def _connect(self, message: dict[str, Any]) -> None:
        """Meet the members of a group to come, in a thread of its own."""
        number = message["number"]
        try:
            circle = self.exchange.connect(number, message["members"], self.link.limits)
        except (RuntimeError, OSError, JobError) as error:
            self.link.say("prepared", number=number, error=first_line(error))
            return
        with self._lock:
            stale = number <= self._stale
            if not stale:
                self._ready[number] = circle
        if stale:
            circle.close()
        else:
            self.link.say("prepared", number=number)

    def _forget(self, number: int) -> None:
        """Give up groups that will not be, up to this number."""
        with self._lock:
            self._stale = max(self._stale, number)
            gone = [self._ready.pop(k) for k in list(self._ready) if k <= number]
        for circle in gone:
            circle.close()

    def _sum(self) -> int | None:
        """What members compare; servers know only a part of the parameters."""
        return None if self.exchange.serves else self.replica.checksum()

    def _progress(self) -> dict[str, Any]:
        at, ago_s = self.replica.position, perf_counter() - self._stepped_s
        return {"step": at.step, "epoch": at.epoch, "samples": at.samples, "ago_s": ago_s}
