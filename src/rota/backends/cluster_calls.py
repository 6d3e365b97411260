"""Looks at a cluster and commands to it, made in threads; what came of them, as events."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal

from rota.backends.calls import Calls

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rota.backends.driver import Driver, JobSight, Place
    from rota.backends.reconciler import Action

LOOK_PART: Final = 10.0
"""Looks take at most about one part in so many of the time."""
PAUSE_S: Final = 30.0
"""But this long after one it is looked again, however long it took: commands wait for half a minute
until they give up, and then the cluster may be back."""
SIGHT_S: Final = 60.0
"""For so long after a look it counts as known how the cluster is."""
SOON_S: Final = 0.5
"""After a command was answered, it is looked what came of it no later than this."""


@dataclass(frozen=True)
class CallEvent:
    """A look or a command has come to its end, or somebody wants to be heard."""

    kind: Literal["look", "answer", "wake"]
    number: int = 0
    took_s: float = 0.0
    call: Future[Any] | None = None

    def result(self) -> Any:
        """What came of it, or what it has raised."""
        assert self.call is not None
        return self.call.result()


class ClusterCalls:
    """One look at a time, and any number of commands."""

    def __init__(self, driver: Driver, look_s: float) -> None:
        """Looks are at least `look_s` apart."""
        self._driver, self._look_s = driver, look_s
        self._pool, self._events = Calls(), SimpleQueue[CallEvent]()
        self._looking, self._due_s, self._saw_s = False, monotonic(), -inf

    @property
    def look_due(self) -> bool:
        """Whether it is time to look."""
        return not self._looking and monotonic() >= self._due_s

    @property
    def sees(self) -> bool:
        """Whether a look has succeeded lately."""
        return monotonic() < self._saw_s + SIGHT_S

    def look(self, number: int) -> None:
        """Begin to look; the event will have this number."""
        self._looking = True
        self._call("look", number, self._driver.observe)

    def look_soon(self) -> None:
        """Something was done: do not wait long with the next look."""
        self._due_s = min(self._due_s, monotonic() + SOON_S)

    def carry_out(self, number: int, action: Action, job: JobSight, place: Place) -> None:
        """Begin to carry something out; the event will have this number."""
        self._call("answer", number, partial(self._driver.carry_out, action, job, place))

    def _call(self, kind: Literal["look", "answer"], number: int, call: Any) -> None:
        began_s = monotonic()

        def ended(done: Future[Any]) -> None:
            self._events.put(CallEvent(kind, number, monotonic() - began_s, done))

        self._pool.submit(call).add_done_callback(ended)

    def wake(self) -> None:
        """End a wait for an event."""
        self._events.put(CallEvent("wake"))

    def event(self, most_s: float) -> CallEvent | None:
        """The next event; None if none comes in time, or before it is time to look."""
        if not self._looking:
            most_s = min(most_s, self._due_s - monotonic())
        try:
            event = self._events.get(timeout=most_s) if most_s > 0 else self._events.get_nowait()
        except Empty:
            return None
        if event.kind == "look":
            self._looking = False
            pause_s = max(self._look_s, min(PAUSE_S, LOOK_PART * event.took_s))
            self._due_s = monotonic() + pause_s
            if event.call is not None and event.call.exception() is None:
                self._saw_s = monotonic()
        return event

    def close(self) -> None:
        """Wait for what is under way, but not for ever."""
        self._pool.close()
