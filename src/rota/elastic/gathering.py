"""How members of a group to come find each other: through the door of the first of them.

torch would have a store for it that anybody may connect to. Here they tell each other what they
need to know over connections that have been greeted, and gloo is given a store which holds that.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import torch.distributed

from rota.elastic.state import receive, send
from rota.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rota.elastic.transfer import Door

dist: Any = torch.distributed

_ATTACH_FILTER: Final = 26
_DETACH_FILTER: Final = 27
_DROP: Final = struct.pack("HBBI", 6, 0, 0, 0)
"""A program for the kernel's packet filter: drop everything."""


class Gathering:
    """Some members that tell each other things, in the order of their cards."""

    def __init__(
        self, door: Door, number: int, name: str, cards: Sequence[dict[str, Any]], limit_s: float
    ) -> None:
        self._door, self._number, self._name, self._limit_s = door, number, name, limit_s
        self._cards = cards
        self.rank = [card["name"] for card in cards].index(name)
        self.size = len(cards)
        self._links: dict[int, socket.socket] = {}

    def share(self, own: Any) -> list[Any]:
        """What everybody says, by rank; all of them call this equally often."""
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
        """Hang up."""
        for link in self._links.values():
            link.close()
        self._door.release(self._links.values())
        self._links = {}

    def _link(self, rank: int) -> socket.socket:
        if rank not in self._links:
            card, facts = self._cards[rank], ("meet", self._number)
            if self.rank:
                where = (card["host"], card["state_port"])
                link = self._door.visit(*facts, self._name, where, self._limit_s)
            else:
                link = self._door.guest(*facts, card["name"], self._limit_s)
            self._links[rank] = link
        return self._links[rank]


class Board(dist.Store):  # type: ignore[misc]
    """A store of torch's in which each member writes, and then reads what all have written."""

    def __init__(self, share: Callable[[dict[str, str]], list[dict[str, str]]]) -> None:
        super().__init__()
        self._share, self._own = share, dict[str, str]()
        self._known: dict[str, str] | None = None

    def set(self, key: str, value: bytes) -> None:
        """Write; before the first look at what others have written."""
        if self._known is not None:
            raise JobError(f"{key!r} was written too late for the others to see.")
        self._own[key] = bytes(value).hex()

    def wait(self, keys: list[str], timeout: Any = None) -> None:
        """Wait for the others; the gathering has limits of its own."""
        del timeout
        if missing := [key for key in keys if key not in self._read()]:
            raise JobError(f"Nobody has written {missing[0]!r}.")

    def get(self, key: str) -> bytes:
        self.wait([key])
        return bytes.fromhex(self._read()[key])

    def _read(self) -> dict[str, str]:
        if self._known is None:
            self._known = {k: v for found in self._share(self._own) for k, v in found.items()}
        return self._known


def seal(file: int) -> None:
    """Let the kernel drop whatever comes to a listening socket; its connections go on."""
    program = ctypes.create_string_buffer(_DROP)
    _set(file, _ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(program)))


def unseal(file: int) -> None:
    """Let others connect again."""
    _set(file, _DETACH_FILTER, struct.pack("i", 0))


def _set(file: int, option: int, facts: bytes) -> None:
    """Set an option of the socket with this number; -1 is none."""
    if file < 0:
        return
    with suppress(OSError):
        door = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, file)
        try:
            door.setsockopt(socket.SOL_SOCKET, option, facts)
        finally:
            door.detach()
