"""Where members hand each other the state: one listening socket per member."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from rota.elastic import state
from rota.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import torch

_LOOK_S: Final = 0.05
_HELLO_S: Final = 5.0
_BUFFER: Final = 1 << 22
"""Bytes that the kernel keeps on the way; fewer mean more turns between sender and receiver."""


class Door:
    """Hands out and takes in state; `shut` ends whatever is under way."""

    def __init__(self, host: str, token: str) -> None:
        self._door = socket.create_server((host, 0), backlog=64)
        self._token, self._links = token, set[socket.socket]()
        self._shut = False
        self.port = self._door.getsockname()[1]

    def open(self) -> None:
        """Begin anew after `shut`."""
        self._shut = False

    def shut(self) -> None:
        """Let whoever waits here fail; in any thread."""
        self._shut = True
        for link in list(self._links):
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)

    def give(
        self, number: int, takers: Iterable[str], what: Callable[[], Any], limit_s: float
    ) -> None:
        """Send the state to all takers of this change, who will knock."""
        left, until_s = set(takers), monotonic() + limit_s
        while left:
            link, name = self._knock(number, until_s)
            if name not in left:
                link.close()
                continue
            try:
                state.send(link, what())
                link.recv(1)  # the taker has it all
            finally:
                self._forget(link)
            left.discard(name)

    def take(
        self,
        number: int,
        name: str,
        where: tuple[str, int],
        into: Sequence[torch.Tensor],
        limit_s: float,
    ) -> Any:
        """Receive the state from another member's door."""
        link = socket.create_connection(where, _HELLO_S)
        self._keep(link, limit_s)
        try:
            hello = {"token": self._token, "number": number, "name": name}
            link.sendall(json.dumps(hello).encode() + b"\n")
            found = state.receive(link, into)
            link.sendall(b"+")
        finally:
            self._forget(link)
        return found

    def close(self) -> None:
        """Nobody comes any more."""
        self.shut()
        self._door.close()

    def _knock(self, number: int, until_s: float) -> tuple[socket.socket, str]:
        """The next taker of this change; others are sent away."""
        self._door.settimeout(_LOOK_S)
        while True:
            if self._shut:
                raise JobError("The change was called off.")
            if monotonic() > until_s:
                raise JobError("A member that wants the state did not come.")
            try:
                link, _ = self._door.accept()
            except TimeoutError:
                continue
            self._keep(link, _HELLO_S)
            try:
                hello = json.loads(_line(link))
                if hello["token"] == self._token and hello["number"] == number:
                    link.settimeout(max(until_s - monotonic(), _LOOK_S))
                    return link, str(hello["name"])
            except (OSError, ValueError, KeyError, TypeError):
                pass
            self._forget(link)

    def _keep(self, link: socket.socket, limit_s: float) -> None:
        link.settimeout(limit_s)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            link.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
        self._links.add(link)
        if self._shut:
            self.shut()

    def _forget(self, link: socket.socket) -> None:
        self._links.discard(link)
        link.close()


def _line(link: socket.socket) -> bytes:
    """A short line, byte by byte: what follows it belongs to somebody else."""
    line = b""
    while not line.endswith(b"\n"):
        got = link.recv(1)
        if not got or len(line) > 1024:
            raise OSError("no line")
        line += got
    return line
