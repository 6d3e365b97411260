"""What decides in an agent: the seam between its sockets and processes and the state of the job.

A controller has no sockets, no processes and no clock. Events go in with their time; orders to the
agent come out in a queue (`MemberTable.orders`). So tests can play any sequence of events.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.elastic.member_table import MemberTable
    from rota.elastic.outline import Outline
    from rota.elastic.protocol import Member, Result, Status


@dataclass(frozen=True)
class Order:
    """One thing that the agent is to do for a member.

    send: send it `message`. start: start its process. end: send SIGTERM now and SIGKILL after
    `after_s`. kill: do nothing for `after_s`, then end the process if it still runs.
    """

    do: Literal["send", "start", "end", "kill"]
    name: str
    message: dict[str, Any] = field(default_factory=dict)
    after_s: float = 0.0


class Controller(Protocol):
    """Decides for one job: `Coordinator` for elastic jobs, `PlainController` for all others."""

    table: MemberTable
    result: Result | None
    """How the job ended; None while it runs."""

    def resize(self, members: Sequence[Member], now_s: float) -> int: ...
    def stop(self, grace_s: float, now_s: float) -> None: ...
    def status(self, now_s: float) -> Status: ...
    def hello(self, name: str, card: dict[str, Any], outline: Outline, now_s: float) -> None: ...
    def receive(self, name: str, message: dict[str, Any], now_s: float) -> None: ...
    def lose(self, name: str, why: str, now_s: float) -> None: ...
    def tick(self, now_s: float) -> None: ...
