"""A group of workers that reduce gradients together: built beside the old one, cut at once.

A process group of torch that is not the default one, so that two can exist at a time. The code is
the same for gloo (CPU) and NCCL (CUDA).
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from datetime import timedelta
from time import sleep
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.distributed

from rota.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Iterator


dist: Any = torch.distributed
"""Its type stubs know only half of it."""


Address = tuple[str, int]
_QUIET_S: Final = 1.0
"""Between the end of a group's work and its end."""


class Meeting:
    """Where others find this member to form a group: a store that lives as long as it does."""

    def __init__(self, host: str) -> None:
        self.host = host
        self._store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False)
        self.port = self._store.port

    def store(self, host: str, port: int, limit_s: float) -> Any:
        """The store of whoever leads a group."""
        if (host, port) == (self.host, self.port):
            return self._store
        limit = timedelta(seconds=limit_s)
        return dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=limit)


class Circle:
    """Workers that have connected with one another."""

    def __init__(
        self,
        meeting: Meeting,
        leader: tuple[str, int],
        number: int,
        rank: int,
        size: int,
        *,
        device: torch.device,
        connect_s: float,
        step_s: float,
    ) -> None:
        self.number, self.rank, self.size = number, rank, size
        self.group: Any = None
        self._doors: set[Address] = set()  # where gloo listens, here and at the others
        if size == 1:
            return
        store = dist.PrefixStore(f"g{number}", meeting.store(*leader, connect_s))
        store.set_timeout(timedelta(seconds=connect_s))
        try:
            if device.type == "cuda":
                self._connect_nccl(store, step_s)
            else:
                self._connect_gloo(store, meeting.host, connect_s, step_s)
        except RuntimeError as error:
            raise JobError(first_line(error)) from None

    def _connect_gloo(self, store: Any, host: str, connect_s: float, step_s: float) -> None:
        before = set(_listening())
        options = dist.ProcessGroupGloo._Options()
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=host)]
        options._timeout, options._threads = timedelta(seconds=connect_s), 2
        opened = [f"{address[0]} {address[1]}" for address in set(_listening()) - before]
        backend = dist.ProcessGroupGloo(store, self.rank, self.size, options)
        backend._set_default_timeout(timedelta(seconds=step_s))
        # Should the script open a socket at the same moment, nobody's can be told apart.
        store.set(f"door{self.rank}", opened[0] if len(opened) == 1 else "")
        for rank in range(self.size):
            if known := store.get(f"door{rank}").decode():
                address, port = known.split()
                self._doors.add((address, int(port)))
        self._register(store, backend, "gloo", torch.device("cpu"))

    def _connect_nccl(self, store: Any, step_s: float) -> None:
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=step_s)
        backend = dist.ProcessGroupNCCL(store, self.rank, self.size, options)
        self._register(store, backend, "nccl", torch.device("cuda"))

    def _register(self, store: Any, backend: Any, name: str, device: torch.device) -> None:
        kind = getattr(dist.ProcessGroup.BackendType, name.upper())
        self.group = dist.ProcessGroup(store, self.rank, self.size)
        self.group._set_default_backend(kind)
        self.group._register_backend(device, kind, backend)

    def cut(self) -> None:
        """Let every call that waits in this group fail at once, here and at the others.

        gloo cannot be interrupted, but its connections can: they are those with an end at a
        place where it listens, here or at another member.
        """
        if self.group is None:
            return
        with suppress(RuntimeError):
            self.group.abort()
        for link in _sockets():
            with suppress(OSError):
                if {link.getsockname()[:2], link.getpeername()[:2]} & self._doors:
                    link.shutdown(socket.SHUT_RDWR)

    def close(self, *, lost: bool = False) -> None:
        """Leave the group: behind the caller's back, since it takes some milliseconds."""
        if lost:
            self.cut()
        group, self.group = self.group, None
        if group is not None:
            dispose(group)


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
    """All TCP sockets of this process, by handles of their own."""
    for entry in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{entry}").startswith("socket:"):
                with socket.socket(fileno=os.dup(int(entry))) as link:
                    if link.family in (socket.AF_INET, socket.AF_INET6):
                        yield link


def _listening() -> Iterator[Address]:
    """Where this process listens."""
    for link in _sockets():
        if link.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            yield link.getsockname()[:2]


def first_line(error: BaseException) -> str:
    """What an error says, without the trace of the library that raised it."""
    return str(error).strip().splitlines()[0][:200]
