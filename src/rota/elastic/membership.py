"""A member's part in every change: it connects, holds, switches, gives or takes the state."""

from __future__ import annotations

import threading
from time import perf_counter
from typing import TYPE_CHECKING, Any

from rota.elastic.group import Meeting, first_line
from rota.elastic.link import Link
from rota.elastic.transfer import Door
from rota.errors import JobError

if TYPE_CHECKING:
    from rota.elastic.exchange import Exchange
    from rota.elastic.link import Seating
    from rota.elastic.replica import Replica


class Membership:
    """One process's place in a job, for as long as it has one."""

    def __init__(self, seating: Seating, replica: Replica, exchange: Exchange) -> None:
        self.name, self.replica, self.exchange = seating.name, replica, exchange
        self.released = False
        self._whole = False  # has the state of the job
        self.number = 0
        """Of the group it is in, or about to enter."""
        self._meeting, self._door = Meeting(seating.host), Door(seating.host, seating.token)
        self._ready: dict[int, Any] = {}  # groups that are connected, by number
        self._stale, self._lock = -1, threading.Lock()
        card = {
            "host": seating.host,
            "store_port": self._meeting.port,
            "state_port": self._door.port,
        }
        self.link = Link(seating, card)
        self.link.on_prepare, self.link.on_drop = self._connect, self._forget
        self.link.on_shut, self.link.on_cut = self._door.shut, exchange.cut
        self.link.progress = self._progress
        self.link.start()

    def begin(self) -> None:
        """Say that this member is warm, and wait for its first group."""
        self.link.say("ready")
        self.attend(perf_counter())

    def stepped(self, check: bool) -> None:
        """A step is done; take part in whatever is to happen before the next."""
        began_s, step = perf_counter(), self.replica.position.step
        if check:
            found = [step, self.replica.checksum()]
            self.link.say("alive", phase="work", **self._progress(), sum=found)
        if self.link.done(step):
            self.attend(began_s)

    def lost(self, error: str, began_s: float) -> None:
        """The others do not answer: tell the agent, and wait for a new group."""
        self.link.park()
        self.exchange.leave(lost=True)
        self.link.say("trouble", number=self.number, error=error)
        self.attend(began_s)

    def finish(self) -> None:
        """No more samples: wait until all have seen the last one."""
        self.link.park()
        self.link.say("finished", **self._progress())
        self.attend(perf_counter())

    def fail(self, error: str) -> None:
        """Tell the agent that the script has raised."""
        self.link.say("failed", error=error)

    def close(self) -> None:
        """Leave everything."""
        self._forget(self.number + 1_000_000)
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
                self.link.say("finished", **self._progress())
            elif event.do == "break":
                self._forget(event.facts["number"])
                self.exchange.leave(lost=True)
                self._door.open()
                step = self.replica.position.step if self._whole else -1
                self.link.say("broken", number=event.facts["number"], step=step)
            elif event.do == "switch":
                self._switch(event.facts, began_s)
        self.link.phase = "work"

    def _switch(self, order: Any, began_s: float) -> None:
        self.number = number = order["number"]
        with self._lock:
            circle = self._ready.pop(number, None)
        self.exchange.leave()
        try:
            self._hand_over(order)
            if circle is None:  # it leaves, as soon as it is released
                self.link.park()
                return
            self.replica.suit(circle.size)
            self.exchange.adopt(circle)
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
            sum=self.replica.checksum(),
        )

    def _hand_over(self, order: Any) -> None:
        number, sources, limits = order["number"], order["sources"], self.link.limits
        if self.name in sources:
            card = order["givers"][sources[self.name]]
            self._whole = False
            found = self._door.take(
                number,
                self.name,
                (card["host"], card["state_port"]),
                self.replica.tensors(),
                limits.stall_s + limits.transfer_s,
            )
            self.replica.load(found)
            self._whole = True
        takers = [name for name, giver in sources.items() if giver == self.name]
        if takers:
            self._door.give(number, takers, self.replica.state, limits.transfer_s)

    def _connect(self, message: dict[str, Any]) -> None:
        """Meet the members of a group to come, in a thread of its own."""
        number = message["number"]
        try:
            circle = self.exchange.connect(
                number, self.name, message["members"], self._meeting, self.link.limits
            )
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

    def _progress(self) -> dict[str, Any]:
        at = self.replica.position
        return {"step": at.step, "epoch": at.epoch, "samples": at.samples}
