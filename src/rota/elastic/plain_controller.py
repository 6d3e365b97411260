"""The controller of a job that does not use rota.elastic: start all members, wait for their end.

Members find each other as under torch's own launcher, by RANK, WORLD_SIZE, MASTER_PORT and so on.
A member that has to end gets SIGTERM, and then time to write a checkpoint.
"""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from rota.elastic.member_table import MemberTable
from rota.elastic.protocol import Result, Status
from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.elastic.outline import Outline
    from rota.elastic.protocol import JobSpec, Member


class PlainController:
    """Controls one job whose members run from its start to its end."""

    def __init__(self, spec: JobSpec, now_s: float) -> None:
        self.table = MemberTable(spec)
        self.result: Result | None = None
        self._ending: Literal["", "stopped", "failed"] = ""
        self._error = ""
        self._reserved = _reserved_port()  # kept open, so that no other program gets the port
        size, port = str(len(spec.members)), str(self._reserved.getsockname()[1])
        shared = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
        shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        for rank, member in enumerate(spec.members):
            env = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank), **member.env}
            self.table.start(replace(member, env=env), now_s).set_state("active", now_s)

    def resize(self, members: Sequence[Member], now_s: float) -> NoReturn:
        """Refuse: the members of a plain job do not change."""
        del members, now_s
        raise ConfigError(
            "A plain job cannot be resized; stop it, and launch it again with other members."
        )

    def stop(self, grace_s: float, now_s: float) -> None:
        """Send SIGTERM, and kill members that still run after `grace_s`."""
        if not self._ending:
            self._end("stopped", grace_s, now_s)

    def status(self, now_s: float) -> Status:
        """The job as it is now."""
        del now_s
        state = self.result.state if self.result else "stopping" if self._ending else "running"
        return Status(
            state=state,
            active=tuple(entry.name for entry in self.table.active()),
            reached=0,
            refused=dict(self.table.refused),
            error=self._error,
        )

    def hello(self, name: str, card: dict[str, Any], outline: Outline, now_s: float) -> NoReturn:
        """Refuse a member that uses rota.elastic."""
        del card, outline, now_s
        raise ConfigError(
            f"Member {name} uses rota.elastic, but the job's mode is plain; launch it as allreduce "
            "or servers."
        )

    def receive(self, name: str, message: dict[str, Any], now_s: float) -> NoReturn:
        """Never called: `hello` refuses every member."""
        raise AssertionError(f"{name} said {message} at {now_s}")

    def lose(self, name: str, why: str, now_s: float) -> None:
        """A process has ended; `why` is empty for exit code 0."""
        entry = self.table[name]
        if not why:
            entry.set_state("gone", now_s)
        else:
            self.table.remove(entry, why, now_s)
            # A process that SIGTERM ends after it was asked to end has not failed.
            asked = self._ending and why.endswith("killed by SIGTERM")
            if not self._error and not asked:
                self._error = f"{name}: {why}"
            if not self._ending:
                self._end("failed", self.table.spec.limits.leave_s, now_s)
        if not self.table.of("active", "leaving"):
            self._reserved.close()
            self.result = Result(state=self._ending or "done", step=0, samples=0, error=self._error)

    def tick(self, now_s: float) -> None:
        """Do nothing: a plain job has no time limits."""

    def _end(self, how: Literal["stopped", "failed"], grace_s: float, now_s: float) -> None:
        self._ending = how
        for entry in self.table.active():
            entry.set_state("leaving", now_s)
            self.table.end(entry.name, grace_s)


def _reserved_port() -> socket.socket:
    """A free port that the kernel gives to no other program, unless it asks for this number."""
    reserved = socket.socket()
    reserved.bind(("127.0.0.1", 0))
    # Set after the bind, it lets torch's store bind the port, too, since this socket does not
    # listen.
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return reserved
