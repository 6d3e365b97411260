"""One connection of an agent: a member, or somebody who asks."""

from __future__ import annotations

import socket
from typing import Any

from rota.elastic.protocol import MOST_LINE, encode_line


class Peer:
    """One connection: a member, or somebody who asks."""

    def __init__(self, link: socket.socket) -> None:
        link.setblocking(False)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.link, self.inbox, self.outbox = link, b"", b""
        self.known, self.member = False, ""

    def read(self) -> list[bytes] | None:
        """The lines that have come in, or None if the peer is gone."""
        try:
            data = self.link.recv(1 << 16)
        except BlockingIOError:
            return []
        except OSError:
            return None
        *lines, self.inbox = (self.inbox + data).split(b"\n")
        return None if not data or len(self.inbox) > MOST_LINE else lines

    def write(self, message: dict[str, Any]) -> None:
        """Send as much as the peer takes, and keep the rest."""
        self.outbox += encode_line(message)
        self.flush()

    def flush(self) -> None:
        try:
            self.outbox = self.outbox[self.link.send(self.outbox) :]
        except BlockingIOError:
            pass
        except OSError:
            self.outbox = b""  # its end will be read
