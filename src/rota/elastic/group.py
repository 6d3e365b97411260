"""A group of workers that reduce gradients together: built beside the old one, cut at once.

A process group of torch that is not the default one, so that two can exist at a time. The code is
the same for gloo (CPU) and NCCL (CUDA).
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import ExitStack, suppress
from datetime import timedelta
from time import sleep
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.distributed

from rota.elastic.gathering import Board, Gathering, seal, unseal
from rota.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rota.elastic.transfer import Door


dist: Any = torch.distributed
"""Its type stubs know only half of it."""


Address = tuple[str, int]
_OPENING: Final = threading.Lock()
_TRIES: Final = 10
_QUIET_S: Final = 1.0
"""Between the end of a group's work and its end."""


class Circle:
    """Workers that have connected with one another; `cards` tell of them by rank."""

    def __init__(
        self,
        door: Door | None,
        number: int,
        name: str,
        cards: Sequence[dict[str, Any]],
        *,
        device: torch.device,
        connect_s: float,
        step_s: float,
    ) -> None:
        self.number, self.size = number, len(cards)
        self.rank = [card["name"] for card in cards].index(name)
        self.group: Any = None
        self._doors: set[Address] = set()  # where gloo listens, here and at the others
        if self.size == 1:
            return
        assert door is not None
        gathering = Gathering(door, number, name, cards, connect_s)
        try:
            if device.type == "cuda":
                self._connect_nccl(gathering, cards[0]["host"], connect_s, step_s)
            else:
                self._connect_gloo(gathering, cards[self.rank]["host"], connect_s, step_s)
        except RuntimeError as error:
            raise JobError(first_line(error)) from None
        finally:
            gathering.close()

    def _connect_gloo(
        self, gathering: Gathering, host: str, connect_s: float, step_s: float
    ) -> None:
        """gloo listens to anybody, and dies of too many: only while members connect can they."""
        options, file, own = gloo_options(host, connect_s)

        def share(keys: dict[str, str]) -> list[dict[str, str]]:
            found = gathering.share({"keys": keys, "door": own})
            self._doors = {tuple(said["door"]) for said in found}
            unseal(file)
            gathering.share(None)  # all doors are open now
            return [said["keys"] for said in found]

        try:
            board = Board(share)
            backend = dist.ProcessGroupGloo(board, self.rank, self.size, options)
        finally:
            seal(file)  # its number is still the same: `options` keeps gloo's device
        self._expel(gathering)
        backend._set_default_timeout(timedelta(seconds=step_s))
        self._register(board, backend, "gloo", torch.device("cpu"))

    def _expel(self, gathering: Gathering) -> None:
        """Cut connections of gloo's that no other member has; nothing was sent on them yet."""
        with ExitStack() as stack:
            links = {
                (here, there): stack.enter_context(_dup(link))
                for link, here, there in self._links()
            }
            known = {(there, here) for own in gathering.share([*links]) for here, there in own}
            for ends, link in links.items():
                if ends not in known:
                    with suppress(OSError):
                        link.shutdown(socket.SHUT_RDWR)

    def _connect_nccl(
        self, gathering: Gathering, host: str, connect_s: float, step_s: float
    ) -> None:
        store = bound_store(host) if self.rank == 0 else None
        port = gathering.share(store.port if store else None)[0]
        limit = timedelta(seconds=connect_s)
        store = store or dist.TCPStore(host, port, wait_for_workers=False, timeout=limit)
        store.set_timeout(limit)
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=step_s)
        backend = dist.ProcessGroupNCCL(store, self.rank, self.size, options)
        self._register(store, backend, "nccl", torch.device("cuda"))

    def _register(self, store: Any, backend: Any, name: str, device: torch.device) -> None:
        self._store = store  # torch does not keep what is written in Python
        self.group = group_of(store, self.rank, self.size, backend, name, device)

    def cut(self) -> None:
        """Let every call that waits in this group fail at once, here and at the others.

        gloo cannot be interrupted, but its connections can: they are those with an end at a
        place where it listens, here or at another member.
        """
        if self.group is None:
            return
        with suppress(RuntimeError):
            self.group.abort()
        for link, *_ in self._links():
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)

    def _links(self) -> Iterator[tuple[socket.socket, Address, Address]]:
        """The connections of gloo's, with both ends: one of these is where it listens."""
        for other in _sockets():
            with suppress(OSError):
                other.getpeername()  # a socket that listens has no peer
                with _dup(other) as link:  # it may be closed at any time
                    here, there = link.getsockname()[:2], link.getpeername()[:2]
                    if {here, there} & self._doors:
                        yield link, here, there

    def close(self, *, lost: bool = False) -> None:
        """Leave the group: behind the caller's back, since it takes some milliseconds."""
        if lost:
            self.cut()
        group, self.group = self.group, None
        if group is not None:
            dispose(group)


def group_of(
    store: Any, rank: int, size: int, backend: Any, name: str, device: torch.device
) -> Any:
    """A process group of torch that is not the default one, around one backend."""
    kind = getattr(dist.ProcessGroup.BackendType, name.upper())
    group = dist.ProcessGroup(store, rank, size)
    group._set_default_backend(kind)
    group._register_backend(device, kind, backend)
    return group


def gloo_options(host: str, limit_s: float) -> tuple[Any, int, Address]:
    """Options for a group of gloo's, and the file and the address at which it will listen.

    Nobody can connect there before `unseal`.
    """
    options = dist.ProcessGroupGloo._Options()
    options._timeout, options._threads = timedelta(seconds=limit_s), 2
    with _OPENING:
        for _ in range(_TRIES):
            before = set(_listening())
            options._devices = [dist.ProcessGroupGloo.create_device(hostname=host)]
            opened = [(file, at) for file, at in _listening().items() if file not in before]
            if len(opened) == 1:
                seal(opened[0][0])
                return options, *opened[0]
    # The script opens sockets all the time, and nobody's can be told apart.
    raise JobError("It cannot be seen where gloo listens.")


def bound_store(host: str) -> Any:
    """A store of torch's that listens at this address, and not at all that the machine has."""
    door = socket.create_server((host, 0))
    port, number = door.getsockname()[1], door.detach()
    return dist.TCPStore(
        host, port, is_master=True, wait_for_workers=False, master_listen_fd=number
    )


def dispose(group: Any) -> None:
    """Close a group behind the caller's back; the caller must drop it, too."""
    # Not a daemon: torch aborts a process that ends while one of its groups is closing.
    threading.Thread(target=_dispose, args=([group],)).start()


def _dispose(held: list[Any]) -> None:
    with suppress(RuntimeError):
        held[0].shutdown()
    # To drop a group is to wait, with Python's lock in hand, for its threads; and these may want
    # the lock to drop their last tensors. Here they have time to.
    sleep(_QUIET_S)
    held.clear()


def is_loss(error: BaseException) -> bool:
    """Whether an error says that the others do not answer, and not that the script is wrong."""
    text = str(error).lower()
    return isinstance(error, dist.DistError) or "gloo" in text or "nccl" in text


def _sockets() -> Iterator[socket.socket]:
    """All TCP sockets of this process, each until the next is asked for: they are not ours.

    They are not duplicated, lest somebody else who looks finds a socket more than there is.
    """
    for entry in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # no socket, or closed since
            link = socket.socket(fileno=int(entry))
            try:
                if link.family in (socket.AF_INET, socket.AF_INET6):
                    yield link
            finally:
                link.detach()


def _dup(link: socket.socket) -> socket.socket:
    """Another handle; `socket.dup` would have gloo's sockets block."""
    return socket.socket(fileno=os.dup(link.fileno()))


def _listening() -> dict[int, Address]:
    """Where this process listens, by the number of the file."""
    found = {}
    for link in _sockets():
        with suppress(OSError):
            if link.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                found[link.fileno()] = link.getsockname()[:2]
    return found


def first_line(error: BaseException) -> str:
    """What an error says, without the trace of the library that raised it."""
    return str(error).strip().splitlines()[0][:200]
