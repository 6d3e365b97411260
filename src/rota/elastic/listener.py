"""Connections among members: one listening socket per member.

A member that connects sends the purpose, the number of the change and its own name. The connection
then waits here until this member asks for it. `cancel` ends every wait and every connection.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal

from rota.elastic.handshake import BACKLOG, Authenticator, open_connection
from rota.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Iterable

Purpose = Literal["state", "connect", "servers"]
"""state: to hand over the training state; connect: to form a group of workers; servers: to exchange
gradients and parameters with a parameter server."""
Key = tuple[str, int, str]
"""Purpose, number of the change, name of the member that connects."""

_BUFFER: Final = 1 << 22
"""Bytes of the kernel's buffers; smaller ones mean more switches between sender and receiver."""
_KEY: Final = struct.Struct("!8sq64s")
_CANCELLED: Final = "The change was cancelled."


class MemberListener:
    """Connects a member with other members of its job."""

    def __init__(self, host: str, token: str) -> None:
        self._token = token
        self._socket = socket.create_server((host, 0), backlog=BACKLOG)
        self._selector = selectors.DefaultSelector()
        self._authenticator = Authenticator(
            self._socket, token, self._selector, self._accepted, _KEY.size
        )
        self._awaited = 0  # calls of `accept` that wait
        self._waiting: dict[Key, socket.socket] = {}
        self._links: set[socket.socket] = set()
        self._changed, self._cancelled, self._closed = threading.Condition(), False, False
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, name="rota-listener", daemon=True).start()

    def reset(self) -> None:
        """Allow connections again after `cancel`."""
        with self._changed:
            self._cancelled = False

    def cancel(self) -> None:
        """Close all connections and let every call that waits here fail; from any thread."""
        with self._changed:
            self._cancelled = True
            for link in [*self._waiting.values(), *self._links]:
                with suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)
                link.close()
            self._waiting.clear()
            self._links.clear()
            self._changed.notify_all()

    def close(self) -> None:
        """Stop listening, and cancel everything."""
        self._closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # its thread wakes up, and closes it
        self.cancel()

    def accept(self, purpose: Purpose, number: int, name: str, limit_s: float) -> socket.socket:
        """Wait for the connection that member `name` opens for this purpose and change."""
        until_s = monotonic() + limit_s
        with self._changed:
            self._expect(1)
            try:
                while (purpose, number, name) not in self._waiting:
                    left_s = until_s - monotonic()
                    if self._cancelled:
                        raise JobError(_CANCELLED)
                    if left_s <= 0:
                        raise JobError(f"{name} did not connect within {limit_s:g} s.")
                    self._changed.wait(left_s)
            finally:
                self._expect(-1)
            link = self._waiting.pop((purpose, number, name))
            self._links.add(link)
        link.settimeout(limit_s)
        return link

    def connect(
        self, purpose: Purpose, number: int, name: str, where: tuple[str, int], limit_s: float
    ) -> socket.socket:
        """Connect to the listener of another member; `name` is this member's own."""
        key = _KEY.pack(purpose.encode(), number, name.encode())
        tries: list[socket.socket] = []
        try:
            link = open_connection(
                where, self._token, limit_s, key, lambda link: self._note(link, tries)
            )
        except OSError:
            with self._changed:
                self._links.difference_update(tries)
                if self._cancelled:
                    raise JobError(_CANCELLED) from None
            raise
        self.release(tries[:-1])
        _tune(link, limit_s)
        return link

    def _note(self, link: socket.socket, tries: list[socket.socket]) -> None:
        """Let `cancel` end this attempt to connect, too."""
        with self._changed:
            if self._cancelled:
                raise JobError(_CANCELLED)
            self._links.add(link)
            tries.append(link)

    def release(self, links: Iterable[socket.socket]) -> None:
        """Forget connections: `cancel` leaves them alone from now on."""
        with self._changed:
            self._links.difference_update(links)

    def _expect(self, more: int) -> None:
        self._awaited += more
        self._authenticator.eager = self._awaited > 0

    def _serve(self) -> None:
        while not self._closed:
            for key, _ in self._selector.select(self._authenticator.wait_s()):
                if not self._closed:
                    key.data()
            self._authenticator.tick()
        self._authenticator.close()
        self._selector.close()
        self._socket.close()

    def _accepted(self, link: socket.socket, said: bytes) -> None:
        """Keep a connection until `accept` asks for it."""
        try:
            purpose, number, name = _KEY.unpack(said)
            key = (purpose.rstrip(b"\0").decode(), number, name.rstrip(b"\0").decode())
            _tune(link, None)
        except (OSError, ValueError):
            link.close()
            return
        with self._changed:
            # Connections for older changes, which were given up, will not be asked for.
            for stale in [k for k in self._waiting if k[1] < key[1]]:
                self._waiting.pop(stale).close()
            if twice := self._waiting.pop(key, None):
                twice.close()
            self._waiting[key] = link
            self._changed.notify_all()


def _tune(link: socket.socket, limit_s: float | None) -> None:
    link.settimeout(limit_s)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        link.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
