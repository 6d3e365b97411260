"""One connection of an agent, with its buffers."""

from __future__ import annotations

import socket
from typing import Any

from rota.elastic.protocol import MOST_LINE, encode_line


class Peer:
    """A connection from a member, or from a scheduler that asks."""

    def __init__(self, link: socket.socket) -> None:
        link.setblocking(False)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.link, self.inbox, self.outbox = link, b"", b""
        self.known, self.member = False, ""

    def read(self) -> list[bytes] | None:
        """The complete lines that have arrived; None if the connection has ended."""
        try:
            data = self.link.recv(1 << 16)
        except BlockingIOError:
            return []
        except OSError:
            return None
        *lines, self.inbox = (self.inbox + data).split(b"\n")
        return None if not data or len(self.inbox) > MOST_LINE else lines

    def write(self, message: dict[str, Any]) -> None:
        """Send what the peer takes now, and keep the rest."""
        self.outbox += encode_line(message)
        self.flush()

    def flush(self) -> None:
        try:
            self.outbox = self.outbox[self.link.send(self.outbox) :]
        except BlockingIOError:
            pass
        except OSError:
            self.outbox = b""  # the next read will find that it has ended
