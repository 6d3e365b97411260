"""A group of workers that reduce gradients together, formed while the former group still trains.

It is a torch process group other than the default one, so that two can exist at a time. The code is
the same for gloo (CPU) and NCCL (CUDA).
"""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from contextlib import ExitStack, suppress
from datetime import timedelta
from time import sleep
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.distributed

from rota.elastic.rendezvous import Rendezvous, RendezvousStore, block_port, unblock_port
from rota.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rota.elastic.listener import MemberListener


dist: Any = torch.distributed
"""As Any, since its type stubs are incomplete."""


SocketAddress = tuple[str, int]
_OPENING: Final = threading.Lock()
_TRIES: Final = 10
_QUIET_S: Final = 1.0
"""Seconds between the shutdown of a group and its release."""
_LOOK: Final = timedelta(seconds=0.1)
"""How often a member that waits for others looks whether its group was cut."""


class WorkerGroup:
    """Workers that have connected to one another; `cards` give their addresses by rank."""

    def __init__(
        self,
        listener: MemberListener | None,
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
        self.process_group: Any = None
        self._works: list[Any] = []  # calls that have begun and are not waited for yet
        self._is_cut = False
        self._addresses: set[SocketAddress] = set()  # where gloo listens, here and in other members
        if self.size == 1:
            return
        assert listener is not None
        rendezvous = Rendezvous(listener, number, name, cards, connect_s)
        try:
            if device.type == "cuda":
                self._connect_nccl(rendezvous, cards[0]["host"], connect_s, step_s)
            else:
                self._connect_gloo(rendezvous, cards[self.rank]["host"], connect_s, step_s)
        except RuntimeError as error:
            raise JobError(first_line(error)) from None
        finally:
            rendezvous.close()

    def _connect_gloo(
        self, rendezvous: Rendezvous, host: str, connect_s: float, step_s: float
    ) -> None:
        """Form a group with gloo, whose port is open only while its members connect.

        gloo accepts any connection, and too many of them end the process.
        """
        options, file, own = gloo_options(host, connect_s)

        def share(keys: dict[str, str]) -> list[dict[str, str]]:
            found = rendezvous.share({"keys": keys, "address": own})
            self._addresses = {tuple(said["address"]) for said in found}
            unblock_port(file)
            rendezvous.share(None)  # all ports are open now
            return [said["keys"] for said in found]

        try:
            store = RendezvousStore(share)
            backend = dist.ProcessGroupGloo(store, self.rank, self.size, options)
        finally:
            block_port(file)  # its number is still the same: `options` keeps gloo's device
        self._close_foreign(rendezvous)
        backend._set_default_timeout(timedelta(seconds=step_s))
        self._register(store, backend, "gloo", torch.device("cpu"))

    def _close_foreign(self, rendezvous: Rendezvous) -> None:
        """Close gloo's connections that no other member has; nothing was sent on them yet."""
        with ExitStack() as stack:
            links = {
                (here, there): stack.enter_context(_dup(link))
                for link, here, there in self._links()
            }
            known = {(there, here) for own in rendezvous.share([*links]) for here, there in own}
            for ends, link in links.items():
                if ends not in known:
                    with suppress(OSError):
                        link.shutdown(socket.SHUT_RDWR)

    def _connect_nccl(
        self, rendezvous: Rendezvous, host: str, connect_s: float, step_s: float
    ) -> None:
        store = bound_store(host) if self.rank == 0 else None
        port = rendezvous.share(store.port if store else None)[0]
        limit = timedelta(seconds=connect_s)
        store = store or dist.TCPStore(host, port, wait_for_workers=False, timeout=limit)
        store.set_timeout(limit)
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=step_s)
        backend = dist.ProcessGroupNCCL(store, self.rank, self.size, options)
        self._register(store, backend, "nccl", torch.device("cuda"))

    def _register(self, store: Any, backend: Any, name: str, device: torch.device) -> None:
        self._store = store  # torch keeps no reference to a store written in Python
        self.process_group = group_of(store, self.rank, self.size, backend, name, device)

    def begin(self, work: Any) -> None:
        """Note a call to wait for."""
        self._works.append(work)

    def wait(self) -> None:
        """Wait for all calls that have begun, or until the group is cut.

        A call should fail when another member dies. But of a hundred calls of gloo that this hits,
        one waits for its time limit: it has received its part, and forgets to fail the sending.
        """
        while self._works:
            work = self._works[0]
            try:
                work.wait(_LOOK)
            except RuntimeError:
                if work.is_completed():
                    work.wait()  # raises if it has failed, and not if it was done after the look
                elif self._is_cut:
                    raise RuntimeError("gloo waits for a member that is gone") from None
                else:
                    continue
            self._works.pop(0)

    def cut(self) -> None:
        """Let every call that waits in this group fail at once, here and in other members.

        gloo cannot be interrupted, but its connections can be shut down. They are those with an
        end at an address where gloo listens, here or in another member.
        """
        self._is_cut = True
        if self.process_group is None:
            return
        with suppress(RuntimeError):
            self.process_group.abort()
        for link, *_ in self._links():
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)

    def _links(self) -> Iterator[tuple[socket.socket, SocketAddress, SocketAddress]]:
        """gloo's connections, each with its own and its remote address."""
        for other in _sockets():
            with suppress(OSError):
                other.getpeername()  # a socket that listens has no peer
                with _dup(other) as link:  # it may be closed at any time
                    here, there = link.getsockname()[:2], link.getpeername()[:2]
                    if {here, there} & self._addresses:
                        yield link, here, there

    def close(self, *, lost: bool = False) -> None:
        """Leave the group, in a thread, since it takes some milliseconds."""
        if lost:
            self.cut()
        group, self.process_group = self.process_group, None
        if group is not None:
            dispose(group, self._works)


def group_of(
    store: Any, rank: int, size: int, backend: Any, name: str, device: torch.device
) -> Any:
    """A torch process group with one backend, other than the default group."""
    kind = getattr(dist.ProcessGroup.BackendType, name.upper())
    group = dist.ProcessGroup(store, rank, size)
    group._set_default_backend(kind)
    group._register_backend(device, kind, backend)
    return group


def gloo_options(host: str, limit_s: float) -> tuple[Any, int, SocketAddress]:
    """Options for a gloo group, and the file number and the address of its listening socket.

    No process can connect there before `unblock_port`.
    """
    options = dist.ProcessGroupGloo._Options()
    options._timeout, options._threads = timedelta(seconds=limit_s), 2
    with _OPENING:
        for _ in range(_TRIES):
            before = set(_listening())
            options._devices = [dist.ProcessGroupGloo.create_device(hostname=host)]
            opened = [(file, at) for file, at in _listening().items() if file not in before]
            if len(opened) == 1:
                block_port(opened[0][0])
                return options, *opened[0]
    # The script opens sockets all the time, and gloo's cannot be told from them.
    raise JobError(f"gloo's listening socket was not found in {_TRIES} attempts.")


def bound_store(host: str) -> Any:
    """A torch store that listens at this address only, not at all addresses of the machine."""
    listener = socket.create_server((host, 0))
    port, number = listener.getsockname()[1], listener.detach()
    return dist.TCPStore(
        host, port, is_master=True, wait_for_workers=False, master_listen_fd=number
    )


def dispose(group: Any, works: Sequence[Any] = ()) -> None:
    """Close a group in a thread; the caller must drop its own reference, too.

    `works` are calls that may wait in it still.
    """
    # Not a daemon: torch aborts a process that ends while one of its groups is closing.
    threading.Thread(target=_dispose, args=([group], works)).start()


def _dispose(held: list[Any], works: Sequence[Any]) -> None:
    with suppress(RuntimeError):
        held[0].shutdown()
    # Dropping a group waits for its threads while it holds Python's lock, and these threads may
    # need the lock to drop their last tensors. The pause gives them time.
    sleep(_QUIET_S)
    if not all(work.is_completed() for work in works):
        # Dropping it would stop the process for as long as the call waits: let it live for ever.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(held[0]))
    held.clear()


def is_loss(error: BaseException) -> bool:
    """Whether an error says that other members do not answer, not that the script is wrong."""
    text = str(error).lower()
    return isinstance(error, dist.DistError) or "gloo" in text or "nccl" in text


def _sockets() -> Iterator[socket.socket]:
    """All TCP sockets of this process; each is valid until the next is asked for.

    They are not duplicated, since another thread that lists sockets would then see one too many.
    """
    for entry in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # not a socket, or closed meanwhile
            link = socket.socket(fileno=int(entry))
            try:
                if link.family in (socket.AF_INET, socket.AF_INET6):
                    yield link
            finally:
                link.detach()


def _dup(link: socket.socket) -> socket.socket:
    """A second handle; `socket.dup` would make gloo's sockets blocking."""
    return socket.socket(fileno=os.dup(link.fileno()))


def _listening() -> dict[int, SocketAddress]:
    """The addresses at which this process listens, by file number."""
    found = {}
    for link in _sockets():
        with suppress(OSError):
            if link.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                found[link.fileno()] = link.getsockname()[:2]
    return found


def first_line(error: BaseException) -> str:
    """The first line of an error, without the stack trace of a library."""
    return str(error).strip().splitlines()[0][:200]
