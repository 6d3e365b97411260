"""How members of a new group find each other: all connect to the first of them.

torch's own store for that accepts any process. Here members exchange what they need to know over
authenticated connections, and gloo is given a store that holds the result.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import torch.distributed

from rota.elastic.state_codec import receive, send
from rota.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rota.elastic.listener import MemberListener

dist: Any = torch.distributed

_ATTACH_FILTER: Final = 26
_DETACH_FILTER: Final = 27
_DROP: Final = struct.pack("HBBI", 6, 0, 0, 0)
"""A program for the kernel's packet filter: drop everything."""


class Rendezvous:
    """Exchanges values among some members, ranked in the order of their cards."""

    def __init__(
        self,
        listener: MemberListener,
        number: int,
        name: str,
        cards: Sequence[dict[str, Any]],
        limit_s: float,
    ) -> None:
        self._listener, self._number, self._name = listener, number, name
        self._cards, self._limit_s = cards, limit_s
        self.rank = [card["name"] for card in cards].index(name)
        self.size = len(cards)
        self._links: dict[int, socket.socket] = {}

    def share(self, own: Any) -> list[Any]:
        """The values of all members, by rank; a collective call, like an all-gather."""
        if self.rank:
            link = self._link(0)
            send(link, own)
            found: list[Any] = receive(link)
            return found
        ranks = range(1, self.size)
        found = [own, *(receive(self._link(rank)) for rank in ranks)]
        for rank in ranks:
            send(self._link(rank), found)
        return found

    def close(self) -> None:
        """Close the connections."""
        for link in self._links.values():
            link.close()
        self._listener.release(self._links.values())
        self._links = {}

    def _link(self, rank: int) -> socket.socket:
        if rank not in self._links:
            card, listener = self._cards[rank], self._listener
            if self.rank:
                where = (card["host"], card["state_port"])
                link = listener.connect("connect", self._number, self._name, where, self._limit_s)
            else:
                link = listener.accept("connect", self._number, card["name"], self._limit_s)
            self._links[rank] = link
        return self._links[rank]


class RendezvousStore(dist.Store):  # type: ignore[misc]
    """A torch store in which each member writes first, and then reads what all have written."""

    def __init__(self, share: Callable[[dict[str, str]], list[dict[str, str]]]) -> None:
        super().__init__()
        self._share, self._own = share, dict[str, str]()
        self._known: dict[str, str] | None = None

    def set(self, key: str, value: bytes) -> None:
        """Write; only before the first read, which exchanges all values."""
        if self._known is not None:
            raise JobError(f"{key!r} was written too late for the other members to see.")
        self._own[key] = bytes(value).hex()

    def wait(self, keys: list[str], timeout: Any = None) -> None:
        """Wait for the other members; the rendezvous has time limits of its own."""
        del timeout
        if missing := [key for key in keys if key not in self._read()]:
            raise JobError(f"No member has written {missing[0]!r}.")

    def get(self, key: str) -> bytes:
        self.wait([key])
        return bytes.fromhex(self._read()[key])

    def _read(self) -> dict[str, str]:
        if self._known is None:
            self._known = {k: v for found in self._share(self._own) for k, v in found.items()}
        return self._known


def block_port(file: int) -> None:
    """Let the kernel drop packets for a listening socket; accepted connections are unaffected."""
    program = ctypes.create_string_buffer(_DROP)
    _set(file, _ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(program)))


def unblock_port(file: int) -> None:
    """Let processes connect to a listening socket again."""
    _set(file, _DETACH_FILTER, struct.pack("i", 0))


def _set(file: int, option: int, facts: bytes) -> None:
    """Set an option of the socket with this file number; -1 stands for no socket."""
    if file < 0:
        return
    with suppress(OSError):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, file)
        try:
            listener.setsockopt(socket.SOL_SOCKET, option, facts)
        finally:
            listener.detach()
