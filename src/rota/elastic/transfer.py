"""Where members meet to hand each other tensors: one listening socket per member.

Whoever knocks says for which change, who it is and what for; then the connection waits here until
the member asks for it. Nothing waits longer than it must: `shut` ends it all.
"""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final

from rota.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Iterable

_HELLO_S: Final = 5.0
_BUFFER: Final = 1 << 22
"""Bytes that the kernel keeps on the way; fewer mean more turns between sender and receiver."""
Knock = tuple[str, int, str]
"""What for, number of the change, name of the guest."""


class Door:
    """Lets other members of the job in."""

    def __init__(self, host: str, token: str) -> None:
        self._token = token
        self._door = socket.create_server((host, 0), backlog=64)
        self._guests: dict[Knock, socket.socket] = {}
        self._links: set[socket.socket] = set()
        self._changed, self._shut = threading.Condition(), False
        self.port = self._door.getsockname()[1]
        threading.Thread(target=self._let_in, name="rota-door", daemon=True).start()

    def open(self) -> None:
        """Begin anew after `shut`."""
        with self._changed:
            self._shut = False

    def shut(self) -> None:
        """Let whatever waits here fail, and whatever is under way; in any thread."""
        with self._changed:
            self._shut = True
            for link in [*self._guests.values(), *self._links]:
                with suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)
                link.close()
            self._guests.clear()
            self._links.clear()
            self._changed.notify_all()

    def close(self) -> None:
        """Nobody comes any more."""
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        self.shut()

    def guest(self, what: str, number: int, name: str, limit_s: float) -> socket.socket:
        """The connection of somebody who knocks, now or soon."""
        until_s = monotonic() + limit_s
        with self._changed:
            while (what, number, name) not in self._guests:
                left_s = until_s - monotonic()
                if self._shut:
                    raise JobError("The change was called off.")
                if left_s <= 0:
                    raise JobError(f"{name} did not come within {limit_s:g} s.")
                self._changed.wait(left_s)
            link = self._guests.pop((what, number, name))
            self._links.add(link)
        link.settimeout(limit_s)
        return link

    def visit(
        self, what: str, number: int, name: str, where: tuple[str, int], limit_s: float
    ) -> socket.socket:
        """Knock at another member's door."""
        link = socket.create_connection(where, _HELLO_S)
        _tune(link, limit_s)
        with self._changed:
            if self._shut:
                link.close()
                raise JobError("The change was called off.")
            self._links.add(link)
        hello = {"token": self._token, "what": what, "number": number, "name": name}
        link.sendall(json.dumps(hello).encode() + b"\n")
        return link

    def release(self, links: Iterable[socket.socket]) -> None:
        """Close connections that are no longer needed, or leave them to somebody else."""
        with self._changed:
            self._links.difference_update(links)

    def _let_in(self) -> None:
        while True:
            try:
                link, _ = self._door.accept()
            except OSError:
                return
            _tune(link, _HELLO_S)
            try:
                hello = json.loads(_line(link))
                known = hello["token"] == self._token
                knock = (str(hello["what"]), int(hello["number"]), str(hello["name"]))
            except (OSError, ValueError, KeyError, TypeError):
                known = False
            if not known:
                link.close()
                continue
            with self._changed:
                # Of changes that never were, nobody asks for.
                for stale in [k for k in self._guests if k[1] < knock[1]]:
                    self._guests.pop(stale).close()
                self._guests[knock] = link
                self._changed.notify_all()


def _tune(link: socket.socket, limit_s: float) -> None:
    link.settimeout(limit_s)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        link.setsockopt(socket.SOL_SOCKET, option, _BUFFER)


def _line(link: socket.socket) -> bytes:
    """A short line, byte by byte: what follows it belongs to somebody else."""
    line = b""
    while not line.endswith(b"\n"):
        got = link.recv(1)
        if not got or len(line) > 1024:
            raise OSError("no line")
        line += got
    return line
