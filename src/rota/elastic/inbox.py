"""Orders of the agent that a member has still to carry out; no sockets, no threads."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rota.elastic.protocol import AHEAD

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Event:
    """What a member has to do at the end of a step."""

    do: Literal["go", "switch", "break", "halt", "ask", "release"]
    facts: Mapping[str, Any]


class Inbox:
    """Keeps orders of the agent until they are due."""

    def __init__(self) -> None:
        self.step = -1
        """Steps done; -1 before this member has the state of the job."""
        self.parked, self.released = True, False
        """Parked: do not train before the next order of the agent."""
        self._hold_at = self._halt_at = math.inf
        self._switch: dict[str, Any] | None = None
        self._break: dict[str, Any] | None = None
        self._ask: dict[str, Any] | None = None

    def due(self) -> bool:
        """Whether something has to be done before the next step."""
        return self._waits() or self._ask is not None

    def _waits(self) -> bool:
        """Whether there is no next step before another order comes."""
        return self.parked or self.step >= self._hold_at

    def take(self, message: dict[str, Any]) -> None:
        """Take in an order."""
        op = message["op"]
        if op == "hold":
            self._hold_at = self.step + AHEAD
        elif op == "switch":
            self._switch, self._hold_at, self._ask = message, message["at"], None
        elif op == "ask":
            self._ask = message
        elif op == "halt":
            self._halt_at = self._hold_at = message["at"]
        elif op == "drop":
            self._hold_at = math.inf
        elif op == "release":
            self.released = self.parked = True
        elif op == "break":
            self._break, self._switch, self._ask, self.parked = message, None, None, True
            self._halt_at = self._hold_at = math.inf

    def event(self) -> Event | None:
        """What to do now: "go" to train on, None to wait for the agent."""
        if self.released:
            return Event("release", {})
        if self._break is not None:
            order, self._break = self._break, None
            return Event("break", order)
        if self._switch is not None and (self.parked or self.step >= self._switch["at"]):
            order, self._switch = self._switch, None
            self.parked, self._hold_at = False, math.inf
            return Event("switch", order)
        if self.step >= self._halt_at:
            self.parked, self._halt_at = True, math.inf
            return Event("halt", {})
        if self._waits():
            return None
        if self._ask is not None:
            order, self._ask = self._ask, None
            return Event("ask", order)
        return Event("go", {})
