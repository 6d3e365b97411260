"""The head of an agent whose job does not use rota.elastic: start all, and wait until all end.

Members find each other as under torch's own launcher, by RANK, WORLD_SIZE, MASTER_PORT and so on.
Who is told to end gets SIGTERM, and with it the time to write a checkpoint.
"""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from rota.elastic.desk import Desk
from rota.elastic.protocol import Result, Status
from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.elastic.outline import Outline
    from rota.elastic.protocol import JobSpec, Member


class Plain:
    """Leads one job whose members are there from its beginning to its end."""

    def __init__(self, spec: JobSpec, now_s: float) -> None:
        self.desk = Desk(spec)
        self.result: Result | None = None
        self._ending: Literal["", "stopped", "failed"] = ""
        self._error = ""
        self._door = _reserved()  # kept, lest somebody else take the port
        size, port = str(len(spec.members)), str(self._door.getsockname()[1])
        shared = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
        shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        for rank, member in enumerate(spec.members):
            env = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank), **member.env}
            self.desk.start(replace(member, env=env), now_s).place("active", now_s)

    def resize(self, members: Sequence[Member], now_s: float) -> NoReturn:
        """Refuse: whoever is there stays."""
        del members, now_s
        raise ConfigError(
            "A plain job cannot be resized; stop it, and launch it again with other members."
        )

    def stop(self, grace_s: float, now_s: float) -> None:
        """Send SIGTERM; whoever is there after `grace_s` is killed."""
        if not self._ending:
            self._end("stopped", grace_s, now_s)

    def status(self, now_s: float) -> Status:
        """The job as it is now."""
        del now_s
        state = self.result.state if self.result else "stopping" if self._ending else "running"
        return Status(
            state=state,
            active=tuple(seat.name for seat in self.desk.active()),
            reached=0,
            refused=dict(self.desk.refused),
            error=self._error,
        )

    def meet(self, name: str, card: dict[str, Any], outline: Outline, now_s: float) -> NoReturn:
        """Send a member away that expects to be led."""
        del card, outline, now_s
        raise ConfigError(
            f"Member {name} uses rota.elastic, but the job's mode is plain; launch it as allreduce "
            "or servers."
        )

    def hear(self, name: str, message: dict[str, Any], now_s: float) -> NoReturn:
        """Never called: nobody is let in."""
        raise AssertionError(f"{name} said {message} at {now_s}")

    def lose(self, name: str, why: str, now_s: float) -> None:
        """A process has ended; `why` is empty if all went well."""
        seat = self.desk.roster[name]
        if not why:
            seat.place("gone", now_s)
        else:
            self.desk.part(seat, why, now_s)
            # To be ended by the signal that asks for it is in order.
            asked = self._ending and why.endswith("killed by SIGTERM")
            if not self._error and not asked:
                self._error = f"{name}: {why}"
            if not self._ending:
                self._end("failed", self.desk.spec.limits.leave_s, now_s)
        if not self.desk.roster.of("active", "leaving"):
            self._door.close()
            self.result = Result(state=self._ending or "done", step=0, samples=0, error=self._error)

    def tick(self, now_s: float) -> None:
        """Nothing to do: a plain job may take as long as it likes."""

    def _end(self, how: Literal["stopped", "failed"], grace_s: float, now_s: float) -> None:
        self._ending = how
        for seat in self.desk.active():
            seat.place("leaving", now_s)
            self.desk.end(seat.name, grace_s)


def _reserved() -> socket.socket:
    """A free port that nobody gets by chance, but whoever asks for it by number."""
    door = socket.socket()
    door.bind(("127.0.0.1", 0))
    # Set after the choice, it lets torch's store bind it, too, since nobody listens here.
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return door
