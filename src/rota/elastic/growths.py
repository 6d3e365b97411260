"""The growths of a job's network as its agent knows them: asked for, proposed, made, withdrawn.

The agent's list is the version of the network: every order to switch carries it, and members make
what they lack. So members of one group never differ. A growth counts once its switch is ordered; it
stays open until all have joined with it, and may be withdrawn until then.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.elastic.outline import Outline
    from rota.elastic.protocol import Mode

NO_SERVERS: Final = "With parameter servers a network cannot grow; use the mode allreduce."
MOST_GROWTHS: Final = 200
"""Growths of one training; their list must fit into a message."""
MOST_BYTES: Final = 4096
"""Size of one growth as JSON."""


class Growths:
    """Which growths a network has, and which one may come next."""

    def __init__(self) -> None:
        self.made: list[Mapping[str, Any]] = []
        self.open = False
        """Not all members are known to have the last one, and exactly the same values in it."""
        self.trial = 0
        """Increased when what members have tried does not count any more."""
        self.trouble = ""
        """Why the last growth that was proposed was not made."""
        self._allowed = False
        self._before = 0  # workers before a resize after which nobody was asked; 0: there is none
        self._asked = 0  # number of the group whose first worker was asked
        self._proposed: Mapping[str, Any] | None = None

    def learn(self, outline: Outline, mode: Mode) -> None:
        """Learn from the first member whether the network may grow, and has grown before."""
        self.made = list(outline.growths)
        self._allowed = bool(outline.plan.get("grow")) and mode == "allreduce"
        if outline.plan.get("grow") and not self._allowed:
            self.trouble = NO_SERVERS

    def resized(self, before: int) -> None:
        """Note that the group was resized from this number of workers."""
        self._before = self._before or before

    def ask(self, number: int, workers: int) -> dict[str, int]:
        """What to ask the first worker of the group `number` now; empty: nothing."""
        before, self._before = self._before, 0
        if before in (0, workers) or not self._allowed:
            return {}
        self._asked = number
        return {"number": number, "before": before, "workers": workers}

    def propose(self, message: Mapping[str, Any]) -> None:
        """Take the answer of the worker that was asked."""
        made = len(self.made)
        if (message["number"], message["version"]) != (self._asked, made):
            return
        growth, error = message.get("growth"), message.get("error") or ""
        self._asked = 0
        if growth is not None and made == MOST_GROWTHS:
            error = f"The network has grown {MOST_GROWTHS} times, and can grow no more."
        self._proposed = None if error else growth
        self.trouble = error or self.trouble

    def take(self) -> Mapping[str, Any] | None:
        """The growth to make now, if there is one."""
        growth, self._proposed = self._proposed, None
        return growth

    def overtake(self) -> None:
        """Forget what was asked and proposed, because the group changes for another reason."""
        self._asked, self._proposed = 0, None

    def order(self, growth: Mapping[str, Any] | None) -> dict[str, Any]:
        """What an order to switch says of growths; a new one counts from now on."""
        if growth is not None:
            self.made, self.open = [*self.made, growth], True
        return {"growths": self.made, "equalize": self.open}

    def complete(self) -> None:
        """All members have joined with the last growth."""
        if self.open:
            self.open, self.trouble = False, ""

    def moment(self, message: Mapping[str, Any]) -> tuple[int, ...]:
        """What the checksum in a message belongs to; others of the same moment must be equal."""
        return message["step"], message.get("version", 0), self.trial

    def withdraw(self, error: str) -> None:
        """Take the last growth back, because a member cannot make it."""
        self.made, self.open, self.trouble = self.made[:-1], False, error


def check_growths(facts: Any) -> tuple[Mapping[str, Any], ...]:
    """Refuse what is not a list of growths, or too long for a message."""
    if not (isinstance(facts, list | tuple) and len(facts) <= MOST_GROWTHS):
        raise ConfigError(f"{facts!r:.80} is not a list of at most {MOST_GROWTHS} growths.")
    for growth in facts:
        check_growth(growth)
    return tuple(facts)


def check_growth(growth: Any) -> None:
    """Refuse what is not a growth, or cannot be sent."""
    try:
        size = len(json.dumps(growth, allow_nan=False)) if isinstance(growth, dict) else 0
    except (TypeError, ValueError, RecursionError):
        size = 0
    if not 2 < size <= MOST_BYTES:
        raise ConfigError(
            f"{growth!r:.80} is not a growth: that is a dict which JSON can keep, not empty, in at "
            f"most {MOST_BYTES} bytes."
        )


def begins(growths: Sequence[Mapping[str, Any]], first: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a list of growths begins with these."""
    return list(growths[: len(first)]) == list(first)
