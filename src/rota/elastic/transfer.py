"""Where members meet to hand each other tensors: one listening socket per member.

Whoever knocks says for which change, who it is and what for; then the connection waits here until
the member asks for it. Nothing waits longer than it must: `shut` ends it all.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final

from rota.elastic.greeting import BACKLOG, Entrance, call_on
from rota.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Iterable

_BUFFER: Final = 1 << 22
"""Bytes that the kernel keeps on the way; fewer mean more turns between sender and receiver."""
_KNOCK: Final = struct.Struct("!8sq64s")
Knock = tuple[str, int, str]
"""What for, number of the change, name of the guest."""


class Door:
    """Lets other members of the job in."""

    def __init__(self, host: str, token: str) -> None:
        self._token = token
        self._door = socket.create_server((host, 0), backlog=BACKLOG)
        self._selector = selectors.DefaultSelector()
        self._entrance = Entrance(self._door, token, self._selector, self._welcome, _KNOCK.size)
        self._awaited = 0  # how many calls of `guest` wait
        self._guests: dict[Knock, socket.socket] = {}
        self._links: set[socket.socket] = set()
        self._changed, self._shut, self._closed = threading.Condition(), False, False
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
        self._closed = True
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)  # its thread wakes up, and closes it
        self.shut()

    def guest(self, what: str, number: int, name: str, limit_s: float) -> socket.socket:
        """The connection of somebody who knocks, now or soon."""
        until_s = monotonic() + limit_s
        with self._changed:
            self._expect(1)
            try:
                while (what, number, name) not in self._guests:
                    left_s = until_s - monotonic()
                    if self._shut:
                        raise JobError("The change was called off.")
                    if left_s <= 0:
                        raise JobError(f"{name} did not come within {limit_s:g} s.")
                    self._changed.wait(left_s)
            finally:
                self._expect(-1)
            link = self._guests.pop((what, number, name))
            self._links.add(link)
        link.settimeout(limit_s)
        return link

    def visit(
        self, what: str, number: int, name: str, where: tuple[str, int], limit_s: float
    ) -> socket.socket:
        """Knock at another member's door."""
        knock = _KNOCK.pack(what.encode(), number, name.encode())
        tries: list[socket.socket] = []
        try:
            link = call_on(where, self._token, limit_s, knock, lambda link: self._note(link, tries))
        except OSError:
            with self._changed:
                self._links.difference_update(tries)
                if self._shut:
                    raise JobError("The change was called off.") from None
            raise
        self.release(tries[:-1])
        _tune(link, limit_s)
        return link

    def _note(self, link: socket.socket, tries: list[socket.socket]) -> None:
        """`shut` ends this attempt to knock, too."""
        with self._changed:
            if self._shut:
                raise JobError("The change was called off.")
            self._links.add(link)
            tries.append(link)

    def release(self, links: Iterable[socket.socket]) -> None:
        """Close connections that are no longer needed, or leave them to somebody else."""
        with self._changed:
            self._links.difference_update(links)

    def _expect(self, more: int) -> None:
        self._awaited += more
        self._entrance.eager = self._awaited > 0

    def _let_in(self) -> None:
        while not self._closed:
            for key, _ in self._selector.select(self._entrance.wait_s()):
                if not self._closed:
                    key.data()
            self._entrance.tick()
        self._entrance.close()
        self._selector.close()
        self._door.close()

    def _welcome(self, link: socket.socket, said: bytes) -> None:
        """Keep a guest until somebody asks for it."""
        try:
            what, number, name = _KNOCK.unpack(said)
            knock = (what.rstrip(b"\0").decode(), number, name.rstrip(b"\0").decode())
            _tune(link, None)
        except (OSError, ValueError):
            link.close()
            return
        with self._changed:
            # Of changes that never were, nobody asks for.
            for stale in [k for k in self._guests if k[1] < knock[1]]:
                self._guests.pop(stale).close()
            if twice := self._guests.pop(knock, None):
                twice.close()
            self._guests[knock] = link
            self._changed.notify_all()


def _tune(link: socket.socket, limit_s: float | None) -> None:
    link.settimeout(limit_s)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        link.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
